"""Can an attention map be read, in the terminal and as a picture, whatever its characters?"""

import torch

from minilm.lab.maps import draw_map, terminal_map, visible_character


def test_a_map_in_the_terminal_has_a_row_and_a_column_for_each_character():
    lines = terminal_map(
        "a b\n", torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.1, 0.3, 0.6, 0], [0.01, 0.03, 0.06, 0.9]])
    )
    assert lines == ["      a_b?", "   a  @", " ' '  ##", "   b  +*#", "'\\n'   .:@"]


def test_every_character_can_be_seen_on_an_axis(tmp_path, recwarn):
    text = "a\n $\t\x00\N{GRINNING FACE}\N{COMBINING ACUTE ACCENT}é"
    names = [visible_character(character) for character in text]
    assert all(name.strip() and name.isprintable() for name in names)
    assert len(set(names)) == len(names)
    figure = draw_map(text, torch.eye(len(text)), "$x$ of it")
    figure.savefig(tmp_path / "map.png")
    assert not [w for w in recwarn if "Glyph" in str(w.message)]

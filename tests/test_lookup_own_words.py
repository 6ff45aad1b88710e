"""An own file of words for the worked example, and what one is told about a bad one."""

import pytest

from minilm.errors import UserError
from minilm.lab.example import exact
from minilm.lab.example_file import read_example
from minilm.lab.lookup import main


def written(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


THREE = """
[words]
"$x$" = [1, 0, 0.5]
"é" = [0, 2, 1]
[matrices]
query = [[1, 0, 0], [0, 1, 0]]
key = [[1, 0, 0], [0, 1, 0]]
value = [[1, 1, 1]]
"""


def test_an_own_file_of_another_shape(tmp_path, capsys):
    path = written(tmp_path, THREE)
    main([str(path), "--by-hand", "--plot", str(tmp_path / "own.png")])
    page = capsys.readouterr().out
    assert '"é" looks up: $x$ é' in page  # without `word`, the last one asks
    assert "sqrt(2)" in page
    assert "(1.500)" in page
    steps, _ = exact(read_example(path))
    assert steps.scores == [0.0, 4.0]


def test_large_scores_are_shown_honestly(tmp_path, capsys):
    path = written(tmp_path, THREE.replace("[1, 0, 0.5]", "[1000, 0, 0]"))
    main([str(path), "--word", "$x$"])
    page = capsys.readouterr().out
    assert "inf" in page
    assert "attention() subtracts the largest score first" in page
    assert "1.000" in page
    main([str(path), "--word", "$x$", "--by-hand"])
    with pytest.raises(UserError, match="too large for arithmetic by hand"):
        main([str(written(tmp_path, THREE.replace("[1, 0, 0.5]", "[3000, 0, 0]"))), "--word", "$x$", "--by-hand"])
    with pytest.raises(UserError, match="too large"):
        main([str(written(tmp_path, THREE.replace("[1, 0, 0.5]", "[1e200, 0, 0]")))])


# What one is told.


def problems_with(tmp_path, text):
    with pytest.raises(UserError) as caught:
        read_example(written(tmp_path, text))
    lines = str(caught.value).splitlines()
    assert all(line.startswith(str(tmp_path / "mine.toml")) for line in lines)
    return "\n".join(lines)


def test_every_problem_of_a_file_is_told_at_once(tmp_path):
    told = problems_with(
        tmp_path,
        """
        word = "bnak"
        dimension = ["water"]
        [words]
        the = [0.1, 0.1]
        river = [1.0]
        bank = [0.5, "much"]
        flooded = [nan, true]
        [matrices]
        query = [[1, 2], [3]]
        key = [[1, 2, 3]]
        valeu = [[1, 0], [0, 1]]
        """,
    )
    for part in (
        "word = 'bnak': not one of the words; did you mean 'bank'?",
        "dimension: no such setting; did you mean 'dimensions'?",
        "words.river has 1 numbers where words.the has 2",
        "words.bank holds 'much', which is not a finite number",
        "words.flooded holds nan",
        "words.flooded holds True",
        "matrices.query row 2 has 1 numbers where matrices.query row 1 has 2",
        "matrices.key has rows of 3 numbers, the words have 2",
        "matrices.query and matrices.key have 2 and 1 rows",
        "matrices.valeu: no such setting; did you mean 'value'?",
        "matrices.value is missing",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("[words]", "[wrods]"), "[words] is missing or empty"),
        (("[matrices]", "[other]"), "[matrices] is missing or empty"),
        (("value = [[1, 1, 1]]", ""), "matrices.value is missing: must be a list of rows"),
        (("value = [[1, 1, 1]]", "value = 3"), "matrices.value = 3: must be a list of rows"),
        (("[0, 2, 1]", "[]"), "words.é = []: must be a list of numbers"),
        (("[0, 2, 1]", "7"), "words.é = 7: must be a list of numbers"),
        (("[words]", 'dimensions = ["a", "b"]\n[words]'), "dimensions has 2 names for the 1 rows of matrices.value"),
        (("[words]", "dimensions = 4\n[words]"), "dimensions = 4: must be a list of names"),
        (("[words]", "printed = 4\n[words]"), "printed = 4: must be a table"),
        (("[words]", "[printed.plain]\nscores = [1]\n[words]"), "printed.plain.scores has 1 numbers, wanted 2"),
        (
            ("[words]", "[printed.plian]\nscores = [1]\n[words]"),
            "printed.plian: no such setting; did you mean 'plain'?",
        ),
        (("[words]", "[printed.plain]\nscore = [1]\n[words]"), "did you mean 'scores'?"),
        (("[words]", "[words"), "not TOML"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path, change, told):
    assert told in problems_with(tmp_path, THREE.replace(*change))


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--word", "rivre"], "--word: 'rivre' is not among the words"),
        (["--words", "the,bnak,bank"], "--words: 'bnak': no such word; did you mean 'bank'?"),
        (["--words", "the,river"], "'bank' is not among the words; --word can be the, river"),
        (["--words", ""], "--words: '': no such word"),
        (["nowhere.toml"], "nowhere.toml: there is no such file"),
        (["--plot", "weights.gif"], "weights.gif: a picture's name ends in .svg, .png, .pdf"),
        (["--plot", "no/such/folder/weights.svg"], "there is no folder"),
    ],
)
def test_what_is_wrong_with_the_options(argv, told):
    with pytest.raises(UserError) as caught:
        main(argv)
    assert told in str(caught.value)


def test_an_unknown_flag_is_refused(refusal):
    assert refusal(main, ["--wrod", "the"]) == "--wrod: no such flag; did you mean --word?"


def test_a_word_that_is_none_is_not_offered_to_ask(refusal):
    message = refusal(main, ["--words", "cat,river"])
    assert "'cat': no such word" in message
    assert "--word can be river" in message
    assert "is not among the words" not in refusal(main, ["--words", "cat,dog"])

"""Is everything that is wrong with a language's file told, with the file and the place?"""

import pytest
from test_riverbank import TOML, written

from minilm.riverbank import Riverbank

WRONG = """
wrods = 1
filler = "a<b"
[words]
name = ["ann", "art"]
thing = []
mixed = ["x", 1]
text = "abc"
gap = ["x"]
brace = ["{name1}"]
[[template]]
facet = 5
weight = 0
texts = ["{nmae1} is <x>", "no answer", "> <x", "{Name1} <x>", "two\\nlines <x>", "empty <>"]
[[template]]
weight = true
texts = "abc"
color = "red"
[[template]]
facet = "x"
weight = 1000001
texts = []
"""


def test_everything_that_is_wrong_with_a_language_is_told_at_once(tmp_path, refusal):
    file = written(tmp_path, WRONG)
    line = "wanted a line with answers marked as <...> and words named as {name1}"
    words = "wanted a list of words in quotes, without < > { } and line breaks"
    assert refusal(Riverbank.load, file).split("\n") == [
        f"{file}: {problem}"
        for problem in [
            "wrods: no such key",
            "filler: wanted a text in quotes, without < > { } and line breaks",
            "words.name: two words start with the same letter",
            f"words.thing: {words}",
            f"words.mixed: {words}",
            f"words.text: {words}",
            "words.gap: this is how the filler is called",
            f"words.brace: {words}",
            "template 1: facet: wanted a name in quotes, not 5",
            "template 1: weight: wanted 1 to 1,000,000, not 0",
            "template 1: '{nmae1} is <x>': no list of words is called nmae",
            f"template 1: 'no answer': {line}",
            f"template 1: '> <x': {line}",
            f"template 1: '{{Name1}} <x>': {line}",
            f"template 1: 'two\\nlines <x>': {line}",
            f"template 1: 'empty <>': {line}",
            "template 2: color: no such key",
            "template 2: facet: wanted a name in quotes",
            "template 2: weight: wanted a whole number, not True",
            "template 2: texts: wanted a list of texts, not 'abc'",
            "template 3: weight: wanted 1 to 1,000,000, not 1000001",
            "template 3: texts: wanted one or more, each a text in quotes",
        ]
    ]


TEMPLATE = '[[template]]\nfacet = "x"\nweight = 1\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ["has no [[template]]"]),
        ("template = 5", ["has no [[template]]"]),
        ("template = [1]", ["has no [[template]]"]),
        (f"words = 5\n{TEMPLATE}texts = ['<x>']", ["words: wanted a table of lists"]),
        (
            f"{TEMPLATE}texts = ['{{a1}}<{{a2}}>', '<y>', 'y<y>', '<y>y']\n[words]\na = ['x']",
            ["template 1: '{a1}<{a2}>': a list has fewer words than this wants of it", "'yy' can be made in 2 ways"],
        ),
        (f"{TEMPLATE}texts = ['<y>']\n{TEMPLATE}texts = ['<y>']", ["'y' can be made in 2 ways"]),
        ("[[template]", ["not TOML: "]),
    ],
)
def test_language_that_makes_no_sense_is_refused(tmp_path, refusal, text, says):
    file = written(tmp_path, text)
    lines = refusal(Riverbank.load, file).split("\n")
    assert len(lines) == len(says)
    assert all(line.startswith(f"{file}: {part}") for line, part in zip(lines, says, strict=True))


def test_language_that_cannot_be_read_is_refused(tmp_path, refusal):
    assert refusal(Riverbank.load, tmp_path / "none") == f"{tmp_path / 'none'}: there is no such file"
    (tmp_path / "bad").write_bytes(b"\xff")
    assert refusal(Riverbank.load, tmp_path / "bad").startswith(f"{tmp_path / 'bad'}: byte 0 is not UTF-8")


def test_gap_without_filler_is_refused(tmp_path, refusal):
    file = written(tmp_path, TOML.replace('filler = " and on"', ""))
    assert refusal(Riverbank.load, file, gap=3) == f"{file}: filler: there is none to fill the gap that was asked for"
    assert Riverbank.load(file).sentences

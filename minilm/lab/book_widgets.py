"""What on the page can be moved by hand?

Each part is laid out here as it is before anyone touches it, with figures from our own functions,
so that the page stands without its script; book.js moves them.
"""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup

from minilm.lab.book_code import MissingError
from minilm.lab.book_sources import Sources
from minilm.lab.claims_lookup import article
from minilm.lab.example import MATRICES, exact
from minilm.lab.one_page import template
from minilm.lab.report_reading import CONTROL, side

CHOICES = 16  # keys of the softmax that can be stretched
WIDTHS = tuple(2**n for n in range(10))
FIRST_WIDTH = 6  # of WIDTHS, shown at the start


def widget(name: str, sources: Sources) -> Markup:
    """One of them, as HTML."""
    widgets = {"words": words, "softmax": softmax, "reading": lambda: readings(sources)}
    if name not in widgets:
        raise MissingError(f"{name}: there is no such thing to move")
    return Markup(widgets[name]())


def words() -> str:
    """The four words on a plane, and what the one that asks gives to each."""
    example = article()
    steps, _ = exact(example)
    vectors = [[float(x) for x in vector] for vector in example.vectors]
    data = {
        "words": example.words,
        "vectors": vectors,
        "place": example.place,
        **{name: [[float(x) for x in row] for row in getattr(example, name)] for name in MATRICES},
    }
    rows = [
        {"word": word, "vector": vector, "weight": weight}
        for word, vector, weight in zip(example.words, vectors, steps.weights, strict=True)
    ]
    return template("play.html.j2").words(json.dumps(data), example, rows, steps.mixture)


def softmax() -> str:
    """Sixteen scores of unit variance, stretched by the root of a key width, and divided by it again or not."""
    from minilm.lab.finding import normal

    draws = normal("book/scores", CHOICES)
    draws = (draws - draws.mean()) / draws.std(correction=0)  # exactly unit variance, as the caption says
    width = WIDTHS[FIRST_WIDTH]
    sides = [softmax_side(draws), softmax_side(draws * width**0.5)]
    data = json.dumps({"draws": draws.tolist(), "widths": WIDTHS})
    return template("play.html.j2").softmax(data, FIRST_WIDTH, len(WIDTHS) - 1, width, sides)


def softmax_side(scores: Any) -> dict[str, Any]:
    """Bars, the largest weight, and what comes through of a slope, against a flat row."""
    import torch

    from minilm.lab.heads import passes

    weights = scores.softmax(-1)
    passed = passes(weights[None, None, None], torch.tensor([len(scores)])).item()
    return {"weights": weights.tolist(), "largest": weights.max().item(), "passed": passed}


def readings(sources: Sources) -> str:
    """What each head of the model reads, in a sentence of each kind."""
    from minilm.lab.maps import texts_to_show, visible_character
    from minilm.lab.probes import show

    trained = sources.trained
    model, corpus = trained.run.model, trained.corpus
    reading = template("reading.html.j2").reading
    html = Markup("")
    for name, (sentence, _) in texts_to_show(corpus, model.context).items():
        # The first answer: a later one can be had from the one before.
        place = int((trained.language.score(sentence.strip("\n") + "\n").facets >= 0).nonzero()[0][0])
        text = show(model, corpus, name, sentence, place)
        characters = [c if c == " " else visible_character(c) for c in text["text"]]
        sides = [side(text, characters, CONTROL)]
        told = {"name": text["name"], "characters": characters, "place": text["place"], "sides": sides}
        html += reading(told, [], ["control"])
    return html

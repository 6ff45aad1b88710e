"""How does one get from four words to a trained model and its ablations, in one sitting?

`python -m minilm book` makes one page to read, from the prose in lab/chapters/ and from the source
itself: the code it shows is taken from the modules by name, and every number, table and figure is
made while the page is built. What is not there any more by the name the prose has for it ends the
build, so nothing on the page can go stale.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from minilm.errors import UserError
from minilm.options import File, Folder, read_options

TITLE = "Attention is a lookup you can learn"


@dataclass(frozen=True)
class Options:
    """The book: one page to read, with every number on it made anew.

    Example: python -m minilm book --out book.html --run runs/base --ablation runs/ablation
    """

    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("book.html")
    """page to write"""
    run: Folder = None
    """run to look into, which `python train.py` made; without it a small model is trained for the page"""
    ablation: Folder = None
    """sweep to tell of, which `python -m minilm ablate` made; without it its chapter has no verdicts"""
    distance: File = None
    """what `python -m minilm distance --keep FILE` kept; without it its chapter has no accuracies"""


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options = read_options(Options, "book", argv)
    if options.out.is_dir() or not options.out.parent.is_dir():
        raise UserError(f"{options.out}: wanted the name of a file in a folder that is there")
    from minilm.lab import one_page

    began = time.perf_counter()
    text = build(options)
    one_page.write(options.out, text)
    seconds, size = time.perf_counter() - began, len(text.encode()) / 1e6
    print(f"{options.out}: {size:.1f} MB, built in {seconds:.0f} s")
    return 0


def build(options: Options) -> str:
    """The page."""
    from minilm.lab import one_page
    from minilm.lab.book_prose import read_chapters
    from minilm.lab.book_sources import gather
    from minilm.lab.book_values import REFERENCES

    with gather(options.run, options.ablation, options.distance) as sources:
        chapters = read_chapters(sources)
        return one_page.render(
            "book.html.j2",
            styles=["page.css", "book.css"],
            scripts=["reading.js", "book.js"],
            title=TITLE,
            chapters=chapters,
            references=REFERENCES,
        )

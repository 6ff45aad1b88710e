"""What does a trained model write, from a prompt, on the command line?"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minilm.errors import UserError
from minilm.options import Decimal, File, Flag, Number, RunFolder, Text, read_options


@dataclass(frozen=True)
class Options:
    """Write with a trained model.

    $ python -m minilm sample runs/base --prompt "the river" --length 300 --temperature 0.8
    """

    run: RunFolder
    """folder of a run, or of one of its checkpoints"""
    prompt: Text = None
    """text to go on from; without one it starts a new line"""
    prompt_file: File = None
    """read the prompt from this file (UTF-8)"""
    length: int = 200
    """how many characters to write, or bytes or tokens where the model was trained on these"""
    temperature: float = 0.8
    """0 always takes the likeliest character; 1 draws as the model believes; above 1 is wilder"""
    top_k: Number = None
    """draw from the k likeliest characters only"""
    top_p: Decimal = None
    """draw from the likeliest characters that together hold this probability, above 0 and up to 1"""
    seed: int = 0
    """another seed, another text"""
    which: Literal["best", "last"] = "best"
    """the checkpoint with the lowest validation loss, or the last one"""
    out: File = None
    """write the text to this file too (UTF-8)"""
    device: str = "cpu"
    """cpu, cuda, mps or auto"""
    no_cache: Flag = False
    """compute all of the past anew for each character: the same text, slower"""


def main(argv: list[str] | None = None) -> int:
    options = read_options(Options, "sample", argv)
    prompt = read_prompt(options)
    from minilm.device import choose_device
    from minilm.generation import check_sampling, generate, window_start
    from minilm.runs import load_run
    from minilm.streams import generator

    problems = check_sampling(options.temperature, options.top_k, options.top_p, options.length)
    if problems:
        raise UserError("\n".join(problems))
    device = choose_device(options.device)
    run = load_run(options.run, options.which)
    model, vocabulary = run.model.to(device), run.vocabulary
    tokens = vocabulary.encode(prompt or vocabulary.start, what="prompt")[None]
    unseen = window_start(tokens.shape[1], model.context)
    if unseen:
        print(
            f"note: the model sees {model.context} {vocabulary.noun}s at most, so not the prompt's first {unseen}",
            file=sys.stderr,
        )
    draws = generate(
        model,
        tokens,
        options.length,
        generator=generator(options.seed, "sampling"),
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        cached=not options.no_cache,
    )
    pieces = [prompt]
    print(prompt, end="", flush=True)
    try:
        for piece in vocabulary.stream(int(draw) for draw in draws):
            pieces.append(piece)
            print(piece, end="", flush=True)
    except FloatingPointError as error:
        raise UserError(f"{options.run}: cannot write: {error}") from None
    print()
    if options.out:
        save(options.out, "".join(pieces))
    return 0


def read_prompt(options: Options) -> str:
    """The prompt from the flag or from the file."""
    if options.prompt_file is None:
        # Where the locale is not UTF-8, Python passes the bytes of é on as two surrogates.
        return os.fsencode(options.prompt or "").decode("utf-8", "surrogateescape")
    if options.prompt:
        raise UserError("--prompt and --prompt-file: give one of them")
    try:
        return options.prompt_file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{options.prompt_file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{options.prompt_file}: byte {error.start} is not UTF-8; save it as UTF-8") from None


def save(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None

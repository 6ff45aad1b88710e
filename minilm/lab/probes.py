"""What goes on inside a trained model?

Every question of the lab, asked of one checkpoint: what its heads read, whether the softmax
still lets a gradient through, whether the future leaks, whether the weights say what decides,
how far back order matters, what the stream keeps with depth.

All of it on the same characters of the validation part each time, without dropout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from minilm.checkpoint import STATE, read_state
from minilm.corpus import Corpus, number_text, read_text
from minilm.errors import UserError
from minilm.evaluation import Floor, Windows, make_windows, share_in_language, summarise, token_losses
from minilm.lab.depth import ranks
from minilm.lab.effect import choose_answers, effect
from minilm.lab.heads import Heads, heads
from minilm.lab.leak import PLACES, future_leak, honest_losses
from minilm.lab.maps import attention_maps, place_of, texts_to_show
from minilm.lab.options import speakable
from minilm.lab.order import distances, order_sensitivity
from minilm.lab.writing import write
from minilm.model import LanguageModel
from minilm.runs import build_model, load_run

CHARACTERS = 8192  # of the validation part
PAIRS = 32 * 64 * 64  # pairs of positions, per head, that are looked at
PREFIXES = 32 * 64 * 64 // 2  # characters of all prefixes together that are scored for the honest loss
ANSWERS = 16  # whose past is hidden position by position
SAMPLE = 320  # characters
JUDGED = 1600  # characters whose sentences are looked up in the language


def probe(
    model: LanguageModel, fresh: LanguageModel, corpus: Corpus, *, seed: int, text: str | None = None
) -> dict[str, Any]:
    """All figures, as JSON can hold them: single ones first, then lists. None is a figure that is not defined.

    Args:
        fresh: the same model as it was at step 0.
        seed: of the shuffles and of the text that the model writes.
        text: whose attention maps are made; sentences of the corpus unless given.

    Raises:
        FloatingPointError: the model's scores are no numbers.
    """
    windows = make_windows(corpus, context=model.context, max_characters=CHARACTERS)
    few = windows.inputs[: max(1, PAIRS // model.context**2)]
    single: dict[str, Any] = {}
    now, start = heads(model, few), heads(fresh, few)
    for name in Heads._fields:
        single |= {f"{name}_start": mean(getattr(start, name)), name: mean(getattr(now, name))}
    rank, apart = ranks(model, few)
    rank_start, apart_start = ranks(fresh, few)
    single |= {"rank_start": rank_start[-1], "rank": rank[-1]}
    single |= losses(model, windows)
    leak = future_leak(model, windows.inputs[0])
    single |= {"leaks": leak.leaks, "leak": leak.largest}
    order = order_sensitivity(model, windows.inputs, windows.targets, seed)
    single |= {"order": order[0] if order else None}
    asked = windows.floor.facets >= 0 if windows.floor else None
    effects = [effect(model, *answer) for answer in choose_answers(windows.inputs, windows.targets, asked, ANSWERS)]
    single |= {"effect": mean([e.rank_correlation for e in effects]), "effect_top": mean([e.agree for e in effects])}
    judged = corpus.language is not None
    single |= {"in_language": share_in_language(model, corpus, seed=seed, n_characters=JUDGED) if judged else None}
    texts = texts_to_show(corpus, model.context) if text is None else {"text": (text, place_of(text))}
    lists = {
        "heads_start": start._asdict(),
        "heads": now._asdict(),
        "ranks_start": rank_start,
        "ranks": rank,
        "apart_start": apart_start,
        "apart": apart,
        "order_distances": distances(model.context),
        "orders": order,
        "effects": [e.rank_correlation for e in effects],
        "texts": [show(model, corpus, name, *shown) for name, shown in texts.items()],
        "sample": [line._asdict() for line in write(model, corpus, seed=seed, length=SAMPLE)],
    }
    return speakable({**single, **lists})


def losses(model: LanguageModel, windows: Windows) -> dict[str, Any]:
    """Loss and excess as they are trained, and from prefixes only, on the same characters; and excess per facet."""
    teacher = token_losses(model, windows.inputs, windows.targets)
    result = {"facets": summarise(teacher, windows.floor).get("facets")}
    length = windows.inputs.shape[1]
    n = max(1, PREFIXES * 2 // (length * min(length, PLACES)))  # a prefix is half a window long, on average
    places, honest = honest_losses(model, windows.inputs[:n], windows.targets[:n])
    floor = windows.floor and Floor(windows.floor.nats[:n, places], windows.floor.facets[:n, places], ())
    for name, part in (("", teacher[:n, places]), ("honest_", honest)):
        summary = summarise(part, floor)
        result |= {f"{name}loss": summary["loss"], f"{name}excess": summary.get("excess")}
    return {**result, "honest_windows": len(honest)}


def show(model: LanguageModel, corpus: Corpus, name: str, text: str, place: int) -> dict[str, Any]:
    """One text with who reads whom in it, and what hiding each character does to what comes after `place`."""
    tokens = corpus.vocabulary.encode(text, what="text")[: model.context]
    pieces: str | list[str] = text
    if corpus.vocabulary.unit != "char":
        pieces = corpus.vocabulary.names(tokens)
        place = place_of(pieces)
    shown = {"name": name, "text": pieces, "place": place, "maps": rounded(attention_maps(model, tokens))}
    if place < 2 or place + 1 == len(pieces):  # nothing to choose from, or nothing that comes after
        return shown
    hidden = effect(model, tokens[: place + 1], int(tokens[place + 1]))
    return {**shown, "weights": rounded(torch.tensor(hidden.weights)), "changes": rounded(torch.tensor(hidden.changes))}


def rounded(x: Tensor) -> Any:
    """Four decimals are all that a picture shows."""
    return (x.double() * 10_000).round().div(10_000).tolist()


def mean(values: Any) -> float:
    """Of all numbers in nested lists; those that are not defined are left out."""
    return torch.tensor(values, dtype=torch.float64).nanmean().item()


def probe_run(
    folder: str | Path, which: str = "last", *, corpus: Corpus | None = None, text: str | None = None
) -> dict[str, Any]:
    """`probe` on a run's checkpoint, with its step; the corpus is made anew from the run's settings unless given.

    Raises:
        UserError: the run or its text cannot be had any more, or its scores are no numbers.
    """
    folder = Path(folder)
    run = load_run(folder, which)
    if run.config.model.architecture != "transformer":
        raise UserError(f"{folder}: cannot be probed: a recurrent model has no attention to look into")
    if run.model.context < 2:
        raise UserError(f"{folder}: cannot be probed: with a context of 1 no position has a choice of what to read")
    seed = run.config.training.seed
    # A run trained on another text would be measured against this one's floor, or on what it has learned by heart.
    checkpoint = next(path for path in (folder, folder / which, folder / "last") if (path / STATE).exists())
    known = read_state(checkpoint).get("corpus_sha256")
    if corpus is None:
        whole = read_text(run.config.corpus, seed=seed)
        refuse_other_text(folder, whole.name, whole.sha256 == known)
        corpus = number_text(whole, run.config.corpus, context=run.config.model.context, vocabulary=run.vocabulary)
    same = (corpus.vocabulary, corpus.sha256) == (run.vocabulary, known)
    refuse_other_text(folder, corpus.description, same)
    length = None if text is None else len(run.vocabulary.encode(text, what="text"))
    if length is not None and not 0 < length <= run.model.context:
        raise UserError(
            f"--text: has {length} {run.vocabulary.noun}s, wanted 1 to {run.model.context}, the model's context"
        )
    fresh = build_model(run.config, len(run.vocabulary))
    try:
        return {"step": run.step, **probe(run.model, fresh, corpus, seed=seed, text=text)}
    except FloatingPointError as error:
        raise UserError(f"{folder}: cannot be probed: {error}") from None


def refuse_other_text(folder: Path, name: str, same: bool) -> None:
    if not same:
        raise UserError(f"{folder}: the text ({name}) is not the one that the run was trained on")

"""Over what distance can a fact be carried, and over what distance can it be looked up?

`python -m minilm distance` trains small models on sentences that state two facts, wander off for
a while, and ask for them (data/distance.toml). What grows is the gap. The rivals get as many
weights, the same sentences and the same steps; a model has learned to recall if it gives the
answers in sentences drawn anew.

A window is a whole sentence, since a window cut out anywhere asks for facts that it does not hold.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import tyro
from tqdm import tqdm

from minilm.config import Config, ModelConfig, TrainingConfig
from minilm.errors import UserError
from minilm.lab.drawing import COLOURS, check_picture, line, new_figure, save, tidy
from minilm.lab.options import File, Flag, Number, print_json, read_options
from minilm.paths import packaged

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor, nn

    from minilm.model import LanguageModel
    from minilm.riverbank import Riverbank

GAPS: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512)
QUICK_GAPS: tuple[int, ...] = (8, 128)
SEEDS, QUICK_SEEDS = 3, 1
BATCH, HELD_OUT = 8, 400  # sentences
SHAPE: dict[str, Any] = {"n_layers": 2, "width": 48}
# A table of learned places would be weights that a recurrence has no use for: so places are fixed here.
ATTENTION: dict[str, Any] = {"n_heads": 4, "position": "sinusoidal"}
RIVALS: dict[str, dict[str, Any]] = {
    "attention": ATTENTION,
    "additive": {**ATTENTION, "score": "additive"},
    "recurrence": {"architecture": "recurrent"},
}
Rival = Literal["attention", "additive", "recurrence"]


@dataclass(frozen=True)
class Options:
    """Recall against the distance to what is recalled: attention, and a recurrence with as many weights.

    Example: python -m minilm distance --quick --plot distance.svg
    """

    gaps: Annotated[tuple[int, ...], tyro.conf.arg(metavar="N [N ...]", help_behavior_hint="")] = ()
    """characters between facts and questions (8 16 32 64 128 256 512)"""
    rivals: Annotated[tuple[Rival, ...], tyro.conf.arg(metavar="NAME [NAME ...]")] = ("attention", "recurrence")
    """who takes part: attention, additive (which takes long beyond a gap of 64), recurrence"""
    seeds: Number = None
    """runs of each, from seed 0 up (3)"""
    quick: Flag = False
    """gaps 8 and 128 and one seed, where these are not given: a minute or two"""
    steps: int = 500
    """training steps, of 8 sentences each"""
    jobs: Number = None
    """runs at a time, each on one thread (as many as there are cores)"""
    json: Flag = False
    """print numbers for programs instead of text for people"""
    plot: File = None
    """draw accuracy against the gap into this .svg, .png or .pdf"""


class Outcome(NamedTuple):
    """What became of one run."""

    rival: str
    gap: int
    seed: int
    accuracy: float  # share of the answers in new sentences that are the likeliest character
    slope: float  # before training: see slope_through
    parameters: int
    seconds: float


class Sentences(NamedTuple):
    """Some sentences, a row each: L characters, their newline included."""

    inputs: Tensor  # (n, L): the newline before, and all but the last
    targets: Tensor  # (n, L)
    answers: Tensor  # (n, L), True where the target is the first character of an answer


def main(argv: list[str] | None = None) -> int:
    """The command."""
    options = read_options(Options, "distance", argv)
    check_picture(options.plot)
    usual_gaps, usual_seeds = (QUICK_GAPS, QUICK_SEEDS) if options.quick else (GAPS, SEEDS)
    gaps = tuple(sorted(set(options.gaps or usual_gaps)))
    seeds = usual_seeds if options.seeds is None else options.seeds
    jobs = (os.cpu_count() or 1) if options.jobs is None else options.jobs
    check(options, gaps, seeds, jobs)
    outcomes = compare(tuple(dict.fromkeys(options.rivals)), gaps, seeds, options.steps, jobs)
    if options.json:
        print_json([outcome._asdict() for outcome in outcomes])
    else:
        print("\n".join(page(outcomes, options.steps)))
    if options.plot:
        save(draw(outcomes), options.plot)
    return 0


def check(options: Options, gaps: tuple[int, ...], seeds: int, jobs: int) -> None:
    """A UserError with all that is wrong with the numbers given."""
    numbers = {"--seeds": seeds, "--steps": options.steps, "--jobs": jobs}
    numbers |= {f"--gaps {gap}": gap for gap in gaps}
    problems = [f"{name}: {value} is not at least 1" for name, value in numbers.items() if value < 1]
    problems += [] if options.rivals else ["--rivals: name at least one"]
    if problems:
        raise UserError("\n".join(problems))


def compare(rivals: tuple[str, ...], gaps: tuple[int, ...], seeds: int, steps: int, jobs: int) -> list[Outcome]:
    """One run for each rival, gap and seed, `jobs` at a time, the longest first; in the order of the gaps."""
    from joblib import Parallel, delayed, parallel_config

    cells = [(rival, gap, seed) for gap in sorted(gaps, reverse=True) for seed in range(seeds) for rival in rivals]
    with parallel_config("loky", n_jobs=min(jobs, len(cells)), inner_max_num_threads=1):
        calls = Parallel(return_as="generator_unordered", batch_size=1)(delayed(run)(*cell, steps) for cell in cells)
        outcomes = list(tqdm(calls, total=len(cells), desc="training", unit="run", leave=False, disable=None))
    return sorted(outcomes, key=lambda outcome: (outcome.gap, rivals.index(outcome.rival), outcome.seed))


def run(rival: str, gap: int, seed: int, steps: int) -> Outcome:
    """Train one model at one gap, and ask it."""
    import torch

    from minilm.runs import build_model

    torch.set_num_threads(1)
    began = time.perf_counter()
    language = language_with(gap)
    text = sentences(language, steps * BATCH, seed)
    training = TrainingConfig(steps=steps, batch_size=BATCH, warmup=min(20, steps), seed=seed)
    shape = ModelConfig(context=text.inputs.shape[1], **SHAPE, **RIVALS[rival])
    model = build_model(Config(model=shape, training=training), len(characters(language)))
    slope = slope_through(model, text, gap)
    train(model, text, training)
    found = accuracy(model, sentences(language, HELD_OUT, seed, drawn="held out"))
    parameters = sum(p.numel() for p in model.parameters())
    return Outcome(rival, gap, seed, found, slope, parameters, time.perf_counter() - began)


def language_with(gap: int) -> Riverbank:
    """The language of this experiment, with `gap` characters of filler."""
    from minilm.riverbank import Riverbank

    return Riverbank.load(packaged("data/distance.toml"), gap=gap)


def characters(language: Riverbank) -> str:
    """All characters of the language, sorted."""
    return "".join(sorted({"\n", *"".join(language.sentences)}))


def sentences(language: Riverbank, count: int, seed: int, drawn: str = "training") -> Sentences:
    """`count` sentences drawn at random; all of this language are equally long."""
    import torch

    from minilm.corpus import Vocabulary
    from minilm.streams import stream_seed

    length = len(language.sentences[0]) + 1
    text = language.generate(count * length, stream_seed(seed, f"distance/{drawn}"))
    tokens = Vocabulary(characters(language)).encode("\n" + text)
    answers = torch.from_numpy(language.score(text).facets >= 0)
    return Sentences(*(row.view(count, length) for row in (tokens[:-1], tokens[1:], answers)))


def train(model: nn.Module, text: Sentences, training: TrainingConfig) -> None:
    """One step for each batch of sentences, with the optimizers and the loss of every other training."""
    from torch.nn.utils import clip_grad_norm_

    from minilm.model import loss
    from minilm.optim import learning_rate_factor, make_optimizers, set_learning_rate

    optimizers = make_optimizers(model, training)
    batches = zip(text.inputs.split(training.batch_size), text.targets.split(training.batch_size), strict=True)
    for step, (inputs, targets) in enumerate(batches):
        set_learning_rate(optimizers, learning_rate_factor(step, training))
        loss(model(inputs), targets).backward()
        clip_grad_norm_(model.parameters(), training.clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def accuracy(model: nn.Module, text: Sentences) -> float:
    """The share of the answers whose first character the model finds likeliest."""
    import torch

    with torch.no_grad():
        guesses = torch.cat([model(rows).argmax(dim=-1) for rows in text.inputs.split(BATCH)])  # (n, L)
    return (guesses == text.targets)[text.answers].double().mean().item()


def slope_through(model: LanguageModel, text: Sentences, gap: int) -> float:
    """What an untrained model can learn from: the slope of the first answer's loss at the facts before the gap,
    over its slope at the question after the gap. The largest of some sentences' facts, in float64.
    """
    import copy

    import torch
    from torch.nn import functional as F

    model = copy.deepcopy(model).double()
    seen: list[Tensor] = []
    model.embedding.register_forward_hook(lambda _, __, output: seen.append(output))
    rows = slice(0, BATCH)
    first = int(text.answers[0].nonzero()[0])
    logits = model(text.inputs[rows])  # (B, L, V)
    (slopes,) = torch.autograd.grad(F.cross_entropy(logits[:, first], text.targets[rows, first]), seen)  # (B, L, D)
    sizes = slopes.norm(dim=-1).mean(dim=0)  # (L,)
    facts = first - gap - 1  # the question before the answer is a space and a name
    return (sizes[:facts].max() / sizes[first]).item()


def chance(gap: int) -> float:
    """The accuracy of one who knows the language, and has forgotten all that was said before the questions."""
    language = language_with(gap)
    answers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for sentence in language.sentences:
        places = (language.score(sentence).facets >= 0).nonzero()[0]
        for place in places:
            answers[sentence[places[0] - 1 : place]][sentence[place]] += 1
    return sum(max(found.values()) for found in answers.values()) / sum(map(Counter.total, answers.values()))


def page(outcomes: list[Outcome], steps: int) -> list[str]:
    """All that the command prints."""
    seeds = len({outcome.seed for outcome in outcomes})
    # The last of each is that of the largest gap, which has all characters of the filler.
    sizes = {outcome.rival: f"{outcome.rival} {outcome.parameters:,}" for outcome in outcomes}
    lines = [
        f"Two facts, a gap, two questions; {steps} steps of {BATCH} sentences; seeds: {seeds}",
        f"Parameters: {', '.join(sizes.values())}",
        f"Accuracy of the answers: mean (lowest to highest seed); {chance(1):.3f} without the facts",
        "",
        f"{'gap':>6}" + "".join(f"{rival:>24}" for rival in sizes),
    ]
    gaps = sorted({outcome.gap for outcome in outcomes})
    for gap in gaps:
        cells = [accuracies(outcomes, rival, gap) for rival in sizes]
        lines.append(f"{gap:6}" + "".join(f"{fmean(a):7.3f} ({min(a):.3f} to {max(a):.3f})" for a in cells))
    lines += [
        "",
        "Slope that comes through the gap before training, over that at the question (float32 ends near 1e-45):",
    ]
    for gap in gaps:
        cells = [[o.slope for o in outcomes if (o.rival, o.gap) == (rival, gap)] for rival in sizes]
        lines.append(f"{gap:6}" + "".join(f"{fmean(cell):24.1e}" for cell in cells))
    return lines


def accuracies(outcomes: list[Outcome], rival: str, gap: int) -> list[float]:
    """Of every seed."""
    return [outcome.accuracy for outcome in outcomes if (outcome.rival, outcome.gap) == (rival, gap)]


def draw(outcomes: list[Outcome]) -> Figure:
    """Accuracy against the gap: the mean as a line, every seed as a point."""
    figure = new_figure()
    axes = figure.add_subplot()
    gaps = sorted({outcome.gap for outcome in outcomes})
    for number, rival in enumerate(dict.fromkeys(outcome.rival for outcome in outcomes)):
        line(axes, gaps, [fmean(accuracies(outcomes, rival, gap)) for gap in gaps], number, rival)
        mine = [outcome for outcome in outcomes if outcome.rival == rival]
        axes.scatter([o.gap for o in mine], [o.accuracy for o in mine], s=14, color=COLOURS[number], alpha=0.4)
    axes.axhline(chance(1), color="0.5", linewidth=1, linestyle=":")
    axes.text(gaps[0], chance(1), "without the facts", va="bottom", color="0.4", fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_xticks(gaps, [str(gap) for gap in gaps])
    axes.set_ylim(0, 1.05)
    tidy(axes, "Recall against distance", "characters between fact and question", "share of answers that are right")
    axes.legend(frameon=False)
    return figure

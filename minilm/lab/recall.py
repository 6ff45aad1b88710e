"""Does a model recall what a sentence said before a gap?

Two facts, a gap of filler, two questions (data/distance.toml). A rival is trained on such
sentences and asked in sentences drawn anew. A window is a whole sentence, since a window cut out
anywhere asks for facts that it does not hold. See distance.py for the command.
"""

from __future__ import annotations

import copy
import time
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from minilm.config import Config, ModelConfig, TrainingConfig
from minilm.model import LanguageModel, loss
from minilm.optim import learning_rate_factor, make_optimizers, set_learning_rate
from minilm.paths import packaged
from minilm.riverbank import Riverbank
from minilm.runs import build_model
from minilm.streams import stream_seed
from minilm.vocabulary import Vocabulary

BATCH, HELD_OUT = 8, 400  # sentences
SHAPE: dict[str, Any] = {"n_layers": 2, "width": 48}
# A table of learned places would be weights that a recurrence has no use for: so places are fixed here.
ATTENTION: dict[str, Any] = {"n_heads": 4, "position": "sinusoidal"}
RIVALS: dict[str, dict[str, Any]] = {
    "attention": ATTENTION,
    "additive": {**ATTENTION, "score": "additive"},
    "recurrence": {"architecture": "recurrent"},
}


class Outcome(NamedTuple):
    """What became of one run."""

    rival: str
    gap: int
    seed: int
    steps: int
    accuracy: float  # share of the answers in new sentences that are the likeliest character
    slope: float  # before training: see slope_through
    parameters: int
    seconds: float


class Sentences(NamedTuple):
    """Some sentences, a row each: L characters, their newline included."""

    inputs: Tensor  # (n, L): the newline before, and all but the last
    targets: Tensor  # (n, L)
    answers: Tensor  # (n, L), True where the target is the first character of an answer


def run(rival: str, gap: int, seed: int, steps: int) -> Outcome:
    """Train one model at one gap, and ask it."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    language = language_with(gap)
    text = sentences(language, steps * BATCH, seed)
    training = TrainingConfig(steps=steps, batch_size=BATCH, warmup=min(20, steps), seed=seed)
    model = rival_model(rival, language, training)
    slope = slope_through(model, text, gap)
    train(model, text, training)
    found = accuracy(model, sentences(language, HELD_OUT, seed, drawn="held out"))
    parameters = sum(p.numel() for p in model.parameters())
    return Outcome(rival, gap, seed, steps, found, slope, parameters, time.perf_counter() - began)


def rival_model(rival: str, language: Riverbank, training: TrainingConfig) -> LanguageModel:
    """An untrained model whose context is a sentence of `language`."""
    shape = ModelConfig(context=len(language.sentences[0]) + 1, **SHAPE, **RIVALS[rival])
    return build_model(Config(model=shape, training=training), len(characters(language)))


def language_with(gap: int) -> Riverbank:
    """The language of this experiment, with `gap` characters of filler."""
    return Riverbank.load(packaged("data/distance.toml"), gap=gap)


def characters(language: Riverbank) -> str:
    """All characters of the language, sorted."""
    return "".join(sorted({"\n", *"".join(language.sentences)}))


def sentences(language: Riverbank, count: int, seed: int, drawn: str = "training") -> Sentences:
    """`count` sentences drawn at random; all of this language are equally long."""
    length = len(language.sentences[0]) + 1
    text = language.generate(count * length, stream_seed(seed, f"distance/{drawn}"))
    tokens = Vocabulary(characters(language)).encode("\n" + text)
    answers = torch.from_numpy(language.score(text).facets >= 0)
    return Sentences(*(row.view(count, length) for row in (tokens[:-1], tokens[1:], answers)))


def train(model: nn.Module, text: Sentences, training: TrainingConfig) -> None:
    """One step for each batch of sentences, with the optimizers and the loss of every other training."""
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
    with torch.no_grad():
        guesses = torch.cat([model(rows).argmax(dim=-1) for rows in text.inputs.split(BATCH)])  # (n, L)
    return (guesses == text.targets)[text.answers].double().mean().item()


def slope_through(model: LanguageModel, text: Sentences, gap: int) -> float:
    """What an untrained model can learn from: the slope of the first answer's loss at the facts before the gap,
    over its slope at the question after the gap. The largest of some sentences' facts, in float64.
    """
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

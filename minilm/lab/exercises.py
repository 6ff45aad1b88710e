"""What can a reader of the book work out alone, and what is the answer?

One exercise for each chapter. The answers come from the functions that the chapter is about.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from minilm.errors import UserError


@dataclass(frozen=True)
class Exercise:
    """A question with one answer: a number, or a word."""

    question: str
    answer: Callable[[], float | str]
    hint: str  # for whoever is wrong: the way, not the answer
    why: str  # for whoever is right
    tolerance: float = 0.0  # as a share of the answer


def exercises() -> dict[int, Exercise]:
    """By chapter."""
    config, step = base(), 3 * base().training.steps // 4
    return {
        1: Exercise(
            "A word asks the four of the chapter with the query (0, 1), that is for money only. "
            'Which weight does it give to "bank"? Three decimals.',
            weight_of_bank_for_money,
            "A score is now the second component of a key. Divide by 1.414, take exponentials, divide by their sum.",
            'Even for this query "bank" gets less than a third: scores that are close give weights that are close.',
            tolerance=0.004,
        ),
        2: Exercise(
            "Queries and keys have 256 independent components of variance 1. By what must their dot product be "
            "divided to have variance 1?",
            root_of_key_width,
            "Variances add: 256 products of variance 1 have a sum of variance 256. A standard deviation is its root.",
            "And so the softmax gets the same spread of scores at any key width.",
            tolerance=0.001,
        ),
        3: Exercise(
            '"bank" asks without a mask, but is itself hidden, so that it reads only the other three. '
            'Which weight does "river" get? Three decimals.',
            river_without_bank,
            'The others share what "bank" had in proportion: divide the weight of "river" by 1 minus that of "bank".',
            "The proportions of the others stay: softmax divides by whatever sum is left.",
            tolerance=0.004,
        ),
        4: Exercise(
            "Eight heads read a text of 100 positions without a mask. How many weights do they hold in one layer?",
            weights_of_eight_heads,
            "Each head has a row of weights for each position that asks, with a weight for each that is read.",
            "One head of the same total width would hold an eighth of it, at the same number of parameters.",
        ),
        5: Exercise(
            "A model with a causal mask, one layer and no position reads four different characters. The last stays "
            "last. How many of the orders of the other three give the last position the same answer as a b c d does, "
            "that one counted in?",
            orders_that_look_alike,
            "What one masked layer without position reads of the past is a set. How many orders have three things?",
            "All of them: one layer takes its past as a set.",
        ),
        6: Exercise(
            "What sets positions apart is 0.01 of their norm, and each layer of attention alone, without mask and "
            "residual, turns r into about r to the power that the chapter measures. After two layers it is 10 to the "
            "minus what? A whole number.",
            exponent_after_two_layers,
            "Take the power twice: powers of powers multiply, so 0.01 to the third, and that to the third again.",
            "Doubly exponential: a third layer would take it below anything that float64 can tell apart.",
            tolerance=0.01,
        ),
        7: Exercise(
            "How many parameters has one block of width 64, with its biases and both norms?",
            parameters_of_a_block,
            "Four matrices of D x D and two of D x 4D, a bias for each output, and 2 D for each of two norms.",
            "Biases and norms are little of it: the rest is 12 D^2.",
        ),
        8: Exercise(
            "A loss of x nats is that of a fair choice between e^x characters. Between how many, on average, does a "
            "perfect model of Riverbank choose? Two decimals.",
            choices_at_the_floor,
            "Take the floor of the chapter as x.",
            "Hardly more than one: most characters follow from those before.",
            tolerance=0.01,
        ),
        9: Exercise(
            f"Which learning rate does AdamW use in step {step} (counted from 0) of configs/base.toml? "
            f"The peak is {config.training.learning_rate:g}, the warm-up {config.training.warmup} of "
            f"{config.training.steps} steps, decay {config.training.decay:g}, "
            f"final_fraction {config.training.final_fraction:g}, schedule {config.training.schedule}.",
            lambda: learning_rate_at(step),
            "Follow learning_rate_factor in the chapter: where does the fall start, and what share of it is done?",
            "A pure function of the step: so a run that is resumed needs to know the step and nothing else.",
            tolerance=0.01,
        ),
        10: Exercise(
            "Which arm is expected to lose less than the floor, which no honest model can? "
            "no_scale, no_mask, no_position or no_mlp?",
            arm_under_the_floor,
            "Who reads the very character that is asked for?",
            "It is no feat: asked to write, with no future to read, that model is lost.",
        ),
        11: Exercise(
            "Two layers of width 96 have read 1,000 characters: attention keeps keys and values, the recurrence of the "
            "chapter a state of 2/3 of the width. How many times as many numbers does attention keep?",
            numbers_kept_against_a_state,
            "Per layer: a key and a value of 96 numbers for each character, against one state of 64 numbers.",
            "That is the price of not having to choose what to remember. It grows with the text, the state does not.",
        ),
        12: Exercise(
            "How many dot products does a causal model need for 10,000 positions, per head, layer and pass?",
            dot_products_needed,
            "Position t reads t positions, so the sum of 1 to 10,000.",
            "About half of the square, which only a kernel that skips hidden tiles saves.",
        ),
        13: Exercise(
            "GPT-2 small has 12 blocks of width 768. How many weights lie in their matrices?",
            weights_of_gpt2_small,
            "12 D^2 for each block.",
            "The rest of its 124 million are embeddings of 50,257 tokens and 1,024 places, biases and norms.",
            tolerance=0.01,
        ),
    }


def exercise(chapter: int) -> Exercise:
    """That of one chapter, or a UserError."""
    found = exercises()
    if chapter not in found:
        raise UserError(f"{chapter}: there is no such chapter; they are 1 to {max(found)}")
    return found[chapter]


def base():
    from minilm.paths import packaged
    from minilm.settings import load_config

    return load_config(packaged("configs/base.toml"))


def four_words(query: list[float] | None = None, hidden: str | None = None) -> dict[str, float]:
    """The weights that a query (of "bank" if none is given) gives to the words of chapter 1, one of them hidden."""
    import torch

    from minilm.attention import attention
    from minilm.lab.claims_lookup import article
    from minilm.lab.example import exact

    example = article()
    steps, _ = exact(example)
    rows = [torch.tensor(x, dtype=torch.float64) for x in ([query or steps.query], steps.keys, steps.values)]
    mask = torch.tensor([word != hidden for word in example.words])
    _, weights = attention(*rows, scale=1 / math.sqrt(len(example.key)), mask=mask)
    return dict(zip(example.words, weights[0].tolist(), strict=True))


def weight_of_bank_for_money() -> float:
    return four_words(query=[0.0, 1.0])["bank"]


def river_without_bank() -> float:
    return four_words(hidden="bank")["river"]


def root_of_key_width() -> float:
    from minilm.attention import MultiHeadAttention

    return 1 / MultiHeadAttention(256, 1).scale


def weights_of_eight_heads() -> float:
    import torch

    from minilm.attention import MultiHeadAttention

    return MultiHeadAttention(64, 8, causal=False).lookup(torch.zeros(1, 100, 64)).weights.numel()


def orders_that_look_alike() -> float:
    import torch

    from minilm.model import LanguageModel

    model = LanguageModel(4, width=16, context=4, n_layers=1, n_heads=2, position="none").double().eval()
    texts = torch.tensor([[*past, 3] for past in itertools.permutations(range(3))])
    answers = model(texts)[:, -1]  # (6, V)
    return sum(torch.allclose(answer, answers[0], rtol=0, atol=1e-12) for answer in answers)


def exponent_after_two_layers() -> float:
    from minilm.lab.collapse import power

    return -(power(causal=False) ** 2) * math.log10(0.01)


def parameters_of_a_block() -> float:
    from minilm.model import Block

    return sum(p.numel() for p in Block(64, n_heads=2).parameters())


def choices_at_the_floor() -> float:
    from minilm.riverbank import Riverbank

    return math.exp(Riverbank.load().entropy)


def learning_rate_at(step: int) -> float:
    from minilm.optim import learning_rate_factor

    training = base().training
    return training.learning_rate * learning_rate_factor(step, training)


def arm_under_the_floor() -> str:
    from minilm.lab.arms import default_files, read_arms

    (name,) = {
        arm.name
        for arm in read_arms(default_files(), {})
        for claim in arm.claims
        if (claim.figure, claim.compare) == ("excess", "alone") and claim.below is not None and claim.below <= 0
    }
    return name


def numbers_kept_against_a_state() -> float:
    import torch

    from minilm.generation import KeyValueCache
    from minilm.lab.rivals import Recurrence

    width, length = 96, 1000
    kept = KeyValueCache(length).append(*2 * [torch.zeros(1, 2, length, width // 2)])
    return sum(part.numel() for part in kept) / Recurrence(width).gru.hidden_size


def dot_products_needed() -> float:
    from minilm.lab.cost import dot_products

    return dot_products(10_000, causal=True)


def weights_of_gpt2_small() -> float:
    from minilm.lab.cost import Shape, parts

    shape = Shape(context=1024, layers=12, heads=12, width=768, vocabulary=50_257)
    return sum(part.weights for part in parts(shape) if part.name.startswith(("attention", "feed-forward")))

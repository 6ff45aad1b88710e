"""What does the article say of its four words, and is it so?

The checks that need nothing but the worked example (data/lookup.toml).
"""

from __future__ import annotations

import math

import torch

from minilm.attention import attention, dot_product, visible
from minilm.lab.example import STEPS, Example, by_hand, exact
from minilm.lab.example_file import read_example
from minilm.lab.finding import Finding, normal
from minilm.lab.lookup_page import show
from minilm.paths import packaged


def article() -> Example:
    return read_example(packaged("data/lookup.toml"))


def the_word_that_decides_stands_two_to_the_left() -> Finding:
    words = article().words
    distance = words.index("bank") - words.index("river")
    return Finding(
        'What settles the meaning of "bank" is the word two positions to its left.',
        {"positions from river to bank": distance},
        as_stated=distance == 2,
        core=False,
        precisely='"river" is the word right before "bank".',
    )


def nothing_is_exact_and_nothing_is_missed() -> Finding:
    weights = exact(article())[1].weights
    # The smallest float32 is near exp(-103), so a score that is further behind than this is lost.
    scores = torch.tensor([[0.0, 80.0], [0.0, 110.0]])
    far, farther = scores.softmax(dim=-1)[:, 0].tolist()
    return Finding(
        "No key is retrieved exactly and none is missed entirely.",
        {
            "smallest weight of the table": weights.min().item(),
            "largest weight of the table": weights.max().item(),
            "float32 weight of a score 80 behind": far,
            "float32 weight of a score 110 behind": farther,
        },
        as_stated=farther > 0,
        core=weights.min().item() > 0 and weights.max().item() < 1 and far > 0,
        precisely="So it is in exact arithmetic. In float32 a score about 104 behind the best gets exactly nothing.",
    )


def the_digits_printed_follow_from_each_other() -> Finding:
    example = article()
    steps, pencil = exact(example)[0], by_hand(example)
    steps_masked, pencil_masked = exact(example, masked=True)[0], by_hand(example, masked=True)
    pairs = [
        (show(precise), show(printed))
        for exactly, hand in ((steps, pencil), (steps_masked, pencil_masked))
        for step in STEPS
        for precise, printed in zip(getattr(exactly, step), getattr(hand, step), strict=True)
    ]
    slips = [
        f"{step} {show(getattr(hand, step)[i])} instead of {show(digits)}"
        for hand in (pencil, pencil_masked)
        for (step, i), digits in hand.slips.items()
    ]
    furthest = max(abs(float(a) - float(b)) for a, b in pairs)
    return Finding(
        "The digits printed along the way follow from each other.",
        {
            "results printed": len(pairs),
            "differ from exact arithmetic": sum(a != b for a, b in pairs),
            "by at most": round(furthest, 3),
            "do not follow from the digits before": len(slips),
        },
        as_stated=not slips,
        core=furthest < 0.0025,
        precisely=f"Rounding at each step explains the digits that differ, except for: {', '.join(slips)}.",
    )


def weights_sum_to_one() -> Finding:
    off = {torch.float32: 0.0, torch.float64: 0.0}
    for n in range(1, 40):
        for dtype in off:
            query, key = (normal(f"sums/{name}/{n}", n, 8).to(dtype) for name in ("query", "key"))
            mask = visible(n, n, causal=True, padding=None, device=query.device)
            sums = attention(query, key, key, scale=1.0, mask=mask)[1].sum(dim=-1)
            off[dtype] = max(off[dtype], (sums - 1).abs().max().item())
    return Finding(
        "The weights of a row sum to one.",
        {"furthest from 1 in float64": off[torch.float64], "furthest from 1 in float32": off[torch.float32]},
        as_stated=off[torch.float64] < 1e-12 and off[torch.float32] < 1e-5,
        core=True,
        precisely="To rounding. A row that may read nothing sums to zero, and dropout acts after the sum is made.",
    )


def eight_times_the_scores_is_a_collapse() -> Finding:
    """The steepest that a weight w can be, as a function of its own score, is w (1 - w), at most 1/4."""
    example = article()
    plain = exact(example)[0].weights
    large, table = exact(example, scaled=False, factor=8.0)
    steep, steep_plain = (max(w * (1 - w) for w in weights) for weights in (large.weights, plain))
    growth = math.sqrt(64 / len(example.key))
    return Finding(
        "With scores eight times as large, as if the key width were 64, the weights collapse onto one key and the "
        "gradient all but vanishes.",
        {
            "largest weight": max(large.weights),
            "second largest": sorted(large.weights)[-2],
            "flatness": table.flatness[example.place],
            "steepest slope of a weight": steep,
            "and with the scale": steep_plain,
        },
        as_stated=max(large.weights) > 0.99 and steep < 0.1 * steep_plain,
        core=False,
        precisely="The weights are sharper, but two keys share them, and the slope is nearly as steep as before. "
        f"(From width 2 to 64, unit-variance scores grow {growth:.1f}-fold, not eightfold.) Saturation is real, but "
        "takes larger scores: see the claim on the softmax and the key width.",
    )


def the_takes_all_alike_and_bank_does_not() -> Finding:
    example = article()
    flat = dict(zip(example.words, exact(example)[1].flatness, strict=True))
    return Finding(
        'The row of "the" is nearly flat, the row of "bank" is not.',
        {f"flatness of {word}": value for word, value in flat.items()},
        as_stated=flat["the"] > 0.95 > 0.9 > flat["bank"],
        core=flat["the"] == max(flat.values()),
        precisely=f'A matter of degree: no row is below {min(flat.values()):.3f}, and "bank" is number '
        f"{sorted(flat.values(), reverse=True).index(flat['bank']) + 1} in flatness among {len(flat)}.",
    )


def every_row_is_largest_on_river() -> Finding:
    example = article()
    river = example.words.index("river")
    rows = exact(example)[1].weights.argmax(dim=-1)
    keys = torch.tensor(exact(example)[0].keys, dtype=torch.float64)
    against = (dot_product(torch.tensor([[-1.0, 0.0]], dtype=torch.float64), keys) / math.sqrt(2)).softmax(dim=-1)[0]
    return Finding(
        'Every row is largest on "river", since its key is the longest and scores well against any query.',
        {
            "rows that are largest on river": int((rows == river).sum()),
            "weight of river for the query (-1, 0)": against[river].item(),
            "even share": 1 / len(keys),
        },
        as_stated=bool((rows == river).all()) and against[river].item() > 1 / len(keys),
        core=bool((rows == river).all()),
        precisely="Well against the queries of these words, which all point the way of its key. To a query that points "
        "the other way the longest key is the worst answer.",
    )


def bank_leaves_on_the_water_side() -> Finding:
    example = article()
    mixtures = dict(zip(example.words, exact(example)[1].mixtures, strict=True))
    share = {word: water / (water + money) for word, (water, money) in mixtures.items()}
    return Finding(
        '"bank" came in balanced and leaves decisively on the water side.',
        {f"water's share of {word}": value for word, value in share.items()},
        as_stated=share["bank"] > 0.75,
        core=share["bank"] > 0.5,
        precisely='So does every word here, even "the", which asks for nothing: the long key of "river" does it.',
    )


def hiding_a_word_lifts_all_others() -> Finding:
    example = article()
    whole, rest = exact(example)[0].weights, exact(example, masked=True)[0].weights
    rises = [after / before for before, after in zip(whole, rest, strict=False)]
    return Finding(
        "Removing a position hands its weight to all that remain: every other weight rises.",
        {
            "smallest rise, as a factor": min(rises),
            "largest rise, as a factor": max(rises),
            "1 / (1 - weight removed)": 1 / (1 - whole[-1]),
        },
        as_stated=min(rises) > 1,
        core=True,
        precisely="All rise by the same factor, so their proportions stay as they were.",
    )


def masking_padding_lifts_the_real_tokens() -> Finding:
    query, key, value = (normal(f"padding/{name}", 3, 1, 6, 4) for name in ("query", "key", "value"))
    real = torch.arange(6) < torch.tensor([4, 6, 2])[:, None]  # (B, S)
    mask = visible(6, 6, causal=False, padding=real, device=query.device)
    padded = attention(query, key, value, scale=0.5, mask=mask)[1]
    unmasked = attention(query, key, value, scale=0.5, mask=torch.ones_like(mask))[1]
    alone = attention(query[:1, :, :4], key[:1, :, :4], value[:1, :, :4], scale=0.5, mask=torch.ones(4, 4).bool())[1]
    rises = (padded / unmasked)[(real & ~real.all(dim=-1, keepdim=True))[:, None, None, :].expand_as(padded)]
    return Finding(
        "Masking the padding of a batch gives the real tokens more attention than they had.",
        {
            "smallest rise, as a factor": rises.min().item(),
            "difference to the sentence without padding": (padded[:1, :, :4, :4] - alone).abs().max().item(),
        },
        as_stated=rises.min().item() > 1,
        core=(padded[:1, :, :4, :4] - alone).abs().max().item() < 1e-12,
        precisely="More than with the padding readable, and just what they get in a sentence that has no padding.",
    )


def hiding_flooded_leaves_less_water() -> Finding:
    example = article()
    before, after = exact(example)[0].mixture, exact(example, masked=True)[0].mixture
    return Finding(
        'Without "flooded" the answer has slightly less water, and is still on the water side.',
        {"water before": before[0], "water after": after[0], "money before": before[1], "money after": after[1]},
        as_stated=after[1] < after[0] < before[0],
        core=True,
        precisely='The money barely changes: "flooded" is mostly water.',
    )

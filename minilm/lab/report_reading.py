"""What do base and arm read in the same sentence, and what do they write?

Everything is laid out here, so that the page shows it without a script; the script only moves
the place that asks.
"""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import numpy as np

from minilm.lab.maps import visible_character
from minilm.lab.report_data import Evidence, Sweep

MOST_HEADS = 16  # of which each gets a row; of more, each layer's mean does
ARM, CONTROL = "#e8782e", "#3f9fe0"  # can be seen on light and on dark


def shared(sweep: Sweep, arm: str, control: str, what: str) -> tuple[Evidence, Evidence] | None:
    """The runs of arm and control with the lowest seed for which both have been probed for `what`."""
    ours, theirs = ({run.seed: run for run in sweep.of(name) if run.probes.get(what)} for name in (arm, control))
    seed = min(ours.keys() & theirs.keys(), default=None)
    return None if seed is None else (ours[seed], theirs[seed])


def readings(sweep: Sweep) -> list[dict[str, Any]]:
    """For each arm, the texts that it and its control were both shown, with what each of them reads."""
    found = []
    for arm, control in sweep.pairs:
        pair = shared(sweep, arm, control, "texts")
        if pair is None:
            continue
        ours, theirs = ({text["name"]: text for text in run.probes["texts"]} for run in pair)
        texts = [
            reading(theirs[name], ours[name])
            for name in theirs
            if name in ours and ours[name]["text"] == theirs[name]["text"]
        ]
        found.append({"arm": arm, "control": control, "seed": pair[0].seed, "texts": texts})
    return found


def reading(control: dict[str, Any], arm: dict[str, Any]) -> dict[str, Any]:
    """One text: its characters, the place that asks, and for both models a row of shades for each head."""
    characters = [c if c == " " else visible_character(c) for c in control["text"]]
    sides = [side(control, characters, CONTROL), side(arm, characters, ARM)]
    return {"name": control["name"], "characters": characters, "place": control["place"], "sides": sides}


def side(shown: dict[str, Any], characters: list[str], colour: str) -> dict[str, Any]:
    """One model's rows of shades for the place that asks, and all weights packed for the script.

    `weights` is base64 of one byte for each weight, in 255ths, ordered by row, place that asks,
    place that is read.
    """
    names, rows = rows_of(np.array(shown["maps"], dtype=float))
    place = shown["place"]
    asked = [
        {"name": name, "shades": shades(row[place]), "map": picture(row, colour)}
        for name, row in zip(names, rows, strict=True)
    ]
    packed = np.round(255 * rows).astype(np.uint8)
    return {
        "rows": asked,
        "readout": readout(packed[0, place] / 255, characters),
        "hidden": hidden(shown, characters),
        "weights": base64.b64encode(packed.tobytes()).decode(),
    }


def readout(weights: np.ndarray, characters: list[str]) -> str:
    """The three most read places in words; the script says the same of other places."""
    most = np.argsort(-weights, kind="stable")[:3]
    return ", ".join(f"{quoted(characters[i])} at {i}: {100 * weights[i]:.0f} %" for i in most)


def quoted(character: str) -> str:
    return f"\N{LEFT DOUBLE QUOTATION MARK}{character}\N{RIGHT DOUBLE QUOTATION MARK}"


def picture(weights: np.ndarray, colour: str) -> str:
    """A map of (T, T) as a data URI, one dot for each weight: nothing where there is none, solid where it is all."""
    from matplotlib.colors import to_rgb
    from matplotlib.image import imsave

    dots = np.empty((*weights.shape, 4))
    dots[..., :3] = to_rgb(colour)
    dots[..., 3] = np.sqrt(weights)
    file = BytesIO()
    imsave(file, dots, format="png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def rows_of(maps: np.ndarray) -> tuple[list[str], np.ndarray]:
    """What is drawn of (L, H, T, T) weights: their mean, then each head (2.1 is layer 2, head 1), or each layer."""
    n_layers, n_heads = maps.shape[:2]
    if n_layers * n_heads > MOST_HEADS:
        names = [str(i + 1) for i in range(n_layers)]
        single = maps.mean(axis=1)
    else:
        names = [f"{i + 1}.{j + 1}" for i in range(n_layers) for j in range(n_heads)]
        single = maps.reshape(-1, *maps.shape[2:])
    return ["all", *names], np.concatenate([maps.mean(axis=(0, 1))[None], single])


def hidden(shown: dict[str, Any], characters: list[str]) -> dict[str, Any] | None:
    """What hiding each character does to the answer, in shades of the largest change, and that one in words."""
    if "changes" not in shown:
        return None
    changes = np.array(shown["changes"], dtype=float)
    sizes = np.zeros(len(characters))
    sizes[: len(changes)] = abs(changes)
    worst = int(sizes.argmax())
    answer = characters[shown["place"] + 1]
    words = f"{quoted(characters[worst])} at {worst}: without it {quoted(answer)} loses {changes[worst]:.2f} nats"
    return {"shades": shades(sizes / max(sizes[worst], 1e-9)), "words": words}


def shades(shares: np.ndarray) -> list[int]:
    """Roots in per cent, so that small shares can be seen."""
    return np.round(100 * np.sqrt(shares)).astype(int).tolist()


def samples(sweep: Sweep) -> list[dict[str, Any]]:
    """For each arm, what it and its control wrote with the same draws, line by line."""
    found = []
    for arm, control in sweep.pairs:
        pair = shared(sweep, arm, control, "sample")
        if pair is None:
            continue
        ours, theirs = pair
        sides = [
            {"arm": run.arm, "lines": [printable(line) for line in run.probes["sample"]]} for run in (theirs, ours)
        ]
        found.append({"arm": arm, "control": control, "seed": ours.seed, "sides": sides})
    return found


def printable(line: dict[str, Any]) -> dict[str, Any]:
    """A line with what cannot be seen written out, since a page has no place for control characters."""
    text = "".join(c if c.isprintable() else visible_character(c) for c in line["text"])
    return {"text": text, "right": line["right"]}

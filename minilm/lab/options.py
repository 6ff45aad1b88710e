"""How do the lab's commands hand their numbers to other programs?"""

from __future__ import annotations

import json
import math
from typing import Any


def print_json(data: Any) -> None:
    """One line of JSON."""
    print(json.dumps(speakable(data), allow_nan=False))


def speakable(value: Any) -> Any:
    """As it is but for what is not a number (0/0, or an overflow): None, as JSON has no word for it."""
    if isinstance(value, dict):
        return {key: speakable(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [speakable(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

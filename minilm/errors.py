"""What a person gets to read when something they gave is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable


class UserError(Exception):
    """Bad input. The message says what is wrong, where, and what to do about it."""


def run_main(main: Callable[[], int | None]) -> None:
    """Call a command's `main`, turning a UserError into its message and exit code 2."""
    try:
        sys.exit(main())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)

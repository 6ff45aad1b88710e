"""What a person gets to read when something they gave is wrong."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable


class UserError(Exception):
    """Bad input. The message says what is wrong, where, and what to do about it."""


def run_main(main: Callable[[], int]) -> None:
    """Call a command's `main` and exit: with its code, or 2 and the message of a UserError."""
    try:
        for stream in (sys.stdout, sys.stderr):
            # A character that the console cannot show must not end a run.
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        code = main()
        sys.stdout.flush()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        code = 130
    except RuntimeError as error:
        # Python 3.11 wraps a Ctrl-C that comes while a class is being made, as when torch is imported.
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        code = 130
    except BrokenPipeError:
        # Whoever read our output has left, as `head` does. Keep Python from flushing into the void.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except OSError as error:
        # A path that the system does not take (too long, not allowed) can come up anywhere.
        print(f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error}", file=sys.stderr)
        code = 2
    if code > 128:
        # Stopped by a signal, by whose number the exit code tells it; one more must not cut the end short.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    sys.exit(code)

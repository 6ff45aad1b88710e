"""Where are the files that come with the package?"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def packaged(name: str) -> Path:
    """The file or folder `name` ("configs/base.toml"): beside the package in a source tree, else inside it."""
    beside = PACKAGE.parent / name
    # Any folder may hold a `configs`; only a source tree has our pyproject.toml next to it.
    return beside if (PACKAGE.parent / "pyproject.toml").is_file() and beside.exists() else PACKAGE / name

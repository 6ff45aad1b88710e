"""Where are the files that come with the package, and how is a file put in place of another?"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all: a kill or a full disk leaves the one that was there.

    Raises OSError where the disk does not take it.
    """
    aside = path.with_name(f".{path.name}.new")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def shipped(name: str) -> Path | None:
    """The settings file that comes with us under the name `name` ("configs/base.toml"), if there is one."""
    file = packaged(name)
    return file if Path(name).parent == Path("configs") and file.is_file() else None


def packaged(name: str) -> Path:
    """The file or folder `name` ("configs/base.toml"): beside the package in a source tree, else inside it."""
    beside = PACKAGE.parent / name
    # Any folder may hold a `configs`; only a source tree has our pyproject.toml next to it.
    return beside if (PACKAGE.parent / "pyproject.toml").is_file() and beside.exists() else PACKAGE / name

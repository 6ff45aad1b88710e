"""How is a page put together that needs nothing but itself?

Style and scripts are in it, it asks for nothing over the network, and it runs no script but ours,
whatever gets into its text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minilm.errors import UserError

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, *, styles: Sequence[str], scripts: Sequence[str], **parts: Any) -> str:
    """The page that `template` makes of its parts; `styles` and `scripts` name files beside it."""
    from markupsafe import Markup

    style, script = (
        Markup("\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in names))
        for names in (styles, scripts)
    )
    return (
        environment()
        .get_template(template)
        .render(
            style=style,
            script=script,
            # The page allows this very script and nothing else to run.
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            **parts,
        )
    )


def environment() -> Environment:
    """Where templates are found; names, texts and notes come from files, so all are escaped but for what is Markup."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def template(name: str) -> Any:
    """The macros of a template, to be called from outside of one."""
    return environment().get_template(name).module


def write(path: Path, text: str) -> None:
    """Whole or not at all."""
    aside = path.with_name(f".{path.name}.new")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None

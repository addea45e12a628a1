"""Templates of the pages, with their style and scripts inline."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any


def render(template: str, **values: Any) -> str:
    """Render a template of this folder as one self-contained page.

    The page's policy allows its own scripts, by hash, and no request. values: variables of the template.
    """
    import jinja2
    from markupsafe import Markup

    here = files("tsfmscope.report.page")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: here.joinpath(name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    scripts = [here.joinpath(name).read_text("utf-8") for name in ("page.js", "tip.js")]
    return environment.get_template(template).render(
        **values,
        style=Markup(here.joinpath("page.css").read_text("utf-8")),
        scripts=[Markup(text) for text in scripts],
        hashes=" ".join(map(hash_script, scripts)),
    )


def hash_script(script: str) -> str:
    """Return the source of a content security policy that allows a script element with this text."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"

"""Templates of the pages, with their style and scripts inline."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any


def render(template: str, **values: Any) -> str:
    """Render a template of this folder as one self-contained page.

    The page's policy allows its own scripts, by hash, and no request. Plotly is left out if the page has no
    figures. values: variables of the template; `sections` are all sections of the page.
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
    scripts = [_inline(here.joinpath("page.js").read_text("utf-8"))]
    if any(section.figures for section in values["sections"]):
        from plotly.offline import get_plotlyjs

        scripts.insert(0, _inline(get_plotlyjs()))
    return environment.get_template(template).render(
        **values,
        style=Markup(here.joinpath("page.css").read_text("utf-8")),
        scripts=[Markup(text) for text in scripts],
        hashes=" ".join(_hash(text) for text in scripts),
    )


def _inline(script: str) -> str:
    """Return a script as the text of a script element, with any closing tag in it escaped."""
    if "</script" in script.lower():
        script = script.replace("</script", "<\\/script")
    return "\n" + script.strip("\n") + "\n"


def _hash(script: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"

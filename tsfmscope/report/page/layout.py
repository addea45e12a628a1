"""Templates of the pages, with their style and scripts inline, and the texts that they share."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

# Name, title, and where it was published.
PAPERS = (
    (
        "Shelim et al. 2025",
        "When can isotropy help adapt LLMs' next word prediction to numerical domains?",
        "arXiv:2505.17135",
    ),
    (
        "Yu et al. 2026",
        "Understanding Transformers for Time Series: Rank Structure, Flow-of-ranks, and Compressibility",
        "ICLR 2026, arXiv:2510.03358",
    ),
)
# Symbol and meaning.
DEFINITIONS = (
    ("ζ", "mean cosine between two tokens: 0 if they have no common direction, 1 if all point the same way"),
    ("ζ′", "the same within clusters of tokens, after subtracting the mean of each cluster"),
    (
        "ζ′ − null",
        "ζ′ minus its mean over permuted coordinates, the isotropy of Shelim et al. 2025; it responds to "
        "skewness and to unequal norms, so IsoScore and d(0.8) ÷ width stand next to it",
    ),
    ("IsoScore", "0 if one direction holds all variance of the states, 1 if all directions hold the same"),
    ("d(0.8)", "number of principal directions that hold 80 % of the variance of the states"),
    ("rank(0.01)", "number of singular values above 1 % of the largest"),
    ("NMSE", "squared error of the median forecast divided by that of the context's mean; lower is better"),
    ("WQL", "weighted quantile loss of the forecast; lower is better"),
    ("MASE", "absolute error divided by that of repeating the value one season before; lower is better"),
)


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

"""Page with the charts of one model on one data set, for `tsfmscope inspect`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tsfmscope.report.charts.layers import draw_layers
from tsfmscope.report.page.html_table import build_table
from tsfmscope.report.page.introduction import DEFINITIONS
from tsfmscope.report.page.layout import hash_script
from tsfmscope.report.render import draw_inline

if TYPE_CHECKING:
    import pandas as pd

# Heading of the table -> column.
COLUMNS = {
    "stack": "stack", "layer": "layer", "tokens": "n_tokens", "ζ": "zeta", "ζ′": "zeta_adjusted",
    "ζ′ − null": "zeta_adjusted_corrected", "K": "k", "IsoScore": "isoscore", "d({share:g})": "effective_dimension",
    "d/width": "dimension_share", "rank({epsilon:g})": "numerical_rank", "width": "width",
}  # fmt: skip
# Symbols of DEFINITIONS that the table and the figures show.
DEFINED = ("ζ", "ζ′", "ζ′ − null", "IsoScore", "d(0.8)", "rank(0.01)")
STYLE = (
    ":root{--ink:#1c2126;--soft:#5a626b;--line:#b9b5ab;--grid:#e6e3dc;--raised:#fff}"
    ".tip{position:fixed;padding:.3rem .5rem;white-space:pre-line;background:#fff;border:1px solid #b9b5ab;"
    "font-size:.85rem;pointer-events:none}.tip[hidden]{display:none}"
    "body{font:15px/1.5 system-ui,sans-serif;color:#1c2126;background:#fff;"
    "max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;font-size:.9rem}td,th{padding:.25rem .7rem;text-align:right;"
    "border-bottom:1px solid #dedbd3}div.scroll,div.plot{overflow-x:auto}dt{font-weight:600}dd{margin:0 0 .4rem 1.5rem}"
)


def render_page(title: str, rows: pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """Return a self-contained HTML page that needs no network: figures, a table of the layers, and definitions.

    rows: as for `charts.layers.draw_layers`. notes: paragraphs under the title.
    """
    parts = [f"<p>{escape(note)}</p>" for note in notes]
    for position, (heading, chart) in enumerate(draw_layers(rows)):
        svg = draw_inline(chart, f"figure-{position}")
        figure = f'<div class="plot" role="img" tabindex="0" aria-label="{heading} by layer">{svg}</div>'
        parts.append(f"<h2>{heading}</h2>\n{figure}")
    definitions = "".join(
        f"<dt>{term}</dt><dd>{escape(meaning)}</dd>" for term, meaning in DEFINITIONS if term in DEFINED
    )
    script = files("tsfmscope.report.page").joinpath("tip.js").read_text("utf-8")
    parts += ["<h2>Layers</h2>", _table(rows), f"<h2>What the numbers mean</h2><dl>{definitions}</dl>"]
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts, f"<script>{script}</script>"])
    policy = f"default-src 'none'; script-src {hash_script(script)}; style-src 'unsafe-inline'; img-src data:"
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _table(rows: pd.DataFrame) -> str:
    """Return the layers as an HTML table; –: no value."""
    values: dict[str, Any] = {"share": rows["share"].iloc[0], "epsilon": rows["epsilon"].iloc[0]}
    primes = rows["normed"].map({True: "′", False: ""})
    named = rows.assign(layer=rows["layer"].astype(str) + primes)
    columns = {heading.format(**values): column for heading, column in COLUMNS.items() if column in named}
    table = build_table(named[list(columns.values())])
    head = "".join(f'<th scope="col">{heading}</th>' for heading in columns)
    lines = ["<tr>" + "".join(f"<td>{escape(cell.text)}</td>" for cell in row) + "</tr>" for row in table.rows]
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'

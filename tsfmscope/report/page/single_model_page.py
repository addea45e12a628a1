"""Figures of one model on one data set and the page that contains them, for `tsfmscope inspect`."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tsfmscope.report.charts.figures import COLOURS, DASHES, SYMBOLS, apply_style, escape
from tsfmscope.report.page.html_table import build_table
from tsfmscope.report.page.introduction import DEFINITIONS

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Title, label of the y axis, column -> name.
PANELS: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "Isotropy",
        "cosine; IsoScore",
        {"zeta": "ζ", "zeta_adjusted": "ζ′", "zeta_adjusted_corrected": "ζ′ − null", "isoscore": "IsoScore"},
    ),
    ("Dimensions", "directions", {"effective_dimension": "d({share:g})", "numerical_rank": "rank({epsilon:g})"}),
)
# Heading of the table -> column.
COLUMNS = {
    "stack": "stack", "layer": "layer", "tokens": "n_tokens", "ζ": "zeta", "ζ′": "zeta_adjusted",
    "ζ′ − null": "zeta_adjusted_corrected", "K": "k", "IsoScore": "isoscore", "d({share:g})": "effective_dimension",
    "d/width": "dimension_share", "rank({epsilon:g})": "numerical_rank", "width": "width",
}  # fmt: skip
# Symbols of DEFINITIONS that the table and the figures show.
DEFINED = ("ζ", "ζ′", "ζ′ − null", "IsoScore", "d(0.8)", "rank(0.01)")
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;color:#1c2126;background:#fff;"
    "max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;font-size:.9rem}td,th{padding:.25rem .7rem;text-align:right;"
    "border-bottom:1px solid #dedbd3}div.scroll{overflow-x:auto}dt{font-weight:600}dd{margin:0 0 .4rem 1.5rem}"
)
# Height of a figure in pixels.
HEIGHT = 380


def draw_figures(rows: pd.DataFrame) -> list[tuple[str, go.Figure]]:
    """Draw isotropy and dimensions by layer, one line per stack and measure; return titles and figures.

    rows: stack, layer, normed, share, epsilon and the columns of PANELS, None where there is no value;
    COLUMN_sd for a column with standard deviations, drawn as error bars. The state after the final norm
    stands at n + ½ and is called n′.
    """
    return [(title, _panel(rows, label, columns)) for title, label, columns in PANELS]


def render_page(title: str, rows: pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """Return a self-contained HTML page that needs no network: figures, a table of the layers, and definitions.

    rows: as for `draw_figures`. notes: paragraphs under the title.
    """
    parts = [f"<p>{escape(note)}</p>" for note in notes]
    for position, (heading, figure) in enumerate(draw_figures(rows)):
        html = figure.to_html(
            full_html=False,
            include_plotlyjs=position == 0,
            div_id=f"figure-{position}",
            config={"displayModeBar": False},
        )
        parts.append(f"<h2>{escape(heading)}</h2>\n{html}")
    definitions = "".join(
        f"<dt>{term}</dt><dd>{escape(meaning)}</dd>" for term, meaning in DEFINITIONS if term in DEFINED
    )
    parts += ["<h2>Layers</h2>", _table(rows), f"<h2>What the numbers mean</h2><dl>{definitions}</dl>"]
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts])
    policy = f"default-src 'none'; script-src {_script_hashes(body)}; style-src 'unsafe-inline'; img-src data: blob:"
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


def _script_hashes(html: str) -> str:
    """Return the Content-Security-Policy sources that allow the inline scripts of this HTML and no others."""
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", html, flags=re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    return " ".join(f"'sha256-{digest}'" for digest in dict.fromkeys(digests))


def _spread(part: pd.DataFrame, column: str) -> dict[str, Any] | None:
    """Return error bars of one standard deviation; None if no standard deviation is known."""
    name = f"{column}_sd"
    if name not in part or part[name].isna().all():
        return None
    return {"array": part[name].to_numpy(float), "thickness": 1, "width": 3}


def _panel(rows: pd.DataFrame, label: str, columns: dict[str, str]) -> go.Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    at = rows["layer"] + 0.5 * rows["normed"]
    names = [f"{layer}{'′' if normed else ''}" for layer, normed in zip(rows["layer"], rows["normed"], strict=True)]
    values: dict[str, Any] = {"share": rows["share"].iloc[0], "epsilon": rows["epsilon"].iloc[0]}
    for position, stack in enumerate(dict.fromkeys(rows["stack"])):
        for which, (column, name) in enumerate(columns.items()):
            part = rows[(rows["stack"] == stack) & rows[column].notna()]
            if part.empty:
                continue
            figure.add_trace(
                go.Scatter(
                    x=at[part.index].to_numpy(float),
                    y=part[column].to_numpy(float),
                    error_y=_spread(part, column),
                    mode="lines+markers",
                    name=f"{escape(stack)} · {name.format(**values)}",
                    line={"color": COLOURS[which], "dash": DASHES[position % len(DASHES)], "width": 2},
                    marker={"symbol": SYMBOLS[position % len(SYMBOLS)], "size": 8, "color": COLOURS[which]},
                    customdata=[names[row] for row in part.index],
                    hovertemplate="layer %{customdata}: %{y:.3g}",
                )
            )
    ticks = dict(sorted(zip(at, names, strict=True)))
    figure.update_xaxes(
        title_text="layer (0: embedding, ′: after final norm)", tickvals=list(ticks), ticktext=list(ticks.values())
    )
    figure.update_yaxes(title_text=label, rangemode="tozero")
    return apply_style(figure).update_layout(height=HEIGHT, margin={"t": 48})

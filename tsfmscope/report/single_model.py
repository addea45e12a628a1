"""Charts of one model on one data set by layer, and the page that shows them, for `tsfmscope inspect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import altair as alt
import pandas as pd

from tsfmscope.report import style
from tsfmscope.report.page.layout import hash_script
from tsfmscope.report.page.sections import build_table
from tsfmscope.report.page.texts import TEXTS
from tsfmscope.report.render import draw_inline
from tsfmscope.report.style import COLOURS, WIDTHS, Chart

# Symbols of the definitions in texts.yaml that the table and the figures show.
DEFINED = ("ζ", "ζ′", "ζ′ − null", "IsoScore", "d(0.8)", "rank(0.01)")
# Title, label of the y axis, column -> name.
PANELS: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "Isotropy",
        "cosine; IsoScore",
        {"zeta": "ζ", "zeta_adjusted": "ζ′", "zeta_adjusted_corrected": "ζ′ − null", "isoscore": "IsoScore"},
    ),
    ("Dimensions", "directions", {"effective_dimension": "d({share:g})", "numerical_rank": "rank({epsilon:g})"}),
)
HEIGHT = 280


def render_page(title: str, rows: pd.DataFrame, columns: Mapping[str, str], notes: Sequence[str] = ()) -> str:
    """Return a self-contained HTML page that needs no network: figures, a table of the layers, and definitions.

    rows: as for `draw_layers`. columns: heading of the table -> column of the rows. notes: paragraphs under the title.
    """
    parts = [f"<p>{escape(note)}</p>" for note in notes]
    for position, (heading, chart) in enumerate(draw_layers(rows)):
        svg = draw_inline(chart, f"figure-{position}")
        figure = f'<div class="plot" role="img" tabindex="0" aria-label="{heading} by layer">{svg}</div>'
        parts.append(f"<h2>{heading}</h2>\n{figure}")
    definitions = "".join(
        f"<dt>{term}</dt><dd>{escape(meaning)}</dd>"
        for term, meaning in TEXTS["definitions"].items()
        if term in DEFINED
    )
    parts += ["<h2>Layers</h2>", _table(rows, columns), f"<h2>What the numbers mean</h2><dl>{definitions}</dl>"]
    return build_page(title, parts)


def build_page(title: str, parts: Sequence[str]) -> str:
    """Return a self-contained HTML page with this title and these parts, which are HTML."""
    script, style = (
        files("tsfmscope.report.page").joinpath(name).read_text("utf-8") for name in ("tip.js", "model.css")
    )
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts, f"<script>{script}</script>"])
    policy = f"default-src 'none'; script-src {hash_script(script)}; style-src 'unsafe-inline'; img-src data:"
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{style}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _table(rows: pd.DataFrame, columns: Mapping[str, str]) -> str:
    """Return the layers as an HTML table; –: no value."""
    values: dict[str, Any] = {"share": rows["share"].iloc[0], "epsilon": rows["epsilon"].iloc[0]}
    primes = rows["normed"].map({True: "′", False: ""})
    named = rows.assign(layer=rows["layer"].astype(str) + primes)
    shown = {heading.format(**values): column for heading, column in columns.items() if column in named}
    return build_rows(named[list(shown.values())].set_axis(list(shown), axis=1))


def build_rows(rows: pd.DataFrame) -> str:
    """Return rows as an HTML table with their columns' names as heads; –: no value."""
    table = build_table(rows, rows=len(rows))
    head = "".join(f'<th scope="col">{escape(str(heading))}</th>' for heading in rows)
    lines = ["<tr>" + "".join(f"<td>{escape(cell.text)}</td>" for cell in row) + "</tr>" for row in table.rows]
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def draw_layers(rows: pd.DataFrame) -> list[tuple[str, Chart]]:
    """Draw isotropy and dimensions by layer, one line per stack and measure; return titles and charts.

    rows: stack, layer, normed, share, epsilon and the columns of PANELS, None where there is no value;
    COLUMN_sd for a column with standard deviations, drawn as error bars. The state after the final norm
    stands at n + ½ and is called n′.
    """
    return [(title, _draw_panel(rows, label, columns)) for title, label, columns in PANELS]


def _draw_panel(rows: pd.DataFrame, label: str, columns: dict[str, str]) -> Chart:
    parameters: dict[str, Any] = {"share": rows["share"].iloc[0], "epsilon": rows["epsilon"].iloc[0]}
    names = {column: name.format(**parameters) for column, name in columns.items()}
    colours, points, ticks = dict(zip(names.values(), COLOURS, strict=False)), [], {}
    for row in rows.to_dict("records"):
        at, layer = row["layer"] + 0.5 * row["normed"], f"{row['layer']}{'′' if row['normed'] else ''}"
        ticks[float(at)] = layer
        for column, name in names.items():
            value, spread = row.get(column), row.get(f"{column}_sd")
            if not pd.isna(value):
                point = {"layer": float(at), "value": float(value), "stack": row["stack"], "measure": name}
                ends = {"low": float(value - spread), "high": float(value + spread)} if not pd.isna(spread) else {}
                points.append(point | ends | {"tip": f"{row['stack']} · {name}\nlayer {layer}: {value:.3g}"})
    stacks = list(dict.fromkeys(rows["stack"]))
    axis = style.name_ticks(dict(sorted(ticks.items())), grid=False)
    y = alt.Y("value:Q", title=label)
    base = alt.Chart(alt.InlineData(points)).encode(
        x=alt.X("layer:Q", title="layer (0: embedding, ′: after final norm)", axis=axis, scale=alt.Scale(padding=10)),
        stroke=style.encode_stroke("measure", colours),
    )
    return alt.layer(
        base.mark_line(aria=False).encode(y=y, strokeDash=style.encode_dash("stack", stacks)),
        style.draw_whiskers(base, y, 1),
        base.mark_point().encode(y=y, fill=style.encode_fill("measure", colours), **style.encode_tip()),
    ).properties(width=WIDTHS[1], height=HEIGHT)

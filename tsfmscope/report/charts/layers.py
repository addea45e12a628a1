"""Charts of one model by layer: isotropy and dimensions."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from tsfmscope.report.charts import style
from tsfmscope.report.charts.style import COLOURS, WIDTHS, Chart

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
        stroke=style.stroke("measure", colours),
    )
    return alt.layer(
        base.mark_line(aria=False).encode(y=y, strokeDash=style.dash("stack", stacks)),
        base.transform_filter("isValid(datum.low)").mark_rule(aria=False).encode(y=style.follow(y, "low"), y2="high:Q"),
        base.mark_point().encode(
            y=y,
            fill=style.fill("measure", colours),
            **style.tip(),
        ),
    ).properties(width=WIDTHS[1], height=HEIGHT)

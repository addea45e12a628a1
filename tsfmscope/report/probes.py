"""Charts of probes: scores of factors by layer, and by number of directions."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from tsfmscope.report import style
from tsfmscope.report.style import COLOURS, GREY, Chart

# Panels side by side, and their size in pixels.
COLUMNS, WIDTH, HEIGHT = 4, 150, 120
# Features -> colour.
FEATURES = {
    "states": COLOURS[0], "untrained states": COLOURS[1], "simple features": COLOURS[2], "window": COLOURS[3],
    "factors": GREY,
}  # fmt: skip
# Smallest R² that a panel shows; smaller ones are drawn at this edge.
LEAST = -0.1


def draw_scores(scores: pd.DataFrame) -> Chart:
    """Draw the scores of each factor by layer, with the features that have no layer as level lines.

    scores: those of `ProbeReport`, with the column name, of the layer.
    """
    layers = scores[scores["layer"].notna()]
    names = list(dict.fromkeys(scores["features"]))
    colours = {name: FEATURES[name] for name in names}
    panels = []
    for factor, rows in scores.groupby("factor", sort=False):
        points = _points(rows[rows["layer"].notna()])
        levels = [
            {"value": max(LEAST, row["value"]), "features": row["features"]}
            for row in rows[rows["layer"].isna()].to_dict("records")
        ]
        ticks = sorted(set(layers["layer"]))
        x = alt.X("at:Q", title=None, axis=alt.Axis(values=style.pick_evenly(ticks, 5), format="d", grid=False))
        y = alt.Y("value:Q", title=rows["measure"].iloc[0], scale=_scale(rows))
        base = alt.Chart(alt.InlineData(points)).encode(x=x, stroke=style.encode_stroke("features", colours))
        rules = alt.Chart(alt.InlineData(levels)).mark_rule(strokeDash=[4, 3], strokeWidth=1.5, aria=False)
        panels.append(
            alt.layer(
                rules.encode(y=y, stroke=style.encode_stroke("features", colours)),
                base.mark_line(aria=False).encode(y=y),
                style.draw_whiskers(base, y, 1),
                base.mark_point(size=25).encode(y=y, fill=style.encode_fill("features", colours), **style.encode_tip()),
            ).properties(width=WIDTH, height=HEIGHT, title=str(factor))
        )
    chart: Chart = alt.concat(*panels, columns=COLUMNS, spacing=18)
    return chart


def draw_directions(curves: pd.DataFrame) -> Chart:
    """Draw the scores of each factor by number of directions, one line per layer.

    curves: directions of `ProbeReport`, with the column name, of the layer.
    """
    places = curves["name"].drop_duplicates().tolist()
    colours, panels = style.order_colours(places), []
    for factor, rows in curves.groupby("factor", sort=False):
        points = [
            {"at": row["directions"], "value": max(LEAST, row["value"]), "layer": row["name"],
             "tip": f"layer {row['name']}, {row['directions']} directions: {row['value']:.2f}"}
            for row in rows.to_dict("records")
        ]  # fmt: skip
        ticks = sorted(set(rows["directions"]))
        scale = alt.Scale(type="log", base=2, domain=[1, ticks[-1]], nice=False)
        x = alt.X("at:Q", title=None, scale=scale, axis=alt.Axis(values=style.pick_evenly(ticks, 4), grid=False))
        y = alt.Y("value:Q", title=rows["measure"].iloc[0], scale=_scale(rows))
        base = alt.Chart(alt.InlineData(points)).encode(x=x, y=y, stroke=style.encode_stroke("layer", colours, "layer"))
        panels.append(
            alt.layer(
                base.mark_line(aria=False, strokeWidth=1.5),
                base.mark_point(size=12).encode(fill=style.encode_fill("layer", colours), **style.encode_tip()),
            ).properties(width=WIDTH, height=HEIGHT, title=str(factor))
        )
    chart: Chart = alt.concat(*panels, columns=COLUMNS, spacing=18)
    return chart


def _scale(rows: pd.DataFrame) -> alt.Scale:
    is_auc = rows["measure"].iloc[0] == "AUC"
    return alt.Scale(domain=[min(0.4, rows["low"].min()) if is_auc else LEAST, 1.0], nice=False)


def _points(rows: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            "at": row["layer"] + 0.5 * bool(row["normed"]), "value": max(LEAST, row["value"]),
            "low": max(LEAST, row["low"]), "high": max(LEAST, row["high"]), "features": row["features"],
            "tip": f"{row['features']}, layer {row['name']}: {row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]",
        }
        for row in rows.to_dict("records")
    ]  # fmt: skip

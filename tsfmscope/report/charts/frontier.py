"""Accuracy of compressed models and baselines against the time of a forecast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from tsfmscope.report.charts import style
from tsfmscope.report.charts.compression import METHODS, READ, choose_colour, choose_symbol
from tsfmscope.report.charts.style import GREY, STAR, SYMBOLS, Chart

if TYPE_CHECKING:
    import pandas as pd

BASELINES = ("seasonal-naive", "auto-ets", "auto-theta", "auto-arima")
HEIGHT = 300


def draw_frontier(frame: pd.DataFrame) -> Chart:
    """Draw WQL against seconds per series, both relative to the dense model; one panel per dense model.

    frame: columns of `plots.frontier.COLUMNS`; rows without positive ratios are left out. Both axes are
    logarithmic, thin lines mark the dense model. The colour shows the method, the label the share of the
    attention that is left. Baselines are open grey marks. A dotted line joins the Pareto front: no other model is
    both faster and more accurate.
    """
    rows = frame[(frame["time_ratio"] > 0) & (frame["wql_ratio"] > 0)]
    is_baseline = rows["kind"] == "baseline"
    rows = rows.assign(
        group=rows["kind"].where(~is_baseline, rows["model"]),
        is_open=is_baseline | (rows["kind"] == READ),
        share=[_write_share(row) for row in rows.to_dict("records")],
        tip=[_describe(row) for row in rows.to_dict("records")],
    )
    local = [*BASELINES, *sorted(set(rows.loc[is_baseline, "model"]) - set(BASELINES))]
    # The dense model is drawn last, on top of the others.
    groups = [name for name in (READ, *METHODS, *local, "dense") if name in set(rows["group"])]
    colours = {name: GREY if name in local else choose_colour(name) for name in groups}
    symbols = {name: choose_symbol(name) for name in groups} | {"dense": STAR, READ: STAR}
    symbols |= {name: SYMBOLS[1 + position] for position, name in enumerate(local)}
    symbols = {name: symbols[name] for name in groups}
    rows = rows.iloc[np.argsort([groups.index(name) for name in rows["group"]], kind="stable")]
    x = alt.X("time_ratio:Q", **style.log_axis("time per series ÷ dense", [*rows["time_ratio"], 1.0]))
    y = alt.Y("wql_ratio:Q", **style.log_axis("forecast error, WQL ÷ dense", [*rows["wql_ratio"], 1.0]))
    bases = sorted(rows["base"].unique())
    columns, panels = min(2, max(1, len(bases))), []
    for name in bases:
        base = alt.Chart(rows[rows["base"] == name]).encode(x=x, y=y)
        drawn = alt.layer(
            style.guide(x=1),
            style.guide(y=1),
            base.transform_filter("datum.on_frontier")
            .mark_line(color=GREY, strokeWidth=1.5, strokeDash=[2, 2], aria=False)
            .encode(order="time_ratio:Q"),
            base.mark_point(size=90).encode(
                stroke=style.stroke("group", colours),
                fill=style.fill("group", colours),
                fillOpacity=alt.condition("datum.is_open", alt.value(0), alt.value(1)),
                shape=alt.Shape(
                    "group:N", scale=style.map_values(symbols), title=None, legend=style.make_legend(groups)
                ),
                **style.tip(),
            ),
            base.mark_text(align="left", dx=8, aria=False).encode(text="share:N", fill=style.fill("group", colours)),
        )
        panels.append(style.name_panel(drawn, str(name), columns, HEIGHT))
    return style.arrange(panels, columns)


def _write_share(row: Mapping[Any, Any]) -> str:
    """Return the share of the attention that a compressed model has left; empty for other models."""
    share = row["attention_ratio"]
    is_compressed = row["kind"] not in ("baseline", "dense", READ) and share == share and share is not None
    return f"{share:.3g}" if is_compressed else ""


def _describe(row: Mapping[Any, Any]) -> str:
    share = row["attention_ratio"]
    left = f", {share:.0%} of the attention" if share == share and share is not None else ""
    return (
        f"{row['model']}{left}, {row['seconds']:.3g} s per series\ntime {row['time_ratio']:.3g}\n"
        f"WQL {row['wql_ratio']:.4g}"
    )

"""Accuracy against time of compressed models and baselines, relative to the dense model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from tsfmscope.report import style
from tsfmscope.report.page.sections import ClaimSentence, Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.plots.compressed import METHODS, READ, choose_colour, choose_symbol
from tsfmscope.report.style import GREY, STAR, SYMBOLS, Chart
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "base", "family", "model", "kind", "attention_ratio", "n_cells", "n_windows", "wql_ratio", "time_ratio",
    "seconds", "on_frontier",
)  # fmt: skip
CLAIM = (
    "Yu et al. 2026 (Appendix K): given any local method, there is a compressed Chronos-Bolt model that is both faster "
    "and more accurate."
)
BOLT = "chronos-bolt"
# Kinds that are not compressed models in the sense of Yu et al. 2026; reading weights in another
# precision removes no parameters.
NOT_COMPRESSED = ("baseline", "dense", READ)
BASELINES = ("seasonal-naive", "auto-ets", "auto-theta", "auto-arima")
HEIGHT = 300


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per dense model; nothing without a model that has score and time."""
    frame = study.rows("frontier", COLUMNS)
    if frame[["time_ratio", "wql_ratio"]].dropna().empty:
        return
    best = frame[frame["on_frontier"] & frame["time_ratio"].notna()].sort_values(["base", "time_ratio"])
    frontiers = [f"{base}: {', '.join(part['model'])}" for base, part in best.groupby("base", sort=True)]
    windows, cells = int(frame["n_windows"].max()), int(frame["n_cells"].max())
    caption = (
        f"Geometric means over {cells} data sets and conditions, {windows:,} windows that all models forecast. "
        "Time per series is measured in the pipeline, on warm jobs of one run next to other jobs; for baselines it is "
        "the time of the fit. Baselines are the probabilistic ones of statsforecast. Numbers: share of the attention "
        f"that is left. Point values, without intervals. Models on the Pareto front (no model is both faster and more "
        f"accurate), from fast to accurate: {'; '.join(frontiers)}."
    )
    if (frame["kind"] == READ).any():
        caption += " Open stars: weights of the dense model in another precision, such as bfloat16; no parameter is"
        caption += " removed."
    words = f"Scatter plots of relative forecast error against relative time, {frame['base'].nunique()} panels, "
    words += f"{len(frame)} points, both axes logarithmic."
    yield Figure("frontier", draw_frontier(frame), words, caption)


def check_local_methods(frame: pd.DataFrame) -> ClaimSentence:
    """Check whether, for each local baseline, a compressed Chronos-Bolt is both faster and more accurate.

    frame: COLUMNS. The check compares point values of one run, without an interval.
    """
    rows = frame[frame["family"] == BOLT]
    local = rows[rows["kind"] == "baseline"].dropna(subset=["time_ratio", "wql_ratio"])
    compressed = rows[~rows["kind"].isin(NOT_COMPRESSED)].dropna(subset=["time_ratio", "wql_ratio"])
    if rows.empty:
        text = f"{CLAIM} Here: not comparable, because no Chronos-Bolt is in this study."
        return ClaimSentence("not-comparable", text)
    lacks = [name for name, part in (("local method", local), ("compressed Chronos-Bolt", compressed)) if part.empty]
    if lacks:
        text = f"{CLAIM} Here: undecided, because no {' and no '.join(lacks)} has score and time."
        return ClaimSentence("undecided", text)
    texts, all_beaten = [], True
    for name, baseline in local.groupby("model", sort=True):
        pairs = compressed.merge(baseline, on="base", suffixes=("", "_local"))
        is_faster, is_better = (pairs[name] < pairs[f"{name}_local"] for name in ("time_ratio", "wql_ratio"))
        better = pairs[is_faster & is_better].sort_values("wql_ratio")
        all_beaten &= len(better) > 0
        texts.append(f"{name} by {better['model'].iloc[0]}" if len(better) else f"{name} by none")
    verdict = "agrees" if all_beaten else "differs"
    return ClaimSentence(verdict, f"{CLAIM} Here, one run on this machine: {', '.join(texts)}: {verdict}.")


def draw_frontier(frame: pd.DataFrame) -> Chart:
    """Draw WQL against seconds per series, both relative to the dense model; one panel per dense model.

    frame: COLUMNS; rows without positive ratios are left out. Both axes are
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
    x = alt.X("time_ratio:Q", **style.make_log_axis("time per series ÷ dense", [*rows["time_ratio"], 1.0]))
    y = alt.Y("wql_ratio:Q", **style.make_log_axis("forecast error, WQL ÷ dense", [*rows["wql_ratio"], 1.0]))
    fill = style.encode_fill("group", colours)
    bases = sorted(rows["base"].unique())
    columns, panels = min(2, max(1, len(bases))), []
    for name in bases:
        base = alt.Chart(rows[rows["base"] == name]).encode(x=x, y=y)
        drawn = alt.layer(
            style.draw_guide(x=1),
            style.draw_guide(y=1),
            base.transform_filter("datum.on_frontier").mark_line(
                color=GREY, strokeWidth=1.5, strokeDash=[2, 2], aria=False
            ).encode(order="time_ratio:Q"),
            base.mark_point(size=90).encode(
                stroke=style.encode_stroke("group", colours), fill=fill, shape=style.encode_shape("group", symbols),
                fillOpacity=style.open_if("datum.is_open"), **style.encode_tip(),
            ),
            base.mark_text(align="left", dx=8, aria=False).encode(text="share:N", fill=fill),
        )  # fmt: skip
        panels.append(style.name_panel(drawn, str(name), columns, HEIGHT))
    return style.arrange_panels(panels, columns)


def _write_share(row: Mapping[Any, Any]) -> str:
    """Return the share of the attention that a compressed model has left; empty for other models."""
    share = row["attention_ratio"]
    is_compressed = row["kind"] not in NOT_COMPRESSED and share == share and share is not None
    return f"{share:.3g}" if is_compressed else ""


def _describe(row: Mapping[Any, Any]) -> str:
    share = row["attention_ratio"]
    left = f", {share:.0%} of the attention" if share == share and share is not None else ""
    return (
        f"{row['model']}{left}, {row['seconds']:.3g} s per series\ntime {row['time_ratio']:.3g}\n"
        f"WQL {row['wql_ratio']:.4g}"
    )


PLOT = Plot(
    "Forecast error against time, both relative to the dense model. Further left is faster, lower is more accurate. "
    "Local baselines are fitted to every series, on the same windows, and scored by the same code in the same run.",
    {"frontier": COLUMNS},
    draw,
    topic="compression",
    claims=lambda study: [check_local_methods(study.rows("frontier", COLUMNS))],
)

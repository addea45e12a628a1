"""Scatter plots of forecast error against isotropy: their rows, marks and axes, and the plot of all models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from tsfmscope.report import style
from tsfmscope.report.style import GREY, SYMBOLS, WIDTHS, Chart

if TYPE_CHECKING:
    import pandas as pd

# Isotropy measures of the scatter plots, which show their absolute values; AXES has the axis
# titles.
CORRECTED, PRINTED = "zeta_adjusted_corrected", "zeta_adjusted"
AXES = {CORRECTED: "|ζ′ − null|", PRINTED: "|ζ′|"}
# End of the captions of figures that draw such a measure.
NOT_EVENNESS = (
    " ζ′ − null does not show how evenly directions are used; IsoScore and d(0.8) ÷ width, in Models at a glance, do."
)
ISOTROPY_TITLES = {measure: f"adjusted cosine {symbol}" for measure, symbol in AXES.items()}
ERROR_TITLE = "forecast error (NMSE)"
HEIGHT = 320


def draw_nmse_against_isotropy(frame: pd.DataFrame, models: Sequence[str] = ()) -> Chart:
    """Draw NMSE against |ζ′ minus its null mean| on log axes, one point per model, data set and condition.

    Colour and symbol show the model; the first condition is filled, all others are open. A thin line joins
    the models of one data set and condition. Rows without positive values on both axes are left out.

    models: the models of the whole page, which determine the colours; by default those of the frame.
    """
    rows = describe_points(select_drawable(frame), CORRECTED)
    models, conditions = models or style.distinct_values(rows, "model"), style.distinct_values(rows, "condition")
    rows = rows.assign(is_filled=rows["condition"] == (conditions or [""])[0])
    base = alt.Chart(rows).encode(
        x=alt.X("isotropy:Q", **style.make_log_axis(ISOTROPY_TITLES[CORRECTED], rows["isotropy"])),
        y=alt.Y("nmse:Q", **style.make_log_axis(ERROR_TITLE, rows["nmse"])),
    )
    links = base.mark_line(strokeWidth=1, color=GREY, opacity=0.45, aria=False).encode(
        detail=["dataset:N", "condition:N"], order="model:N"
    )
    return alt.layer(links, mark_models(base, rows, models)).properties(width=WIDTHS[1], height=HEIGHT)


def mark_models(base: alt.Chart, rows: pd.DataFrame, models: Sequence[str]) -> Chart:
    """Draw one mark per row, whose colour and symbol are those of the model; `is_filled` fills it.

    models: the models of the whole page, which determine colours and symbols.
    """
    shown = sorted(set(rows["model"]), key=lambda name: (style.find_position(name, models), name))
    colours = {name: style.choose_colour(name, models) for name in shown}
    symbols = {name: SYMBOLS[style.find_position(name, models) % len(SYMBOLS)] for name in shown}
    return base.mark_point(size=70).encode(
        stroke=style.encode_stroke("model", colours), fill=style.encode_fill("model", colours),
        fillOpacity=style.fill_if("datum.is_filled"),
        shape=style.encode_shape("model", symbols, has_legend=len(shown) > 1), **style.encode_tip(),
    )  # fmt: skip


def describe_points(rows: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return the rows with a column `tip`: data set, model, condition, isotropy and error in words."""
    texts = [
        f"{row.dataset}\n{row.model} · {row.condition}\n{AXES[measure]} {row.isotropy:.3g}\nNMSE {row.nmse:.3g}"
        for row in style.iterate_rows(rows)
    ]
    return rows.assign(tip=texts)


def select_drawable(frame: pd.DataFrame, measure: str = CORRECTED) -> pd.DataFrame:
    """Return the rows that log axes can show, with a column `isotropy`: the absolute value of the measure."""
    rows = frame.assign(isotropy=frame[measure].astype(float).abs(), nmse=frame["nmse"].astype(float))
    both = rows[["isotropy", "nmse"]].to_numpy()
    shown: pd.DataFrame = rows[(np.isfinite(both) & (both > 0)).all(axis=1)]
    return shown


def describe_undrawable(rows: int, drawable: int) -> str:
    """Return a sentence on rows that log axes cannot show, with a space before it; empty if there are none."""
    if rows == drawable:
        return ""
    verb = "is" if rows - drawable == 1 else "are"
    return (
        f" {rows - drawable} of {rows} points {verb} not positive and cannot be drawn on a log axis;"
        " the CSV contains them."
    )

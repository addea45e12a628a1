"""Heat maps of the numerical rank relative to the width: one row per model and stack, one column per layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import altair as alt

from tsfmscope.report.charts import style
from tsfmscope.report.charts.spectra import MODALITIES
from tsfmscope.report.charts.style import Chart

if TYPE_CHECKING:
    import pandas as pd

# Tolerances of the panels. At 10⁻³ nearly all ranks are full.
TOLERANCES = (1e-1, 1e-2)
# Largest number of layers whose values are written into the elements.
WRITTEN = 12
# Height of a row in pixels.
ROW = 18
# Marks values whose tolerance is below the rounding error.
NOISE = "*"


def draw_rank_maps(frame: pd.DataFrame, *, offset: int) -> Chart:
    """Draw rank ÷ width as heat maps with their values, one panel per tolerance, time-series models first.

    frame, offset: as in `growth.draw_growth`. An asterisk marks a tolerance below the rounding error.
    """
    names = {row[:2]: name_row(*row) for row in order_rows(frame)}
    records = frame.to_dict("records")
    share = frame["rank"].astype(float) / frame["full_rank"].astype(float)
    noise = [NOISE if is_noise else "" for is_noise in frame["below_noise_floor"]]
    rows = frame.assign(
        name=[names.get((row["model"], row["stack"])) or names[row["model"], ""] for row in records],
        position=frame["layer"] + offset,
        share=share.round(4),
        text=[f"{value:.2f}{mark}" for value, mark in zip(share, noise, strict=True)],
        tip=[_describe(row, offset) for row in records],
    )
    n_layers = rows["position"].nunique()
    axis = alt.Axis(labelAngle=0, labelOverlap=True, ticks=False, domain=False)
    x = alt.X("position:O", title="layer", axis=axis)
    rows_axis = alt.Axis(ticks=False, domain=False)
    colour = alt.Color(
        "share:Q", title="numerical rank ÷ width", scale=alt.Scale(scheme="viridis", domain=[0, 1]),
        legend=alt.Legend(orient="top", gradientLength=160, titleOrient="left", values=[0, 0.5, 1]),
    )  # fmt: skip
    panels, shown = [], [epsilon for epsilon in TOLERANCES if epsilon in set(frame["epsilon"])]
    for position, epsilon in enumerate(shown):
        y_axis = alt.Axis(ticks=False, domain=False, labels=False) if position else rows_axis
        y = alt.Y("name:N", title=None, scale=alt.Scale(domain=list(names.values())), axis=y_axis)
        base = alt.Chart(rows[rows["epsilon"] == epsilon]).encode(x=x, y=y)
        layers = [base.mark_rect(stroke=style.PAPER, strokeWidth=1).encode(color=colour, **style.tip())]
        if n_layers <= WRITTEN:
            bright = alt.condition("datum.share > 0.5", alt.value("black"), alt.value("white"))
            layers.append(base.mark_text(fontSize=10, aria=False).encode(text="text:N", fill=bright))
        panel = style.name_panel(alt.layer(*layers), f"tolerance {epsilon:g}", 2, ROW * len(names))
        panels.append(panel.properties(width=34 * n_layers if n_layers <= 8 else 280))
    return style.arrange(panels, len(panels), color="shared")


def order_rows(frame: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Return (model, stack, modality) of every row: by modality, time series first, then by model, encoders first.

    The stack is empty where a model has only one.
    """
    order = {name: position for position, name in enumerate(MODALITIES)}
    found = frame.drop_duplicates(["model", "stack"])[["model", "stack", "modality"]]
    single = found.groupby("model")["stack"].transform("nunique") == 1
    rows = [
        (str(model), "" if is_single else str(stack), str(modality or "unknown"))
        for model, stack, modality, is_single in zip(
            found["model"], found["stack"], found["modality"], single, strict=True
        )
    ]
    return sorted(rows, key=lambda row: (order.get(row[2], len(order)), row[0], "encoder" not in row[1], row[1]))


def name_row(model: str, stack: str, modality: str) -> str:
    """Return the text of a row; the modality is named unless it is time series."""
    text = f"{model} {stack}".rstrip()
    return text if modality == "series" else f"{text} ({modality})"


def _describe(row: Mapping[Any, Any], offset: int) -> str:
    text = f"{row['model']}, {row['stack']}, layer {int(row['layer']) + offset}: rank {row['rank']:g}"
    span = f" ({row['low']:g} to {row['high']:g}, n = {int(row['n'])})" if int(row["n"]) > 1 else ""
    return f"{text}{span} of {int(row['full_rank'])}"

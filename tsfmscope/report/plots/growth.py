"""Numerical rank of inputs and weights by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.style import MODALITIES, Chart
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "model", "modality", "stack", "layer", "epsilon", "full_rank", "below_noise_floor", "rank", "low", "high", "n",
)  # fmt: skip
# Largest number of models that are drawn as lines, one panel each.
LINES = 3
# Tolerance -> name in the legend.
TOLERANCES = {epsilon: f"tolerance {epsilon:g}" for epsilon in (1e-1, 1e-2, 1e-3)}
COLOURS = style.order_colours(list(TOLERANCES.values()))
# Tolerances of the heat maps. At 10⁻³ nearly all ranks are full.
MAP_TOLERANCES = (1e-1, 1e-2)
# Largest number of layers whose values are written into the elements.
WRITTEN = 12
# Height of a panel of lines, and of a row of a heat map, in pixels.
HEIGHT, ROW = 190, 18
# Marks values whose tolerance is below the rounding error.
NOISE = "*"


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the ranks of layer inputs, and those of query projections; many models as heat maps."""
    inputs, weights = study.rows("inputs", COLUMNS), study.rows("weights", COLUMNS)
    if len(inputs):
        n = int(inputs["n"].max())
        median = f" Median over {style.format_range(inputs['n'])} data sets." if n > 1 else ""
        end = "column" if inputs["model"].nunique() > LINES else "point"
        text = f"Input of each layer; the last {end} is the output of the last layer.{median}"
        yield _draw(inputs, "inputs", "Layer inputs", text, offset=1, has_bands=n > 1)
    if len(weights):
        text = "Whole query projections, not single heads."
        yield _draw(weights, "weights", "Query projections", text, offset=0)


def _draw(rows: pd.DataFrame, name: str, title: str, text: str, *, offset: int, has_bands: bool = False) -> Figure:
    """Draw a heat map of more than LINES models, else lines."""
    names, what = ", ".join(order_panels(rows)), title.lower()
    if rows["model"].nunique() > LINES:
        noise = f" {NOISE}: the tolerance is below the rounding error." if rows["below_noise_floor"].any() else ""
        caption = f"{text} The other tolerance, 10⁻³, is in the CSV, and so are ranges.{noise}"
        words = f"Heat maps of the numerical rank of {what} divided by the width, one row per model, one column per"
        return Figure(name, draw_rank_maps(rows, offset=offset), f"{words} layer: {names}.", caption, title)
    bands = " Bands: range." if has_bands else ""
    words = f"Line charts of the numerical rank of {what} by layer, one panel per model: {names}."
    caption = f"{text}{bands} Dotted: full rank.{explain_hollow(rows)}"
    return Figure(name, draw_growth(rows, offset=offset), words, caption, title)


def explain_hollow(frame: pd.DataFrame) -> str:
    """Return a sentence on hollow points; empty if there are none."""
    return " Hollow: the tolerance is below the rounding error." if frame["below_noise_floor"].any() else ""


def draw_growth(frame: pd.DataFrame, *, offset: int) -> Chart:
    """Draw the numerical rank by layer: one panel per model, time-series models first.

    Source: Yu et al. 2026, Figs. 4, 5 and 9.

    frame: COLUMNS. There is one line per tolerance and stack.
    offset: added to the layer. With 1, a layer input stands at the number of the layer that reads it, from 1.

    A band shows the range where n > 1. Hollow points: the tolerance is below the floor that rounding leaves.
    """
    rows = describe_ranks(frame.assign(position=frame["layer"] + offset), "position")
    y_scale = alt.Scale(domain=[0, 1.04 * float(frame["full_rank"].max())], nice=False)
    y, colour = alt.Y("rank:Q", title="numerical rank", scale=y_scale), encode_tolerance(rows)
    models, stacks = order_panels(frame), order_stacks(frame)
    modalities = dict(zip(frame["model"], frame["modality"], strict=True))
    columns, panels = style.choose_columns(len(models)), []
    for model in models:
        part = rows[rows["model"] == model]
        ends = [int(part["position"].min()) - 0.3, int(part["position"].max()) + 0.3]
        x_axis = alt.Axis(tickMinStep=1, format="d", grid=False)
        x = alt.X("position:Q", title="layer", scale=alt.Scale(domain=ends, nice=False), axis=x_axis)
        base = alt.Chart(part).encode(x=x)
        band = base.mark_area(opacity=0.14, aria=False).encode(
            y="low:Q", y2="high:Q", fill=style.encode_fill("tolerance", COLOURS), detail="stack:N"
        )
        line = base.mark_line(aria=False).encode(y=y, stroke=colour, strokeDash=style.encode_dash("stack", stacks))
        full = style.draw_guide(y=float(part["full_rank"].max()), dashes=(2, 2))
        title = model if set(modalities.values()) <= {"series"} else f"{model}\n{modalities[model] or 'unknown'}"
        # Vega-Lite leaves out the legend of the lines if the band stands before them.
        bands = [band] if int(part["n"].max()) > 1 else []
        layers = [full, line, *bands, mark_ranks(base, y, colour)]
        panels.append(style.name_panel(alt.layer(*layers), title, columns, HEIGHT))
    return style.arrange_panels(panels, columns)


def describe_ranks(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the rows by tolerance and position, with columns `tolerance` (its name) and `tip`. column: position."""
    rows = frame[frame["epsilon"].isin(TOLERANCES)].sort_values(["epsilon", column], kind="stable")
    names = rows["epsilon"].map(TOLERANCES)
    texts = [
        f"{model}, {name}\n{at:g}: rank {rank:.3g}"
        for model, name, at, rank in zip(rows["model"], names, rows[column], rows["rank"], strict=True)
    ]
    return rows.assign(tolerance=names, tip=texts)


def encode_tolerance(rows: pd.DataFrame) -> alt.Stroke:
    """Return the colour of lines by tolerance."""
    return style.encode_stroke("tolerance", {name: c for name, c in COLOURS.items() if name in set(rows["tolerance"])})


def mark_ranks(base: alt.Chart, y: alt.Y, colour: alt.Stroke) -> Chart:
    """Draw one mark per rank, hollow where the tolerance is below the rounding error."""
    hollow = style.open_if("datum.below_noise_floor")
    fill = style.encode_fill("tolerance", COLOURS)
    return base.mark_point(size=30).encode(y=y, stroke=colour, fill=fill, fillOpacity=hollow, **style.encode_tip())


def order_panels(frame: pd.DataFrame) -> list[str]:
    """Return the models in the order of their modality, time series first, then by name."""
    modalities = dict(zip(frame["model"], frame["modality"], strict=True))
    return sorted(modalities, key=lambda model: (style.find_position(modalities[model], MODALITIES), model))


def order_stacks(rows: pd.DataFrame) -> list[str]:
    """Return the stacks, encoders first."""
    return sorted(style.distinct_values(rows, "stack"), key=lambda name: ("encoder" not in name, name))


def draw_rank_maps(frame: pd.DataFrame, *, offset: int) -> Chart:
    """Draw rank ÷ width as heat maps with their values, one panel per tolerance, one row per model and stack.

    frame, offset: as in `draw_growth`. An asterisk marks a tolerance below the rounding error.
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
        tip=[_describe_rank(row, offset) for row in records],
    )
    n_layers = rows["position"].nunique()
    axis = alt.Axis(labelAngle=0, labelOverlap=True, ticks=False, domain=False)
    x = alt.X("position:O", title="layer", axis=axis)
    colour = alt.Color(
        "share:Q", title="numerical rank ÷ width", scale=alt.Scale(scheme="viridis", domain=[0, 1]),
        legend=alt.Legend(orient="top", gradientLength=160, titleOrient="left", values=[0, 0.5, 1]),
    )  # fmt: skip
    panels: list[Chart] = []
    for epsilon in (epsilon for epsilon in MAP_TOLERANCES if epsilon in set(frame["epsilon"])):
        y_axis = alt.Axis(ticks=False, domain=False, labels=not panels)
        y = alt.Y("name:N", title=None, scale=alt.Scale(domain=list(names.values())), axis=y_axis)
        base = alt.Chart(rows[rows["epsilon"] == epsilon]).encode(x=x, y=y)
        layers = [base.mark_rect(stroke=style.PAPER, strokeWidth=1).encode(color=colour, **style.encode_tip())]
        if n_layers <= WRITTEN:
            bright = alt.condition("datum.share > 0.5", alt.value("black"), alt.value("white"))
            layers.append(base.mark_text(fontSize=10, aria=False).encode(text="text:N", fill=bright))
        panel = style.name_panel(alt.layer(*layers), f"tolerance {epsilon:g}", 2, ROW * len(names))
        panels.append(panel.properties(width=34 * n_layers if n_layers <= 8 else 280))
    return style.arrange_panels(panels, len(panels), color="shared")


def order_rows(frame: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Return (model, stack, modality) of every row: by modality, time series first, then by model, encoders first.

    The stack is empty where a model has only one.
    """
    found = frame.drop_duplicates(["model", "stack"])[["model", "stack", "modality"]]
    single = found.groupby("model")["stack"].transform("nunique") == 1
    found = found.assign(stack=found["stack"].mask(single, ""), modality=found["modality"].fillna("unknown"))

    def sort_key(row: tuple[str, str, str]) -> tuple[int, str, bool, str]:
        model, stack, modality = row
        return style.find_position(modality, MODALITIES), model, "encoder" not in stack, stack

    return sorted(found.itertuples(index=False, name=None), key=sort_key)


def name_row(model: str, stack: str, modality: str) -> str:
    """Return the text of a row; the modality is named unless it is time series."""
    text = f"{model} {stack}".rstrip()
    return text if modality == "series" else f"{text} ({modality})"


def _describe_rank(row: Mapping[Any, Any], offset: int) -> str:
    text = f"{row['model']}, {row['stack']}, layer {int(row['layer']) + offset}: rank {row['rank']:g}"
    span = f" ({row['low']:g} to {row['high']:g}, n = {int(row['n'])})" if int(row["n"]) > 1 else ""
    return f"{text}{span} of {int(row['full_rank'])}"


PLOT = Plot(
    "Numerical rank by layer: the number of singular values above the tolerance times the largest.",
    {"inputs": COLUMNS, "weights": COLUMNS},
    draw,
    topic="rank",
)

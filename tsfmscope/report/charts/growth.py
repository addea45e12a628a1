"""Figures of numerical ranks by layer and by model (Yu et al. 2026, Figs. 4, 5, 6 and 9)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import altair as alt

from tsfmscope.report.charts import style
from tsfmscope.report.charts.spectra import MODALITIES
from tsfmscope.report.charts.style import GREY, Chart

if TYPE_CHECKING:
    import pandas as pd

# Tolerance -> name in the legend.
TOLERANCES = {epsilon: f"tolerance {epsilon:g}" for epsilon in (1e-1, 1e-2, 1e-3)}
COLOURS = style.order_colours(list(TOLERANCES.values()))
# Fractions of the width, drawn as thin lines, with their names.
FRACTIONS = {1.0: "width", 0.5: "½", 0.25: "¼", 0.125: "⅛"}
# Quantity -> title of its panel, in the order of the panels.
TITLES = {
    "embedded tokens": "embedded tokens",
    "query projections": "query projections",
    "their heads": "query projections, one head",
}
# Word before the number in the names of a grid's models -> title of the axis.
VARIED = {
    "width": "model width",
    "heads": "number of heads",
    "vocabulary": "rank of the vocabulary",
    "patch": "patch length (time steps)",
}
# Matches the word and the number at the end of a model's name, and the seed of a training of a population.
NUMBERED = re.compile(r"-([a-z]+)-[0-9.]+(?:-[0-9]+)?$")
HEIGHT = 190


def draw_growth(frame: pd.DataFrame, *, offset: int) -> Chart:
    """Draw the numerical rank by layer: one panel per model, one line per tolerance and stack.

    frame: columns of `plots.growth.COLUMNS`.
    offset: added to the layer. With 1, a layer input stands at the number of the layer that reads it, from 1.

    Time-series models come first. A band shows the range where n > 1. Hollow points: the tolerance is below
    the floor that rounding leaves.
    """
    rows = describe_ranks(frame.assign(position=frame["layer"] + offset), "position")
    y_scale = alt.Scale(domain=[0, 1.04 * float(frame["full_rank"].max())], nice=False)
    y, colour = alt.Y("rank:Q", title="numerical rank", scale=y_scale), _colours(rows)
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
            y="low:Q", y2="high:Q", fill=style.fill("tolerance", COLOURS), detail="stack:N"
        )
        line = base.mark_line(aria=False).encode(y=y, stroke=colour, strokeDash=style.dash("stack", stacks))
        full = style.guide(y=float(part["full_rank"].max()), dashes=(2, 2))
        title = model if set(modalities.values()) <= {"series"} else f"{model}\n{modalities[model] or 'unknown'}"
        # Vega-Lite leaves out the legend of the lines if the band stands before them.
        bands = [band] if int(part["n"].max()) > 1 else []
        layers = [full, line, *bands, _points(base, y, colour)]
        panels.append(style.name_panel(alt.layer(*layers), title, columns, HEIGHT))
    return style.arrange(panels, columns)


def draw_trend(frame: pd.DataFrame) -> Chart:
    """Draw the mean numerical rank against the quantity that a grid of models varies.

    frame: columns of `plots.trend.COLUMNS`; rows with x ≤ 0 are left out. There is one panel per quantity and
    family, and one line per tolerance, through the means of models with the same x. The x axis is logarithmic,
    labelled at the values of x. Where the width is the varied quantity, thin lines show the width and its fractions.
    """
    rows = describe_ranks(frame[frame["x"] > 0].assign(family=frame["family"].fillna("")), "x")
    order = {name: position for position, name in enumerate(TITLES)}
    pairs = set(zip(rows["quantity"], rows["family"], strict=True))
    cells = sorted(pairs, key=lambda pair: (order.get(pair[0], len(order)), pair[1]))
    columns, panels, colour = style.choose_columns(len(cells), 3), [], _colours(rows)
    x = alt.X("x:Q", **style.log_axis(name_varied(frame["model"]), rows["x"], sorted(rows["x"].unique().tolist())))
    for quantity, family in cells:
        part = rows[(rows["quantity"] == quantity) & (rows["family"] == family)]
        y = alt.Y("rank:Q", title="mean numerical rank", scale=style.from_zero(part["rank"]))
        base = alt.Chart(part).encode(x=x)
        line = base.mark_line(aria=False).encode(y=y.aggregate("mean"), stroke=colour)
        layers = [line, _points(base, y, colour)]
        if (part["width"] == part["x"]).all():
            low, high = float(part["x"].min()), float(part["x"].max())
            ends = [{"x": at, "rank": at * f, "text": name} for f, name in FRACTIONS.items() for at in (low, high)]
            thin = alt.Chart(alt.InlineData(ends)).encode(x=x, y=y)
            layers.append(
                thin.mark_line(strokeWidth=1, strokeDash=[2, 2], color=GREY, aria=False).encode(detail="text:N")
            )
            last = thin.transform_filter(alt.datum.x == high)
            layers.append(last.mark_text(align="left", dx=4, color=GREY, aria=False).encode(text="text:N"))
        panels.append(style.name_panel(alt.layer(*layers), f"{TITLES.get(quantity, quantity)}\n{family}", columns, 210))
    return style.arrange(panels, columns)


def describe_ranks(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the rows by tolerance and position, with columns `tolerance` (its name) and `tip`. column: position."""
    rows = frame[frame["epsilon"].isin(TOLERANCES)].sort_values(["epsilon", column], kind="stable")
    names = rows["epsilon"].map(TOLERANCES)
    texts = [
        f"{model}, {name}\n{at:g}: rank {rank:.3g}"
        for model, name, at, rank in zip(rows["model"], names, rows[column], rows["rank"], strict=True)
    ]
    return rows.assign(tolerance=names, tip=texts)


def _colours(rows: pd.DataFrame) -> alt.Stroke:
    return style.stroke("tolerance", {name: c for name, c in COLOURS.items() if name in set(rows["tolerance"])})


def _points(base: alt.Chart, y: alt.Y, colour: alt.Stroke) -> Chart:
    """Draw one mark per rank, hollow where the tolerance is below the rounding error."""
    return base.mark_point(size=30).encode(
        y=y,
        stroke=colour,
        fill=style.fill("tolerance", COLOURS),
        fillOpacity=alt.condition("datum.below_noise_floor", alt.value(0), alt.value(1)),
        **style.tip(),
    )


def name_varied(models: pd.Series) -> str:
    """Return the quantity that a grid varies, from names such as chronos-heads-8 of all its models."""
    words = {match[1] if (match := NUMBERED.search(str(model))) else "" for model in models}
    return VARIED.get(words.pop(), "varied quantity") if len(words) == 1 else "varied quantity"


def order_panels(frame: pd.DataFrame) -> list[str]:
    """Return the models in the order of their modality, time series first, then by name."""
    modalities = dict(zip(frame["model"], frame["modality"], strict=True))

    def sort_key(model: str) -> tuple[int, str]:
        modality = modalities[model]
        return MODALITIES.index(modality) if modality in MODALITIES else len(MODALITIES), model

    return sorted(modalities, key=sort_key)


def order_stacks(rows: pd.DataFrame) -> list[str]:
    """Return the stacks, encoders first."""
    return sorted(style.distinct_values(rows, "stack"), key=lambda name: ("encoder" not in name, name))

"""Figures of singular values against their index, as in Yu et al. 2026, Figs. 2a, 3a, 5c and 13."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt

from tsfmscope.report.charts import style
from tsfmscope.report.charts.style import Chart

if TYPE_CHECKING:
    import pandas as pd

# Modalities, in the order that assigns dashes.
MODALITIES = ("series", "text", "image", "table")
RATIO, INDEX = "singular value ÷ largest", "index of the singular value, largest first"
SPECIAL = {"with_special": "with special tokens", "valued": "value tokens only"}


def draw_spectrum(frame: pd.DataFrame, models: Sequence[str]) -> Chart:
    """Draw the relative singular values of the embedded tokens: one line per model, data set and condition.

    frame: columns of `plots.spectrum.COLUMNS`, without values below the floor that rounding leaves.
    models: the models of the whole page, which determine the colours; a grid of models is coloured by its order.
    Dashes show modalities where there are several.

    There is one panel per data set where a model has several under one condition; else, and where modalities
    are compared, one panel for all.
    """
    names, colours = list_dataset_panels(frame), choose_colours(frame, models)
    modalities = [name for name in MODALITIES if name in set(frame["modality"])]
    columns, panels = min(2, max(1, len(names))), []
    for name in names or [""]:
        part = frame[frame["dataset"] == name] if names else frame
        texts = part["model"] + "\n" + part["dataset"] + ", " + part["condition"]
        line = alt.Chart(part.assign(tip=texts)).mark_line()
        line = line.encode(
            x=alt.X("j:Q", title=INDEX),
            y=alt.Y("ratio:Q", **style.log_axis(RATIO, frame["ratio"])),
            stroke=style.stroke("model", colours),
            strokeDash=style.dash("modality", modalities),
            detail=["dataset:N", "condition:N"],
            **style.tip(),
        )
        panels.append(style.name_panel(line, name, columns, 220 if names else 300))
    return style.arrange(panels, columns)


def draw_constant(frame: pd.DataFrame) -> Chart:
    """Draw the relative singular values of every layer's input for a constant series: one line per layer.

    frame: columns of `plots.constant.COLUMNS`. There is one panel per model, stack and kind of tokens; the
    legend numbers layers from 1.
    """
    cells = sorted(
        set(zip(frame["model"], frame["stack"], frame["tokens"], strict=True)),
        key=lambda cell: (cell[0], cell[1], cell[2] != "with_special"),
    )
    # One data set can have several rounding errors.
    rows = frame.groupby(["model", "stack", "tokens", "layer", "j"], as_index=False)["ratio"].max()
    rows = rows.assign(layer=rows["layer"] + 1)
    texts = [f"layer {layer}, index {j}\n{ratio:.3g}" for layer, j, ratio in zip(
        rows["layer"], rows["j"], rows["ratio"], strict=True)]  # fmt: skip
    rows, colours = rows.assign(tip=texts), style.order_colours(style.distinct_values(rows, "layer"))
    panels = []
    for model, stack, tokens in cells:
        part = rows[(rows["model"] == model) & (rows["stack"] == stack) & (rows["tokens"] == tokens)]
        base = alt.Chart(part).encode(
            x=alt.X("j:Q", title=INDEX),
            y=alt.Y("ratio:Q", **style.log_axis(RATIO, rows["ratio"])),
            stroke=style.stroke("layer", colours, "input of layer"),
        )
        points = base.mark_point(size=20).encode(fill=style.fill("layer", colours), **style.tip())
        drawn = alt.layer(base.mark_line(aria=False), points)
        panels.append(style.name_panel(drawn, f"{model}\n{stack}, {SPECIAL.get(tokens, tokens)}", 2, 200))
    return style.arrange(panels, 2)


def list_dataset_panels(frame: pd.DataFrame) -> list[str]:
    """Return the data sets that get a panel each; empty if one panel holds all.

    Panels are separate if a model has several data sets under one condition and there is at most one
    modality.
    """
    if frame["modality"].nunique() > 1:
        return []
    several = frame.groupby(["model", "condition"])["dataset"].nunique().max() if len(frame) else 0
    return sorted(frame["dataset"].unique()) if several > 1 else []


def choose_colours(frame: pd.DataFrame, models: Sequence[str]) -> dict[str, str]:
    """Return model -> colour: by x in a grid, else the page's colours."""
    order = frame.drop_duplicates("model").sort_values(["x", "model"])
    if len(order) and order["x"].notna().all():
        return style.order_colours(order["model"].tolist())
    known = [*models, *(name for name in order["model"] if name not in models)]
    return {name: style.choose_colour(name, known) for name in order["model"]}

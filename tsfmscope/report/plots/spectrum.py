"""Singular values of the embedded tokens, one line per model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import altair as alt

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot, plane
from tsfmscope.report.style import MODALITIES, Chart
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("model", "modality", "x", "dataset", "condition", "n_rows", "floor", "j", "ratio")
RATIO, INDEX = "singular value ÷ largest", "index of the singular value, largest first"


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the singular values, and the tokens on two singular directions if they were measured."""
    yield from draw_embedded(study, models)
    yield from plane.draw(study, models)


def draw_embedded(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one line per model, data set and condition."""
    frame = study.rows("embedded", COLUMNS)
    if frame.empty:
        return
    cells, has_panels = frame.drop_duplicates(["model", "dataset", "condition"]), bool(list_dataset_panels(frame))
    words = f"Line chart of relative singular values of embedded tokens, logarithmic, {len(cells)} lines, one per model"
    words += " and data set." if has_panels else "."
    caption = f"Lines end at the rounding error. Number of tokens: {style.format_range(cells['n_rows'])}."
    caption += "" if has_panels else f" Data sets: {', '.join(sorted(set(cells['dataset'])))}."
    yield Figure("embedded", draw_spectrum(frame, models), words, caption)


def draw_spectrum(frame: pd.DataFrame, models: Sequence[str]) -> Chart:
    """Draw the relative singular values of the embedded tokens: one line per model, data set and condition.

    frame: COLUMNS, without values below the floor that rounding leaves.
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
        line = (
            alt.Chart(part.assign(tip=texts))
            .mark_line()
            .encode(
                x=alt.X("j:Q", title=INDEX),
                y=alt.Y("ratio:Q", **style.make_log_axis(RATIO, frame["ratio"])),
                stroke=style.encode_stroke("model", colours),
                strokeDash=style.encode_dash("modality", modalities),
                detail=["dataset:N", "condition:N"],
                **style.encode_tip(),
            )
        )
        panels.append(style.name_panel(line, name, columns, 220 if names else 300))
    return style.arrange_panels(panels, columns)


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


PLOT = Plot(
    "Singular values of the matrix of embedded tokens, relative to the largest. The faster they fall, the lower the "
    "rank.",
    {"embedded": COLUMNS, "planes": plane.COLUMNS},
    draw,
    topic="rank",
)

"""Numerical rank against the quantity that a grid of models varies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import altair as alt

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.plots.growth import describe_ranks, encode_tolerance, explain_hollow, mark_ranks
from tsfmscope.report.style import GREY, Chart
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("model", "family", "quantity", "x", "epsilon", "width", "below_noise_floor", "rank", "n")
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
    "width": "model width", "heads": "number of heads", "vocabulary": "rank of the vocabulary",
    "patch": "patch length (time steps)",
}  # fmt: skip
# Matches the word and the number at the end of a model's name, and the seed of a training of a population.
NUMBERED = re.compile(r"-([a-z]+)-[0-9.]+(?:-[0-9]+)?$")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per quantity and family; nothing if no x is above zero."""
    frame = study.rows("trend", COLUMNS)
    if not (frame["x"] > 0).any():
        return
    quantities = frame["quantity"].nunique()
    words = f"Line charts of mean numerical rank, {quantities} matrices, against the quantity that varies."
    varies_width = (frame["width"] == frame["x"]).groupby(frame["quantity"]).all().any()
    caption = "Dotted: the width, and a half, a quarter and an eighth of it." if varies_width else ""
    if frame.duplicated(["family", "quantity", "epsilon", "x"]).any():
        caption = f"Dots: models, such as trainings with several seeds; lines: their means. {caption}".strip()
    yield Figure("trend", draw_trend(frame), words, (caption + explain_hollow(frame)).strip())


def draw_trend(frame: pd.DataFrame) -> Chart:
    """Draw the mean numerical rank against the quantity that a grid of models varies.

    frame: COLUMNS; rows with x ≤ 0 are left out. There is one panel per quantity and
    family, and one line per tolerance, through the means of models with the same x. The x axis is logarithmic,
    labelled at the values of x. Where the width is the varied quantity, thin lines show the width and its fractions.
    """
    rows = describe_ranks(frame[frame["x"] > 0].assign(family=frame["family"].fillna("")), "x")
    pairs = set(zip(rows["quantity"], rows["family"], strict=True))
    cells = sorted(pairs, key=lambda pair: (style.find_position(pair[0], list(TITLES)), pair[1]))
    columns, panels, colour = style.choose_columns(len(cells), 3), [], encode_tolerance(rows)
    x = alt.X("x:Q", **style.make_log_axis(name_varied(frame["model"]), rows["x"], sorted(rows["x"].unique().tolist())))
    for quantity, family in cells:
        part = rows[(rows["quantity"] == quantity) & (rows["family"] == family)]
        y = alt.Y("rank:Q", title="mean numerical rank", scale=style.scale_from_zero(part["rank"]))
        base = alt.Chart(part).encode(x=x)
        line = base.mark_line(aria=False).encode(y=y.aggregate("mean"), stroke=colour)
        layers = [line, mark_ranks(base, y, colour)]
        if (part["width"] == part["x"]).all():
            low, high = float(part["x"].min()), float(part["x"].max())
            ends = [{"x": at, "rank": at * f, "text": name} for f, name in FRACTIONS.items() for at in (low, high)]
            thin = alt.Chart(alt.InlineData(ends)).encode(x=x, y=y)
            line = thin.mark_line(strokeWidth=1, strokeDash=[2, 2], color=GREY, aria=False).encode(detail="text:N")
            last = thin.transform_filter(alt.datum.x == high).mark_text(align="left", dx=4, color=GREY, aria=False)
            layers += [line, last.encode(text="text:N")]
        panels.append(style.name_panel(alt.layer(*layers), f"{TITLES.get(quantity, quantity)}\n{family}", columns, 210))
    return style.arrange_panels(panels, columns)


def name_varied(models: pd.Series) -> str:
    """Return the quantity that a grid varies, from names such as chronos-heads-8 of all its models."""
    words = {match[1] if (match := NUMBERED.search(str(model))) else "" for model in models}
    return VARIED.get(words.pop(), "varied quantity") if len(words) == 1 else "varied quantity"


PLOT = Plot(
    "Numerical rank, averaged over layers or data sets, against the quantity in which the models differ.",
    {"trend": COLUMNS},
    draw,
    topic="rank",
)

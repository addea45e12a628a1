"""Angles between tokens, or between rows of a projection."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from tsfmscope.report import style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot, spectrum
from tsfmscope.report.style import Chart
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

PANEL = ["model", "dataset", "condition", "what", "matrix", "stack", "layer"]
COLUMNS = (*PANEL, "x", "dimension", "row", "head", "degrees")
KINDS = {
    "rows": "Rows of the query projection of the first block; white lines separate heads. ",
    "tokens": "Embedded tokens of one window, in order. ",
    "gaussian": "Gaussian: independent random vectors. ",
}
# A right angle in degrees.
RIGHT = 90
# Set of vectors -> title of both axes of its panel.
VECTORS = {"rows": "row of the projection, by head", "tokens": "token position", "gaussian": "vector"}
# viridis (van der Walt and Smith 2015), perceptually uniform: brighter is larger.
VIRIDIS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw singular values of embedded tokens if they were measured, and one heat map per set of vectors."""
    yield from spectrum.draw_embedded(study, models)
    frame = study.rows("angles", COLUMNS)
    if len(frame):
        parts = split_panels(frame)
        medians = [f"{make_title(part).replace(chr(10), ', ')}: {_median(part)}°" for part in parts]
        words = f"Heat maps of angles between vectors, {len(parts)} panels."
        kinds = "".join(text for kind, text in KINDS.items() if kind in set(frame["what"]))
        caption = f"{kinds}Median angle between two vectors: {'; '.join(medians)}."
        yield Figure("angles", draw_angles(frame), words, caption)


def _median(part: pd.DataFrame) -> str:
    """Return the median angle between two different vectors in whole degrees, as text; – if there is none."""
    matrix = read_matrix(part).astype(float)
    pairs = matrix[~np.eye(len(matrix), dtype=bool)]
    pairs = pairs[pairs <= RIGHT]
    return f"{np.median(pairs):.0f}" if pairs.size else "–"


def draw_angles(frame: pd.DataFrame) -> Chart:
    """Draw the angles between all pairs of vectors, in degrees from 0 to 90; one panel per set of vectors.

    frame: COLUMNS. Brighter is larger. Lines separate the heads of a projection's
    rows, which have one label per head. A panel is one image, since it can have a million elements.
    """
    parts = split_panels(frame)
    columns = next((n for n in (4, 3) if len(parts) % n == 0), min(len(parts), 4))
    side, panels = min(240, style.WIDTHS[columns]), []
    colour = alt.Color(
        "degrees:Q", title="angle (radians)", scale=alt.Scale(domain=[0, RIGHT], range=list(VIRIDIS)),
        legend=alt.Legend(
            gradientLength=160, values=[0, 45, 90], titleOrient="left",
            labelExpr="['0', 'π/4', 'π/2'][round(datum.value / 45)]",
        ),
    )  # fmt: skip
    for part in parts:
        matrix, title = read_matrix(part), VECTORS[part["what"].iloc[0]]
        axis, edges = _head_axis(part), _find_edges(part)
        ends = [-0.5, len(matrix) - 0.5]
        x = alt.X("x:Q", title=title, scale=alt.Scale(domain=ends, nice=False, zero=False), axis=axis)
        y = alt.Y("y:Q", title=title, scale=alt.Scale(domain=ends[::-1], nice=False, zero=False), axis=axis)
        row = {"url": _encode_image(matrix), "degrees": 0, "x": -0.5, "y": -0.5}
        base = alt.Chart(alt.InlineData([row]))
        image = base.mark_image(width=side, height=side, align="left", baseline="top", aspect=False, smooth=False)
        lines = alt.Chart(alt.InlineData([{"x": edge, "y": edge} for edge in edges]))
        lines = lines.mark_rule(color="white", opacity=0.75, strokeWidth=0.8, aria=False)
        drawn = alt.layer(
            # An invisible mark brings the legend of the colours.
            base.mark_point(opacity=0, aria=False).encode(x=x, y=y, color=colour),
            image.encode(x=x, y=y, url="url:N"),
            lines.encode(x=x),
            lines.encode(y=y),
        )
        panels.append(style.name_panel(drawn, make_title(part), columns, side).properties(width=side))
    return style.arrange_panels(panels, columns, color="shared")


def split_panels(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of each set of vectors.

    Models are in the order of x, the quantity that a grid of models varies; Gaussian vectors come last.
    """
    placed = frame.assign(gaussian=frame["what"] == "gaussian", head=frame["head"].astype("Float64"))
    order = placed.sort_values(["gaussian", "x", "model", "dataset", "row"], kind="stable")
    return [part.sort_values("row") for _, part in order.groupby(PANEL, sort=False, dropna=False)]


def read_matrix(part: pd.DataFrame) -> np.ndarray:
    """Return the [n, n] angles of one set in whole degrees, uint8; missing ones are 255, above the scale."""
    rows = [[int(degrees) if degrees else 255 for degrees in text.split(" ")] for text in part["degrees"]]
    return np.array(rows, dtype=np.uint8)


def make_title(part: pd.DataFrame) -> str:
    """Return a title of two lines for a set of vectors."""
    head = part.iloc[0]
    if head["what"] == "gaussian":
        return f"Gaussian\nin {int(head['dimension'])} dimensions"
    if head["what"] == "rows":
        heads = part["head"].nunique()
        return f"{head['model']}\n{heads} head{'' if heads == 1 else 's'}"
    return f"{head['model']}\n{head['dataset']}"


def _find_edges(part: pd.DataFrame) -> list[float]:
    """Return the positions between the rows of different heads; empty if there is nothing to separate."""
    heads = part["head"].dropna().tolist()
    return [at - 0.5 for at in range(1, len(heads)) if heads[at] != heads[at - 1]] if len(heads) == len(part) else []


def _head_axis(part: pd.DataFrame) -> alt.Axis:
    """Return an axis with one label in the middle of every head, numbered from 1; else one with numbers."""
    heads = part["head"].dropna()
    if len(heads) != len(part) or heads.empty:
        return alt.Axis(grid=False, tickCount=4, format="d")
    places = heads.reset_index(drop=True).reset_index().groupby("head")["index"].mean()
    return style.name_ticks(
        {place: str(int(str(head).partition(".")[0]) + 1) for head, place in places.items()}, grid=False
    )


def _encode_image(matrix: np.ndarray) -> str:
    """Return angles in degrees as a palette PNG in a data: URI; what is above the scale is grey."""
    steps = np.linspace(0, RIGHT, len(VIRIDIS))
    shades = [[int(colour[at : at + 2], 16) for colour in VIRIDIS] for at in (1, 3, 5)]
    palette = np.stack([np.interp(np.arange(256), steps, shade) for shade in shades], axis=1).round().astype(np.uint8)
    palette[RIGHT + 1 :] = 200
    height, width = matrix.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), matrix], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [(b"IHDR", header), (b"PLTE", palette.tobytes()), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


PLOT = Plot(
    "Angle between every pair of vectors, from 0 (dark) to a right angle (bright). The brighter, the higher the rank.",
    {"angles": COLUMNS, "embedded": spectrum.COLUMNS},
    draw,
    topic="rank",
)

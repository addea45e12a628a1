"""Direct labels: names next to the ends of lines and next to points, placed where they hide nothing.

Plotly does not move labels apart, and adjustText, which does, needs a matplotlib figure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tsfmscope.report import colorscale

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Size of a label in pixels: one character, one line.
CHARACTER, LINE = 5.6, 11.0
# Distance from a point to its label in pixels, which is that of Plotly's text. A label that is further away, or
# higher or lower by more than RISE, gets a thin line.
NEAR, LEADER, RISE = 7.0, 16.0, 7.0
# Costs of a placement in pixels: left of the point, a covered line's point, another label, outside the panel.
LEFT, COVERED, OVERLAP, OUTSIDE = 12.0, 25.0, 1000.0, 3000.0


class Frame(NamedTuple):
    """A panel's axes and its size in pixels. x, y: range, as log10 if the axis is logarithmic."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: float
    height: float
    log_x: bool = False
    log_y: bool = False

    def to_pixels(self, x: Sequence[float], y: Sequence[float]) -> np.ndarray:
        """Return positions in pixels from the lower left corner: [n, 2]."""
        ends = ((x, self.x, self.width, self.log_x), (y, self.y, self.height, self.log_y))
        columns = []
        for values, (low, high), size, log in ends:
            at = np.asarray(values, dtype=float)
            with np.errstate(divide="ignore", invalid="ignore"):
                at = np.log10(at) if log else at
            columns.append((at - low) / (high - low) * size)
        return np.stack(columns, axis=1)

    def to_values(self, at: tuple[float, float]) -> tuple[float, float]:
        """Return the values at a position in pixels, rounded to six digits."""
        ends = ((at[0], self.x, self.width, self.log_x), (at[1], self.y, self.height, self.log_y))
        values = (low + pixel / size * (high - low) for pixel, (low, high), size, _ in ends)
        x, y = (10.0**v if log else v for v, log in zip(values, (self.log_x, self.log_y), strict=True))
        return float(f"{x:.6g}"), float(f"{y:.6g}")


class Label(NamedTuple):
    """A text, the point that it names, and its colour."""

    text: str
    x: float
    y: float
    colour: str


def draw_labels(labels: Sequence[Label], obstacles: np.ndarray, frame: Frame) -> list[go.Scatter]:
    """Return traces that write every label near its point, with a thin line to the point where it is far.

    obstacles: positions in pixels that labels should not cover, such as points of lines: [n, 2].
    """
    import plotly.graph_objects as go

    traces = []
    for label, (left, middle), is_right in place_labels(labels, obstacles, frame):
        start = frame.to_pixels([label.x], [label.y])[0]
        edge = left if is_right else left + measure_text(label.text)
        if math.hypot(edge - start[0], middle - start[1]) > LEADER or abs(middle - start[1]) > RISE:
            end = frame.to_values((edge, middle))
            line = {"color": colorscale.set_opacity(colorscale.GREY, 0.7), "width": 0.7}
            traces.append(
                go.Scatter(
                    x=[label.x, end[0]], y=[label.y, end[1]], mode="lines", line=line, hoverinfo="skip",
                    showlegend=False,
                )
            )  # fmt: skip
        x, y = frame.to_values((edge - NEAR if is_right else edge + NEAR, middle))
        traces.append(
            go.Scatter(
                x=[x], y=[y], mode="text", text=[label.text], hoverinfo="skip", showlegend=False,
                textposition="middle right" if is_right else "middle left",
                textfont={"size": 10, "color": label.colour}, cliponaxis=False,
            )
        )  # fmt: skip
    return traces


def place_labels(
    labels: Sequence[Label], obstacles: np.ndarray, frame: Frame
) -> Iterator[tuple[Label, tuple[float, float], bool]]:
    """Yield every label with its left edge and its middle in pixels, and whether it stands right of its point.

    Labels are placed one after another, from the top, each at the position of least cost: distance, covered
    obstacles, overlap with labels placed before, space outside the panel.
    """
    points = frame.to_pixels([label.x for label in labels], [label.y for label in labels])
    occupied: list[tuple[float, float, float, float]] = []
    for at in np.lexsort((points[:, 0], -points[:, 1])):
        label, point, width = labels[at], points[at], measure_text(labels[at].text)
        left, middle, is_right = min(
            _candidates(point, width), key=lambda c: _cost(c, point, width, occupied, obstacles, frame)
        )
        occupied.append((left, middle - LINE / 2, left + width, middle + LINE / 2))
        yield label, (left, middle), is_right


def sample_line(x: Sequence[float], y: Sequence[float], frame: Frame) -> np.ndarray:
    """Return positions in pixels along a line, about four pixels apart: [n, 2]."""
    points = frame.to_pixels(x, y)
    points = points[np.isfinite(points).all(axis=1)]
    parts = [points]
    for start, end in itertools.pairwise(points):
        steps = int(np.hypot(*(end - start)) // 4)
        parts.append(start + (end - start) * np.linspace(0, 1, steps + 2)[1:-1, None])
    return np.concatenate(parts)


def surround(points: np.ndarray, radius: float = 6.0) -> np.ndarray:
    """Return positions on and around the marks at these positions, all in pixels: [9 n, 2]."""
    ring = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    around = np.stack([np.cos(ring), np.sin(ring)], axis=1) * radius
    return np.concatenate([points, (points[:, None] + around[None]).reshape(-1, 2)])


def measure_text(text: str) -> float:
    """Return the approximate width of a label in pixels."""
    return CHARACTER * len(text)


def _candidates(point: np.ndarray, width: float) -> Iterator[tuple[float, float, bool]]:
    """Yield left edge, middle and side of possible places, near ones first."""
    rises = [0.0, *itertools.chain.from_iterable((step * 6.0, -step * 6.0) for step in range(1, 36))]
    for rise, away in itertools.product(rises, (NEAR, 3 * NEAR, 6 * NEAR)):
        yield point[0] + away, point[1] + rise, True
        yield point[0] - away - width, point[1] + rise, False


def _cost(
    candidate: tuple[float, float, bool], point: np.ndarray, width: float,
    occupied: Sequence[tuple[float, float, float, float]], obstacles: np.ndarray, frame: Frame,
) -> float:  # fmt: skip
    left, middle, is_right = candidate
    box = (left - 2, middle - LINE / 2, left + width + 2, middle + LINE / 2)
    edge = left if is_right else left + width
    cost = math.hypot(edge - point[0], middle - point[1]) + (0 if is_right else LEFT)
    for low_x, low_y, high_x, high_y in occupied:
        if box[0] < high_x and low_x < box[2] and box[1] < high_y and low_y < box[3]:
            cost += OVERLAP
    if len(obstacles):
        inside = (obstacles > [box[0], box[1]]).all(axis=1) & (obstacles < [box[2], box[3]]).all(axis=1)
        cost += COVERED * int(inside.sum())
    if box[0] < 0 or box[2] > frame.width or box[1] < 0 or box[3] > frame.height:
        cost += OUTSIDE
    return cost

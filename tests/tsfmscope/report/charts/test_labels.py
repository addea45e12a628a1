"""Direct labels hide nothing: neither each other, nor lines, and all stay inside their panel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tsfmscope.report.charts.labels import (
    LINE,
    Frame,
    Label,
    draw_labels,
    measure_text,
    place_labels,
    sample_line,
)

FRAME = Frame((0, 10), (-3, 0), 400, 200, log_y=True)
# Eight lines that fall from 1 and end close to each other.
LINES = [([0, 7], [1.0, 10.0 ** -(1 + step / 20)]) for step in range(8)]


def make_labels() -> list[Label]:
    return [Label(f"model {step}", x[-1], y[-1], "#000000") for step, (x, y) in enumerate(LINES)]


def test_pixels_and_values_are_inverse() -> None:
    ((x, y),) = FRAME.to_pixels([5], [0.1])
    assert (x, y) == pytest.approx((200, 400 / 3))
    assert FRAME.to_values((x, y)) == pytest.approx((5, 0.1))


def test_labels_do_not_overlap_and_stay_in_the_panel() -> None:
    obstacles = np.concatenate([sample_line(x, y, FRAME) for x, y in LINES])
    placed = list(place_labels(make_labels(), obstacles, FRAME))
    boxes = [(left, middle, left + measure_text(label.text)) for label, (left, middle), _ in placed]
    assert sorted(label.text for label, *_ in placed) == [f"model {step}" for step in range(8)]
    for one, other in itertools.combinations(boxes, 2):
        assert abs(one[1] - other[1]) >= LINE or one[2] <= other[0] or other[2] <= one[0]
    for left, middle, right in boxes:
        assert left >= 0 and right <= FRAME.width and 0 < middle < FRAME.height
        covered = (obstacles[:, 0] > left) & (obstacles[:, 0] < right) & (abs(obstacles[:, 1] - middle) < LINE / 2)
        assert not covered.any()


def test_a_label_far_from_its_point_has_a_line_to_it() -> None:
    obstacles = np.concatenate([sample_line(x, y, FRAME) for x, y in LINES])
    traces = draw_labels(make_labels(), obstacles, FRAME)
    assert sum(trace.mode == "text" for trace in traces) == 8
    starts = [(trace.x[0], trace.y[0]) for trace in traces if trace.mode == "lines"]
    assert starts and set(starts) <= {(x[-1], y[-1]) for x, y in LINES}
    (alone,) = draw_labels([Label("alone", 2, 0.1, "#123456")], np.zeros((0, 2)), FRAME)
    assert (alone.mode, alone.text, alone.textfont.color) == ("text", ("alone",), "#123456")
    assert (alone.x[0], alone.y[0]) == pytest.approx((2, 0.1))


def test_a_line_is_sampled_closely_and_missing_points_are_left_out() -> None:
    points = sample_line([0, 5, np.nan, 10], [1.0, 0.1, 0.1, 0.01], FRAME)
    assert np.isfinite(points).all()
    assert len(points) > 100

"""The plot of a certificate shows every task's ratio, the mean with its upper limit, and both limits."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from tsfmscope.report.charts.certificate import draw_certificate
from tsfmscope.report.render.mpl_render import render


def rows(*ratios: float) -> pd.DataFrame:
    return pd.DataFrame({"name": [f"set <{n}>" for n in range(len(ratios))], "horizon": 12, "ratio": ratios})


def test_tasks_are_ordered_and_those_above_the_limit_are_open() -> None:
    figure = draw_certificate(rows(1.2, 0.9, 1.05), mean=1.04, upper=1.3, margin=1.02, worst=1.1, units="2 sources")
    (marks,) = [trace for trace in figure.data if trace.name == "task"]
    assert (list(marks.x), list(marks.y)) == ([0.9, 1.05, 1.2], [1, 2, 3])
    assert list(marks.marker.symbol) == ["circle", "circle", "circle-open"]
    assert list(figure.layout.yaxis.ticktext) == [
        "<b>mean of 2 sources</b>",
        *(f"set &lt;{n}&gt;, 12" for n in (1, 2, 0)),
    ]
    lines = {tuple(trace.x) for trace in figure.data if trace.mode == "lines"}
    assert {(1, 1), (1.02, 1.02), (1.1, 1.1), (1.04, 1.3)} <= lines


@pytest.mark.parametrize(
    ("ratios", "upper"),
    [((1.0,), math.inf), ((1.0, 1.0), 1.0), ((1e-9, 1e9), 1e80), ((0.2, 1.3), 198.0), ((1.0, math.inf), math.inf)],
)
def test_extreme_ratios_are_drawn(ratios: tuple[float, ...], upper: float) -> None:
    mean = 1.0 if math.isfinite(max(ratios)) else math.inf
    figure = draw_certificate(rows(*ratios), mean=mean, upper=upper, margin=1.02, worst=1.1, units="2 series")
    low, high = (10**end for end in figure.layout.xaxis.range)
    finite = [ratio for ratio in ratios if math.isfinite(ratio)]
    assert low < min(ratios) and max(finite) < high < 100 * max(*finite, 1.1)
    assert len(figure.layout.xaxis.tickvals) >= 2
    assert render([("", figure)])["png"].startswith(b"\x89PNG")

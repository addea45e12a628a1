"""The plot of a certificate shows every task's ratio, the mean with its upper limit, and both limits."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from tests.tsfmscope.report.drawn import read_panels
from tsfmscope.report.certificate import draw_certificate
from tsfmscope.report.render import draw_svg


def rows(*ratios: float) -> pd.DataFrame:
    return pd.DataFrame({"name": [f"set <{n}>" for n in range(len(ratios))], "horizon": 12, "ratio": ratios})


def test_tasks_are_ordered_and_those_above_the_limit_are_open() -> None:
    chart = draw_certificate(rows(1.2, 0.9, 1.05), mean=1.04, upper=1.3, margin=1.02, worst=1.1, units="2 sources")
    (panel,) = read_panels(chart)
    mean, tasks = panel.select("point")
    assert [(row["ratio"], row["is_failed"]) for row in tasks.rows] == [(1.2, True), (1.05, False), (0.9, False)]
    assert tasks.encoding["y"]["scale"]["domain"] == [*(f"set <{n}>, 12" for n in (0, 2, 1)), "mean of 2 sources"]
    assert [(row["ratio"], row["upper"]) for row in mean.rows] == [(1.04, 1.3)]
    limits = [row["ratio"] for layer in panel.select("rule") if "stroke" in layer.encoding for row in layer.rows]
    assert limits == [1.02, 1.1]


@pytest.mark.parametrize(
    ("ratios", "upper"),
    [((1.0,), math.inf), ((1.0, 1.0), 1.0), ((1e-9, 1e9), 1e80), ((0.2, 1.3), 198.0), ((1.0, math.inf), math.inf)],
)
def test_extreme_ratios_are_drawn(ratios: tuple[float, ...], upper: float) -> None:
    mean = 1.0 if math.isfinite(max(ratios)) else math.inf
    chart = draw_certificate(rows(*ratios), mean=mean, upper=upper, margin=1.02, worst=1.1, units="2 series")
    (panel,) = read_panels(chart)
    tasks = panel.select("point")[1]
    low, high = tasks.encoding["x"]["scale"]["domain"]
    finite = [ratio for ratio in ratios if math.isfinite(ratio)]
    assert low < min(ratios) and max(finite) < high < 100 * max(*finite, 1.1)
    assert all(low <= value <= high for value in tasks.values("x"))
    assert "<svg" in draw_svg(chart)

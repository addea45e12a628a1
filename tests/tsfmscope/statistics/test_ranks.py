"""Rank correlations against scipy's, units written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tsfmscope.statistics.ranks import kendall, spearman, undefined_reason, weighted_spearman

VALUES = st.one_of(st.integers(-3, 3).map(float), st.just(float("nan")), st.just(1e30), st.just(float("inf")))
PAIRS = st.lists(st.tuples(VALUES, VALUES, st.integers(0, 3)), min_size=0, max_size=12)


@settings(max_examples=200, deadline=None)
@given(PAIRS)
def test_weighted_spearman_is_scipy_s_of_units_written_out(units: list[tuple[float, float, int]]) -> None:
    x, y, w = (np.array(values, dtype=float) for values in zip(*units, strict=True)) if units else np.zeros((3, 0))
    (got,) = weighted_spearman(x, y, w[None])
    there = np.isfinite(x) & np.isfinite(y) & (w > 0)
    a, b = (np.repeat(values[there], w[there].astype(int)) for values in (x, y))
    if there.sum() < 3 or len(set(a)) < 2 or len(set(b)) < 2:
        assert np.isnan(got)
    else:
        assert got == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=0, max_size=12))
def test_kendall_and_spearman_are_scipy_s_or_say_why_not(units: list[tuple[float, float]]) -> None:
    x, y = (np.array(values, dtype=float) for values in zip(*units, strict=True)) if units else np.zeros((2, 0))
    there = np.isfinite(x) & np.isfinite(y)
    if undefined_reason(x, y):
        assert np.isnan(kendall(x, y)) and np.isnan(spearman(x, y))
    else:
        assert kendall(x, y) == pytest.approx(stats.kendalltau(x[there], y[there]).statistic, abs=1e-12)
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x[there], y[there]).statistic, abs=1e-12)


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ([1, 2, np.nan], [1, 2, 3], "2 units with isotropy and NMSE, needs 3"),
        ([1, 1, 1], [1, 2, 3], "isotropy constant"),
        ([1, 2, 3], [0, 0, 0], "log NMSE constant"),
        ([0, 0, 0], [0, 0, 0], "isotropy and log NMSE constant"),
        ([1, 2, 3], [3, 2, 1], None),
        ([], [], "0 units with isotropy and NMSE, needs 3"),
    ],
)
def test_what_has_no_correlation_says_why(x: list[float], y: list[float], reason: str | None) -> None:
    assert undefined_reason(np.array(x, dtype=float), np.array(y, dtype=float)) == reason

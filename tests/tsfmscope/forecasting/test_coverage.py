"""Coverage of an interval: a case by hand, missing targets, and the ends."""

from __future__ import annotations

import numpy as np
import pytest

from tsfmscope.forecasting.coverage import count_covered

NAN = np.nan


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ([0.0, 1.0, 2.0, 3.0], (2, 4)),
        ([0.9, 1.0, 2.0, 2.1], (2, 4)),
        ([NAN, 1.5, NAN, 9.0], (1, 2)),
        ([NAN] * 4, (0, 0)),
    ],
)
def test_targets_inside_are_counted_among_the_observed_ones(target: list[float], expected: tuple[int, int]) -> None:
    assert count_covered(np.array(target), np.full(4, 1.0), np.full(4, 2.0)) == expected


def test_the_true_quantiles_cover_80_percent() -> None:
    covered, observed = count_covered(
        np.random.default_rng(0).random(20_000), np.full(20_000, 0.1), np.full(20_000, 0.9)
    )
    assert covered / observed == pytest.approx(0.8, abs=0.01)

"""Means over data sets: by hand, their intervals by another computation, and what is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from tsfmscope.forecasting.skill import geometric_mean, mean_skill

ASKED = {"bootstrap": 500, "seed": 4}


def row(dataset: str, wql: float | None, mae: float | None = 1.0, **facts: Any) -> dict[str, Any]:
    """A row of `dataset_skill`."""
    plain = {"model": "m", "dataset": dataset, "is_real": True, "trained_on": False}
    return plain | {"wql_ratio": wql, "mae_ratio": mae} | facts


def test_the_mean_is_the_root_of_the_product_of_real_and_of_synthetic_sets_apart() -> None:
    rows = [row("a", 0.5, 2.0), row("b", 2.0, 4.0), row("c", 8.0, 1.0), row("k", 0.1, 0.2, is_real=False)]
    real, synthetic = mean_skill(rows, **ASKED)
    assert (real["kind"], real["n_datasets"], real["wql"], real["mae"]) == ("real", 3, *map(pytest.approx, (2.0, 2.0)))
    assert (synthetic["kind"], synthetic["n_datasets"]) == ("synthetic", 1)
    assert (synthetic["wql"], synthetic["mae"]) == pytest.approx((0.1, 0.2))
    assert all(real[f"{name}_{end}"] is None for name in ("wql", "mae") for end in ("low", "high"))


@pytest.mark.parametrize(("facts", "is_counted"), [
    ({"trained_on": True}, False),
    ({"trained_on": None}, True),
    ({"wql_ratio": None, "mae_ratio": None}, False),
    ({}, True),
])  # fmt: skip
def test_what_was_trained_on_and_what_has_no_ratio_is_left_out(facts: dict[str, Any], is_counted: bool) -> None:
    (found,) = mean_skill([row("a", 0.5), row("b", 8.0) | facts], **ASKED)
    assert found["n_datasets"] == 1 + is_counted
    assert found["wql"] == pytest.approx(2.0 if is_counted else 0.5)


def test_a_model_without_a_data_set_has_no_row() -> None:
    assert mean_skill([row("a", 0.5, trained_on=True)], **ASKED) == []
    assert mean_skill([], **ASKED) == []


def test_the_order_of_the_rows_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    rows = [row(f"d{n}", *rng.gamma(3, size=2), model=model) for n in range(8) for model in ("m", "n")]
    found = mean_skill(rows, **ASKED)
    assert [one["model"] for one in found] == ["m", "n"]
    assert mean_skill(rows[::-1], **ASKED) == found


def test_the_interval_is_scipys_percentile_interval_of_the_mean_logarithm() -> None:
    ratios = np.random.default_rng(1).gamma(3, size=(30, 2))
    means, ends = geometric_mean(ratios, bootstrap=20_000, seed=0)
    assert ends is not None
    for column in range(2):
        assert means[column] == pytest.approx(stats.gmean(ratios[:, column]))
        other = stats.bootstrap(
            (ratios[:, column],), stats.gmean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(9)
        ).confidence_interval
        assert ends[:, column] == pytest.approx([other.low, other.high], rel=0.02)


@pytest.mark.parametrize(("count", "has_interval"), [(5, False), (6, True)])
def test_few_data_sets_give_no_interval_and_an_exact_forecast_a_mean_of_zero(count: int, has_interval: bool) -> None:
    ratios = np.full((count, 2), 0.5)
    ratios[0, 1] = 0.0
    means, ends = geometric_mean(ratios, bootstrap=200, seed=0)
    assert means.tolist() == pytest.approx([0.5, 0.0])
    assert (ends is not None) is has_interval
    if ends is not None:
        assert ends[:, 0] == pytest.approx([0.5, 0.5]) and ends[0, 1] == 0.0

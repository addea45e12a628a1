"""Standard deviations over random halves, against independent samples and against the measures themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tsfmscope.geometry.dimension import covariance_spectrum, effective_dimension, principal_coordinates
from tsfmscope.geometry.measures import measure_states
from tsfmscope.geometry.options import IsotropyOptions
from tsfmscope.geometry.partition import log_isotropy, uncentred_projections
from tsfmscope.geometry.repeats import AXES, MEASURES, Rows, _inside, _labels, _measures, spread_over_halves

QUICK = IsotropyOptions(k_max=4, restarts=2, permutations=9)


def _rows(states: np.ndarray, types: np.ndarray | None = None) -> Rows:
    points = principal_coordinates(states, covariance_spectrum(states))
    return Rows(states, types, points, uncentred_projections(states))


def _drawn(rng: np.random.Generator, n: int = 200, width: int = 12) -> np.ndarray:
    """Rows of three clusters of unequal size, axes of falling variance, and a common mean."""
    centres = 6 * np.random.default_rng(0).standard_normal((3, width)) + 2
    drawn: np.ndarray = centres[rng.choice(3, n, p=[0.5, 0.3, 0.2])]
    return drawn + rng.standard_normal((n, width)) * np.exp(-np.arange(width) / 4)


def _dimension(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"effective_dimension": effective_dimension(np.array(row["eigenvalues"]), 0.8)}


def test_halves_estimate_the_spread_over_independent_samples() -> None:
    without, often = (QUICK.model_copy(update={"repeats": repeats}) for repeats in (0, 12))
    many = [_dimension(measure_states(_drawn(np.random.default_rng(s)), options=without, seed=s)) for s in range(30)]
    rows = [measure_states(_drawn(np.random.default_rng(900 + s)), options=often, seed=s) for s in range(8)]
    # spreads that fall faster than 1/√n are overstated by halves: of the floor of ζ′ as n^-3/2, of ζ′ less it as 1/n
    most = dict.fromkeys(MEASURES, 1.5) | {"zeta_adjusted": 4, "zeta_adjusted_corrected": 2.5}
    resolution = dict.fromkeys(MEASURES, 0.0) | {"effective_dimension": 0.3}  # a whole number
    for name in MEASURES:
        true = float(np.std([row[name] for row in many], ddof=1))
        found = float(np.sqrt(np.mean([row[f"{name}_sd"] ** 2 for row in rows])))
        assert 0.6 * true <= found <= most[name] * true + resolution[name], (name, found, true)


def test_the_standard_deviation_is_that_over_halves_by_the_share_left_out() -> None:
    """Of ζ, by hand: 7 of 15 rows are drawn each time."""
    states = _drawn(np.random.default_rng(6), 15)
    options = IsotropyOptions(k_max=2, restarts=1, min_cluster=2, permutations=2, repeats=40)
    found = spread_over_halves(_rows(states), options, seed=1)["zeta_sd"]
    rng, zetas = np.random.default_rng(0), []
    for _ in range(4000):
        drawn = states[rng.choice(15, 7, replace=False)]
        units = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        zetas.append((units @ units.T)[np.triu_indices(7, 1)].mean())
    assert found == pytest.approx(np.sqrt(7 / 8) * np.std(zetas), rel=0.35)


def test_the_measures_of_a_half_are_those_of_its_rows() -> None:
    """Up to AXES axes nothing is approximated but the search for clusters, and these are clear."""
    states = _drawn(np.random.default_rng(1))
    half = _rows(states).take(np.arange(0, 200, 2))
    options = IsotropyOptions(k_max=4, min_cluster=30, permutations=9)
    found = _measures(half) | _inside(half, _labels(half, options, 3), options, 3)
    of_half = QUICK.model_copy(update={"min_cluster": 15, "repeats": 0})
    exact = _dimension(measure_states(states[::2], options=of_half, seed=3))
    assert found["zeta"] == pytest.approx(exact["zeta"], abs=1e-12)
    assert found["zeta_adjusted"] == pytest.approx(exact["zeta_adjusted"], abs=1e-10)
    assert found["effective_dimension"] == exact["effective_dimension"]
    assert found["log_isotropy_scaled"] == pytest.approx(log_isotropy(states[::2]).scaled, rel=1e-9)
    null = exact["zeta_adjusted_null_sd"]
    assert found["zeta_adjusted_corrected"] == pytest.approx(exact["zeta_adjusted_corrected"], abs=5 * null)


def test_wide_states_lose_little_by_keeping_axes() -> None:
    rng = np.random.default_rng(2)
    states = rng.standard_normal((400, 3 * AXES)) * np.exp(-np.arange(3 * AXES) / 30) + 0.3
    half = _rows(states).take(np.sort(rng.choice(400, 200, replace=False)))
    exact = effective_dimension(covariance_spectrum(half.states).eigenvalues, 0.8)
    found = _measures(half)
    assert abs(found["effective_dimension"] - exact) <= 2
    assert found["log_isotropy_scaled"] == pytest.approx(log_isotropy(half.states).scaled, rel=0.05)


def test_types_are_counted_in_every_half() -> None:
    rng = np.random.default_rng(3)
    types = rng.integers(0, 25, 200)
    states = 3 * rng.standard_normal((25, 12))[types] + rng.standard_normal((200, 12))
    row, plain = (measure_states(states, kinds, QUICK, seed=0) for kinds in (types, None))
    assert row["zeta_sd"] != plain["zeta_sd"]
    assert all(row[f"{name}_sd"] is not None for name in MEASURES)


def test_repeats_follow_their_seed_and_more_of_them_begin_with_the_same_halves() -> None:
    rows = _rows(_drawn(np.random.default_rng(4)))
    options = IsotropyOptions(k_max=3, min_cluster=20, permutations=9, repeats=3)
    one, same, other = (spread_over_halves(rows, options, seed=seed) for seed in (1, 1, 2))
    assert one == same != other
    assert one["repeats"] == 3


@pytest.mark.parametrize(("n", "repeats"), [(5, 5), (200, 0), (200, 1)])
def test_too_few_rows_or_repeats_have_no_spread(n: int, repeats: int) -> None:
    rows = _rows(_drawn(np.random.default_rng(5), n))
    found = spread_over_halves(rows, IsotropyOptions(min_cluster=2, permutations=9, repeats=repeats), seed=0)
    assert found == {"repeats": 0} | {f"{name}_sd": None for name in MEASURES}


def test_halves_of_equal_rows_have_no_clusters_and_raise_nothing() -> None:
    states = np.ones((40, 4))
    states[7] = [1, 2, 3, 4]
    row = measure_states(states, options=QUICK, seed=0)
    assert row["repeats"] == 5 and row["zeta_sd"] is not None
    assert row["zeta_adjusted_sd"] is None

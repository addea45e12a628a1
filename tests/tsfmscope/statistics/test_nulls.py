"""Every printed test on simulated studies: how often it fires where there is nothing, and where there is something.

In the nulls data sets differ in difficulty and models in quality, on each side and, for the tests inside data sets, on
both sides alike. A rate may be 0.06 at 0.05; a bound says how many firings of n that allows by chance in one of 1,000.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from tests.tsfmscope.statistics.simulated import DATASETS, study
from tsfmscope.statistics import bootstrap
from tsfmscope.statistics.permutation import Flips, double_centred, permute_centred, permute_rows, sign_flips
from tsfmscope.statistics.study import fit_mixed_model

LEVEL, ALLOWED = 0.05, 0.06
Test = Callable[[np.ndarray, np.ndarray, np.random.Generator], float]


def joint(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> float:
    test = permute_rows(x, y, permutations=499, alpha=LEVEL, generator=generator)
    assert test is not None
    return test.p


def double_centred_p(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> float:
    a, b, *_ = double_centred(x.reshape(DATASETS, -1), y.reshape(DATASETS, -1))
    test = permute_centred(a, b, permutations=499, alpha=LEVEL, generator=generator)
    return test.p if test else 1.0  # where every data set ranks the models alike, nothing is left to test


def per_dataset(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> float:
    """The grouping of (data set, condition) blocks."""
    blocks = [np.moveaxis(values, 2, 1).reshape(-1, values.shape[1], 1) for values in (x, y)]
    return joint(*blocks, generator)


def per_model(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> float:
    return joint(np.moveaxis(x, 0, 1), np.moveaxis(y, 0, 1), generator)


def one_model(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> float:
    return joint(x[None, :, 0], y[None, :, 0], generator)


def one_dataset(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> float:
    return joint(x[:1], y[:1], generator)


def flips(x: np.ndarray, y: np.ndarray) -> Flips:
    """Test the signs of changes, of which those of one row are a cluster."""
    agree = -np.sign(x) * np.sign(y)
    found = sign_flips(agree.reshape(-1).astype(int), np.arange(len(agree)).repeat(agree[0].size))
    assert found is not None
    return found


def dataset_pairs(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> float:
    """Signs of 11 pairs of data sets, which all models and conditions share."""
    return flips(x[1::2] - x[::2], y[1::2] - y[::2]).p


def unclustered_sign_p(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> float:
    return flips(x[1::2] - x[::2], y[1::2] - y[::2]).p_unclustered


def contexts(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> float:
    """Signs of 22 pairs of conditions of one data set, which all models share."""
    return flips(x[..., 1] - x[..., 0], y[..., 1] - y[..., 0]).p


def condition_changes(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> float:
    """Changes from one condition to the other go together over data sets, in each model."""
    return joint(*(np.moveaxis(values[..., 1:] - values[..., :1], 0, 1) for values in (x, y)), generator)


def slope(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> float:
    found = fit_mixed_model(x, y)
    return found.p if found.reason is None else 1.0


def pooled_p(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> float:
    return float(stats.spearmanr(x.reshape(-1), y.reshape(-1)).pvalue)


def permute_each_dataset_p(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> float:
    """Models change places in each data set alone: the naive permutation test."""
    r, s = (stats.rankdata(values[..., 0], axis=1) - 3 for values in (x, y))
    drawn = np.argsort(generator.uniform(size=(200, *r.shape)), axis=2)
    sums = np.abs((np.take_along_axis(np.broadcast_to(r, drawn.shape), drawn, axis=2) * s).sum(axis=(1, 2)))
    return float((1 + (sums >= abs((r * s).sum()) - 1e-9).sum()) / 201)


def rate(test: Test, n: int, seed: int, **kind: float) -> float:
    generator = np.random.default_rng(seed)
    return float(np.mean([test(*study(generator, **kind), generator) <= LEVEL for _ in range(n)]))  # type: ignore[arg-type]


def largest_allowed_share(n: int) -> float:
    """Largest share of n firings that a rate of 0.06 gives, but for one time of 1,000."""
    return float(stats.binom.ppf(0.999, n, ALLOWED)) / n


INSIDE = {"shared": 2.0}
CONDITIONS = {"conditions": 2, "condition": 1.0}
NULLS = [
    (joint, INSIDE),
    (joint, INSIDE | {"quality": 0.0}),
    (joint, INSIDE | CONDITIONS),
    (double_centred_p, INSIDE),
    (double_centred_p, INSIDE | {"quality": 3.0}),
    (double_centred_p, INSIDE | CONDITIONS),
    (per_dataset, INSIDE | CONDITIONS),
    (per_model, {}),
    (per_model, CONDITIONS),
    (one_model, {}),
    (one_model, CONDITIONS),
    (one_dataset, INSIDE),
    (one_dataset, INSIDE | CONDITIONS),
    (dataset_pairs, {}),
    (dataset_pairs, CONDITIONS),
    (contexts, {"conditions": 2, "shared": 2.0}),
    (condition_changes, INSIDE | CONDITIONS),
]
IDS = [f"{test.__name__}-{'-'.join(kind) or 'alone'}" for test, kind in NULLS]


@pytest.mark.parametrize(("test", "kind"), NULLS, ids=IDS)
def test_a_printed_test_fires_no_more_often_than_it_says_where_there_is_nothing(test: Test, kind: dict) -> None:
    n = 400 if test in (joint, double_centred_p) else 200
    assert rate(test, n, seed=1, **kind) <= largest_allowed_share(n)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("test", "kind"), [*NULLS, (slope, INSIDE), (slope, INSIDE | CONDITIONS)])
def test_the_false_positive_rate_is_at_most_0_06(test: Test, kind: dict) -> None:
    slow = test is slope and "conditions" in kind  # a fit with crossed effects takes a second
    n = 100 if slow else 1000 if test is slope else 2000
    found = rate(test, n, seed=11, **kind)
    print(f"{test.__name__} {kind}: {found:.4f} of {n}")
    assert found <= (largest_allowed_share(n) if slow else ALLOWED)


@pytest.mark.parametrize(
    ("test", "kind", "least"),
    [
        (joint, {}, 0.3),
        (joint, {"quality": 0.0}, 0.9),
        (double_centred_p, {}, 0.9),
        (per_model, {"difficulty": 0.5}, 0.9),
        (one_model, {"difficulty": 0.5}, 0.3),
    ],
)
def test_an_effect_as_large_as_the_noise_is_found(test: Test, kind: dict, least: float) -> None:
    assert rate(test, 60, seed=3, effect=1.0, **kind) >= least


@pytest.mark.parametrize(
    ("test", "kind", "least"),
    [(pooled_p, INSIDE, 0.8), (permute_each_dataset_p, INSIDE, 0.3), (unclustered_sign_p, {}, 0.08)],
)
def test_naive_tests_fire_in_the_same_nulls_so_that_these_have_teeth(test: Test, kind: dict, least: float) -> None:
    assert rate(test, 100, seed=4, **kind) >= least


def test_the_mixed_model_holds_where_difficulty_moves_both_sides() -> None:
    n = 40
    assert rate(slope, n, seed=5, **INSIDE) <= largest_allowed_share(n)


@pytest.mark.parametrize(
    ("test", "kind", "least"),
    [(per_model, INSIDE, 0.3), (dataset_pairs, INSIDE, 0.1), (contexts, INSIDE | CONDITIONS, 0.3)],
)
def test_what_moves_both_sides_across_data_sets_or_contexts_is_found_and_is_no_effect_of_isotropy(
    test: Test, kind: dict, least: float
) -> None:
    """Why the headline stays inside data sets, and changes_spearman stands beside agreement: the answers say so."""
    assert rate(test, 100, seed=6, **kind) >= least


def covers(kind: dict, by_condition: bool, n: int = 100) -> float:
    """Return the share of two-way bootstrap intervals that contain zero.

    by_condition: a block is one condition of a data set, not all.
    """
    generator, hits = np.random.default_rng(7), 0
    for _ in range(n):
        x, y = (np.moveaxis(v, 2, 1)[..., None] if by_condition else v[:, None] for v in study(generator, **kind))
        interval = bootstrap.two_way(x, y, resamples=300, alpha=LEVEL, generator=generator)
        hits += interval.low <= 0 <= interval.high
    return hits / n


@pytest.mark.parametrize(("kind", "by_condition"), [(INSIDE, False), (INSIDE | CONDITIONS, True)])
def test_the_interval_of_the_headline_holds_zero_where_there_is_nothing(kind: dict, by_condition: bool) -> None:
    assert covers(kind, by_condition) >= stats.binom.ppf(0.001, 100, 0.95) / 100


def test_a_condition_that_moves_both_sides_moves_rho_unless_conditions_are_held_apart() -> None:
    """The view `correlation` warns of it for grouping within_dataset, and shows per_dataset as well."""
    assert covers(INSIDE | CONDITIONS, by_condition=False, n=300) <= 0.92

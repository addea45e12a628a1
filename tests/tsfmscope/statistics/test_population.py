"""Tests of a population against loops over all orders, closed forms, and simulated samples of known effect."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tsfmscope.statistics import population
from tsfmscope.statistics.means import crossed_mean
from tsfmscope.statistics.options import SeededOptions
from tsfmscope.statistics.population import (
    across_runs,
    centred_ranks,
    partial_spearman,
    simulate_detectable,
    within_runs,
)

QUICK = SeededOptions(permutations=999, bootstrap=200, seed=3)
# Every run is a family of its own.
EACH = [f"run {n:02}" for n in range(30)]


def slow_rho(x: np.ndarray, y: np.ndarray, groups: list[str]) -> float:
    """Pearson's r of ranks inside groups, less their means."""
    parts = []
    for values in (x, y):
        ranks = np.zeros(len(values))
        for group in set(groups):
            at = [n for n, name in enumerate(groups) if name == group]
            ranks[at] = stats.rankdata(values[at]) - (len(at) + 1) / 2
        parts.append(ranks)
    return float(parts[0] @ parts[1] / math.sqrt((parts[0] @ parts[0]) * (parts[1] @ parts[1])))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("groups", [["a", "b", "a", "b", "a"], ["a", "a", "b", "b", "c"]])
def test_the_test_is_a_loop_over_all_orders_inside_groups(groups: list[str], ties: bool) -> None:
    x, y = np.random.default_rng(4).normal(size=(2, 6, 5))
    if ties:
        x, y = np.round(x, 1), np.round(y, 1)
    row = across_runs(x, y, groups, groups, QUICK, "t")
    orders = [o for o in itertools.permutations(range(5)) if [groups[there] for there in o] == groups]
    pairs = list(zip(x, y, strict=True))
    means = np.array([np.mean([slow_rho(a[list(order)], b, groups) for a, b in pairs]) for order in orders])
    assert row["estimate"] == pytest.approx(means[0], abs=1e-12)
    far = np.abs(means - means.mean())
    assert row["p"] == pytest.approx((far >= far[0] - 1e-12).mean())
    assert f"all {len(orders)} orders" in row["method"]


def test_across_runs_whole_families_change_places() -> None:
    families = ["a", "b", "c", "d"] * 2
    x, y = np.random.default_rng(4).normal(size=(2, 6, 8))
    row = across_runs(x, y, families, [""] * 8, QUICK, "t")
    # The first run of a family takes the place of the first of another, and the second that of the second.
    orders = [[*o, *(n + 4 for n in o)] for o in itertools.permutations(range(4))]
    pairs = list(zip(x, y, strict=True))
    means = np.array([np.mean([stats.spearmanr(a[order], b).statistic for a, b in pairs]) for order in orders])
    far = np.abs(means - means.mean())
    assert row["p"] == pytest.approx((far >= far[0] - 1e-12).mean())
    assert "whole families" in row["method"] and "all 24 orders" in row["method"] and row["n_clusters"] == 4


def test_with_one_group_the_estimate_is_the_mean_of_scipys_rho() -> None:
    x, y = np.random.default_rng(5).normal(size=(2, 4, 9))
    expected = np.mean([stats.spearmanr(a, b).statistic for a, b in zip(x, y, strict=True)])
    assert across_runs(x, y, EACH[:9], [""] * 9, QUICK, "t")["estimate"] == pytest.approx(expected, abs=1e-12)


def test_the_interval_is_that_of_resampled_data_sets_and_families() -> None:
    families = np.repeat(np.arange(12), 3)
    draws = np.random.default_rng(3)
    x = draws.normal(size=12)[families] + draws.normal(size=(11, 36))
    y = 0.5 * x + draws.normal(size=12)[families] + draws.normal(size=(11, 36))
    options = SeededOptions(permutations=99, bootstrap=2000, seed=1)
    row = across_runs(x, y, families.astype(str).tolist(), [""] * 36, options, "t")
    means = []
    for _ in range(600):
        runs = np.concatenate([np.flatnonzero(families == n) for n in draws.integers(12, size=12)])
        sets = draws.integers(11, size=11)
        means.append(np.mean([stats.spearmanr(x[d, runs], y[d, runs]).statistic for d in sets]))
    assert (row["low"], row["high"]) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.03)
    few = across_runs(x[:, :15], y[:, :15], families[:15].astype(str).tolist(), [""] * 15, options, "t")
    assert few["interval_method"].endswith("Student's t") and few["low"] < few["estimate"] < few["high"]


def test_differences_between_groups_do_not_count_inside_groups() -> None:
    generator = np.random.default_rng(6)
    x, y = generator.normal(size=(2, 5, 12))
    groups = [name for name in "abc" for _ in range(4)]
    levels = np.repeat([0.0, 100.0, -50.0], 4)
    plain = across_runs(x, y, groups, groups, QUICK, "t")
    assert across_runs(x + levels, np.exp(y + levels / 10), groups, groups, QUICK, "t") == plain
    assert across_runs(x + levels, y + levels, EACH[:12], [""] * 12, QUICK, "t")["estimate"] > 0.6


def test_data_sets_and_runs_without_values_are_left_out() -> None:
    x, y = np.random.default_rng(7).normal(size=(2, 6, 10))
    x[0, :5] = np.nan  # half of the runs: the data set is left out
    y[3, 2] = np.nan  # one run: the run is left out
    row = across_runs(x, y, EACH[:10], [""] * 10, QUICK, "t")
    kept = np.delete(np.arange(10), 2)
    assert row["n"] == 5 * 9 and row["n_clusters"] == 9
    assert row["estimate"] == across_runs(x[1:, kept], y[1:, kept], EACH[:9], [""] * 9, QUICK, "t")["estimate"]


@pytest.mark.parametrize(
    ("shape", "groups", "change"),
    [((3, 3), ["a"] * 3, None), ((3, 6), list("abcdef"), None), ((0, 6), ["a"] * 6, None)]
    + [((3, 6), ["a"] * 6, value) for value in (math.nan, 0.0, 1e300, 1e-300)],
)
def test_without_a_correlation_the_row_says_why(shape: Any, groups: list[str], change: float | None) -> None:
    x, y = np.random.default_rng(8).normal(size=(2, *shape))
    if change is not None:
        x[:] = change
    row = across_runs(x, y, groups, groups, QUICK, "t")
    assert "estimate" not in row and row["reason"]


@pytest.mark.parametrize("ties", [False, True])
def test_the_partial_correlation_is_the_closed_form(ties: bool) -> None:
    x, y, given = np.random.default_rng(9).normal(size=(3, 11))
    if ties:
        x, y, given = np.round(x), np.round(y), np.round(given)
    xy, xz, yz = (stats.spearmanr(a, b).statistic for a, b in ((x, y), (x, given), (y, given)))
    expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert partial_spearman(x, y, given) == pytest.approx(expected, abs=1e-12)
    assert partial_spearman(np.exp(x), y**3, -given) == pytest.approx(expected, abs=1e-12)


def test_a_measure_that_only_follows_the_validation_loss_has_no_partial_correlation() -> None:
    loss = np.arange(8.0)
    y = np.random.default_rng(1).normal(size=8)
    assert math.isnan(partial_spearman(loss**2, y, loss))
    assert math.isnan(partial_spearman(y, -loss, loss))
    assert math.isnan(partial_spearman(np.ones(8), y, loss))
    assert math.isnan(partial_spearman(y[:3], y[:3], loss[:3]))
    # A loss that does not change takes nothing out.
    x = y + 1
    assert partial_spearman(x, y, np.ones(8)) == pytest.approx(1)


def trained(runs: int, effect: float | np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Isotropy and error [dataset, run, snapshot] that both follow the validation loss; the effect is beyond it.

    effect: one number, or one of each of six data sets.
    """
    generator = np.random.default_rng(seed)
    loss = -np.arange(8.0) + 0.3 * generator.normal(size=(runs, 8))
    x = loss + generator.normal(size=(6, runs, 8))
    effects = np.broadcast_to(effect, 6)[:, None, None]
    return x, loss + effects * (x - loss) + 0.5 * generator.normal(size=x.shape), np.tile(loss, (6, 1, 1))


def test_what_training_does_to_both_is_no_effect_within_runs() -> None:
    x, y, loss = trained(20, 0.0, 0)
    row = within_runs(x, y, loss, EACH[:20], QUICK)
    raw = np.mean([stats.spearmanr(a, b).statistic for a, b in zip(x.reshape(-1, 8), y.reshape(-1, 8), strict=True)])
    assert raw > 0.7
    assert abs(row["estimate"]) < 0.1 and row["p"] > 0.05 and row["low"] < 0 < row["high"]
    found = within_runs(*trained(20, 0.8, 0), EACH[:20], QUICK)
    assert found["p"] < 1e-3
    assert found["estimate"] > 0.3 and found["low"] > 0.2 and found["n_clusters"] == 20
    assert 0.02 < found["detectable"] < 0.3


@pytest.fixture
def few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take little time for `detectable`, which these tests do not read: it takes three quarters of a test's time."""
    monkeypatch.setattr(population, "SIMULATIONS", 10)


@pytest.mark.usefixtures("few_simulations")
def test_effects_of_random_sign_by_data_set_are_no_effect_though_all_runs_show_them() -> None:
    generator, trials = np.random.default_rng(12), 40
    found, by_runs_alone = 0, 0
    options = SeededOptions(permutations=199, bootstrap=10, seed=1)
    for trial in range(trials):
        x, y, loss = trained(12, generator.normal(size=6), trial)
        found += within_runs(x, y, loss, EACH[:12], options)["p"] <= 0.05
        partial = [[partial_spearman(x[d, r], y[d, r], loss[d, r]) for d in range(6)] for r in range(12)]
        by_runs_alone += stats.ttest_1samp(np.nanmean(partial, axis=1), 0).pvalue <= 0.05
    assert found <= stats.binom.ppf(0.999, trials, 0.05)
    assert by_runs_alone > trials / 2


def test_within_runs_the_partial_correlations_have_the_interval_of_crossed_data_sets_and_families() -> None:
    x, noise = np.random.default_rng(4).normal(size=(2, 6, 9, 8))
    y, loss = x + noise, np.tile(np.random.default_rng(6).normal(size=(9, 8)), (6, 1, 1))
    families = [f"f{n % 3}" for n in range(9)]
    row = within_runs(x, y, loss, families, QUICK)
    cells = [(partial_spearman(x[d, r], y[d, r], loss[d, r]), f"d{d}", families[r]) for d in range(6) for r in range(9)]
    values, datasets, of_runs = zip(*cells, strict=True)
    expected = crossed_mean(np.array(values), datasets, of_runs)
    assert (row["estimate"], row["low"], row["high"], row["p"]) == pytest.approx(expected[:4])
    assert row["n_clusters"] == 3 and row["method"] == "Student's t over 6 data sets and 3 families"


def test_runs_without_enough_snapshots_are_left_out() -> None:
    x, y, loss = trained(6, 0.5, 1)
    x[:, 0, 3:] = np.nan
    loss[:, 1, 2:] = np.nan
    row = within_runs(x, y, loss, EACH[:6], QUICK)
    assert row["n_clusters"] == 4
    alone = within_runs(x[:, 2:], y[:, 2:], loss[:, 2:], EACH[2:6], QUICK)
    assert row["estimate"] == pytest.approx(alone["estimate"])
    assert within_runs(x[:, :5], y[:, :5], loss[:, :5], EACH[:5], QUICK)["reason"].startswith("3 runs with")
    assert within_runs(x[:3], y[:3], loss[:3], EACH[:6], QUICK)["reason"].startswith("3 data sets with")


@pytest.mark.usefixtures("few_simulations")
def test_the_tests_keep_their_level_when_there_is_no_effect() -> None:
    generator = np.random.default_rng(10)
    groups = [name for name in "abcd" for _ in range(3)]
    options = SeededOptions(permutations=99, bootstrap=10, seed=1)
    counts = {"across": 0, "inside": 0, "within": 0}
    trials = 60
    for _ in range(trials):
        # A measure of the model, and an error whose level differs by family: dependent between data sets.
        x = generator.normal(size=12) + 0.3 * generator.normal(size=(5, 12))
        y = generator.normal(size=12) + 0.3 * generator.normal(size=(5, 12))
        counts["across"] += across_runs(x, y, EACH[:12], [""] * 12, options, "t")["p"] <= 0.05
        levels = np.repeat(generator.normal(size=4), 3) * 3
        counts["inside"] += across_runs(x + levels, y + levels, groups, groups, options, "t")["p"] <= 0.05
        steps = generator.normal(size=(2, 6, 8, 6))
        loss = np.tile(generator.normal(size=(8, 6)), (6, 1, 1))
        counts["within"] += within_runs(*steps, loss, EACH[:8], options)["p"] <= 0.05
    # 99.9 % of binomial counts with probability 0.05
    assert max(counts.values()) <= stats.binom.ppf(0.999, trials, 0.05)


def test_the_detectable_effect_is_found_four_times_in_five() -> None:
    generator = np.random.default_rng(11)
    runs, datasets = 24, 6
    shared = generator.normal(size=runs)
    x = shared + 0.7 * generator.normal(size=(datasets, runs))
    y = generator.normal(size=runs) + 0.7 * generator.normal(size=(datasets, runs))
    detectable = across_runs(x, y, EACH[:runs], [""] * runs, QUICK, "t")["detectable"]
    assert 0.2 < detectable < 0.7
    found = 0
    for _ in range(40):
        a = centred_ranks(x[:, generator.permutation(runs)], np.zeros(runs, int))
        b = centred_ranks(y, np.zeros(runs, int))
        a, b = (values / np.linalg.norm(values, axis=1, keepdims=True) for values in (a, b))
        mixed = math.sqrt(1 - detectable**2) * a + detectable * b
        found += (
            across_runs(mixed, y, EACH[:runs], [""] * runs, SeededOptions(permutations=99, bootstrap=10), "t")["p"]
            <= 0.05
        )
    assert 0.6 <= found / 40 <= 0.97


def test_no_size_is_detectable_where_no_order_is_significant() -> None:
    generator = np.random.default_rng(0)
    assert math.isnan(simulate_detectable(np.zeros((3, 2)), math.nan, generator))
    assert math.isnan(simulate_detectable(np.zeros((3, 1)), 0.5, generator))


def test_ranks_are_centred_inside_groups() -> None:
    ranks = centred_ranks(np.array([[3.0, 10.0, 1.0, 10.0, 2.0]]), np.array([0, 1, 0, 1, 0]))
    np.testing.assert_allclose(ranks, [[1.0, 0.0, -1.0, 0.0, 0.0]])

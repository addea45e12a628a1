"""Permutation tests against slow loops, scipy's own and the numbers of science.md."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from tsfmscope.statistics.permutation import (
    adjust,
    double_centred,
    evaluate_orders,
    orders_between,
    orders_inside,
    permute_centred,
    permute_rows,
    sign_flips,
)
from tsfmscope.statistics.ranks import critical_rho, detectable_rho


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def slow_mean_rho(x: np.ndarray, y: np.ndarray) -> float:
    found = []
    for a, b in zip(x, y, strict=True):
        there = np.isfinite(a) & np.isfinite(b)
        if there.sum() >= 3 and len(set(a[there])) > 1 and len(set(b[there])) > 1:
            found.append(stats.spearmanr(a[there], b[there]).statistic)
    return float(np.mean(found)) if found else math.nan


@pytest.mark.parametrize("conditions", [1, 2])
@pytest.mark.parametrize("missing", [0.0, 0.15])
@pytest.mark.parametrize("ties", [False, True])
def test_the_joint_test_is_a_loop_over_all_orders_of_the_models(conditions: int, missing: float, ties: bool) -> None:
    draw = generator(3)
    x, y = draw.normal(size=(2, 6, 4, conditions))
    if ties:
        x, y = np.round(x), np.round(y)
    x[draw.uniform(size=x.shape) < missing] = np.nan
    y[draw.uniform(size=y.shape) < missing] = np.nan
    got = permute_rows(x, y, permutations=999, alpha=0.05, generator=draw)
    assert got is not None
    every = [slow_mean_rho(x[:, list(order)], y) for order in itertools.permutations(range(4))]
    assert got.is_exact
    assert got.estimate == pytest.approx(slow_mean_rho(x, y), abs=1e-12)
    np.testing.assert_allclose(got.distribution, every, atol=1e-12)
    far = np.abs(np.array(every) - np.mean(every))
    assert got.p == pytest.approx((far >= far[0] - 1e-12).mean())


def test_one_block_without_conditions_is_scipy_s_permutation_test() -> None:
    x, y = generator(1).normal(size=(2, 6))
    got = permute_rows(x[None, :, None], y[None, :, None], permutations=999, alpha=0.05, generator=generator())
    theirs = stats.permutation_test(
        (x,), lambda values: stats.spearmanr(values, y).statistic, permutation_type="pairings", n_resamples=np.inf
    )
    assert got is not None
    assert (got.estimate, got.p) == pytest.approx((theirs.statistic, theirs.pvalue))


def test_random_orders_come_close_to_all_of_them_and_count_the_observed_one() -> None:
    x, y = generator(2).normal(size=(2, 1, 7, 1))
    exact = permute_rows(x, y, permutations=5040, alpha=0.05, generator=generator())
    drawn = permute_rows(x, y, permutations=4999, alpha=0.05, generator=generator())
    assert exact is not None and drawn is not None
    assert exact.is_exact and len(exact.distribution) == 5040
    assert not drawn.is_exact and len(drawn.distribution) == 5000
    assert drawn.p == pytest.approx(exact.p, abs=4 * math.sqrt(exact.p * (1 - exact.p) / 5000))
    assert drawn.p >= 1 / 5000


@pytest.mark.parametrize(("models", "smallest"), [(1, 1.0), (2, 0.5), (3, 1 / 6), (5, 1 / 120)])
def test_the_smallest_p_of_a_joint_test_follows_from_the_number_of_models(models: int, smallest: float) -> None:
    x, y = generator(4).normal(size=(2, 22, models, 3))
    got = permute_rows(x, y, permutations=9999, alpha=0.05, generator=generator())
    assert got is not None
    assert got.smallest == pytest.approx(smallest) or got.smallest == pytest.approx(2 * smallest)
    assert math.isnan(got.critical) == (got.smallest > 0.05)


@pytest.mark.parametrize("shape", [(0, 4, 1), (3, 0, 1), (3, 2, 1), (1, 1, 1)])
def test_too_few_units_have_no_test(shape: tuple[int, ...]) -> None:
    assert permute_rows(np.ones(shape), np.ones(shape), permutations=99, alpha=0.05, generator=generator()) is None


def test_the_same_seed_gives_the_same_p() -> None:
    x, y = generator(2).normal(size=(2, 3, 12, 2))
    first, second = (permute_rows(x, y, permutations=99, alpha=0.05, generator=generator(8)) for _ in range(2))
    assert first is not None and second is not None
    assert first.p == second.p


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, 1e30])
def test_constants_and_what_is_no_number_have_no_test(value: float) -> None:
    x, y = np.full((3, 5, 2), value), generator().normal(size=(3, 5, 2))
    assert permute_rows(x, y, permutations=99, alpha=0.05, generator=generator()) is None
    assert permute_rows(y, x, permutations=99, alpha=0.05, generator=generator()) is None


def test_the_critical_size_is_the_smallest_that_is_significant() -> None:
    distribution = np.array([0.1, *np.linspace(-0.3, 0.3, 199)])
    got = evaluate_orders(distribution, True, 0.05)
    far = np.abs(distribution - distribution.mean())
    assert (far >= got.critical - 1e-12).mean() <= 0.05
    smaller = far[far < got.critical - 1e-12].max()
    assert (far >= smaller - 1e-12).mean() > 0.05
    assert got.detectable == pytest.approx((1.959964 + 0.841621) * distribution.std(), rel=1e-6)


def test_double_centring_takes_main_effects_out_and_ranks_inside_data_sets() -> None:
    draw = generator(6)
    x, y = draw.normal(size=(2, 9, 4))
    a, b, rows, columns = double_centred(x, y)
    np.testing.assert_allclose([a.sum(0), b.sum(0)], 0, atol=1e-12)
    np.testing.assert_allclose([a.sum(1), b.sum(1)], 0, atol=1e-12)
    moved = double_centred(x + draw.normal(size=(9, 1)), y + draw.normal(size=(9, 1)) + draw.normal(size=4))
    np.testing.assert_allclose(moved[0], a, atol=1e-12)
    np.testing.assert_allclose(moved[1], b, atol=1e-12)
    assert (rows.tolist(), columns.tolist()) == (list(range(9)), list(range(4)))


def test_double_centring_keeps_common_columns_then_whole_rows() -> None:
    x, y = generator(6).normal(size=(2, 6, 3))
    x[0, 1] = np.nan
    y[1:5, 2] = np.nan
    _, _, rows, columns = double_centred(x, y)
    assert (rows.tolist(), columns.tolist()) == ([1, 2, 3, 4, 5], [0, 1])


def test_the_double_centred_test_is_a_loop_over_orders_of_data_sets() -> None:
    x, y = generator(7).normal(size=(2, 5, 4))
    a, b, *_ = double_centred(x, y)
    got = permute_centred(a, b, permutations=999, alpha=0.05, generator=generator())
    assert got is not None
    every = np.array(
        [stats.pearsonr(a[list(o)].ravel(), b.ravel()).statistic for o in itertools.permutations(range(5))]
    )
    np.testing.assert_allclose(got.distribution, every, atol=1e-12)


def test_tables_of_main_effects_alone_have_no_double_centred_test() -> None:
    draw = generator(8)
    x = draw.normal(size=(6, 1)) + draw.normal(size=5)
    a, b, *_ = double_centred(x, draw.normal(size=(6, 5)))
    assert permute_centred(a, b, permutations=99, alpha=0.05, generator=draw) is None
    a, b, *_ = double_centred(draw.normal(size=(6, 5)), x)
    assert permute_centred(a, b, permutations=99, alpha=0.05, generator=draw) is None


def test_orders_start_with_the_given_one_and_are_all_where_they_are_few() -> None:
    found, exact = orders_between(np.arange(4), 99, generator())
    assert exact and sorted(map(tuple, found)) == sorted(itertools.permutations(range(4)))
    found, exact = orders_between(np.arange(30), 99, generator())
    assert not exact and found.shape == (100, 30)
    assert found[0].tolist() == list(range(30))
    assert all(sorted(one) == list(range(30)) for one in found.tolist())


def test_orders_stay_inside_groups_and_start_with_the_given_one() -> None:
    labels = np.array([0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    found, is_all = orders_inside(labels, 500, generator())
    assert not is_all and found.shape == (501, 14)
    assert (found[0] == np.arange(14)).all()
    assert (labels[found] == labels).all() and (np.sort(found, axis=1) == np.arange(14)).all()
    few, is_all = orders_inside(np.array([0, 0, 1, 1]), 500, generator())
    assert is_all and len(np.unique(few, axis=0)) == 4


def test_whole_groups_change_places_with_those_of_their_size_and_keep_their_inner_order() -> None:
    labels = np.array([0, 1, 0, 1, 2, 3, 3])
    found, is_all = orders_between(labels, 99, generator())
    groups = {(0, 2): 0, (1, 3): 1, (5, 6): 3}
    assert is_all and len(found) == len(np.unique(found, axis=0)) == 6
    assert (found[0] == np.arange(7)).all() and (found[:, 4] == 4).all()
    for order in found.tolist():
        taken = [tuple(order[n] for n in at) for at in groups]
        assert sorted(taken) == sorted(groups)


@pytest.mark.parametrize(("n", "critical", "detectable"), [(5, 1.00, None), (12, 0.58, 0.74), (22, 0.43, 0.58)])
def test_critical_and_detectable_rho_are_science_md_s(n: int, critical: float, detectable: float | None) -> None:
    assert critical_rho(n) == pytest.approx(critical, abs=0.01)
    if detectable is None:
        assert math.isnan(detectable_rho(n))
    else:
        assert detectable_rho(n) == pytest.approx(detectable, abs=0.005)


def test_five_units_reach_one_in_sixty_and_no_less() -> None:
    ranks = np.arange(5.0)
    rho = [stats.spearmanr(order, ranks).statistic for order in itertools.permutations(ranks)]
    assert np.mean(np.abs(rho) >= 1 - 1e-9) == pytest.approx(1 / 60)
    assert np.mean(np.abs(rho) >= 0.9 - 1e-9) == pytest.approx(1 / 12)
    assert all(math.isnan(critical_rho(n)) for n in (0, 1, 2, 3, 4))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 1), st.integers(0, 7)), min_size=1, max_size=20))
def test_flips_are_a_loop_over_all_signs_of_all_clusters(units: list[tuple[int, int]]) -> None:
    signs, cluster = map(np.array, zip(*units, strict=True))
    got = sign_flips(signs, cluster)
    sums = np.array([signs[cluster == name].sum() for name in np.unique(cluster)])
    every = [abs(np.dot(flip, sums)) for flip in itertools.product((1, -1), repeat=len(sums))]
    assert got is not None
    assert got.p == pytest.approx(np.mean([value >= abs(signs.sum()) for value in every]))
    assert got.estimate == pytest.approx(((signs > 0).sum() + 0.5 * (signs == 0).sum()) / len(signs))
    assert got.p_smallest == 2 ** (1 - len(sums))


@pytest.mark.parametrize(("clusters", "smallest"), [(5, 0.0625), (6, 0.03125)])
def test_the_smallest_p_of_the_paper_s_figures(clusters: int, smallest: float) -> None:
    got = sign_flips(np.ones(5 * clusters, dtype=int), np.arange(clusters).repeat(5))
    assert got is not None
    assert got.p == got.p_smallest == smallest
    assert math.isnan(got.critical) == (smallest > 0.05)
    assert got.p_unclustered < 1e-6


def test_many_clusters_are_counted_exactly_not_listed() -> None:
    signs = np.array([1] * 40 + [-1] * 20)
    got = sign_flips(signs, np.arange(60))
    assert got is not None
    assert got.p == pytest.approx(stats.binomtest(40, 60).pvalue, rel=1e-9) == pytest.approx(got.p_unclustered)


def test_ties_alone_are_no_evidence_and_no_pairs_no_test() -> None:
    got = sign_flips(np.zeros(9, dtype=int), np.arange(9))
    assert got is not None
    assert (got.estimate, got.p, got.p_unclustered) == (0.5, 1.0, 1.0)
    assert sign_flips(np.zeros(0, dtype=int), np.zeros(0, dtype=int)) is None


def test_corrections_are_statsmodels_and_leave_out_what_has_no_p() -> None:
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.5, np.nan, 1.0])
    (bh, by, n), there = adjust(p), np.isfinite(p)
    assert n == 5
    assert np.isnan(bh[~there]).all() and np.isnan(by[~there]).all()
    np.testing.assert_allclose(bh[there], multipletests(p[there], method="fdr_bh")[1])
    np.testing.assert_allclose(by[there], multipletests(p[there], method="fdr_by")[1])
    assert adjust(np.full(3, np.nan))[2] == 0

"""Cosine: closed forms against loops, invariants, hand-worked cases."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tsfmscope.geometry.cosine import (
    Adjusted,
    Null,
    adjusted_cosine,
    directed_cosines,
    inter_token_cosine,
    isotropic_floor,
    norms_before_centring,
    permuted_cosines,
    unit_rows,
)


def _slow(states: np.ndarray, types: np.ndarray) -> tuple[float, float]:
    """Eq. 1 as printed: pairs of different types, each pair the mean over its instances; and over all row pairs."""
    rows = np.asarray(states, dtype=np.float64)
    rows, types = rows[rows.any(axis=1)], types[rows.any(axis=1)]

    def cosine(i: int, j: int) -> float:
        return float(rows[i] @ rows[j] / np.linalg.norm(rows[i]) / np.linalg.norm(rows[j]))

    by_type = [np.flatnonzero(types == kind) for kind in np.unique(types)]
    pairs = [
        np.mean([cosine(i, j) for i in first for j in second]) for first, second in itertools.combinations(by_type, 2)
    ]
    occurrences = [cosine(i, j) for i, j in itertools.combinations(range(len(rows)), 2) if types[i] != types[j]]
    return float(np.mean(pairs)), float(np.mean(occurrences))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(4, 24), width=st.integers(1, 6), kinds=st.integers(2, 9))
def test_closed_forms_equal_the_loop_over_pairs(seed: int, n: int, width: int, kinds: int) -> None:
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((n, width)) + rng.standard_normal(width)
    states[rng.random(n) < 0.1] = 0
    states[-2:] = 1.0  # two rows that are surely not zero
    types = rng.integers(0, kinds, n)
    types[-2:] = [0, 1]
    got = inter_token_cosine(states, types)
    assert (got.zeta, got.zeta_token) == pytest.approx(_slow(states, types), abs=1e-12)


@pytest.mark.parametrize(
    ("states", "types", "zeta", "zeta_token"),
    [
        ([[1, 0], [0, 2]], None, 0.0, 0.0),
        ([[1, 0], [-3, 0]], None, -1.0, -1.0),
        ([[2, 2], [5, 5], [1, 1]], None, 1.0, 1.0),
        ([[1, 0], [0, 1], [1, 1]], None, 2 * np.sqrt(0.5) / 3, 2 * np.sqrt(0.5) / 3),
        # type 0 is (1,0) and (0,1), type 1 is (1,0), type 2 is (0,1): pairs 1/2, 1/2, 0; occurrences 2 of 5
        ([[1, 0], [0, 1], [1, 0], [0, 1]], [0, 0, 1, 2], 1 / 3, 0.4),
        ([[1, 0], [1, 0], [1, 0], [0, 1]], [7, 7, 7, 3], 0.0, 0.0),
        ([[1, 0], [0, 0], [1, 0]], [4, 5, 6], 1.0, 1.0),
    ],
)
def test_hand_worked_cases(states: list, types: list | None, zeta: float, zeta_token: float) -> None:
    got = inter_token_cosine(np.array(states, dtype=float), None if types is None else np.array(types))
    assert (got.zeta, got.zeta_token) == pytest.approx((zeta, zeta_token), abs=1e-15)


def test_one_random_instance_a_type_has_zeta_as_its_expectation() -> None:
    rng = np.random.default_rng(0)
    types = rng.integers(0, 6, 40)
    states = rng.standard_normal((40, 3)) + 0.5
    draws = []
    for _ in range(4000):
        chosen = [rng.choice(np.flatnonzero(types == kind)) for kind in np.unique(types)]
        draws.append(inter_token_cosine(states[chosen]).zeta)
    zeta = inter_token_cosine(states, types).zeta
    assert zeta == pytest.approx(np.mean(draws), abs=5 * np.std(draws) / np.sqrt(len(draws)))


def test_rows_without_types_and_rows_each_of_its_own_type_agree() -> None:
    states = np.random.default_rng(1).standard_normal((50, 5)).astype(np.float32)
    assert inter_token_cosine(states) == inter_token_cosine(states, np.arange(50))


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 7.0, 1e30])
def test_cosine_is_free_of_scale_row_by_row(scale: float) -> None:
    rng = np.random.default_rng(2)
    states, types = rng.standard_normal((60, 4)) + 1, rng.integers(0, 9, 60)
    factors = scale * rng.uniform(1, 5, (60, 1))
    scaled = inter_token_cosine(states * factors, types)
    plain = inter_token_cosine(states, types)
    assert (scaled.zeta, scaled.zeta_token) == pytest.approx((plain.zeta, plain.zeta_token), abs=1e-13)


def test_cosine_is_free_of_rotation_and_row_order() -> None:
    rng = np.random.default_rng(3)
    states, types = rng.standard_normal((60, 4)) + 1, rng.integers(0, 9, 60)
    turn, order = np.linalg.qr(rng.standard_normal((4, 4)))[0], rng.permutation(60)
    turned, plain = inter_token_cosine((states @ turn)[order], types[order]), inter_token_cosine(states, types)
    assert (turned.zeta, turned.zeta_token) == pytest.approx((plain.zeta, plain.zeta_token), abs=1e-13)


@pytest.mark.parametrize("value", [1e200, 1e-200])
def test_squares_neither_overflow_nor_vanish(value: float) -> None:
    assert inter_token_cosine(np.array([[value, 0], [value, value]])).zeta == pytest.approx(np.sqrt(0.5))


def test_float16_states_are_summed_in_float64() -> None:
    states = np.full((5000, 3), 6e4, dtype=np.float16)
    assert inter_token_cosine(states).zeta == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("states", "types", "n_types", "n_zero"),
    [
        (np.ones((1, 3)), None, 1, 0),
        (np.ones((4, 3)), np.zeros(4, int), 1, 0),
        (np.zeros((4, 3)), None, 0, 4),
        (np.zeros((4, 3)), np.arange(4), 0, 4),
        (np.ones((0, 3)), None, 0, 0),
        (np.array([[0.0, 0], [1, 2]]), np.arange(2), 1, 1),
    ],
)
def test_fewer_than_two_types_have_no_cosine(states, types, n_types: int, n_zero: int) -> None:
    got = inter_token_cosine(states, types)
    assert (got.zeta, got.zeta_token, got.n_types, got.n_zero) == (None, None, n_types, n_zero)


def test_a_type_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match=r"types: got 2, expected one per row, 3"):
        inter_token_cosine(np.ones((3, 2)), np.arange(2))


def test_unit_rows_have_norm_one_and_leave_zero_rows_out() -> None:
    units, kept = unit_rows(np.array([[3.0, 4.0], [0.0, 0.0], [1e-300, 0.0]]))
    np.testing.assert_allclose(units, [[0.6, 0.8], [1.0, 0.0]], rtol=1e-15)
    assert kept.tolist() == [True, False, True]


def _slow_adjusted(states: np.ndarray, labels: np.ndarray, types: np.ndarray) -> list[float]:
    """Eq. 6 cluster by cluster with loops over pairs of types."""
    zetas = []
    for label in np.unique(labels):
        rows, kinds = states[labels == label] - states[labels == label].mean(axis=0), types[labels == label]
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        names = np.unique(kinds)
        pairs = [np.mean(units[kinds == a] @ units[kinds == b].T) for i, a in enumerate(names) for b in names[i + 1 :]]
        zetas.append(float(np.mean(pairs)))
    return zetas


def _slow_floor(counts: list[int]) -> float:
    """The closed form of science.md section 2, pair by pair."""
    shares = [count / sum(counts) for count in counts]
    s = sum(share**2 for share in shares)
    pairs = [(a, b) for i, a in enumerate(shares) for j, b in enumerate(shares) if i != j]
    return float(np.mean([(s - a - b) / np.sqrt((1 - 2 * a + s) * (1 - 2 * b + s)) for a, b in pairs]))


def test_adjusted_cosine_equals_the_loop_over_clusters_and_pairs() -> None:
    rng = np.random.default_rng(0)
    labels, types = rng.choice(3, 150, p=[0.5, 0.3, 0.2]), rng.integers(0, 12, 150)
    states = rng.standard_normal((150, 5)) + 4 * np.eye(5)[labels]
    zetas, sizes = _slow_adjusted(states, labels, types), np.bincount(labels)
    got = adjusted_cosine(states, labels, types, min_cluster=5, permutations=9)
    assert got.mean == pytest.approx(np.mean(zetas), abs=1e-12)
    assert got.weighted == pytest.approx(np.average(zetas, weights=sizes), abs=1e-12)
    counts = [np.unique(types[labels == label], return_counts=True)[1].tolist() for label in range(3)]
    assert got.floor == pytest.approx(np.mean([_slow_floor(one) for one in counts]), abs=1e-14)
    assert got.permuted.excess == pytest.approx(got.mean - got.permuted.mean, abs=1e-15)
    assert (got.used, got.small, got.single) == (3, 0, 0)


def test_two_centred_rows_stand_at_the_floor_of_minus_one() -> None:
    got = adjusted_cosine(np.array([[5.0, 1], [7, 4]]), np.zeros(2, int), min_cluster=2, permutations=9)
    assert (got.mean, got.floor, got.permuted.mean, got.permuted.excess) == pytest.approx(
        (-1.0, -1.0, -1.0, 0.0), abs=1e-6
    )


COUNTS = {
    "all equal": [7] * 6,
    "each row its own type": [1] * 40,
    "one dominating type": [90, 3, 2, 1, 1],
    "two types": [30, 1],
    "falling": [60, 30, 15, 8, 4, 2, 1, 1],
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_floor_is_what_isotropic_types_give_in_high_dimension(name: str) -> None:
    counts = np.array(COUNTS[name])
    types = np.repeat(np.arange(len(counts)), counts)
    states = np.random.default_rng(0).standard_normal((len(counts), 10_000))[types]
    got = adjusted_cosine(states, np.zeros(len(types), int), types, min_cluster=2)
    assert got.floor == pytest.approx(_slow_floor(COUNTS[name]), abs=1e-14)
    assert got.mean == pytest.approx(got.floor, abs=0.02)


def test_types_of_equal_counts_have_a_floor_by_their_number_not_by_their_rows() -> None:
    assert isotropic_floor(np.full(6, 7)) == pytest.approx(-1 / 5)
    assert isotropic_floor(np.ones(40, int)) == pytest.approx(-1 / 39)
    assert isotropic_floor(np.ones(40_000, int)) == pytest.approx(-1 / 39_999)
    with pytest.raises(ValueError, match="counts: got 1 types, expected at least 2"):
        isotropic_floor(np.array([9]))


def test_a_cluster_of_one_type_is_left_out_and_counted() -> None:
    states = np.random.default_rng(0).standard_normal((120, 8))
    labels, types = np.repeat([0, 1], 60), np.r_[np.zeros(60, int), np.arange(60) % 5]
    got = adjusted_cosine(states, labels, types)
    assert (got.used, got.small, got.single) == (1, 0, 1)
    assert got.floor == pytest.approx(-1 / 4)


def _few_types(rng: np.random.Generator, shared: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clusters of 46 rows of 2, 2 and 3 types, as Chronos-T5 has on the exchange rate; labels and types.

    shared: of a direction that the two rarer types of the last cluster have in common.
    """
    counts = [30, 16, 38, 8, 31, 9, 6]
    types, labels = np.repeat(np.arange(7), counts), np.repeat([0, 0, 1, 1, 2, 2, 2], counts)
    centres = rng.standard_normal((7, 64)) + shared * rng.standard_normal(64) * (np.arange(7) > 4)[:, None]
    return centres[types] + 0.3 * rng.standard_normal((len(types), 64)), labels, types


def test_isotropic_types_of_unequal_counts_are_inside_the_null_as_often_as_the_level_says() -> None:
    outside = 0
    for seed in range(60):
        states, labels, types = _few_types(np.random.default_rng(seed))
        got = adjusted_cosine(states, labels, types, permutations=39, seed=seed)
        outside += got.permuted.p <= 0.05
        assert abs(got.permuted.excess) < 6 * got.permuted.sd
    assert got.floor == pytest.approx(-0.82, abs=0.01)
    assert got.mean < -0.55  # where -1 / (n - 1), a floor of rows, is -0.022
    assert outside <= 9  # 3 expected


def test_types_that_share_a_direction_are_told_from_isotropic() -> None:
    states, labels, types = _few_types(np.random.default_rng(3), 2.0)
    got = adjusted_cosine(states, labels, types, permutations=199)
    assert got.permuted.p <= 0.05 and got.mean < 0 < got.permuted.excess


def test_adjusted_cosine_is_free_of_the_place_of_each_cluster_and_of_scale() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 200)
    states = rng.standard_normal((200, 4)) ** 3
    moved = 1e3 * (states + 50 * np.eye(4)[labels])
    got, plain = adjusted_cosine(moved, labels), adjusted_cosine(states, labels)
    assert got.mean == pytest.approx(plain.mean, abs=1e-10)


def test_clusters_of_few_rows_are_left_out_and_counted() -> None:
    rng = np.random.default_rng(3)
    states, labels = rng.standard_normal((70, 3)), np.repeat([0, 1, 2], [40, 29, 1])
    got = adjusted_cosine(states, labels)
    assert (got.used, got.small) == (1, 2)
    assert got.mean == pytest.approx(inter_token_cosine(states[:40] - states[:40].mean(axis=0)).zeta)


@pytest.mark.parametrize(
    ("states", "types"),
    [
        (np.full((50, 3), 0.1), None),  # the mean of 0.1s is not 0.1: residuals are rounding, not directions
        (np.full((50, 3), 1e30, dtype=np.float32), np.arange(50)),
        (np.random.default_rng(4).standard_normal((50, 3)), np.zeros(50, int)),
        (np.random.default_rng(4).standard_normal((5, 3)), None),
    ],
)
def test_equal_rows_one_type_or_few_rows_have_no_adjusted_cosine(states: np.ndarray, types) -> None:
    got = adjusted_cosine(states, np.zeros(len(states), int), types)
    assert got == Adjusted(small=int(len(states) < 30), single=int(len(states) >= 30))


def test_a_label_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match=r"labels: got 2, expected one per row, 3"):
        adjusted_cosine(np.ones((3, 2)), np.zeros(2, int))


def _null(residuals: np.ndarray, types: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """ζ of rows whose type means are shuffled column by column, from the definition."""
    names = np.unique(types)
    means = np.stack([residuals[types == name].mean(axis=0) for name in names])
    zetas = []
    for _ in range(count):
        moved = np.stack([rng.permutation(column) for column in means.T], axis=1)
        rows = np.empty_like(residuals)
        for name, old, new in zip(names, means, moved, strict=True):
            rows[types == name] = residuals[types == name] - old + new
        zetas.append(inter_token_cosine(rows - rows.mean(axis=0), types).zeta)
    return np.array(zetas)


def check_draws(ours: np.ndarray, slow: np.ndarray) -> None:
    """Both are 300 draws of one distribution: mean within five standard errors, standard deviation within a quarter."""
    assert ours.mean() == pytest.approx(slow.mean(), abs=5 * slow.std() / np.sqrt(150) + 1e-6)
    assert ours.std() == pytest.approx(slow.std(), rel=0.25, abs=1e-6)


@pytest.mark.parametrize(("width", "types"), [(4, None), (40, None), (40, 100), (40, 30), (40, 3), (40, 2)])
def test_the_null_is_that_of_type_means_shuffled_column_by_column(width: int, types: int | None) -> None:
    rng = np.random.default_rng(width)
    states = rng.standard_normal((120, width)) ** 3 * rng.gamma(1.0, size=width)
    kinds = None if types is None else (types * rng.random(120) ** 2).astype(int)
    residuals = states - states.mean(axis=0)
    ours = permuted_cosines(residuals, kinds, 300, rng)
    slow = _null(residuals, np.arange(120) if kinds is None else kinds, 300, rng)
    check_draws(ours, slow)


def test_a_null_that_moves_nothing_is_the_cosine_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    states, types = rng.standard_normal((90, 7)), rng.integers(0, 9, 90)
    residuals = states - states.mean(axis=0)
    monkeypatch.setattr("tsfmscope.geometry.cosine._shuffle_columns", lambda columns, rng: columns.copy())
    for kinds in (None, types):
        got = permuted_cosines(residuals, kinds, 2, rng)
        assert got == pytest.approx(inter_token_cosine(residuals, kinds).zeta, abs=1e-6)


def test_an_isotropic_cluster_stands_at_its_floor_and_the_corrected_value_at_zero() -> None:
    states = np.random.default_rng(1).standard_normal((1300, 16)) + 3
    got = adjusted_cosine(states, np.zeros(1300, int), permutations=39)
    assert got.floor == pytest.approx(-1 / 1299)
    assert abs(got.permuted.excess) < 1e-4 < abs(got.mean)


def test_independent_coordinates_are_told_from_isotropic_about_as_often_as_the_level_says() -> None:
    found = 0
    for seed in range(120):
        states = np.random.default_rng(seed).standard_normal((120, 6)) * [3, 1, 1, 1, 0.5, 0.2] + 7
        got = adjusted_cosine(states, np.arange(120) % 2, permutations=39, seed=seed)
        found += got.permuted.p <= 0.05
    assert 1 <= found <= 14  # 6 expected


def test_norms_that_go_with_a_direction_are_told_from_isotropic() -> None:
    rng = np.random.default_rng(4)
    states = rng.standard_normal((400, 8)) + rng.exponential(4, 400)[:, None]
    got = adjusted_cosine(states, np.zeros(400, int), permutations=39)
    assert got.permuted.p == 0.05  # outside all 39
    assert abs(got.mean - got.permuted.mean) > 5 * got.permuted.sd


def test_p_counts_the_permutations_on_the_nearer_side_twice() -> None:
    states = np.random.default_rng(5).standard_normal((60, 3)) ** 3
    got = adjusted_cosine(states, np.zeros(60, int), permutations=19, seed=8)
    residuals = states - states.mean(axis=0)
    null = permuted_cosines(residuals, None, 19, np.random.default_rng([8, 3]))
    below, above = int((null <= got.mean).sum()), int((null >= got.mean).sum())
    assert got.permuted.p == min(1.0, 2 * (min(below, above) + 1) / 20)
    assert (got.permuted.mean, got.permuted.sd) == pytest.approx((null.mean(), null.std(ddof=1)))


def test_the_null_averages_over_the_clusters_used_and_follows_its_seed() -> None:
    rng = np.random.default_rng(6)
    states, labels = rng.standard_normal((150, 4)), np.repeat([0, 1, 2], [80, 60, 10])
    first, second, other = (adjusted_cosine(states, labels, permutations=9, seed=seed) for seed in (1, 1, 2))
    assert first == second != other
    assert (first.used, first.small) == (2, 1)
    assert first.permuted.mean == pytest.approx(first.floor, abs=5 * first.permuted.sd)


def test_without_permutations_there_is_no_null() -> None:
    got = adjusted_cosine(np.random.default_rng(7).standard_normal((40, 3)), np.zeros(40, int))
    assert (got.permuted.mean, got.permuted.sd, got.permuted.p, got.permuted.excess) == (None, None, None, None)
    assert got.mean is not None


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_huge_and_tiny_residuals_have_a_null(scale: float) -> None:
    states = scale * np.random.default_rng(9).standard_normal((50, 4))
    states[:5] = states.mean(axis=0)
    got = adjusted_cosine(states, np.zeros(50, int), permutations=9)
    assert np.isfinite([got.permuted.mean, got.permuted.sd, got.permuted.p]).all()


@pytest.mark.parametrize("seed", range(5))
def test_two_types_of_equal_rows_are_never_told_from_isotropic_by_rounding(seed: int) -> None:
    rng = np.random.default_rng(seed)
    types = np.repeat([7, 9], [37, 400])
    states = rng.normal(size=(2, 64)).astype(np.float32)[(types == 9).astype(int)]
    found = adjusted_cosine(states, np.zeros(len(types), int), types, permutations=39, seed=seed)
    assert found.mean == pytest.approx(-1, abs=1e-9)
    assert found.permuted.mean is not None and -1 <= found.permuted.mean <= -1 + 1e-6
    assert found.permuted.p == 1


def _directed(residuals: np.ndarray, types: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """ζ of rows whose type means get random directions, from the definition, with scipy's spatial median."""
    names = np.unique(types)
    means = [residuals[types == name].mean(axis=0) for name in names]

    def distances(centre: np.ndarray) -> list[float]:
        return [float(np.linalg.norm(mean - centre)) for mean in means]

    median = minimize(lambda centre: sum(distances(centre)), np.mean(means, axis=0), tol=1e-9).x
    norms = [distance * np.sqrt(len(names) / (len(names) - 1)) for distance in distances(median)]
    zetas = []
    for _ in range(count):
        rows = residuals.copy()
        for name, mean, norm in zip(names, means, norms, strict=True):
            direction = rng.standard_normal(residuals.shape[1])
            rows[types == name] += norm * direction / np.linalg.norm(direction) - mean
        zetas.append(inter_token_cosine(rows - rows.mean(axis=0), types).zeta)
    return np.array(zetas)


@pytest.mark.parametrize(("width", "types"), [(4, None), (40, None), (40, 100), (40, 30), (40, 3)])
def test_the_second_null_is_that_of_type_means_in_random_directions(width: int, types: int | None) -> None:
    rng = np.random.default_rng(width)
    states = rng.standard_normal((120, width)) * rng.lognormal(0, 0.7, (120, 1))
    kinds = None if types is None else (types * rng.random(120) ** 2).astype(int)
    residuals = states - states.mean(axis=0)
    ours = directed_cosines(residuals, kinds, 300, rng)
    slow = _directed(residuals, np.arange(120) if kinds is None else kinds, 300, rng)
    check_draws(ours, slow)


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
def test_norms_before_centring_are_found_whatever_the_centre_is(spread: float) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((300, 64))
    norms = rng.lognormal(0, spread, 300)
    vectors *= (norms / np.linalg.norm(vectors, axis=1))[:, None]
    found = norms_before_centring((vectors + 0.3 * rng.standard_normal(64)).T)
    assert found == pytest.approx(norms, rel=0.03, abs=0.03)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1), n=st.integers(2, 40), width=st.integers(1, 9), scale=st.floats(1e-3, 1e3)
)  # fmt: skip
def test_norms_and_the_second_null_ignore_rotation_and_scale(seed: int, n: int, width: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((n, width)) * rng.lognormal(0, 0.5, (n, 1))
    states -= states.mean(axis=0)
    turned = scale * states @ np.linalg.qr(rng.standard_normal((width, width)))[0]
    assert norms_before_centring(turned.T) == pytest.approx(scale * norms_before_centring(states.T), rel=1e-6)
    # Each draw depends on the norms alone.
    first, second = (directed_cosines(rows, None, 4, np.random.default_rng(seed)) for rows in (states, turned))
    assert np.abs(first).max() <= 1
    if width > 1:  # in one dimension, a row near its mean changes sides by rounding
        assert first == pytest.approx(second, abs=1e-3)


def test_unequal_norms_are_outside_the_first_null_and_inside_the_second() -> None:
    rng = np.random.default_rng(1)
    states = rng.standard_normal((400, 32)) * rng.lognormal(0, 0.7, (400, 1))
    got = adjusted_cosine(states, np.zeros(400, int), permutations=39, directions=39)
    assert got.permuted.p == 0.05 < got.directed.p
    assert abs(got.directed.excess) < 3 * got.directed.sd
    assert got.permuted.excess > 9 * got.permuted.sd


def test_norms_that_go_with_a_direction_are_outside_both_nulls() -> None:
    rng = np.random.default_rng(4)
    states = rng.standard_normal((400, 8)) + rng.exponential(4, 400)[:, None]
    got = adjusted_cosine(states, np.zeros(400, int), permutations=39, directions=39)
    assert got.permuted.p == got.directed.p == 0.05
    assert abs(got.directed.excess) > 5 * got.directed.sd


def test_the_second_null_leaves_the_first_as_it_is() -> None:
    rng = np.random.default_rng(2)
    states, labels = rng.standard_normal((150, 6)) ** 3, np.repeat([0, 1], [90, 60])
    alone, other, both = (
        adjusted_cosine(states, labels, permutations=permutations, directions=directions, seed=3)
        for permutations, directions in ((19, 0), (0, 39), (19, 39))
    )
    assert (both.permuted, both.directed) == (alone.permuted, other.directed)
    assert alone.directed == other.permuted == Null()


def test_a_cloud_that_is_cut_into_clusters_is_also_tested_as_a_whole() -> None:
    """Halves of an isotropic cloud are skewed, so that the null within clusters alone would reject."""
    states = np.random.default_rng(0).standard_normal((1500, 3))
    cut = adjusted_cosine(states, (states[:, 0] > 0).astype(int), directions=39)
    whole = adjusted_cosine(states, np.zeros(1500, int), directions=39)
    assert cut.directed.excess > 5 * cut.directed.sd
    assert cut.directed.p == whole.directed.p > 0.05


HARD_TYPES = {
    "tiny": (1e-30, np.float64), "huge": (1e30, np.float64), "float16": (1.0, np.float16),
    "tiny float32": (1e-20, np.float32),
}  # fmt: skip


@pytest.mark.parametrize("name", HARD_TYPES)
@pytest.mark.parametrize("shares", ["own", "equal", "half", "most"])
def test_hard_states_have_a_finite_second_null(name: str, shares: str) -> None:
    """Rank 2 of 5, duplicated rows, and types of which one has half or most of the rows."""
    scale, dtype = HARD_TYPES[name]
    rng = np.random.default_rng(9)
    states = (scale * rng.standard_normal((40, 2)) @ rng.standard_normal((2, 5))).astype(dtype)
    states[5:12] = states[4]
    types = {
        "own": None, "equal": np.arange(40) % 4, "half": np.repeat([0, 1, 2], [20, 15, 5]),
        "most": np.repeat([0, 1, 2], [37, 2, 1]),
    }[shares]  # fmt: skip
    got = adjusted_cosine(states, np.zeros(40, int), types, directions=39)
    assert -1 <= got.directed.mean <= 1
    assert np.isfinite([got.directed.sd, got.directed.p, got.directed.excess]).all()


@pytest.mark.parametrize("seed", range(3))
def test_two_types_of_equal_rows_are_inside_the_second_null(seed: int) -> None:
    types = np.repeat([7, 9], [37, 400])
    states = np.random.default_rng(seed).normal(size=(2, 64)).astype(np.float32)[(types == 9).astype(int)]
    found = adjusted_cosine(states, np.zeros(437, int), types, directions=39, seed=seed)
    assert (found.directed.mean, found.directed.p) == (pytest.approx(-1, abs=1e-6), 1)

"""The row of measures, its reasons, and the sweep's entry."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from sklearn.metrics.pairwise import cosine_similarity

from tasks.geometry import MeasureSpec, entry
from tasks.job import Job, Task
from tsfmscope.geometry.clusters import choose_clusters
from tsfmscope.geometry.cosine import adjusted_cosine, inter_token_cosine
from tsfmscope.geometry.measures import (
    AXES,
    REPEATED,
    Rows,
    _measure_half,
    cai,
    measure_states,
    sample_one_per_type,
    spread_over_halves,
    subsample,
    unmeasured_columns,
)
from tsfmscope.geometry.options import IsotropyOptions
from tsfmscope.geometry.spectrum import (
    covariance_spectrum,
    effective_dimension,
    isoscore,
    log_isotropy,
    principal_coordinates,
    uncentred_projections,
)

COLUMNS = {"n_tokens", "n_types", "n_zero", "reason", *unmeasured_columns()}
SPEC = {
    "model": "m", "base_model": None, "size_parameter": None, "size_rule": None, "dataset": "d", "condition": "c",
    "context": 64, "noise": 0.0,
    "stack": "encoder", "layer": 2, "normed": False, "weights_dtype": "float32", "tokens": 200, "seed": 0,
    "measure": {
        "k_max": 4, "restarts": 3, "min_silhouette": 0.1, "min_cluster": 10, "silhouette_rows": 1000,
        "permutations": 39, "repeats": 5, "presets": ["isoscore"],
    },
}  # fmt: skip


def _states(n: int = 300, width: int = 6, dtype: Any = np.float32) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (4 * np.eye(width)[np.arange(n) % 3] + rng.standard_normal((n, width))).astype(dtype)


def _numbers(row: dict[str, Any]) -> list[float]:
    flat = [x for value in row.values() for x in (value if isinstance(value, list) else [value])]
    return [x for x in flat if isinstance(x, (int, float))]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_row_holds_what_each_measure_says(dtype: Any) -> None:
    states = _states(dtype=dtype)
    row = measure_states(states, seed=5)
    exact = states.astype(np.float64)
    cosine, chosen = inter_token_cosine(exact), choose_clusters(exact, seed=5)
    adjusted = adjusted_cosine(exact, chosen.labels, permutations=39, directions=39, seed=5)
    assert set(row) == COLUMNS
    assert (row["zeta"], row["zeta_token"], row["n_types"]) == (cosine.zeta, cosine.zeta_token, 300)
    assert (row["k"], row["silhouettes"]) == (3, list(chosen.silhouettes))
    assert row["zeta_adjusted"] == adjusted.mean
    assert row["zeta_adjusted_corrected"] == adjusted.permuted.excess
    assert row["zeta_adjusted_excess"] == adjusted.directed.excess
    assert row["zeta_adjusted_floor"] == adjusted.floor
    assert row["zeta_adjusted_weighted"] == adjusted.weighted
    assert (row["n_clusters_used"], row["n_clusters_small"]) == (3, 0)
    for prefix, null in (("null", adjusted.permuted), ("directions", adjusted.directed)):
        assert (row[f"zeta_adjusted_{prefix}"], row[f"zeta_adjusted_{prefix}_sd"]) == (null.mean, null.sd)
    assert (row["zeta_adjusted_p"], row["zeta_adjusted_directions_p"]) == (adjusted.permuted.p, adjusted.directed.p)
    assert row["zeta_adjusted_isotropic"] is (adjusted.directed.p > 0.05)
    assert row["eigenvalues"] == covariance_spectrum(exact).eigenvalues.tolist()
    assert (row["log_isotropy"], row["log_isotropy_scaled"]) == tuple(log_isotropy(exact))
    assert row["isoscore"] == isoscore(covariance_spectrum(exact).eigenvalues) < row["isoscore_star"] < 1
    assert row["reason"] is row["cai_k"] is None


def test_with_types_the_clusters_are_those_of_the_type_means() -> None:
    """A type with 200 of 290 rows, which would be a cluster of its own, counts once."""
    rng = np.random.default_rng(3)
    types = rng.permutation(np.r_[np.zeros(200, int), np.arange(1, 31).repeat(3)])
    states = (8 * np.eye(12)[np.arange(31) % 2] + rng.standard_normal((31, 12)))[types]
    states += 0.1 * rng.standard_normal(states.shape)
    row, means = measure_states(states, types, seed=5), np.stack([states[types == kind].mean(0) for kind in range(31)])
    chosen = choose_clusters(means, seed=5)
    assert (row["k"], chosen.k) == (2, 2)
    assert row["silhouettes"] == pytest.approx(list(chosen.silhouettes), abs=1e-12)
    adjusted = adjusted_cosine(states, chosen.labels[types], types, permutations=39, directions=39, seed=5)
    assert row["zeta_adjusted"] == pytest.approx(adjusted.mean, abs=1e-12)
    assert row["zeta_adjusted_isotropic"] is (adjusted.directed.p > 0.05)


@pytest.mark.parametrize("types", [None, np.arange(300) % 40])
def test_the_preset_cai_stands_beside_and_changes_nothing_else(types: np.ndarray | None) -> None:
    row, plain = (measure_states(_states(), types, presets=presets, seed=5) for presets in (["cai"], []))
    peer = cai(_states().astype(np.float64), types, seed=5)
    assert [row[name] for name in COLUMNS if name.startswith("cai")].count(None) == 0
    assert (row["cai_rows"], row["cai_k"], row["cai_cosine"]) == (peer.n, peer.k, peer.inter_cosine)
    assert (row["cai_silhouettes"], row["cai_cluster_cosine"]) == (list(peer.silhouettes), peer.cluster_cosine)
    assert {name: value for name, value in row.items() if not name.startswith("cai")} == {
        name: value for name, value in plain.items() if not name.startswith("cai")
    }
    assert row["isoscore"] is row["isoscore_star"] is None


def test_few_types_have_no_clusters_of_cai_and_a_reason() -> None:
    row = measure_states(_states(), np.arange(300) % 2, presets=["cai"], seed=0)
    assert (row["cai_rows"], row["cai_k"], row["cai_silhouettes"]) == (2, None, [])
    assert "cai: 2 types" in row["reason"]


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ValueError, match=r"presets: got \['isoskore'\], expected some of \['isoscore', 'cai'\]"):
        measure_states(_states(), presets=["isoskore"], seed=0)


def test_no_permutations_leave_no_mark() -> None:
    row = measure_states(_states(), options=IsotropyOptions(permutations=0), seed=0)
    assert row["zeta_adjusted_p"] is row["zeta_adjusted_isotropic"] is row["zeta_adjusted_corrected"] is None
    assert row["zeta_adjusted"] is not None
    assert row["zeta_adjusted_corrected_sd"] is None is not row["zeta_adjusted_sd"]
    assert row["reason"] == "nulls of zeta_adjusted: 0 permutations; at least 2 are needed"


NULLS = {
    "no token": (np.zeros((0, 4)), None, "0 rows"),
    "one token": (np.ones((1, 4)), None, "1 rows that are not zero; at least 3"),
    "two tokens": (np.eye(2), None, "2 rows"),
    "all zero": (np.zeros((50, 4)), None, "0 rows that are not zero"),
    "two rows that are not zero": (np.r_[np.zeros((48, 4)), np.ones((2, 4))], None, "2 rows"),
    "equal rows": (np.full((50, 4), 0.1), None, "all rows are equal"),
    "one type": (
        _states(),
        np.zeros(300, int),
        "zeta: one token type.*silhouettes: fewer than 3 token types.*zeta_adjusted.*1 of 1 hold one token type",
    ),
    "few rows": (_states(12), None, "zeta_adjusted: no cluster of at least 30 rows"),
    "clusters of equal rows": (np.repeat(np.eye(3), 40, axis=0), None, "zeta_adjusted: no cluster"),
}


@pytest.mark.parametrize("name", NULLS)
def test_what_cannot_be_measured_is_null_with_its_reason_and_never_nan(name: str) -> None:
    states, types, reason = NULLS[name]
    row = measure_states(states, types, seed=0)
    assert set(row) == COLUMNS
    assert all(map(math.isfinite, _numbers(row)))
    assert row["zeta_adjusted"] is None
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(row["reason"])


def test_equal_rows_still_have_a_cosine_of_one() -> None:
    row = measure_states(np.full((50, 4), 0.1), seed=0)
    assert (row["zeta"], row["k"], row["eigenvalues"], row["silhouettes"]) == (pytest.approx(1.0), None, [], [])


HARD = {
    "huge": 1e30 * _states(),
    "largest float16": (6e4 * np.clip(_states(), -1, 1)).astype(np.float16),
    "tiny": 1e-30 * _states(),
    "denormal float16": (1e-7 * _states()).astype(np.float16),
    "rank one": np.outer(np.arange(1.0, 101), np.ones(5)),
    "wide": _states(8, 64),
    "one column": _states(100, 3)[:, :1],
    "heavy duplicates": np.repeat(_states(4), 60, axis=0),
    "one massive entry": np.r_[_states(), [[6e4, 0, 0, 0, 0, 0]]],
}


@pytest.mark.parametrize("name", HARD)
def test_hard_states_give_finite_measures(name: str) -> None:
    row = measure_states(HARD[name], seed=0)
    assert all(map(math.isfinite, _numbers(row)))
    assert -1 <= row["zeta"] <= 1
    assert row["log_isotropy_scaled"] <= 0
    assert row["k"] >= 1


def test_zero_rows_are_counted_and_change_nothing_else() -> None:
    states = _states()
    padded = np.r_[np.zeros((7, 6), np.float32), states]
    got, plain = measure_states(padded, seed=0), measure_states(states, seed=0)
    assert (got.pop("n_tokens"), got.pop("n_zero")) == (307, 7)
    assert {name: plain[name] for name in got} == got


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_refused_with_their_number(value: float) -> None:
    states = _states()
    states[[3, 8], 1] = value
    states[3, 2] = value
    with pytest.raises(ValueError, match="2 of 300 rows contain NaN or infinity"):
        measure_states(states, seed=0)


@pytest.mark.parametrize(
    ("states", "types", "text"),
    [
        (np.ones(3), None, r"states: got shape \(3,\)"),
        (np.ones((3, 0)), None, r"states: got shape \(3, 0\)"),
        (np.ones((3, 2)), np.arange(2), r"types: got shape \(2,\), expected one per row, \(3,\)"),
    ],
)
def test_wrong_shapes_are_refused(states: np.ndarray, types: np.ndarray | None, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        measure_states(states, types, seed=0)


def test_a_subsample_has_the_asked_size_in_the_old_order_and_every_row_the_same_chance() -> None:
    states, types = np.arange(50.0)[:, None], np.arange(50)
    drawn = np.zeros(50)
    for seed in range(800):
        rows, kinds = subsample(states, types, 10, seed=seed)
        assert rows[:, 0].tolist() == kinds.tolist() == sorted(set(kinds.tolist()))
        drawn[kinds] += 1
    assert drawn.sum() == 8000
    assert np.abs(drawn / 800 - 0.2).max() < 5 * np.sqrt(0.16 / 800)
    assert subsample(states, None, 50, seed=0)[0] is states


@pytest.mark.parametrize("types", [None, np.arange(300) % 40])
def test_the_entry_answers_one_row_with_its_identity_seeded_by_its_key(types: np.ndarray | None) -> None:
    job = Job(Task("geometry", 1, "tasks.geometry:entry"), SPEC)
    data = {"states": _states(dtype=np.float16), "types": types, "n_series": 4, "states_dtype": "float16"}
    (row,) = entry(job, data, None).rows
    states, kinds = subsample(data["states"], types, 200, seed=job.seed)
    measure = MeasureSpec(**SPEC["measure"])
    expected = measure_states(states, kinds, measure, presets=measure.presets, seed=job.seed)
    assert {name: row[name] for name in expected} == expected
    assert {name: row[name] for name in ("model", "layer", "normed", "context", "weights_dtype")} == {
        name: SPEC[name] for name in ("model", "layer", "normed", "context", "weights_dtype")
    }
    assert (row["n_tokens"], row["n_series"], row["states_dtype"], row["job_key"]) == (200, 4, "float16", job.key)
    assert len(row["silhouettes"]) == 3


def _pairs(rows: np.ndarray) -> float:
    cosines = cosine_similarity(rows)
    return float((cosines.sum() - len(rows)) / (len(rows) * (len(rows) - 1)))


def _peer(rows: np.ndarray) -> tuple[float, int, list[float], float]:
    """What analysis.py does with --maxl 1: cosine of all rows; K, silhouettes, and cosine in centred clusters."""
    candidates = range(2, 16)
    labelings = [KMeans(k, n_init=10, random_state=0).fit(rows).labels_ for k in candidates]
    scores = [float(silhouette_score(rows, labels, sample_size=None)) for labels in labelings]
    best = int(np.argmax(scores))
    k, labels = (candidates[best], labelings[best]) if scores[best] >= 0.1 else (1, np.zeros(len(rows), int))
    inside = []
    for label in np.unique(labels):
        members = rows[labels == label]
        if len(members) > 1:  # a cluster of one row gives 0/0 there, and is passed over
            inside.append(_pairs(members - members.mean(axis=0)))
    return _pairs(rows), k, scores, float(np.mean(inside))


def _islands(seed: int, k: int, n: int = 300, width: int = 12) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 4 * rng.standard_normal((k, width))[np.arange(n) % k] + rng.standard_normal((n, width)) + 1


@pytest.mark.parametrize("k", [3, 12])
def test_islands_are_found_and_measured_as_the_released_code_does(k: int) -> None:
    rows = _islands(k, k)
    inter, clusters, scores, inside = _peer(rows)
    got = cai(rows, seed=0)
    assert (got.n, got.k) == (300, clusters)
    assert got.k == k
    assert got.inter_cosine == pytest.approx(inter, abs=1e-12)
    assert len(got.silhouettes) == 14
    assert got.silhouettes[k - 2] == pytest.approx(scores[k - 2], abs=1e-6)
    assert got.cluster_cosine == pytest.approx(inside, abs=1e-9)


def test_below_a_silhouette_of_a_tenth_all_rows_are_one_centred_cluster() -> None:
    rows = np.random.default_rng(2).standard_normal((200, 30)) + 2
    inter, clusters, _, inside = _peer(rows)
    got = cai(rows, seed=0)
    assert got.k == clusters == 1
    assert (got.inter_cosine, got.cluster_cosine) == pytest.approx((inter, inside), abs=1e-12)


def test_one_occurrence_of_every_type_is_taken() -> None:
    rng = np.random.default_rng(3)
    types = rng.integers(0, 90, 1000)
    centre = 6 * rng.standard_normal((90, 8))
    got = cai(centre[types], types, seed=5)  # all occurrences alike: the answer is that of the types
    plain = cai(centre[np.unique(types)], seed=5)
    assert got == plain
    assert got.n == len(np.unique(types))


def test_every_occurrence_of_a_type_has_the_same_chance() -> None:
    types = np.array([4, 4, 9, 4, 4, 9])
    drawn = np.stack([sample_one_per_type(types, np.random.default_rng(seed)) for seed in range(2000)])
    assert np.isin(drawn[:, 0], [0, 1, 3, 4]).all() and np.isin(drawn[:, 1], [2, 5]).all()
    counts = np.bincount(drawn.ravel(), minlength=6) / 2000
    assert counts == pytest.approx([0.25, 0.25, 0.5, 0.25, 0.25, 0.5], abs=0.06)


def test_a_zero_row_has_cosine_0_with_all_and_1_is_taken_off_for_it() -> None:
    rows = np.r_[np.zeros((1, 3)), np.random.default_rng(4).standard_normal((9, 3))]
    assert cai(rows, seed=0).inter_cosine == pytest.approx(_pairs(rows), abs=1e-12)


@pytest.mark.parametrize(
    ("states", "types", "n", "inter"),
    [
        (np.zeros((0, 3)), None, 0, None),
        (np.ones((1, 3)), None, 1, None),
        (np.eye(2), None, 2, 0.0),
        (np.ones((50, 3)), None, 50, 1.0),
        (np.eye(50), np.zeros(50, int), 1, None),
    ],
)
def test_too_few_or_equal_occurrences_have_no_clusters(states, types, n: int, inter: float | None) -> None:
    got = cai(states, types, seed=0)
    assert (got.n, got.k, got.silhouettes, got.cluster_cosine) == (n, None, (), None)
    assert got.inter_cosine == (inter if inter is None else pytest.approx(inter, abs=1e-12))


def test_a_type_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match="types: got 2, expected one per row, 3"):
        cai(np.eye(3), np.arange(2), seed=0)


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
    most = dict.fromkeys(REPEATED, 1.5) | {"zeta_adjusted": 4, "zeta_adjusted_corrected": 2.5}
    resolution = dict.fromkeys(REPEATED, 0.0) | {"effective_dimension": 0.3}  # a whole number
    for name in REPEATED:
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
    found = _measure_half(half, options, 3)
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
    found = _measure_half(half, QUICK, 0)
    assert abs(found["effective_dimension"] - exact) <= 2
    assert found["log_isotropy_scaled"] == pytest.approx(log_isotropy(half.states).scaled, rel=0.05)


@pytest.mark.parametrize(("n", "repeats"), [(5, 5), (200, 0), (200, 1)])
def test_too_few_rows_or_repeats_have_no_spread(n: int, repeats: int) -> None:
    rows = _rows(_drawn(np.random.default_rng(5), n))
    found = spread_over_halves(rows, IsotropyOptions(min_cluster=2, permutations=9, repeats=repeats), seed=0)
    assert found == {"repeats": 0} | {f"{name}_sd": None for name in REPEATED}


def test_halves_of_equal_rows_have_no_clusters_and_raise_nothing() -> None:
    states = np.ones((40, 4))
    states[7] = [1, 2, 3, 4]
    row = measure_states(states, options=QUICK, seed=0)
    assert row["repeats"] == 5 and row["zeta_sd"] is not None
    assert row["zeta_adjusted_sd"] is None


def test_types_are_counted_in_every_half() -> None:
    rng = np.random.default_rng(3)
    types = rng.integers(0, 25, 200)
    states = 3 * rng.standard_normal((25, 12))[types] + rng.standard_normal((200, 12))
    row, plain = (measure_states(states, kinds, QUICK, seed=0) for kinds in (types, None))
    assert row["zeta_sd"] != plain["zeta_sd"]
    assert all(row[f"{name}_sd"] is not None for name in REPEATED)


def test_repeats_follow_their_seed() -> None:
    rows = _rows(_drawn(np.random.default_rng(4)))
    options = IsotropyOptions(k_max=3, min_cluster=20, permutations=9, repeats=3)
    one, same, other = (spread_over_halves(rows, options, seed=seed) for seed in (1, 1, 2))
    assert one == same != other
    assert one["repeats"] == 3

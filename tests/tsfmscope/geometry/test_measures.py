"""The row of measures, its reasons, and the sweep's entry."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tasks.geometry import MeasureSpec, entry
from tasks.job import Job, Task
from tsfmscope.geometry.adjusted import adjusted_cosine
from tsfmscope.geometry.cai import cai
from tsfmscope.geometry.clusters import choose_clusters
from tsfmscope.geometry.cosine import inter_token_cosine
from tsfmscope.geometry.dimension import covariance_spectrum
from tsfmscope.geometry.isoscore import isoscore
from tsfmscope.geometry.measures import measure_states, subsample, unmeasured_columns
from tsfmscope.geometry.options import IsotropyOptions
from tsfmscope.geometry.partition import log_isotropy

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
    states, types = _states(dtype=dtype), np.arange(300) % 40
    row = measure_states(states, types, seed=5)
    exact = states.astype(np.float64)
    cosine, chosen = inter_token_cosine(exact, types), choose_clusters(exact, seed=5)
    adjusted = adjusted_cosine(exact, chosen.labels, types, permutations=39, seed=5)
    assert set(row) == COLUMNS
    assert (row["zeta"], row["zeta_token"], row["n_types"]) == (cosine.zeta, cosine.zeta_token, 40)
    assert (row["k"], row["silhouettes"]) == (3, list(chosen.silhouettes))
    assert row["zeta_adjusted"] == adjusted.mean
    assert row["zeta_adjusted_corrected"] == adjusted.mean - adjusted.null
    assert row["zeta_adjusted_floor"] == adjusted.floor
    assert row["zeta_adjusted_weighted"] == adjusted.weighted
    assert (row["n_clusters_used"], row["n_clusters_small"]) == (3, 0)
    null = ("zeta_adjusted_null", "zeta_adjusted_null_sd", "zeta_adjusted_p", "zeta_adjusted_isotropic")
    # With a vocabulary, being inside the null shows nothing, so there is no flag.
    assert [row[name] for name in null] == [adjusted.null, adjusted.null_sd, adjusted.p, None]
    without = measure_states(states, seed=5)
    assert without["zeta_adjusted_isotropic"] is (without["zeta_adjusted_p"] > 0.05)
    assert row["eigenvalues"] == covariance_spectrum(exact).eigenvalues.tolist()
    assert (row["log_isotropy"], row["log_isotropy_scaled"]) == tuple(log_isotropy(exact))
    assert row["isoscore"] == isoscore(covariance_spectrum(exact).eigenvalues) < row["isoscore_star"] < 1
    assert row["reason"] is row["cai_k"] is None


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
    assert row["reason"] == "zeta_adjusted_null and _corrected: 0 permutations; at least 2 are needed"


NULLS = {
    "no token": (np.zeros((0, 4)), None, "0 rows"),
    "one token": (np.ones((1, 4)), None, "1 rows that are not zero; at least 3"),
    "two tokens": (np.eye(2), None, "2 rows"),
    "all zero": (np.zeros((50, 4)), None, "0 rows that are not zero"),
    "two rows that are not zero": (np.r_[np.zeros((48, 4)), np.ones((2, 4))], None, "2 rows"),
    "equal rows": (np.full((50, 4), 0.1), None, "all rows are equal"),
    "one type": (_states(), np.zeros(300, int), "zeta: one token type.*zeta_adjusted.*3 of 3 hold one token type"),
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


def test_the_same_seed_gives_the_same_row() -> None:
    assert measure_states(_states(), seed=9) == measure_states(_states(), seed=9)


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

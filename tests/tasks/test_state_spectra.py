"""Entries that need no model: their rows are rows of the tables, and hold what numpy says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from store.schema import to_arrow
from tasks.job import IDENTITY, Job, Task
from tasks.state_spectra import gaussian_angles, input_spectrum
from tsfmscope.ranks.spectrum import line_angles, matrix_floor

SPEC = {
    "model": "m", "base_model": None, "size_parameter": None, "size_rule": None, "dataset": "d", "condition": "c",
    "context": 64, "noise": 0.0,
}  # fmt: skip
SPEC |= {"stack": "encoder", "layer": 2, "normed": False}


def spectrum(states: np.ndarray, dtype: str = "float16", **spec: Any) -> dict[str, Any]:
    job = Job(Task("input_spectrum", 1, "tasks.state_spectra:input_spectrum"), SPEC | spec)
    (row,) = input_spectrum(job, {"states": states, "states_dtype": dtype}).rows
    assert to_arrow("spectra", [{**row, "job_key": job.key}]).num_rows == 1  # it is a row of the table
    return dict(row)


def test_a_layer_s_row_holds_both_spectra_its_shape_and_its_floor() -> None:
    states = (np.random.default_rng(0).standard_normal((300, 7)) + 2).astype(np.float32)
    row = spectrum(states)
    exact = states.astype(np.float64)
    np.testing.assert_allclose(row["singular_values"], np.linalg.svd(exact, compute_uv=False), rtol=1e-12)
    centred = np.linalg.svd(exact - exact.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(row["singular_values_centred"], centred, rtol=1e-12)
    assert row["floor"] == pytest.approx(matrix_floor(exact, row["singular_values"][0], dtype="float16"))
    assert (row["n_rows"], row["n_columns"], row["dtype"], row["tokens"]) == (300, 7, "float16", "valued")
    assert (row["what"], row["stack"], row["layer"], row["normed"]) == ("input", "encoder", 2, False)
    assert row["reason"] is row["matrix"] is row["head"] is row["step"] is None


def test_states_of_rounded_products_have_the_floor_of_that_rounding() -> None:
    states = np.random.default_rng(0).standard_normal((300, 7))
    row, plain = spectrum(states, dtype="float32", weights_dtype="bfloat16"), spectrum(states, dtype="float32")
    assert (row["dtype"], plain["dtype"]) == ("bfloat16", "float32")
    assert row["singular_values"] == plain["singular_values"]
    assert row["floor"] == pytest.approx(matrix_floor(states, row["singular_values"][0], dtype="bfloat16"))


def test_rows_beyond_those_asked_for_are_left_out_by_the_key_s_seed() -> None:
    states = np.random.default_rng(0).standard_normal((300, 7))
    one, again, other = spectrum(states, rows=40), spectrum(states, rows=40), spectrum(states, rows=40, layer=3)
    assert one == again and one["n_rows"] == 40
    assert one["singular_values"] != other["singular_values"]
    assert spectrum(states, rows=300)["singular_values"] == spectrum(states)["singular_values"]


@pytest.mark.parametrize(
    ("states", "values", "centred", "reason"),
    [
        (np.zeros((0, 3)), [], [], "no token of these kinds"),
        (np.zeros((4, 3)), [0, 0, 0], [0, 0, 0], "all tokens are zero"),
        (np.ones((4, 3)), [np.sqrt(12), 0, 0], [0, 0, 0], None),
        (np.ones((1, 3)), [np.sqrt(3)], [0], None),
    ],
)
def test_degenerate_states_have_a_row_without_nan(
    states: np.ndarray, values: list[float], centred: list[float], reason: str | None
) -> None:
    row = spectrum(states)
    assert row["singular_values"] == pytest.approx(values, abs=1e-14)
    assert row["singular_values_centred"] == pytest.approx(centred, abs=1e-14)
    assert row["reason"] == reason
    assert (row["floor"] == 1.0) == (reason is not None)


def test_states_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN or infinity in its row 1"):
        spectrum(np.array([[1.0], [np.nan]]))


def test_gaussian_angles_are_64_seeded_rows_of_their_table() -> None:
    spec = dict.fromkeys(IDENTITY) | {"model": "gaussian"} | {"dimension": 16, "seed": 0}
    job = Job(Task("gaussian_angles", 1, "tasks.state_spectra:gaussian_angles"), spec)
    rows = gaussian_angles(job, None).rows
    vectors = np.random.default_rng(job.seed).standard_normal((64, 16))
    assert np.array([row["angles"] for row in rows]).tolist() == line_angles(vectors).tolist()
    assert [row["row"] for row in rows] == list(range(64))
    assert {(row["what"], row["dimension"], row["stack"], row["head"]) for row in rows} == {
        ("gaussian", 16, None, None)
    }
    assert to_arrow("angles", [{**row, "job_key": job.key} for row in rows]).num_rows == 64

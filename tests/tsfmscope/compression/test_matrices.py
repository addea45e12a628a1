"""Single matrices: truncated SVD, the form weighed by the inputs, the projection on their directions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsfmscope.compression.candidates import plain_factors, projected_factors, weighted_factors


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 7), st.integers(0, 99))
def test_plain_is_numpy_s_truncated_svd(rows: int, columns: int, rank: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).normal(size=(rows, columns))
    u, values, vt = np.linalg.svd(matrix, full_matrices=False)
    expected = (u[:, :rank] * values[:rank]) @ vt[:rank]
    assert np.allclose(np.matmul(*plain_factors(matrix).truncate(rank)), expected)
    assert plain_factors(matrix).errors(7)[min(rank, 7)] == pytest.approx(
        (values[rank:] ** 2).sum() / (values**2).sum()
    )


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 20), st.integers(0, 99))
def test_weighed_is_best_for_the_outputs_of_the_inputs(rows: int, columns: int, count: int, seed: int) -> None:
    """Fewer inputs than columns among them: nothing is inverted."""
    rng = np.random.default_rng(seed)
    matrix, inputs = rng.normal(size=(rows, columns)), rng.normal(size=(count, columns)) * 0.1 ** np.arange(columns)
    factors, whole = weighted_factors(matrix, inputs), matrix @ inputs.T
    values = np.linalg.svd(whole, compute_uv=False)
    for rank in range(1, min(rows, columns) + 1):
        cut = np.matmul(*factors.truncate(rank))
        error = np.linalg.norm(whole - cut @ inputs.T)
        assert error == pytest.approx(np.linalg.norm(values[rank:]), rel=1e-6, abs=1e-12 * values[0])
        assert error <= np.linalg.norm(whole - np.matmul(*plain_factors(matrix).truncate(rank)) @ inputs.T) + 1e-12
    assert np.allclose(np.matmul(*factors.truncate(rows)), matrix)


def test_projected_is_the_matrix_on_the_leading_directions_of_the_inputs() -> None:
    rng = np.random.default_rng(0)
    matrix, inputs = rng.normal(size=(5, 6)), rng.normal(size=(40, 6)) * 0.5 ** np.arange(6)
    leading = np.linalg.svd(inputs.T)[0][:, :3]
    factors = projected_factors(matrix, inputs)
    assert np.allclose(np.matmul(*factors.truncate(3)), matrix @ leading @ leading.T)
    left = np.linalg.norm((matrix - matrix @ leading @ leading.T) @ inputs.T) / np.linalg.norm(matrix @ inputs.T)
    assert factors.errors(6)[3] == pytest.approx(left**2)

"""oneDNN's products against numpy's in float64, wherever the factors lie."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tsfmscope.tasks.models.common import onednn

SIZES = st.integers(1, 40)
EPS = float(np.finfo(np.float32).eps)


@given(SIZES, SIZES, SIZES, st.booleans(), st.booleans(), st.integers(0, 1000))
def test_it_is_the_product_whichever_factor_lies_in_columns(
    n: int, m: int, k: int, left_turned: bool, right_turned: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(n, k)).astype(np.float32), rng.normal(size=(m, k)).astype(np.float32)

    def placed(values: np.ndarray, turned: bool) -> torch.Tensor:
        return torch.from_numpy(values.T.copy()).t() if turned else torch.from_numpy(values)

    with torch.inference_mode():
        found = onednn.times_transposed(placed(left, left_turned), placed(right, right_turned)).numpy()
    exact = left.astype(np.float64) @ right.T.astype(np.float64)
    bound = (k + 1) * EPS * (np.abs(left).astype(np.float64) @ np.abs(right).T)  # of any order of summation
    assert (np.abs(found - exact) <= bound).all()


def test_leading_dimensions_stay() -> None:
    rows, matrix = torch.randn(2, 5, 8), torch.randn(3, 8)
    with torch.inference_mode():
        assert torch.allclose(onednn.times_transposed(rows, matrix), rows @ matrix.t(), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_are_torchs_own(dtype: torch.dtype) -> None:
    rows, matrix = torch.randn(5, 8, dtype=dtype), torch.randn(3, 8, dtype=dtype)
    assert torch.equal(onednn.times_transposed(rows, matrix), torch.nn.functional.linear(rows, matrix))


def test_a_cpu_without_it_is_given_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "_has_onednn", lambda: False)
    rows, matrix = torch.randn(5, 8), torch.randn(3, 8)
    assert torch.equal(onednn.times_transposed(rows, matrix), torch.nn.functional.linear(rows, matrix))

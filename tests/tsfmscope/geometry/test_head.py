"""The head's log-partition, its spread, and Theorem 1's shift."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tsfmscope.geometry.head import log_partition, partition_spread


def test_log_partition_is_torchs_logsumexp() -> None:
    logits = np.random.default_rng(0).standard_normal((5, 7, 30)) * 20
    expected = torch.logsumexp(torch.from_numpy(logits), dim=-1).numpy()
    np.testing.assert_allclose(log_partition(logits), expected, rtol=1e-14)


def test_log_partition_by_hand() -> None:
    got = log_partition(np.array([[0.0, np.log(2), np.log(5)], [-np.inf, 3.0, -np.inf], [1e30, 1e30, -1e30]]))
    assert got == pytest.approx([np.log(8), 3.0, 1e30])


@given(st.floats(-1e6, 1e6))
def test_a_shift_of_the_logits_shifts_log_z_and_leaves_its_spread(shift: float) -> None:
    logits = np.random.default_rng(1).standard_normal((20, 11))
    plain, moved = partition_spread(log_partition(logits)), partition_spread(log_partition(logits + shift))
    assert moved.mean == pytest.approx(plain.mean + shift, abs=1e-7)
    assert (moved.sd, moved.range) == pytest.approx((plain.sd, plain.range), abs=1e-7)


def test_the_spread_is_that_of_all_positions() -> None:
    values = np.array([[1.0, 2.0], [4.0, 9.0]])
    got = partition_spread(values)
    assert (got.n, got.mean, got.low, got.high, got.range) == (4, 4.0, 1.0, 9.0, 8.0)
    assert got.sd == pytest.approx(np.std(values, ddof=1))


def test_one_position_has_no_deviation_and_none_has_nothing() -> None:
    assert partition_spread(np.array([3.0])) == (one := partition_spread(np.array(3.0)))
    assert (one.n, one.mean, one.sd, one.range) == (1, 3.0, None, 0.0)
    none = partition_spread(np.zeros(0))
    assert (none.n, none.mean, none.sd, none.low, none.high, none.range) == (0, None, None, None, None, None)


def test_no_position_has_no_log_partition() -> None:
    assert log_partition(np.zeros((0, 5))).shape == (0,)


@pytest.mark.parametrize("logits", [np.array([[0.0, np.nan]]), np.array([[np.inf, 0.0]])])
def test_logits_that_are_not_numbers_are_refused(logits: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected values below infinity and no NaN"):
        log_partition(logits)


@pytest.mark.parametrize("logits", [np.full((2, 3), -np.inf), np.zeros((2, 0))])
def test_a_position_without_any_id_is_refused(logits: np.ndarray) -> None:
    with pytest.raises(ValueError, match="at least one id above -inf at every position"):
        log_partition(logits)

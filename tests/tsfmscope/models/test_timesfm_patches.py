"""TimesFM's windows against loops over their steps, and what a scaled copy must keep."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tsfmscope.models.timesfm_patches import (
    LARGEST,
    Patched,
    frequency,
    pad_to_patches,
    scale_by_first_patch,
    scale_running,
)

SIZE, LONGEST = 4, 24
STEPS = st.one_of(st.floats(-100, 100, width=32), st.just(np.nan))
contexts = arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 30)), elements=STEPS)


def both(context: np.ndarray) -> list[Patched]:
    steps = pad_to_patches(context, SIZE, LONGEST)
    return [scale_by_first_patch(steps, SIZE, 1e-6), scale_running(steps, SIZE)]


def kept_steps(row: np.ndarray) -> list[float]:
    """Steps from the first observed one on, gaps filled on the line between their neighbours; the last 24."""
    values = [float(value) for value in row]
    known = [at for at, value in enumerate(values) if not math.isnan(value)]
    found = []
    for at in range(known[0] if known else len(values), len(values)):
        before = max(k for k in known if k <= at)
        after = min((k for k in known if k >= at), default=before)
        share = (at - before) / (after - before) if after > before else 0.0
        found.append(values[before] + share * (values[after] - values[before]))
    return found[-LONGEST:]


@given(contexts)
@settings(max_examples=40, deadline=None)
def test_gaps_are_filled_and_leading_ones_masked(context: np.ndarray) -> None:
    steps = pad_to_patches(context, SIZE, LONGEST)
    assert steps.values.shape[1] % SIZE == 0
    for row, values, masked in zip(context, steps.values, steps.masked, strict=True):
        want = kept_steps(row)
        assert masked.tolist() == [True] * (len(values) - len(want)) + [False] * len(want)
        np.testing.assert_allclose(values[~masked], want, rtol=1e-6, atol=1e-5)
        assert not values[masked].any()


@given(contexts)
@settings(max_examples=40, deadline=None)
def test_each_patch_of_2_5_is_scaled_by_all_steps_up_to_its_end(context: np.ndarray) -> None:
    _, found = both(context)
    for window, row in enumerate(context):
        steps = kept_steps(row)
        patches = found.patches.shape[1]
        for patch in range(patches):
            seen = steps[: max(0, len(steps) - (patches - 1 - patch) * SIZE)]
            if seen:
                assert found.loc[window, patch] == pytest.approx(np.mean(seen), rel=1e-6, abs=1e-5)
                assert found.scale[window, patch] == pytest.approx(np.std(seen), rel=1e-5, abs=1e-5)


@given(contexts)
@settings(max_examples=40, deadline=None)
def test_what_is_scaled_goes_back_to_the_steps(context: np.ndarray) -> None:
    steps = pad_to_patches(context, SIZE, LONGEST)
    for found in both(context):
        back = (found.patches * found.scale[:, :, None] + found.loc[:, :, None]).reshape(steps.values.shape)
        scale = np.repeat(found.scale, SIZE, axis=1)
        some = (
            ~steps.masked & (scale > 1e-4) & (np.abs(steps.values - np.repeat(found.loc, SIZE, axis=1)) < 1e6 * scale)
        )
        np.testing.assert_allclose(back[some], steps.values[some], rtol=1e-4, atol=1e-3)


HARD = {
    "the largest float of both signs": np.where(np.arange(24) % 2, 3.4e38, -3.4e38),
    "constant, then the largest float": np.where(np.arange(24) < 12, 0.0, 3.4e38),
    "constant": np.full(24, 0.1),
    "tiny": np.arange(24) * 1e-40,
    "all missing": np.full(24, np.nan),
    "one step": np.r_[np.full(23, np.nan), 5.0],
}


@pytest.mark.parametrize("name", HARD)
def test_hard_windows_give_finite_patches(name: str) -> None:
    for found in both(HARD[name][None].astype(np.float32)):
        assert np.isfinite(found.patches).all() and np.abs(found.patches).max() <= LARGEST
        assert np.isfinite(found.loc).all() and (found.scale >= 0).all() and np.isfinite(found.scale).all()


NUMBERS = dict.fromkeys(("", "D", "h", "5min", "s", "ms", "B"), 0)
NUMBERS |= dict.fromkeys(("W", "W-MON", "2W", "MS", "ME", "BMS"), 1)
NUMBERS |= dict.fromkeys(("QS", "QE-DEC", "YS", "YE-JUN", "BQE"), 2)


@pytest.mark.parametrize("freq", NUMBERS)
def test_a_frequency_has_googles_number(freq: str) -> None:
    assert frequency(freq) == NUMBERS[freq]

"""Patches: their order, their sizes by frequency, and a window worked by hand."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from uni2ts.transform.patch import DefaultPatchSizeConstraints

from tsfmscope.models.moirai import Moirai
from tsfmscope.models.moirai_patches import RANGES, pack, patch_range
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
CONFIG = {"d_model": 128, "num_layers": 3, "patch_sizes": [8, 16, 32]}
MINIMUM = 1e-5  # PackedStdScaler's


def test_a_window_worked_by_hand(windows_of: Callable[..., Windows]) -> None:
    context = np.r_[np.full(10, np.nan), 1.0, 3.0, [np.nan] * 6, 2.0]  # 19 steps: three patches of 8, padded to 24
    moirai = Moirai.new(CONFIG | {"patch_size": 8}, seed=1)
    tokens = moirai.tokenize(windows_of(context[None], np.zeros((1, 9))))
    scale = np.sqrt(1.0 + MINIMUM)
    nothing = -2.0 / scale  # a missing step is 0, and the mean is 2
    first, second = [nothing] * 7 + [-1 / scale], [1 / scale] + [nothing] * 6 + [0.0]
    np.testing.assert_allclose(tokens.arrays["patches"][0], [[0.0] * 8, first, second, [0.0] * 8, [0.0] * 8], rtol=1e-6)
    assert tokens.arrays["masks"].sum(axis=2).tolist() == [[0, 1, 2, 0, 0]]
    assert tokens.arrays["loc"].tolist() == [2.0]
    assert tokens.arrays["scale"].tolist() == [pytest.approx(scale)]
    assert tokens.arrays["sample_id"].tolist() == [[0, 1, 1, 1, 1]]
    assert tokens.arrays["time_id"].tolist() == [[0, 0, 1, 2, 3]]
    kinds = [TokenKind.PADDING, TokenKind.OBSERVATION, TokenKind.OBSERVATION, TokenKind.MASK, TokenKind.MASK]
    assert tokens.kinds["encoder"].tolist() == [kinds]
    assert dict(tokens.types) == {}


def test_gaps_are_filled_with_the_mean_of_what_is_before_them() -> None:
    context, future = np.array([[np.nan, 1.0, 3.0, np.nan, 8.0]]), np.array([[np.nan, 0.0, 5.0]])
    packed = pack(context, future, size=3, minimum_scale=MINIMUM, fills_gaps=True)
    assert packed.loc.tolist() == [4.0] and packed.scale.tolist() == [pytest.approx(np.sqrt(13 + MINIMUM))]
    # The gap in the context is the mean of 1 and 3, that in the future the mean of 1, 3, 3 and 8.
    filled = [[0.0, 0.0, 1.0], [3.0, 2.0, 8.0], [3.75, 0.0, 5.0]]
    np.testing.assert_allclose(packed.patches[0] * packed.scale[0] + 4, filled, rtol=1e-5, atol=1e-5)
    assert packed.observed[0].astype(int).tolist() == [[0, 0, 1], [1, 0, 1], [0, 1, 1]]


def test_a_missing_patch_inside_the_context_stands_for_no_value_but_is_attended_to(windows: Make) -> None:
    made = windows(count=1)
    made.context[0, 16:24] = np.nan
    moirai = Moirai.new(CONFIG | {"patch_size": 8}, seed=1)
    tokens = moirai.tokenize(made)
    assert tokens.kinds["encoder"][0, 2] == TokenKind.PADDING
    assert tokens.arrays["sample_id"].all()
    assert tokens.arrays["time_id"].tolist() == [list(range(8))]


@settings(max_examples=50, deadline=None)
@given(data=st.data(), steps=st.integers(1, 40), horizon=st.integers(1, 20), size=st.integers(1, 16))
def test_patches_hold_every_observed_step_in_its_place(
    data: st.DataObject, steps: int, horizon: int, size: int
) -> None:
    value = st.one_of(st.just(np.nan), st.floats(-1e6, 1e6, width=32))
    values = np.array(data.draw(st.lists(value, min_size=steps + horizon, max_size=steps + horizon)))[None]
    packed = pack(values[:, :steps], values[:, steps:], size=size, minimum_scale=MINIMUM)
    left = -steps % size
    observed = packed.observed.reshape(-1)[left : left + steps + horizon]
    assert np.array_equal(observed, ~np.isnan(values[0]))
    back = (packed.patches * packed.scale[:, None, None] + packed.loc[:, None, None]).reshape(-1)
    np.testing.assert_allclose(back[left:][: steps + horizon][observed], values[0][observed], rtol=1e-5, atol=1.0)
    assert packed.sample_id[0, packed.start :].all()
    assert (np.diff(packed.time_id[0, packed.start :]) == 1).all()


def test_a_checkpoint_without_scaling_reads_the_values_themselves(windows: Make) -> None:
    family = Moirai.new(CONFIG | {"scaling": False, "patch_size": 8}, seed=0)
    made = windows(count=2)
    tokens = family.tokenize(made)
    np.testing.assert_array_equal(tokens.arrays["patches"][:, :6].reshape(2, 48), made.context)
    assert tokens.arrays["scale"].tolist() == [1.0, 1.0]


def test_ranges_of_frequencies_are_the_packages() -> None:
    theirs = {"S": "s", "T": "min", "H": "h", "A": "Y"}
    assert {theirs.get(k, k): v for k, v in DefaultPatchSizeConstraints.DEFAULT_RANGES.items()} == RANGES


@pytest.mark.parametrize(
    ("freq", "wanted"),
    (
        {"": 16, "30min": 32, "T": 32, "h": 32, "H": 32, "D": 16, "B": 16, "W-SUN": 16, "MS": 8, "ME": 8, "M": 8}
        | {"QS-OCT": 8, "QE-DEC": 8, "YS": 8, "YE-DEC": 8, "A-DEC": 8, "10s": 64, "ms": 16}
    ).items(),
)
def test_a_frequency_has_the_smallest_patch_of_its_range(freq: str, wanted: int) -> None:
    family = Moirai.new(CONFIG | {"patch_sizes": [8, 16, 32, 64, 128]}, seed=0)
    assert family.patch_size(freq) == wanted
    assert patch_range(freq)[0] <= wanted <= patch_range(freq)[1]
    assert family.rows_per_window(100, 8) == {"encoder": 13}


@pytest.mark.parametrize(("sizes", "freq", "wanted"), [([16], "QE", 16), ([8, 16], "h", 16), ([8, 128], "D", 8)])
def test_a_checkpoint_without_a_patch_of_the_range_takes_the_nearest(sizes: list[int], freq: str, wanted: int) -> None:
    assert Moirai.new(CONFIG | {"patch_sizes": sizes}, seed=0).patch_size(freq) == wanted

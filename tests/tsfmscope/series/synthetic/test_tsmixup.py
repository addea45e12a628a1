from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.series.synthetic.tsmixup import MixtureLaw, scale_by_mean, tsmixup


def test_a_mixture_of_one_series_is_a_scaled_window_of_it() -> None:
    line = np.arange(1.0, 401.0)
    rng, law = np.random.default_rng(0), MixtureLaw([400], most_series=1)
    for mixed in (law.draw(rng).of([line]) for _ in range(20)):
        start = next(s for s in range(400) if np.allclose(mixed, scale_by_mean(line[s : s + len(mixed)]), rtol=1e-5))
        assert start + len(mixed) <= 400


def test_weights_are_convex_and_symmetric_dirichlet() -> None:
    # Windows of +1 and of -1 stay +-1 when scaled, so a mixture's level tells its weights.
    rng = np.random.default_rng(1)
    levels = np.array([m[0] for m in islice(tsmixup([np.ones(128), -np.ones(128)], rng), 4000)])
    assert np.abs(levels).max() <= 1 + 1e-6
    # E[level^2] of k windows of random sign: sum E w^2 = k (a + 1) / (k (k a + 1)), a = 1.5
    expected = np.mean([2.5 / (1.5 * k + 1) for k in (1, 2, 3)])
    assert np.mean(levels**2) == pytest.approx(expected, abs=4 * np.std(levels**2) / np.sqrt(4000))


def test_lengths_are_uniform_up_to_the_longest_series_and_windows_fit() -> None:
    series = [np.full(128, 1.0), np.full(300, 2.0)]
    lengths = np.array([len(m) for m in islice(tsmixup(series, np.random.default_rng(2)), 3000)])
    assert (lengths.min(), lengths.max()) == (128, 300)
    assert lengths.mean() == pytest.approx((128 + 300) / 2, abs=4 * 173 / np.sqrt(12 * 3000))


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=30)
def test_the_stream_is_repeatable_finite_and_float32(seed: int) -> None:
    series = [np.random.default_rng(i).standard_normal(200) for i in range(4)]
    first, again = (list(islice(tsmixup(series, np.random.default_rng(seed)), 3)) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == np.float32
        assert np.isfinite(one).all()


def test_missing_steps_stay_missing_and_do_not_enter_the_scale() -> None:
    np.testing.assert_array_equal(scale_by_mean(np.array([1.0, np.nan, -3.0])), [0.5, np.nan, -1.5])
    values = np.ones(130)
    values[64] = np.nan
    assert np.isnan(next(tsmixup([values], np.random.default_rng(0)))).sum() == 1


@pytest.mark.parametrize("values", [np.zeros(4), np.full(4, np.nan)])
def test_a_window_without_a_scale_is_left_as_it_is(values: np.ndarray) -> None:
    np.testing.assert_array_equal(scale_by_mean(values), values)


@pytest.mark.parametrize(
    ("series", "arguments", "message"),
    [
        ([np.ones(127)], {}, "expected a series of at least 128 steps, got at most 127"),
        ([], {}, "got at most 0"),
        ([np.ones(500)], {"lengths": (300, 200)}, "shortest <= longest"),
        ([np.ones(500)], {"alpha": 0.0}, "alpha > 0"),
        ([np.ones(500)], {"most_series": 0}, "most_series >= 1"),
    ],
)
def test_what_cannot_be_mixed_is_refused_at_the_call(series: list, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MixtureLaw([len(one) for one in series], **arguments)
    if not arguments:
        with pytest.raises(ValueError, match=message):
            tsmixup(series, np.random.default_rng(0))

"""Wavelet coefficients against the lifting steps of the 5/3 wavelet written out, PyWavelets' own, and back."""

from __future__ import annotations

import numpy as np
import pytest
import pywt
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.models.wavetoken import WaveletBins, fill_missing

RNG = np.random.default_rng(0)


def made(wavelet: str = "bior2.2", levels: int = 1, threshold: str = "none") -> WaveletBins:
    return WaveletBins(wavelet, levels, -20.0, 20.0, 1022, threshold)


def lifted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Approximation and detail of the 5/3 (bior2.2) transform, the ends reflected: steps of Sweldens' lifting."""
    n, half = len(x), len(x) // 2
    at = [*range(n), n - 2]
    detail = np.array([x[2 * i + 1] - (x[2 * i] + x[at[2 * i + 2]]) / 2 for i in range(half)])
    before = np.concatenate((detail[:1], detail))
    approximation = np.array([x[2 * i] + (before[i] + before[i + 1]) / 4 for i in range(half)])
    return approximation * np.sqrt(2), -detail / np.sqrt(2)  # PyWavelets' signs and norms


@pytest.mark.parametrize("length", [2, 4, 6, 16, 64])
def test_one_level_is_lifting_written_out(length: int) -> None:
    x = RNG.normal(size=length).cumsum()
    np.testing.assert_allclose(made().coefficients(x), np.concatenate(lifted(x)), atol=1e-12)


def test_levels_come_coarse_to_fine() -> None:
    x = RNG.normal(size=16)
    first, fine = lifted(x)
    second, middle = lifted(first)
    coarse = lifted(second)
    wanted = np.concatenate((*coarse, middle, fine))
    np.testing.assert_allclose(made(levels=3).coefficients(x), wanted, atol=1e-12)


@pytest.mark.parametrize("wavelet", ["haar", "bior2.2", "bior4.4", "coif1", "rbio2.2"])
def test_away_from_the_ends_coefficients_are_those_of_pywavelets_whatever_its_ends(wavelet: str) -> None:
    x = RNG.normal(size=64)
    mine = made(wavelet).coefficients(x)
    reach = pywt.Wavelet(wavelet).dec_len // 2
    first = (reach - 1) // 2
    for part, theirs in zip((mine[:32], mine[32:]), pywt.dwt(x, wavelet, mode="zero"), strict=True):
        np.testing.assert_allclose(part[reach:-reach], theirs[first + reach : first + 32 - reach], atol=1e-12)


@given(st.integers(0, 2**31), st.sampled_from(["haar", "bior2.2", "bior4.4", "coif1"]), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_coefficients_give_the_series_back(seed: int, wavelet: str, levels: int) -> None:
    rng = np.random.default_rng(seed)
    bins = made(wavelet, levels)
    x = rng.normal(size=(2, 3, bins.cell * int(rng.integers(1, 9)))).cumsum(axis=-1) * 10.0 ** rng.integers(-30, 30)
    back = bins.series(bins.coefficients(x))
    np.testing.assert_allclose(back, x, atol=1e-12 * float(np.abs(x).max()))


def test_a_line_has_no_detail_but_in_the_last_coefficient() -> None:
    coefficients = made().coefficients(3.0 * np.arange(32) - 7)
    np.testing.assert_allclose(coefficients[16:-1], 0, atol=1e-12)
    assert coefficients[-1] == pytest.approx(-3 / np.sqrt(2))


@pytest.mark.parametrize(("wavelet", "levels"), [("bior2.2", 1), ("bior2.2", 3), ("haar", 2), ("coif1", 1)])
def test_a_coefficient_reads_the_steps_that_move_it(wavelet: str, levels: int) -> None:
    bins = made(wavelet, levels)
    moved = np.abs(bins.coefficients(np.eye(24))) > 1e-12
    assert not (moved & ~bins.reading(np.eye(24, dtype=bool))).any()
    if levels == 1 or wavelet == "haar":  # of several levels, what a step adds on two ways may cancel
        np.testing.assert_array_equal(bins.reading(np.eye(24, dtype=bool)), moved)
    assert not bins.reading(np.zeros(24, dtype=bool)).any() and bins.reading(np.ones(24, dtype=bool)).all()


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=20))
def test_a_bin_is_that_of_the_nearest_centre(values: list[float]) -> None:
    bins = WaveletBins("haar", 1, -3.0, 5.0, 9, "none")
    centres = np.arange(-3.0, 5.5)
    found = bins.bins(np.array(values))
    for value, one in zip(values, found, strict=True):
        assert abs(centres[one] - value) <= np.abs(centres - value).min() * (1 + 1e-12)
    np.testing.assert_array_equal(bins.bins(bins.centres(found)), found)


def test_the_universal_threshold_is_that_of_visushrink_and_spares_the_coarsest() -> None:
    noise = RNG.normal(size=(4, 64))
    noise[0] = 0.0
    noise[1, 20] += 50.0
    plain, shrunk = (made(levels=2, threshold=name).coefficients(noise) for name in ("none", "universal"))
    for before, after in zip(plain, shrunk, strict=True):
        limit = np.median(np.abs(before[32:])) / 0.6745 * np.sqrt(2 * np.log(64))
        np.testing.assert_array_equal(after[:16], before[:16])
        expected = pywt.threshold(before[16:], limit, mode="hard") if limit else before[16:]
        np.testing.assert_array_equal(after[16:], expected)
    assert (shrunk[2:, 16:] == 0).mean() > 0.8 and np.abs(shrunk[1, 16:]).max() > 10


def test_missing_steps_are_on_the_line_between_their_neighbours() -> None:
    nan = np.nan
    values = np.array([[nan, 1.0, nan, nan, 4.0, nan], [nan] * 6, [1, 2, 3, 4, 5, 6], [nan, nan, nan, 7, nan, nan]])
    wanted = [[1, 1, 2, 3, 4, 4], [0] * 6, [1, 2, 3, 4, 5, 6], [7] * 6]
    np.testing.assert_allclose(fill_missing(values), wanted)
    assert np.isnan(values[0, 0])  # the input stays


@pytest.mark.parametrize("length", [0, 3, 6])
def test_a_length_that_does_not_fit_is_said(length: int) -> None:
    with pytest.raises(ValueError, match=f"got {length} steps, expected a multiple of 4"):
        made(levels=2).coefficients(np.zeros(length))


def test_a_wavelet_whose_coefficients_do_not_give_the_series_back_is_refused() -> None:
    with pytest.raises(ValueError, match=r"wavelet 'db4': its transform of 64 steps has condition .*such as bior2.2"):
        made("db4").series(np.zeros(64))

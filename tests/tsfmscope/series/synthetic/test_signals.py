"""Signals that embeddings are probed with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.series.synthetic.signals import EACH, PERIOD, SIGNALS, draw_signal, with_noise
from tsfmscope.series.types import Series, Windows
from tsfmscope.series.windows import spread_windows


@pytest.mark.parametrize("signal", SIGNALS)
def test_the_same_seed_draws_the_same_series(signal: str) -> None:
    first, again = (draw_signal("d", signal, seed=3, length=128) for _ in range(2))
    assert [one.series for one in first] == [one.series for one in again]
    assert all(np.array_equal(a.values, b.values) for a, b in zip(first, again, strict=True))
    assert all(one.values.dtype == np.float32 and np.isfinite(one.values).all() for one in first)


def test_single_signals_are_what_their_names_say() -> None:
    (sinusoid,), (noise,), (constant,) = (draw_signal("d", name, seed=0, length=4096) for name in SIGNALS[1:])
    assert np.allclose(sinusoid.values, np.sin(2 * np.pi * np.arange(4096) / PERIOD), atol=1e-6)
    assert abs(noise.values.mean()) < 4 / 64 and abs(noise.values.std() - 1) < 4 / 90  # four standard errors
    assert not constant.values.any()


def test_the_corpus_holds_as_many_of_each_kind() -> None:
    kinds = [one.series.partition("-")[0] for one in draw_signal("d", "corpus", seed=0, length=64)]
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
        ("sinusoid", "exponential", "noise", "kernelsynth"), EACH
    )


def test_exponentials_of_the_corpus_are_exponential() -> None:
    for one in draw_signal("d", "corpus", seed=1, length=256):
        if one.series.startswith("exponential"):
            assert np.ptp(np.diff(np.log(one.values.astype(np.float64)))) < 1e-5


def test_an_unknown_signal_is_named() -> None:
    with pytest.raises(ValueError, match="expected one of corpus, sinusoid, noise, constant, got 'square'"):
        draw_signal("d", "square", seed=0)


def _series(count: int = 4, steps: int = 400) -> list[Series]:
    rng = np.random.default_rng(0)
    found = [Series("d", f"s{i}", (10.0**i * rng.standard_normal(steps)).astype(np.float32)) for i in range(count)]
    found[0].values[5:9] = np.nan
    return found


def _windows(series: list[Series], context: int = 100, per_series: int = 3) -> Windows:
    return spread_windows(series, context=context, horizon=20, count=per_series * len(series))[0]


@given(st.floats(0.001, 2), st.integers(0, 2**40), st.permutations(range(4)))
@settings(deadline=None, max_examples=30)
def test_a_window_s_noise_does_not_depend_on_its_batch(noise: float, seed: int, order: list[int]) -> None:
    series = _series()
    whole = with_noise(_windows(series), series, noise=noise, seed=seed)
    part = with_noise(_windows([series[i] for i in order[:2]]), series, noise=noise, seed=seed)
    rows = {key: row for row, key in enumerate(zip(whole.series, whole.origin.tolist(), strict=True))}
    for row, key in enumerate(zip(part.series, part.origin.tolist(), strict=True)):
        np.testing.assert_array_equal(part.context[row], whole.context[rows[key]])


def test_a_shorter_context_of_the_same_origin_gets_the_same_noise() -> None:
    series = _series()
    long, short = (with_noise(_windows(series, c, 1), series, noise=0.3, seed=1) for c in (200, 50))
    np.testing.assert_array_equal(long.context[:, -50:], short.context)


def test_futures_stay_clean_and_missing_steps_missing() -> None:
    series = _series(steps=115)
    clean = _windows(series, 110)
    noisy = with_noise(clean, series, noise=0.5, seed=0)
    assert noisy.future is clean.future
    np.testing.assert_array_equal(np.isnan(noisy.context), np.isnan(clean.context))
    assert np.isnan(clean.context).any()
    assert (noisy.context != clean.context)[~np.isnan(clean.context)].mean() > 0.99


def test_the_noise_has_the_asked_share_of_the_series_deviation() -> None:
    series = _series(steps=5200)
    clean = spread_windows(series, context=5000, horizon=20, count=4)[0]
    noisy = with_noise(clean, series, noise=0.05, seed=3)
    for row, one in enumerate(series):
        added = (noisy.context[row].astype(float) - clean.context[row]) / np.nanstd(one.values)
        assert np.nanstd(added) == pytest.approx(0.05, rel=4 / np.sqrt(2 * 5000))
        assert abs(np.nanmean(added)) < 4 * 0.05 / np.sqrt(5000)


@pytest.mark.parametrize("change", ["seed", "origin", "series"])
def test_other_seeds_origins_and_series_have_other_noise(change: str) -> None:
    series = [Series("d", name, np.arange(300, dtype=np.float32)) for name in ("a", "b")]
    clean = spread_windows(series, context=100, horizon=20, count=4)[0]
    added = with_noise(clean, series, noise=1.0, seed=0).context - clean.context
    other = with_noise(clean, series, noise=1.0, seed=1).context - clean.context
    keys = list(zip(clean.series, clean.origin.tolist(), strict=True))
    row = keys.index(("a", 280))
    second = {"seed": other[row], "origin": added[keys.index(("a", 190))], "series": added[keys.index(("b", 280))]}
    assert abs(np.corrcoef(added[row], second[change])[0, 1]) < 0.4


def test_no_noise_is_the_very_same_windows() -> None:
    series = _series()
    clean = _windows(series)
    assert with_noise(clean, series, noise=0.0, seed=0) is clean


def test_a_constant_series_gets_none() -> None:
    series = [Series("d", "a", np.full(100, 3.0, dtype=np.float32))]
    clean = spread_windows(series, context=30, horizon=5, count=1)[0]
    np.testing.assert_array_equal(with_noise(clean, series, noise=1.0, seed=0).context, clean.context)


@pytest.mark.parametrize("noise", [-0.1, float("nan"), float("inf")])
def test_an_impossible_noise_is_refused(noise: float) -> None:
    with pytest.raises(ValueError, match="expected a finite number of at least 0"):
        with_noise(_windows(_series()), _series(), noise=noise, seed=0)


def test_a_window_without_its_series_is_refused() -> None:
    with pytest.raises(ValueError, match="'s1' of 'd' is missing"):
        with_noise(_windows(_series()), _series(1), noise=0.1, seed=0)

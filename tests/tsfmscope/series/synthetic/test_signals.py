"""Signals that embeddings are probed with."""

from __future__ import annotations

import numpy as np
import pytest

from tsfmscope.series.synthetic.signals import EACH, PERIOD, SIGNALS, draw_signal


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

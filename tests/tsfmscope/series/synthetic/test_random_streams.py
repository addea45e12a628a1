from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.series.synthetic.random_streams import Streams, series_seeds


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
@settings(deadline=None, max_examples=30)
def test_a_stream_is_numpy_s_philox_of_that_key_whatever_was_drawn_before(seed: int, other: int) -> None:
    streams = Streams()
    streams.values(other).standard_normal(3)  # leaves half-used buffers
    streams.composition(other).random(dtype=np.float32)
    for number, start in enumerate((streams.composition, streams.values)):
        expected = np.random.Generator(np.random.Philox(key=np.array([seed, number], dtype=np.uint64)))
        np.testing.assert_array_equal(start(seed).standard_normal(9), expected.standard_normal(9))


def test_seeds_are_found_alone_differ_and_fit_a_signed_column() -> None:
    seeds = series_seeds(5, range(100_000))
    assert len(set(seeds)) == 100_000
    assert min(seeds) >= 0 and max(seeds) < 2**63
    assert series_seeds(5, [77_777, 3]) == [seeds[77_777], seeds[3]]
    assert not set(seeds) & set(series_seeds(6, range(1000)))
    assert not set(seeds) & set(series_seeds(5, range(1000), "trend-1"))
    assert series_seeds(5, []) == []


def test_bits_of_neighbouring_seeds_are_independent() -> None:
    bits = np.unpackbits(np.array(series_seeds(0, range(4096)), dtype=">u8").view(np.uint8)).reshape(-1, 64)[:, 1:]
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(4096)
    flips = (bits[1:] ^ bits[:-1]).mean(axis=0)
    assert np.abs(flips - 0.5).max() < 5 * 0.5 / np.sqrt(4095)

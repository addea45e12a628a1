from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.series.synthetic import synthesis
from tsfmscope.series.synthetic.kernels import Leaf, bank, compositions, parse_kernel, products_of
from tsfmscope.series.synthetic.random_streams import Streams, series_seeds
from tsfmscope.series.synthetic.synthesis import Term, sampled_covariance, synthesise, term


def _terms(text: str) -> list[Term]:
    return [term(leaves) for leaves in products_of(parse_kernel(text))]


@pytest.mark.parametrize("length", [2, 3, 17, 100, 333, 1024])
def test_a_sum_of_waves_is_what_cosines_and_sines_give(length: int) -> None:
    terms = _terms(
        "RBF(length_scale=0.1) + ExpSineSquared(length_scale=1.0, periodicity=0.004) * DotProduct(sigma_0=1.0)"
    )
    waves = synthesis._waves([terms])
    noise = np.random.default_rng(0).standard_normal(2 * int(waves.width[0]))
    grid = np.linspace(0, 1, length)
    time = (np.arange(length) - length // 2) / (length - 1)
    size, at, expected = synthesis._transform(length)[0], 0, np.zeros(length)
    for row, number, scale in zip(waves.row, waves.spectrum, waves.scale, strict=True):
        for line in range(waves.first[number], waves.first[number + 1]):
            angle = 2 * np.pi * waves.frequency[line] * time
            folded = waves.frequency[line] * size / (length - 1) % size > size / 2  # an alias, whose sine changes sign
            wave = noise[at] * np.cos(angle) + noise[at + 1] * np.sin(angle) * (-1 if folded else 1)
            expected += scale * waves.amplitude[line] * grid ** waves.degree[row] * wave
            at += 2
    found = synthesis._add_up(waves, noise, grid)[0]
    assert np.abs(found - expected).max() <= 1e-7 * max(1.0, np.abs(expected).max())


def test_the_window_s_polynomials_are_the_window() -> None:
    share = np.linspace(0, 1, 400)
    place = (np.arange(synthesis.WIDTH)[:, None] - synthesis.WIDTH / 2 + share) * 2 / synthesis.WIDTH
    exact = np.exp(synthesis._BETA * (np.sqrt(np.maximum(1 - place**2, 0)) - 1))
    found = np.polynomial.polynomial.polyval(share, synthesis._window())
    assert np.abs(found - exact).max() <= 2e-8


def test_a_product_is_taken_apart_into_polynomial_stationary_and_white() -> None:
    rbf = Leaf("RBF", (0.1,))
    found = term((Leaf("DotProduct", (2.0,)), rbf, Leaf("ConstantKernel", (3.0,)), Leaf("DotProduct", (0.0,))))
    assert found == Term((0.0, 12.0, 3.0), (rbf,), False)  # 3 (4 + z) z, z = x x'
    assert term((Leaf("WhiteKernel", (0.5,)), rbf)) == Term((0.5,), (), True)


def test_two_white_terms_are_one_noise_of_their_summed_variance() -> None:
    one = synthesise([_terms("WhiteKernel(noise_level=1.0) + WhiteKernel(noise_level=8.0)")], [4], 50)
    np.testing.assert_allclose(one[0], 3 * Streams().values(4).standard_normal(50))


@given(st.integers(0, 2**40), st.integers(2, 300))
@settings(deadline=None, max_examples=20)
def test_a_draw_does_not_depend_on_what_is_drawn_beside_it(seed: int, length: int) -> None:
    seeds = series_seeds(seed, range(9))
    kernels = [[term(leaves) for leaves in one.expand_products()] for one in compositions(seeds, 3)]
    together = synthesise(kernels, seeds, length)
    assert np.isfinite(together).all()
    for row in (0, 8):
        alone = synthesise(kernels[row : row + 1], seeds[row : row + 1], length)[0]
        assert np.abs(alone - together[row]).max() <= 1e-12 * max(np.abs(together[row]).max(), 1e-300)


def test_blocks_of_series_are_drawn_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = series_seeds(1, range(40))
    kernels = [[term(leaves) for leaves in one.expand_products()] for one in compositions(seeds)]
    whole = synthesise(kernels, seeds, 64)
    monkeypatch.setattr(synthesis, "_STEPS_AT_ONCE", 64 * 7)
    np.testing.assert_allclose(synthesise(kernels, seeds, 64), whole, rtol=0, atol=1e-12 * np.abs(whole).max())


@pytest.mark.parametrize("leaf", sorted(set(bank(128))), ids=lambda leaf: leaf.expression)
def test_the_covariance_that_is_sampled_is_scikit_learn_s_to_a_millionth(leaf: Leaf) -> None:
    expected = leaf.kernel()(np.linspace(0, 1, 128)[:, None])
    assert np.abs(sampled_covariance([term((leaf,))], 128) - expected).max() <= 1e-6 * np.abs(expected).max()

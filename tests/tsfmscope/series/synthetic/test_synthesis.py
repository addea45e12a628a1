from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as sk

from tsfmscope.errors import DataError
from tsfmscope.series.synthetic import synthesis
from tsfmscope.series.synthetic.kernels import (
    VALUES,
    Leaf,
    Streams,
    bank,
    compositions,
    parse_kernel,
    products_of,
    series_seeds,
)
from tsfmscope.series.synthetic.synthesis import CONSTANT, Term, order, spectrum, synthesise, term


@pytest.mark.parametrize("length", [2, 3, 17, 100, 333, 1024])
def test_a_sum_of_waves_is_what_cosines_and_sines_give(length: int) -> None:
    kernel = "RBF(length_scale=0.1) + ExpSineSquared(length_scale=1.0, periodicity=0.004) * DotProduct(sigma_0=1.0)"
    products = products_of(parse_kernel(kernel))
    waves = synthesis._waves([[term(leaves) for leaves in products]])
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
    one = synthesise([[(Leaf("WhiteKernel", (1.0,)),), (Leaf("WhiteKernel", (8.0,)),)]], [4], 50)
    np.testing.assert_allclose(one[0], 3 * Streams().of(4, VALUES).standard_normal(50))


@given(st.integers(0, 2**40), st.integers(2, 300))
@settings(deadline=None, max_examples=20)
def test_a_draw_does_not_depend_on_what_is_drawn_beside_it(seed: int, length: int) -> None:
    seeds = series_seeds(seed, range(9))
    kernels = [list(one.expand_products()) for one in compositions(seeds, 3)]
    together = synthesise(kernels, seeds, length)
    assert np.isfinite(together).all()
    for row in (0, 8):
        alone = synthesise(kernels[row : row + 1], seeds[row : row + 1], length)[0]
        assert np.abs(alone - together[row]).max() <= 1e-12 * max(np.abs(together[row]).max(), 1e-300)


def test_blocks_of_series_are_drawn_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = series_seeds(1, range(40))
    kernels = [list(one.expand_products()) for one in compositions(seeds)]
    whole = synthesise(kernels, seeds, 64)
    monkeypatch.setattr(synthesis, "_STEPS_AT_ONCE", 64 * 7)
    np.testing.assert_allclose(synthesise(kernels, seeds, 64), whole, rtol=0, atol=1e-12 * np.abs(whole).max())


LAGS = np.linspace(0, 1, 1500)  # not the grid on which a leaf is checked
NAMES = ("ExpSineSquared", "RBF", "RationalQuadratic")
STATIONARY = sorted({leaf for leaf in bank() if leaf.name in NAMES}, key=lambda leaf: (order(leaf), leaf))


def _exact(*leaves: Leaf) -> np.ndarray:
    return np.prod([leaf.kernel()(np.zeros((1, 1)), LAGS[:, None])[0] for leaf in leaves], axis=0)


@pytest.mark.parametrize("leaf", STATIONARY, ids=lambda leaf: leaf.expression)
def test_the_lines_of_a_bank_member_are_its_kernel_with_positive_weights(leaf: Leaf) -> None:
    found = spectrum((leaf,))
    assert (found.weight > 0).all()
    assert (found.frequency >= 0).all()
    assert np.abs(found.at(LAGS) - _exact(leaf)).max() <= 3e-8
    assert found.weight.sum() == pytest.approx(1, abs=3e-8)


@pytest.mark.parametrize(
    "leaf",
    [
        Leaf("RBF", (0.001,)),
        Leaf("RBF", (1000.0,)),
        Leaf("RationalQuadratic", (0.001, 0.1)),
        Leaf("RationalQuadratic", (100.0, 1.0)),
        Leaf("RationalQuadratic", (1e4, 0.3)),
        Leaf("ExpSineSquared", (0.05, 0.3)),
        Leaf("ExpSineSquared", (10.0, 0.001)),
        Leaf("ExpSineSquared", (0.5, 3.0)),
    ],
)
def test_arguments_far_from_the_bank_s_are_as_right(leaf: Leaf) -> None:
    assert np.abs(spectrum((leaf,)).at(LAGS) - _exact(leaf)).max() <= 3e-8


@given(st.lists(st.sampled_from(STATIONARY), min_size=2, max_size=5))
@settings(deadline=None, max_examples=25)
def test_the_lines_of_a_product_are_the_product_within_the_sum_of_the_errors(leaves: list[Leaf]) -> None:
    found = spectrum(tuple(sorted(leaves, key=order)))
    # in parts: five periods give tens of thousands of lines
    parts = range(0, len(found.weight), 2000)
    total = sum(synthesis.Spectrum(found.frequency[p : p + 2000], found.weight[p : p + 2000]).at(LAGS) for p in parts)
    assert np.abs(total - _exact(*leaves)).max() <= 3e-7
    assert (found.weight > 0).all()


def test_a_product_of_equal_periods_has_the_lines_of_one_of_them() -> None:
    leaf = Leaf("ExpSineSquared", (1.0, 0.25))
    found = spectrum((leaf, leaf, leaf))
    np.testing.assert_allclose(np.rint(found.frequency / 4), found.frequency / 4, atol=1e-9)
    assert len(found.weight) == len(np.unique(np.rint(found.frequency)))


def test_thinning_keeps_the_kernel_with_few_lines() -> None:
    dense = synthesis._gaussians(np.array([10.0]), np.ones(1))  # RBF(0.1)
    thin = synthesis._thin(dense, 1e-8)
    assert len(thin.weight) < len(dense.weight)
    assert np.abs(thin.at(LAGS) - _exact(Leaf("RBF", (0.1,)))).max() <= 2e-8
    # slow kernels: two or three waves are all that a window can tell
    assert len(spectrum((Leaf("RBF", (10.0,)),)).weight) <= 3


def test_a_gauss_rule_is_exact_for_as_many_lines_as_it_has_nodes() -> None:
    lines = synthesis.Spectrum(np.array([0.0, 1.5, 4.0]), np.array([0.2, 0.5, 0.3]))
    thin = synthesis._thin(lines, 1e-12)
    np.testing.assert_allclose(thin.frequency, lines.frequency, atol=1e-6)
    np.testing.assert_allclose(thin.weight, lines.weight, atol=1e-9)


def test_convolution_is_the_product_of_cosines_and_leaves_out_the_weakest_only() -> None:
    rng = np.random.default_rng(0)
    one, other = (synthesis.Spectrum(np.r_[0, rng.uniform(1, 9, 5)], rng.dirichlet(np.full(6, 0.2))) for _ in range(2))
    exact = one.at(LAGS) * other.at(LAGS)
    whole = synthesis.Spectrum(*synthesis._convolve(*one, *other, 0.0))
    assert len(whole.weight) == 1 + 5 + 5 + 50
    np.testing.assert_allclose(whole.at(LAGS), exact, atol=1e-14)
    for error in (1e-3, 1e-2, 1e-1):
        part = synthesis.Spectrum(*synthesis._convolve(*one, *other, error))
        assert 1 - part.weight.sum() <= error
        assert np.abs(part.at(LAGS) - exact).max() <= error
    assert len(part.weight) < len(whole.weight)


def test_no_leaves_are_the_constant_1() -> None:
    assert spectrum(()) is CONSTANT
    np.testing.assert_array_equal(CONSTANT.at(LAGS), 1)


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (Leaf("RBF", (1e-7,)), r"lines, expected at most 200000"),
        (Leaf("RBF", (0.0,)), r"RBF\(length_scale=0.0\): expected arguments above 0"),
        (Leaf("RationalQuadratic", (1e-5, 1e-3)), "expected at most 200000"),
    ],
)
def test_a_leaf_that_lines_cannot_give_is_refused_with_the_mend(leaf: Leaf, message: str) -> None:
    with pytest.raises(DataError, match=message):
        spectrum((leaf,))


def test_a_leaf_is_held_to_scikit_learn_s_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthesis, "_rbf", lambda scale: synthesis.Spectrum(np.zeros(1), np.ones(1)))
    with pytest.raises(DataError, match=r"RBF\(length_scale=0.7\): its lines have an error of"):
        synthesis._leaf(Leaf("RBF", (0.7,)))
    assert np.abs(sk.RBF(0.7)(np.zeros((1, 1)), LAGS[:, None])[0] - 1).max() > 1e-3

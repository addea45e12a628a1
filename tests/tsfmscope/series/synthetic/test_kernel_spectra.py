from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as sk

from tsfmscope.errors import DataError
from tsfmscope.series.synthetic import kernel_spectra
from tsfmscope.series.synthetic.kernel_spectra import CONSTANT, order, spectrum
from tsfmscope.series.synthetic.kernels import Leaf, bank

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
    total = sum(
        kernel_spectra.Spectrum(found.frequency[p : p + 2000], found.weight[p : p + 2000]).at(LAGS) for p in parts
    )
    assert np.abs(total - _exact(*leaves)).max() <= 3e-7
    assert (found.weight > 0).all()


def test_a_product_of_equal_periods_has_the_lines_of_one_of_them() -> None:
    leaf = Leaf("ExpSineSquared", (1.0, 0.25))
    found = spectrum((leaf, leaf, leaf))
    np.testing.assert_allclose(np.rint(found.frequency / 4), found.frequency / 4, atol=1e-9)
    assert len(found.weight) == len(np.unique(np.rint(found.frequency)))


def test_thinning_keeps_the_kernel_with_few_lines() -> None:
    dense = kernel_spectra._gaussians(np.array([10.0]), np.ones(1))  # RBF(0.1)
    thin = kernel_spectra._thin(dense, 1e-8)
    assert len(thin.weight) < len(dense.weight)
    assert np.abs(thin.at(LAGS) - _exact(Leaf("RBF", (0.1,)))).max() <= 2e-8
    # slow kernels: two or three waves are all that a window can tell
    assert len(spectrum((Leaf("RBF", (10.0,)),)).weight) <= 3


def test_a_gauss_rule_is_exact_for_as_many_lines_as_it_has_nodes() -> None:
    lines = kernel_spectra.Spectrum(np.array([0.0, 1.5, 4.0]), np.array([0.2, 0.5, 0.3]))
    thin = kernel_spectra._thin(lines, 1e-12)
    np.testing.assert_allclose(thin.frequency, lines.frequency, atol=1e-6)
    np.testing.assert_allclose(thin.weight, lines.weight, atol=1e-9)


def test_convolution_is_the_product_of_cosines_and_leaves_out_the_weakest_only() -> None:
    rng = np.random.default_rng(0)
    one, other = (
        kernel_spectra.Spectrum(np.r_[0, rng.uniform(1, 9, 5)], rng.dirichlet(np.full(6, 0.2))) for _ in range(2)
    )
    exact = one.at(LAGS) * other.at(LAGS)
    whole = kernel_spectra.Spectrum(*kernel_spectra._convolve(*one, *other, 0.0))
    assert len(whole.weight) == 1 + 5 + 5 + 50
    np.testing.assert_allclose(whole.at(LAGS), exact, atol=1e-14)
    for error in (1e-3, 1e-2, 1e-1):
        part = kernel_spectra.Spectrum(*kernel_spectra._convolve(*one, *other, error))
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
    monkeypatch.setattr(kernel_spectra, "_rbf", lambda scale: kernel_spectra.Spectrum(np.zeros(1), np.ones(1)))
    with pytest.raises(DataError, match=r"RBF\(length_scale=0.7\): its lines have an error of"):
        kernel_spectra._leaf(Leaf("RBF", (0.7,)))
    assert np.abs(sk.RBF(0.7)(np.zeros((1, 1)), LAGS[:, None])[0] - 1).max() > 1e-3

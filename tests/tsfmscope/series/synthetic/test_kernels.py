from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as sk

from tsfmscope.errors import DataError
from tsfmscope.series.synthetic.kernels import (
    COMPOSITION,
    VALUES,
    Composition,
    Streams,
    bank,
    compositions,
    kernel_expression,
    leaf_of,
    parse_kernel,
    products_of,
    series_seeds,
)

# science.md section 7, written out: the list of the Chronos release.
PERIODICITIES = [24, 48, 96, 168, 336, 672, 7, 14, 30, 60, 365, 730, 4, 26, 52, 4, 6, 12, 4, 40, 10]


@pytest.mark.parametrize("length", [1024, 256])
def test_the_bank_is_the_release_s_33_kernels_duplicates_kept(length: int) -> None:
    expected = [
        *(sk.ExpSineSquared(length_scale=1.0, periodicity=p / length) for p in PERIODICITIES),
        sk.DotProduct(sigma_0=0.0),
        sk.DotProduct(sigma_0=1.0),
        sk.DotProduct(sigma_0=10.0),
        sk.RBF(length_scale=0.1),
        sk.RBF(length_scale=1.0),
        sk.RBF(length_scale=10.0),
        sk.RationalQuadratic(length_scale=1.0, alpha=0.1),
        sk.RationalQuadratic(length_scale=1.0, alpha=1.0),
        sk.RationalQuadratic(length_scale=1.0, alpha=10.0),
        sk.WhiteKernel(noise_level=0.1),
        sk.WhiteKernel(noise_level=1.0),
        sk.ConstantKernel(constant_value=1.0),
    ]
    assert len(expected) == 33
    assert [leaf.kernel() for leaf in bank(length)] == expected
    assert [leaf_of(kernel) for kernel in expected] == list(bank(length))


@given(st.integers(0, 2**32), st.integers(1, 9), st.sampled_from([1024, 300]))
@settings(deadline=None, max_examples=80)
def test_an_expression_is_read_back_and_evaluated_to_an_equal_kernel(seed: int, most: int, length: int) -> None:
    (found,) = compositions([seed], most, length)
    kernel, text = found.kernel(), found.expression
    assert kernel_expression(kernel) == text
    assert sorted(map(sorted, found.expand_products())) == sorted(map(sorted, products_of(kernel)))
    assert parse_kernel(text) == kernel
    assert kernel_expression(parse_kernel(text)) == text
    assert eval(text, {"__builtins__": {}}, vars(sk)) == kernel


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (sk.ConstantKernel() * (sk.RBF(0.5) + sk.WhiteKernel()), "({0} + {1})"),
        (sk.RBF(1.0) * (sk.RBF(2.0) * sk.RBF(3.0)), " * ("),
        (sk.RBF(1.0) + (sk.RBF(2.0) + sk.RBF(3.0)), " + ("),
        ((sk.RBF(1.0) + sk.RBF(2.0)) * sk.RBF(3.0), ") * "),
    ],
)
def test_parentheses_keep_trees_that_are_not_folded_from_the_left(kernel: sk.Kernel, text: str) -> None:
    expression = kernel_expression(kernel)
    found = parse_kernel(expression)
    assert text.format("RBF(length_scale=0.5)", "WhiteKernel(noise_level=1.0)") in expression
    assert repr(found) == repr(kernel)
    assert found == kernel


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os').system('true')", "expected"),
        ("open('x')", "expected"),
        ("RBF(length_scale=__import__('os').getpid())", "malformed|ValueError|node"),
        ("RBF.__class__(length_scale=1.0)", "expected"),
        ("Matern(length_scale=1.0)", "expected one of .*'Matern'"),
        ("RBF(1.0)", "with keywords"),
        ("RBF(length_scale=1.0) - RBF(length_scale=1.0)", "expected"),
        ("RBF(length_scale=1.0) ** 2", "expected"),
        ("RBF(length_scale=1e999)", "finite"),
        ("RBF(length_scale=-1.0)", "at least 0"),
        ("RBF(nonsense=1.0)", "nonsense"),
        ("RBF(**{'length_scale': 1.0})", "float"),
        ("RBF(length_scale='a')", "could not convert"),
        ("", "syntax"),
        ("RBF(", "never closed"),
        ("(" * 400 + ")" * 400, "kernel expression"),
    ],
)
def test_any_other_text_is_refused_and_never_evaluated(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_kernel(text)


def test_a_kernel_of_another_class_has_no_expression() -> None:
    with pytest.raises(ValueError, match=r"expected .*got Matern"):
        kernel_expression(sk.Matern())


def test_compositions_have_the_law_of_the_algorithm() -> None:
    texts = [found.expression for found in compositions(series_seeds(0, range(6000)), 5)]
    leaves_of = [len(re.findall(r"[A-Za-z]+\(", text)) for text in texts]
    counts = np.bincount(leaves_of, minlength=6)[1:]
    assert np.abs(counts / 6000 - 0.2).max() < 4 * np.sqrt(0.2 * 0.8 / 6000)
    sums, products = (sum(text.count(sign) for text in texts) for sign in (" + ", " * "))
    joins = sums + products
    assert abs(sums / joins - 0.5) < 4 * 0.5 / np.sqrt(joins)
    leaves = joins + 6000
    quarter = sum(text.count(f"periodicity={4 / 1024!r}") for text in texts)  # three of the 33
    assert abs(quarter / leaves - 3 / 33) < 4 * np.sqrt(3 / 33 / leaves)


@pytest.mark.parametrize("most", [0, 33])
def test_a_number_of_kernels_out_of_range_is_refused(most: int) -> None:
    with pytest.raises(ValueError, match=r"max_kernels: expected 1\.\.32"):
        compositions([0], most)


def test_a_composition_depends_on_its_own_seed_alone() -> None:
    seeds = series_seeds(3, range(20))
    together = compositions(seeds)
    assert [compositions([seed])[0] for seed in seeds] == together
    assert compositions([]) == []


@given(st.lists(st.sampled_from(bank(64)), min_size=1, max_size=5), st.data())
@settings(deadline=None, max_examples=40)
def test_a_composition_multiplied_out_is_the_kernel(leaves: list, data: st.DataObject) -> None:
    signs = data.draw(st.lists(st.booleans(), min_size=len(leaves) - 1, max_size=len(leaves) - 1))
    found = Composition(tuple(leaves), tuple(signs))
    grid = np.linspace(0, 1, 12)[:, None]
    total = sum(np.prod([leaf.kernel()(grid) for leaf in product], axis=0) for product in found.expand_products())
    expected = found.kernel()(grid)
    assert np.abs(total - expected).max() <= 1e-12 * np.abs(expected).max()


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
@settings(deadline=None, max_examples=30)
def test_a_stream_is_numpy_s_philox_of_that_key_whatever_was_drawn_before(seed: int, other: int) -> None:
    streams = Streams()
    streams.of(other, VALUES).standard_normal(3)  # leaves half-used buffers
    streams.of(other, COMPOSITION).random(dtype=np.float32)
    for number in (COMPOSITION, VALUES):
        expected = np.random.Generator(np.random.Philox(key=np.array([seed, number], dtype=np.uint64)))
        np.testing.assert_array_equal(streams.of(seed, number).standard_normal(9), expected.standard_normal(9))


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

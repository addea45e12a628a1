"""Kernels of KernelSynth, and random streams by number.

The kernels are the bank, random compositions, and expressions that are stored and read back. The streams of a series
follow from its seed alone, in about a microsecond.

numpy's Philox (Salmon et al. 2011) is keyed, not seeded: setting its key starts another independent stream. A
series has two streams, so that its values can be drawn again from its kernel and seed without repeating the
choice of the kernel:

- `Generator(Philox(key=[seed, 0]))` chooses the kernel;
- `Generator(Philox(key=[seed, 1]))` draws the values.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope.errors import DataError

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel


# Streams of a series' seed: one chooses its kernel, the other draws its values.
COMPOSITION, VALUES = 0, 1


class Streams:
    """One generator that is reset to the start of a stream at each call.

    A call invalidates the stream of the previous call.
    """

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=[0, 0])
        self._start = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def of(self, seed: int, stream: int) -> np.random.Generator:
        """Return the stream `stream`, COMPOSITION or VALUES, of a series' seed."""
        # A new Philox takes ten times as long as setting the state of this one.
        self._start["state"]["key"][:] = seed, stream
        self._bits.state = self._start
        return self._generator


def series_seeds(seed: int, indices: Sequence[int], dataset: str = "") -> list[int]:
    """Return 63-bit seeds of the series with these indices under the run's `seed`.

    Data sets with other names have other seeds. The seeds come from SplitMix64 (Steele et al. 2014), whose
    start follows from `seed` and `dataset`. Each is computed from its index, without the seeds before it.
    """
    start = np.random.SeedSequence((seed, *dataset.encode())).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        mixed = start + (np.array(indices, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    seeds: list[int] = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1)).tolist()
    return seeds


# Steps of a series (Shelim et al. 2025, Algorithm 1).
LENGTH = 1024
# J of Shelim et al. 2025, Algorithm 1.
MAX_KERNELS = 5
# The Chronos release's periodicities times its LENGTH, in its order (hours to years). Duplicates
# are kept, because they raise the chance of a period.
PERIODS = (24, 48, 96, 168, 336, 672, 7, 14, 30, 60, 365, 730, 4, 26, 52, 4, 6, 12, 4, 40, 10)
# A leaf's variance is at most 101 (DotProduct(10) at the right end), so the standard deviation of
# 32 leaves stays below 1e33: no draw overflows float32, and none has to be rejected.
_MOST_KERNELS = 32
# Leaf classes and their parameters, in the order of Leaf.values.
PARAMETERS = {
    "ExpSineSquared": ("length_scale", "periodicity"),
    "DotProduct": ("sigma_0",),
    "RBF": ("length_scale",),
    "RationalQuadratic": ("alpha", "length_scale"),
    "WhiteKernel": ("noise_level",),
    "ConstantKernel": ("constant_value",),
}


class Leaf(NamedTuple):
    """One scikit-learn kernel: its class and the values of its PARAMETERS."""

    name: str
    values: tuple[float, ...]

    @property
    def expression(self) -> str:
        """Return the kernel as scikit-learn writes it, with every digit."""
        words = zip(PARAMETERS[self.name], self.values, strict=True)
        return f"{self.name}({', '.join(f'{word}={value!r}' for word, value in words)})"

    def kernel(self) -> Kernel:
        """Build the scikit-learn kernel."""
        return leaf_classes()[self.name](**dict(zip(PARAMETERS[self.name], self.values, strict=True)))


class Composition(NamedTuple):
    """Leaves folded from the left: products[i] joins leaf i+1 to those before it, by * if true, else by +."""

    leaves: tuple[Leaf, ...]
    products: tuple[bool, ...]

    @property
    def expression(self) -> str:
        """Return the same text as `kernel_expression` for `kernel()`, without building the kernel."""
        text, is_sum = _leaf_expression(self.leaves[0]), False
        for leaf, product in zip(self.leaves[1:], self.products, strict=True):
            if product:
                text = f"({text})" if is_sum else text
            text += (" * " if product else " + ") + _leaf_expression(leaf)
            is_sum = not product
        return text

    def kernel(self) -> Kernel:
        """Build the scikit-learn kernel."""
        joined = self.leaves[0].kernel()
        for leaf, product in zip(self.leaves[1:], self.products, strict=True):
            joined = joined * leaf.kernel() if product else joined + leaf.kernel()
        return joined

    def expand_products(self) -> Iterator[tuple[Leaf, ...]]:
        """Yield the products of leaves whose sum is the kernel.

        Each leaf that was added is multiplied with all later leaves that multiply.
        """
        for first, leaf in enumerate(self.leaves):
            if first == 0 or not self.products[first - 1]:
                later = zip(self.leaves[first + 1 :], self.products[first:], strict=True)
                yield (leaf, *(other for other, product in later if product))


@lru_cache(maxsize=8)
def bank(length: int = LENGTH) -> tuple[Leaf, ...]:
    """Return the 33 kernels of the Chronos release (Ansari et al. 2024) for a grid of `length` steps.

    Duplicates are kept.
    """
    return (
        *(Leaf("ExpSineSquared", (1.0, period / length)) for period in PERIODS),
        *(Leaf("DotProduct", (sigma,)) for sigma in (0.0, 1.0, 10.0)),
        *(Leaf("RBF", (scale,)) for scale in (0.1, 1.0, 10.0)),
        *(Leaf("RationalQuadratic", (alpha, 1.0)) for alpha in (0.1, 1.0, 10.0)),
        *(Leaf("WhiteKernel", (level,)) for level in (0.1, 1.0)),
        Leaf("ConstantKernel", (1.0,)),
    )


def compositions(seeds: Sequence[int], max_kernels: int = MAX_KERNELS, length: int = LENGTH) -> list[Composition]:
    """Draw one random composition per seed (Shelim et al. 2025, Algorithm 1).

    A composition has j ~ U{1..max_kernels} i.i.d. leaves of the bank, joined by + or * with equal chance. No
    draw is rejected: every composition of this distribution can be sampled.

    Raises:
        ValueError: `max_kernels` is not in 1..32.
    """
    if not 1 <= max_kernels <= _MOST_KERNELS:
        raise ValueError(f"max_kernels: expected 1..{_MOST_KERNELS}, got {max_kernels}")
    leaves, streams = bank(length), Streams()
    uniforms = np.empty((len(seeds), 2 * max_kernels))
    for row, seed in zip(uniforms, seeds, strict=True):
        streams.of(seed, COMPOSITION).random(out=row)
    counts = 1 + (uniforms[:, 0] * max_kernels).astype(int)
    members = (uniforms[:, 1 : 1 + max_kernels] * len(leaves)).astype(int).tolist()
    products = (uniforms[:, 1 + max_kernels :] < 0.5).tolist()
    return [
        Composition(tuple(leaves[i] for i in which[:count]), tuple(signs[: count - 1]))
        for count, which, signs in zip(counts.tolist(), members, products, strict=True)
    ]


def products_of(kernel: Kernel) -> list[tuple[Leaf, ...]]:
    """Multiply a kernel out into products of leaves whose sum it is.

    Raises:
        ValueError: unknown kernel class.
    """
    from sklearn.gaussian_process.kernels import Product, Sum

    if isinstance(kernel, Sum):
        return products_of(kernel.k1) + products_of(kernel.k2)
    if isinstance(kernel, Product):
        return [left + right for left in products_of(kernel.k1) for right in products_of(kernel.k2)]
    return [(leaf_of(kernel),)]


def kernel_season(kernel: Kernel, length: int = LENGTH) -> int:
    """Return the period that all periodic leaves share, in steps of linspace(0, 1, length); else 1."""
    leaves = [leaf for product in products_of(kernel) for leaf in product]
    periods = {leaf.values[1] for leaf in leaves if leaf.name == "ExpSineSquared"}
    return max(1, round(periods.pop() * (length - 1))) if len(periods) == 1 else 1


def leaf_of(kernel: Kernel) -> Leaf:
    """Convert a scikit-learn kernel of one leaf. Raises ValueError for an unknown kernel class."""
    name = type(kernel).__name__
    if name not in PARAMETERS:
        raise ValueError(f"kernel: expected +, * and {sorted(PARAMETERS)}, got {kernel!r}")
    values = kernel.get_params()
    return Leaf(name, tuple(float(values[word]) for word in PARAMETERS[name]))


def kernel_expression(kernel: Kernel) -> str:
    """Write the kernel as a scikit-learn expression that evaluates to an equal kernel.

    Every digit and the tree of sums and products are kept.
    """
    from sklearn.gaussian_process.kernels import Product, Sum

    if isinstance(kernel, Sum):
        right = kernel_expression(kernel.k2)
        return f"{kernel_expression(kernel.k1)} + {f'({right})' if isinstance(kernel.k2, Sum) else right}"
    if isinstance(kernel, Product):
        left, right = kernel_expression(kernel.k1), kernel_expression(kernel.k2)
        left = f"({left})" if isinstance(kernel.k1, Sum) else left
        return f"{left} * {f'({right})' if isinstance(kernel.k2, Sum | Product) else right}"
    return leaf_of(kernel).expression


def parse_kernel(expression: str) -> Kernel:
    """Parse an expression of `kernel_expression` into a kernel.

    Only +, * and calls of the bank's classes with numbers are read; the text is never evaluated.

    Raises:
        DataError: the text is anything else.
    """
    try:
        return _build(ast.parse(expression, mode="eval").body)
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"kernel expression {expression[:200]!r}: {error}") from error


@cache
def leaf_classes() -> dict[str, Any]:
    """Return scikit-learn's leaf classes by name."""
    from sklearn.gaussian_process import kernels

    return {name: getattr(kernels, name) for name in PARAMETERS}


@lru_cache(maxsize=1024)
def _leaf_expression(leaf: Leaf) -> str:
    return leaf.expression


def _build(node: ast.expr) -> Kernel:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _build(node.left), _build(node.right)
        return left + right if isinstance(node.op, ast.Add) else left * right
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        raise ValueError(f"expected +, * or a call with keywords, got {ast.unparse(node)[:80]!r}")
    if node.func.id not in PARAMETERS:
        raise ValueError(f"expected one of {sorted(PARAMETERS)}, got {node.func.id!r}")
    values = {str(word.arg): float(ast.literal_eval(word.value)) for word in node.keywords}
    if not all(math.isfinite(v) and v >= 0 for v in values.values()):
        raise ValueError(f"expected finite arguments of at least 0, got {values}")
    return leaf_classes()[node.func.id](**values)

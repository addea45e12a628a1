"""The kernels of KernelSynth: the bank, random compositions, and expressions that are stored and read back."""

from __future__ import annotations

import ast
import math
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.errors import DataError

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

LENGTH = 1024  # steps of a series (Algorithm 1)
MAX_KERNELS = 5  # J of Algorithm 1
# The Chronos release's periodicities times its LENGTH, in its order (hours to years); duplicates count as chances.
PERIODS = (24, 48, 96, 168, 336, 672, 7, 14, 30, 60, 365, 730, 4, 26, 52, 4, 6, 12, 4, 40, 10)
# Variances reach 101 a leaf (DotProduct(10) at the right end), so 32 leaves stay below 1e33 in standard deviation:
# no composition of the bank can overflow float32, and nothing need ever be dropped or drawn again.
_MOST_KERNELS = 32
# The leaves of the language, and the argument that the bank varies.
ARGUMENT = {
    "ExpSineSquared": "periodicity",
    "DotProduct": "sigma_0",
    "RBF": "length_scale",
    "RationalQuadratic": "alpha",
    "WhiteKernel": "noise_level",
    "ConstantKernel": "constant_value",
}


@lru_cache(maxsize=8)
def kernel_bank(length: int = LENGTH) -> tuple[Kernel, ...]:
    """The 33 kernels of the Chronos release for a grid of `length` steps, duplicates kept (science.md section 7)."""
    make = leaf_classes()
    return (
        *(make["ExpSineSquared"](periodicity=p / length) for p in PERIODS),
        *(make["DotProduct"](sigma_0=s) for s in (0.0, 1.0, 10.0)),
        *(make["RBF"](length_scale=s) for s in (0.1, 1.0, 10.0)),
        *(make["RationalQuadratic"](alpha=a) for a in (0.1, 1.0, 10.0)),
        *(make["WhiteKernel"](noise_level=n) for n in (0.1, 1.0)),
        make["ConstantKernel"](),
    )


def sample_kernel(rng: np.random.Generator, max_kernels: int = MAX_KERNELS, length: int = LENGTH) -> Kernel:
    """j ~ U{1..max_kernels} i.i.d. kernels of the bank, joined by + or * with equal chance, folded from the left."""
    if not 1 <= max_kernels <= _MOST_KERNELS:
        raise ValueError(f"max_kernels: expected 1..{_MOST_KERNELS}, got {max_kernels}")
    bank = kernel_bank(length)
    members = [bank[i] for i in rng.integers(len(bank), size=rng.integers(1, max_kernels + 1))]
    products = rng.integers(2, size=len(members) - 1)
    joined = members[0]
    for member, product in zip(members[1:], products, strict=True):
        joined = joined * member if product else joined + member
    return joined


def kernel_expression(kernel: Kernel) -> str:
    """The kernel as a scikit-learn expression that evaluates to an equal kernel (every digit, the same tree)."""
    from sklearn.gaussian_process.kernels import Product, Sum

    if isinstance(kernel, Sum):
        right = kernel_expression(kernel.k2)
        return f"{kernel_expression(kernel.k1)} + {f'({right})' if isinstance(kernel.k2, Sum) else right}"
    if isinstance(kernel, Product):
        left, right = kernel_expression(kernel.k1), kernel_expression(kernel.k2)
        left = f"({left})" if isinstance(kernel.k1, Sum) else left
        return f"{left} * {f'({right})' if isinstance(kernel.k2, Sum | Product) else right}"
    name = type(kernel).__name__
    if name not in ARGUMENT:
        raise ValueError(f"kernel: expected +, * and {sorted(ARGUMENT)}, got {kernel!r}")
    values = {key: value for key, value in kernel.get_params().items() if not key.endswith("_bounds")}
    return f"{name}({', '.join(f'{key}={float(value)!r}' for key, value in sorted(values.items()))})"


def parse_kernel(expression: str) -> Kernel:
    """The inverse of `kernel_expression`. Reads +, * and calls of the bank's classes with numbers; evaluates nothing.

    Raises:
        DataError: for any other text.
    """
    try:
        return _build(ast.parse(expression, mode="eval").body)
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"kernel expression {expression[:200]!r}: {error}") from error


@cache
def leaf_classes() -> dict[str, Any]:
    """scikit-learn's classes of the leaves, by name."""
    from sklearn.gaussian_process import kernels

    return {name: getattr(kernels, name) for name in ARGUMENT}


def _build(node: ast.expr) -> Kernel:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _build(node.left), _build(node.right)
        return left + right if isinstance(node.op, ast.Add) else left * right
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        raise ValueError(f"expected +, * or a call with keywords, got {ast.unparse(node)[:80]!r}")
    if node.func.id not in ARGUMENT:
        raise ValueError(f"expected one of {sorted(ARGUMENT)}, got {node.func.id!r}")
    values = {str(word.arg): float(ast.literal_eval(word.value)) for word in node.keywords}
    if not all(math.isfinite(v) and v >= 0 for v in values.values()):
        raise ValueError(f"expected finite arguments of at least 0, got {values}")
    return leaf_classes()[node.func.id](**values)

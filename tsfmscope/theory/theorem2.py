"""Yu et al. 2026, Theorem 2: a two-layer residual MLP maps patches of length k into few directions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.linalg import hadamard
from scipy.special import erf, expit

from tsfmscope.theory.bound_check import BoundCheck

Activation = Callable[[np.ndarray], np.ndarray]
# All functions satisfy |ω(x)| ≤ |x|.
ACTIVATIONS: dict[str, Activation] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x * expit(x),
    "gelu": lambda x: x * 0.5 * (1 + erf(x / np.sqrt(2))),
    "tanh": np.tanh,
    "sine": np.sin,
    # As rough as the hypothesis allows: it destroys the low rank of its input.
    "folded": lambda x: x * np.cos(1e4 * x),
}


def right_side(width: int, patch: int, epsilon: float) -> float:
    """Return min{d, (1 + ε⁻²) k}."""
    return min(float(width), (1 + epsilon**-2) * patch)


def count_above(
    embedded: Float[np.ndarray, "width patches"],
    second: Float[np.ndarray, "width hidden"],
    hidden: Float[np.ndarray, "hidden patches"],
    epsilon: float,
) -> tuple[int, int]:
    """Return #{σ_j(Φ(X)) > ε ‖W₂‖ ‖W₁X‖}, and the numerical rank #{σ_j > ε σ_1} of eq. 1.

    The theorem bounds the first number only.
    """
    values = np.linalg.svd(embedded, compute_uv=False)
    scale = np.linalg.norm(second, 2) * np.linalg.norm(hidden, 2)
    return int((values > epsilon * scale * (1 + 1e-12)).sum()), int((values > epsilon * values[0]).sum())


def mlp_instance(rng: np.random.Generator) -> dict[str, list[BoundCheck]]:
    """Check Theorem 2 at a random MLP on random patches, or at `hadamard_instance` with probability 0.2.

    With probability 0.5 the MLP has biases. X then has an additional row of ones and k is the rank of that
    matrix, because W₁X + b₁ = [W₁ b₁][X; 1].
    """
    if rng.random() < 0.2:
        return {"Theorem 2": [hadamard_instance(rng)]}
    patch, width = int(rng.integers(1, 9)), int(rng.integers(10, 49))
    hidden, patches = int(rng.integers(4, 65)), int(rng.integers(4, 97))
    name = tuple(ACTIVATIONS)[rng.integers(len(ACTIVATIONS))]
    inputs = rng.standard_normal((patch, patches)) * 10 ** rng.uniform(-2, 1)
    has_bias = bool(rng.integers(2))
    if has_bias:
        inputs = np.vstack([inputs, np.ones(patches)])
    first, second = rng.standard_normal((hidden, len(inputs))), rng.standard_normal((width, hidden))
    third = rng.standard_normal((width, len(inputs))) * 10 ** rng.uniform(-2, 1)
    epsilon = float(10 ** rng.uniform(-1.5, 0.3))
    inner = first @ inputs
    count, rank = count_above(third @ inputs + second @ ACTIVATIONS[name](inner), second, inner, epsilon)
    k = int(np.linalg.matrix_rank(inputs))
    setting = {"width": width, "patch": patch, "rank": k, "hidden": hidden, "patches": patches, "case": name}
    setting |= {"biases": has_bias, "epsilon_rank": rank}
    return {"Theorem 2": [BoundCheck("printed", "upper", epsilon, count, right_side(width, k, epsilon), 0.0, setting)]}


def hadamard_instance(rng: np.random.Generator) -> BoundCheck:
    """Check Theorem 2 at the tightest instance known: k = 1 and all n singular values of ω(W₁X) equal.

    W₁X has rank 1 with n² different entries near 1, and ε is just below n^(-1/2). ω, defined by its values at
    these entries, gives them the signs of a Hadamard matrix. Then σ_j(Φ) = √n for all j and ‖W₁X‖ = n, so n
    singular values are above the threshold, and (1 + ε⁻²) k is n + 1.
    """
    size = int(2 ** rng.integers(1, 6))
    inner = np.outer(1 + 1e-6 * rng.random(size), 1 + 1e-6 * rng.random(size))
    signed = inner * hadamard(size)
    epsilon = float(size**-0.5 * (1 - 1e-4))
    width = 2 * size
    second = np.vstack([np.eye(size), np.zeros((size, size))])
    count, rank = count_above(second @ signed, second, inner, epsilon)
    setting = {"width": width, "patch": 1, "rank": 1, "hidden": size, "patches": size, "case": "hadamard"}
    setting |= {"biases": False, "epsilon_rank": rank}
    return BoundCheck("printed", "upper", epsilon, count, right_side(width, 1, epsilon), 0.0, setting)

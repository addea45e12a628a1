"""Weights and hidden states of any torch module, without a family."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from tsfmscope.tasks.models.common.capture import capture
from tsfmscope.tasks.ranks.spectrum import TYPES, numerical_rank
from tsfmscope.tasks.ranks.spectrum_columns import weight_row

if TYPE_CHECKING:
    from tsfmscope.model import Model


def weights(module: torch.nn.Module | Model, *, epsilon: float = 0.01) -> pd.DataFrame:
    """Compute the singular values of every Linear of a module.

    Args:
        module: any torch module, or a model that `load` returned.
        epsilon: relative tolerance of the numerical rank (Yu et al. 2026, eq. 1).

    Returns:
        One row per Linear, in the order of `named_modules`: `name`, `n_rows` (outputs), `n_columns` (inputs),
        `dtype`, `singular_values` (descending), `numerical_rank`, `stable_rank` (squared Frobenius norm over
        the squared largest singular value; NaN for zeros) and `below_noise_floor`: whether epsilon is below
        the rounding error of the weights, so that the numerical rank means nothing.

    Raises:
        ValueError: a matrix holds NaN or infinity (the message names its module), epsilon is outside [0, 1],
            or the module has no Linear.
    """
    network = module if isinstance(module, torch.nn.Module) else module.family.network
    rows = [_spectrum(name, one, epsilon) for name, one in network.named_modules() if isinstance(one, torch.nn.Linear)]
    if not rows:
        raise ValueError(f"module: expected at least one torch.nn.Linear, found none in {type(network).__name__}")
    return pd.DataFrame(rows)


def _spectrum(name: str, linear: torch.nn.Linear, epsilon: float) -> dict[str, Any]:
    weight = linear.weight.detach()
    dtype = str(weight.dtype).removeprefix("torch.")
    matrix = weight.to(torch.float64 if dtype == "float64" else torch.float32).cpu().numpy()
    try:
        row = weight_row(matrix, dtype=dtype if dtype in TYPES else "float32")
    except ValueError as error:
        raise ValueError(f"{name or type(linear).__name__}: {error}") from error
    values = np.asarray(row["singular_values"])
    largest = values.max(initial=0.0)
    return {
        "name": name,
        **{column: row[column] for column in ("n_rows", "n_columns", "dtype")},
        "singular_values": values,
        "numerical_rank": numerical_rank(values, epsilon),
        "stable_rank": float(np.sum((values / largest) ** 2)) if largest else float("nan"),
        "below_noise_floor": bool(epsilon < row["floor"]),
    }


def states_of(module: torch.nn.Module, run: Callable[[], object], at: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the outputs of some submodules while `run` runs the module.

    Args:
        module: any torch module.
        run: calls the module, for example `lambda: network(batch)`. Gradients are disabled inside.
        at: names of submodules, as in `module.named_modules()`.

    Returns:
        name -> [token, width], float32 (float64 if the output is): all axes but the last are joined. Where a
        submodule returns several values, the first tensor counts; where it is called more than once, all
        calls follow one another.

    Raises:
        KeyError: a name is unknown; the message gives similar ones.
        RuntimeError: `run` did not call a submodule.
        TypeError: a submodule returned no tensor.
    """
    known = dict(module.named_modules())
    for name in at:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3)
            raise KeyError(f"at: no submodule {name!r}; near: {', '.join(near) or 'none'}; see named_modules()")
    found: dict[str, list[np.ndarray]] = {name: [] for name in at}

    def take(name: str, tensor: torch.Tensor) -> torch.Tensor:
        kept = tensor if tensor.dtype == torch.float64 else tensor.float()
        found[name].append(kept.reshape(-1, kept.shape[-1]).cpu().numpy().copy())
        return tensor

    with torch.no_grad(), capture({name: known[name] for name in at}, take=take):
        run()
    if missed := [name for name, calls in found.items() if not calls]:
        raise RuntimeError(f"run: submodules {', '.join(missed)} were not called; run the module that holds them")
    return {name: np.concatenate(calls) for name, calls in found.items()}

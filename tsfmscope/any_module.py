"""Weights and hidden states of any torch module, without a family."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from tsfmscope.model import Model
from tsfmscope.tasks.models.common.capture import capture
from tsfmscope.tasks.ranks.spectrum import TYPES, numerical_rank
from tsfmscope.tasks.ranks.spectrum_columns import weight_row


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
        TypeError: `module` is neither a torch module nor a model.
        ValueError: a matrix contains NaN or infinity (the message names its module), epsilon is outside [0, 1],
            or the module has no Linear.
    """
    network = _network(module)
    linears = {name: layer for name, layer in network.named_modules() if isinstance(layer, torch.nn.Linear)}
    if not linears:
        raise ValueError(f"module: expected at least one torch.nn.Linear, found none in {type(network).__name__}")
    return pd.DataFrame([_spectrum(name, linear, epsilon) for name, linear in linears.items()])


def _network(module: torch.nn.Module | Model) -> torch.nn.Module:
    """Return the module, or the network of a model. Raises TypeError for anything else."""
    if isinstance(module, Model):
        return module.family.network
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module: got {type(module).__name__}, expected a torch.nn.Module or a model of `load`")
    return module


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


def states_of(module: torch.nn.Module | Model, run: Callable[[], object], at: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the outputs of some submodules while `run` runs the module.

    Args:
        module: any torch module, or a model that `load` returned.
        run: calls the module, for example `lambda: network(batch)`. Gradients are disabled inside.
        at: names of submodules, as in `module.named_modules()`; "" is the module itself.

    Returns:
        name -> [token, width], float32 (float64 if the output is float64): all axes but the last are joined.
        If a submodule returns several values, the first tensor is taken. If it is called more than once, the
        outputs of all calls are concatenated along the first axis.

    Raises:
        KeyError: a name is unknown; the message gives similar ones.
        RuntimeError: `run` did not call a submodule.
        TypeError: `module` is neither a torch module nor a model, `at` is a text, or a submodule returned no
            tensor.
    """
    if isinstance(at, str):
        raise TypeError(f"at: got the text {at!r}, expected a list of names such as [{at!r}]")
    submodules = dict(_network(module).named_modules())
    for name in at:
        if name not in submodules:
            near = difflib.get_close_matches(name, submodules, 3)
            raise KeyError(f"at: no submodule {name!r}; near: {', '.join(near) or 'none'}; see named_modules()")
    calls_by_name: dict[str, list[np.ndarray]] = {name: [] for name in at}

    def take(name: str, tensor: torch.Tensor) -> torch.Tensor:
        output = tensor if tensor.dtype == torch.float64 else tensor.float()
        calls_by_name[name].append(output.reshape(-1, output.shape[-1]).cpu().numpy().copy())
        return tensor

    with torch.no_grad(), capture({name: submodules[name] for name in at}, take=take):
        run()
    if uncalled := [name for name, calls in calls_by_name.items() if not calls]:
        raise RuntimeError(f"run: submodules {', '.join(uncalled)} were not called; call the module that contains them")
    return {name: np.concatenate(calls) for name, calls in calls_by_name.items()}

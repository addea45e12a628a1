"""Weights and hidden states of any torch module, without a family."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers.pytorch_utils import Conv1D

from tsfmscope.functions.load import Model
from tsfmscope.models.common.capture import capture
from tsfmscope.ranks.spectrum import TYPES, numerical_rank, weight_row

logger = logging.getLogger("tsfmscope")


def weights(module: torch.nn.Module | Model, *, epsilon: float = 0.01) -> pd.DataFrame:
    """Compute the singular values of the matrices of a module that map states to states.

    These are the weights of every Linear, of every Conv1D of transformers, and Q, K and V of every
    torch.nn.MultiheadAttention, which keeps them joined in one parameter (named NAME.q, NAME.k, NAME.v).

    Args:
        module: any torch module, or a model that `load` returned.
        epsilon: relative tolerance of the numerical rank (Yu et al. 2026, eq. 1).

    Returns:
        One row per matrix, in the order of `named_modules`: `name`, `n_rows` (outputs), `n_columns` (inputs),
        `dtype`, `singular_values` (descending), `numerical_rank`, `stable_rank` (squared Frobenius norm over
        the squared largest singular value; NaN for zeros) and `below_noise_floor`: whether epsilon is below
        the rounding error of the weights, so that the numerical rank means nothing. Other parameters of two or more
        dimensions, such as embeddings and convolutions, are named in a log line and in `attrs["left_out"]`.

    Raises:
        TypeError: `module` is neither a torch module nor a model.
        ValueError: a matrix contains NaN or infinity (the message names its module), epsilon is outside [0, 1],
            or the module has none of these matrices.
    """
    network = _network(module)
    matrices, read = [], set[int]()
    for path, part in network.named_modules():
        if found := list(_matrices(path, part)):
            matrices += found
            # Also those from which a parametrisation computes the matrix.
            read |= {id(parameter) for parameter in part.parameters()}
    if not matrices:
        raise ValueError(f"module: expected at least one torch.nn.Linear, found none in {type(network).__name__}")
    frame = pd.DataFrame([_spectrum(name, matrix, epsilon) for name, matrix in matrices])
    left_out = [
        name for name, parameter in network.named_parameters() if parameter.dim() >= 2 and id(parameter) not in read
    ]
    if left_out:
        names = ", ".join(left_out[:5]) + (", …" if len(left_out) > 5 else "")
        logger.warning(f"weights: {len(left_out)} parameters that belong to no Linear are left out: {names}")
    frame.attrs["left_out"] = left_out
    return frame


def _matrices(path: str, module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield name and value [out, in] of the matrices that a module holds itself."""
    if isinstance(module, torch.nn.Linear):
        yield path, module.weight
    elif isinstance(module, Conv1D):
        yield path, module.weight.T
    elif isinstance(module, torch.nn.MultiheadAttention):
        joined = module.in_proj_weight
        apart = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        for letter, part in zip("qkv", apart if joined is None else joined.chunk(3), strict=True):
            yield f"{path}.{letter}".lstrip("."), part


def _network(module: torch.nn.Module | Model) -> torch.nn.Module:
    """Return the module, or the network of a model. Raises TypeError for anything else."""
    if isinstance(module, Model):
        return module.family.network
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module: got {type(module).__name__}, expected a torch.nn.Module or a model of `load`")
    return module


def _spectrum(name: str, weight: torch.Tensor, epsilon: float) -> dict[str, Any]:
    weight = weight.detach()
    dtype = str(weight.dtype).removeprefix("torch.")
    matrix = weight.to(torch.float64 if dtype == "float64" else torch.float32).cpu().numpy()
    try:
        row = weight_row(matrix, dtype=dtype if dtype in TYPES else "float32")
    except ValueError as error:
        raise ValueError(f"{name or 'module'}: {error}") from error
    values = np.asarray(row["singular_values"])
    largest = values.max(initial=0.0)
    return {
        "name": name, **{column: row[column] for column in ("n_rows", "n_columns", "dtype")},
        "singular_values": values, "numerical_rank": numerical_rank(values, epsilon),
        "stable_rank": float(np.sum((values / largest) ** 2)) if largest else float("nan"),
        "below_noise_floor": bool(epsilon < row["floor"]),
    }  # fmt: skip


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

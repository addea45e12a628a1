"""Checks of `weights`: every matrix of a block is named once, and each name fits how the matrix is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.conformance.errors import NotApplicable
from tsfmscope.conformance.subject import Subject
from tsfmscope.conformance.verdict import demand
from tsfmscope.models.base import Family
from tsfmscope.models.types import WeightMatrix

if TYPE_CHECKING:
    import torch

# Stack, number from 1.
Block = tuple[str, int]
# Largest difference between rows of length 1 that float32 rounding may cause.
PROPORTIONAL = 1e-5
# Matrices that read the states of their own stack.
READERS = ("q", "mlp_in", "mlp_gate", "ssm_in")
# Matrices whose output is added to these states.
WRITERS = ("o", "mlp_out", "ssm_out")


def no_matrix_of_a_block_is_left_out(subject: Subject) -> str:
    """Every matrix of a block's parameters is named once, but for embeddings and the modules of `unnamed`."""
    model = subject.perturbed_model
    matrices_by_block = named_in_blocks(model)
    if model.compression is not None:
        raise NotApplicable("the model is compressed: its matrices are products of two")
    count = 0
    for (stack, layer), block in blocks_of(model, subject).items():
        unmatched = list(matrices_by_block.get((stack, layer), ()))
        parameters = list(parameters_of(block, model.unnamed))
        missing = [name for name, layouts in parameters if not _take(layouts, unmatched)]
        demand(
            not missing,
            f"{stack} block {layer}: `weights` does not name {missing} as [out, in]; name them, "
            'or declare modules that are neither attention nor MLP: `unnamed = frozenset({"cell"})`',
        )
        rows = {row for _, layouts in parameters for row in row_hashes(layouts[0])}
        twice = [named_matrix.name for named_matrix in unmatched if rows.intersection(row_hashes(named_matrix.matrix))]
        demand(not twice, f"{stack} block {layer}: {twice} hold numbers that another name has already")
        count += len(parameters)
    if not count:
        raise NotApplicable("no block has a matrix among its parameters")
    return f"{count} parameters of blocks"


def matrices_have_the_width_of_the_states(subject: Subject) -> str:
    """Matrices reading states (q, mlp_in, mlp_gate, ssm_in) have `width` columns, those writing them `width` rows."""
    model, n_checked = subject.model, 0
    for named_matrix in model.weights():
        role = named_matrix.name.partition(".")[0]
        if named_matrix.stack not in model.layers or role not in READERS + WRITERS:
            continue
        axis = role in READERS
        width = named_matrix.matrix.shape[axis]
        location = (
            f"{named_matrix.stack} block {named_matrix.layer} {named_matrix.name}, shape {named_matrix.matrix.shape}"
        )
        expected = f"the width {model.width}" + " or a divisor of it" * model.divides_rows
        is_fitting = model.width % width == 0 if model.divides_rows else width == model.width
        demand(is_fitting, f"{location}: {'columns' if axis else 'rows'}, expected {expected}")
        n_checked += 1
    if not n_checked:
        raise NotApplicable(f"`weights` names none of {', '.join(READERS + WRITERS)}")
    return f"{n_checked} matrices"


def named_in_blocks(model: Family) -> dict[Block, list[WeightMatrix]]:
    """Return the named matrices of every block; NotApplicable where there are none."""
    matrices_by_block: dict[Block, list[WeightMatrix]] = {}
    for named_matrix in model.weights():
        matrices_by_block.setdefault((named_matrix.stack, named_matrix.layer), []).append(named_matrix)
    if not matrices_by_block:
        raise NotApplicable("`weights` names no matrix")
    return matrices_by_block


def blocks_of(model: Family, subject: Subject) -> dict[Block, torch.nn.Module]:
    """Return the blocks of every stack whose states are read."""
    stacks = model._pass(subject.tokens).stacks
    return {(name, n): block for name, stack in stacks.items() for n, block in enumerate(stack.blocks, start=1)}


def parameters_of(block: torch.nn.Module, left_out: frozenset[str]) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield name and possible layouts [out, in] of each parameter with two or more axes.

    Embeddings and the modules of `left_out` are skipped.
    """
    import torch

    for path, module in block.named_modules():
        if isinstance(module, torch.nn.Embedding) or any(
            path == name or path.startswith(f"{name}.") for name in left_out
        ):
            continue
        for name, part in module.named_parameters(recurse=False):
            if part.ndim >= 2:
                is_linear = isinstance(module, torch.nn.Linear)
                yield f"{path}.{name}".lstrip("."), _layouts(part.detach().float().cpu().numpy(), is_linear)


def _layouts(values: np.ndarray, is_linear: bool) -> list[np.ndarray]:
    """Return the possible layouts [out, in] of a parameter.

    A Linear has one. Other modules may hold [in, out], or experts along their first axis.
    """
    rows = values.reshape(-1, values.shape[-1])
    if is_linear:
        return [rows]
    columns = np.swapaxes(values, -1, -2).reshape(-1, values.shape[-2])
    return [rows, columns, values.reshape(len(values), -1)]


def row_hashes(matrix: np.ndarray) -> list[int]:
    """Return one number per row: equal rows have equal numbers."""
    return [hash(row.tobytes()) for row in np.ascontiguousarray(matrix, dtype=np.float32)]


def _take(layouts: list[np.ndarray], unmatched: list[WeightMatrix]) -> bool:
    """Return whether named matrices contain all rows of a parameter; those that do are removed from `unmatched`.

    A parameter may contain several matrices (fused q, k and v), and a matrix may be a parameter with rescaled
    rows.
    """
    for layout in layouts:
        missing = Counter(row_hashes(layout))
        parts = _parts(missing, unmatched)
        if not missing:
            unmatched[:] = [
                named_matrix for named_matrix in unmatched if not any(named_matrix is part for part in parts)
            ]
            return True
        for named_matrix in unmatched:
            if are_proportional(named_matrix.matrix, layout):
                unmatched[:] = [other for other in unmatched if other is not named_matrix]
                return True
    return False


def _parts(missing: Counter[int], unmatched: list[WeightMatrix]) -> list[WeightMatrix]:
    """Return the matrices all of whose rows are still missing.

    `missing` loses these rows, so that each is taken once.
    """
    parts = []
    for named_matrix in unmatched:
        rows = Counter(row_hashes(named_matrix.matrix))
        if rows <= missing:
            missing -= rows
            parts.append(named_matrix)
    return parts


def are_proportional(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether each row of a matrix is the other's row times a positive number."""
    if first.shape != second.shape:
        return False
    lengths = [np.linalg.norm(matrix, axis=1, keepdims=True) for matrix in (first, second)]
    if any((length == 0).any() for length in lengths):
        return False
    return bool(np.abs(first / lengths[0] - second / lengths[1]).max(initial=0) <= PROPORTIONAL)


def linears_of(block: torch.nn.Module) -> Mapping[str, torch.nn.Module]:
    """Return a block's modules with a matrix `weight`, except embeddings, by name."""
    import torch

    return {
        name: module
        for name, module in block.named_modules()
        if isinstance(getattr(module, "weight", None), torch.Tensor)
        and module.weight.ndim == 2
        and not isinstance(module, torch.nn.Embedding)
    }

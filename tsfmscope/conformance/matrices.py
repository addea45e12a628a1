"""Checks of `weights` and `attentions`: every matrix is named once, and each name fits how the matrix is used.

q, k, v and the matrices of MLPs are judged by what they change further on in their block.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope.conformance.subject import ROUNDING, NotApplicable, Subject, demand, distance, states_of
from tsfmscope.models.base import Family
from tsfmscope.models.common.capture import Pass, capture
from tsfmscope.models.types import WeightMatrix, head_counts

if TYPE_CHECKING:
    import torch

# Names as in WeightMatrix; those of experts have a suffix, as in mlp_in.3.
ATTENTION_NAMES = ("q", "k", "v", "o")
MATRIX_NAMES = (*ATTENTION_NAMES, "mlp_in", "mlp_gate", "mlp_out", "ssm_in", "ssm_out")
# Stack, number from 1.
Block = tuple[str, int]
# Largest difference between rows of length 1 that float32 rounding may cause.
PROPORTIONAL = 1e-5
# Change of rows [N, out] that a matrix returns.
Change = Callable[["torch.Tensor"], "torch.Tensor"]
# Share of the largest number: float32 rounding of sums over a context.
LINEAR = 1e-4
# Factor under which no softmax or activation passes for a linear function.
STEEP = 30.0
# Matrices that are judged by what they change further on.
JUDGED = ("q", "k", "v", "mlp_in", "mlp_gate")
# Matrices that read the states of their own stack.
READERS = ("q", "mlp_in", "mlp_gate", "ssm_in")
# Matrices whose output is added to these states.
WRITERS = ("o", "mlp_out", "ssm_out")


def matrices_are_named_once(subject: Subject) -> str:
    """`weights` names each matrix of every block once, finite, with heads that divide it."""
    model, sizes = subject.model, {}
    for named in model.weights():
        key, location = (named.stack, named.layer, named.name, named.attention), location_of(named)
        demand(key not in sizes, f"{location} ({named.attention}) comes twice")
        # A stack whose states are not read may have matrices.
        last = model.layers.get(named.stack, named.layer)
        demand(1 <= named.layer <= last, f"{location}: blocks count from 1 to {last}")
        is_known = named.name.partition(".")[0] in MATRIX_NAMES
        demand(is_known, f"{location}: got {named.name!r}, expected one of {MATRIX_NAMES}")
        is_finite = named.matrix.ndim == 2 and bool(np.isfinite(named.matrix).all())
        demand(is_finite, f"{location}: no finite matrix [out, in]")
        is_of_attention = named.name in ATTENTION_NAMES
        demand((named.attention is not None) == is_of_attention, f"{location}: attention is {named.attention!r}")
        sizes[key] = named.matrix.size
    if not sizes:
        raise NotApplicable("`weights` names no matrix")
    for stack, blocks in model.layers.items():
        missing_blocks = set(range(1, blocks + 1)) - {layer for name, layer, *_ in sizes if name == stack}
        demand(not missing_blocks, f"{stack}: blocks {sorted(missing_blocks)} have no matrix")
    # Raises ValueError where heads do not divide q, k, v or o.
    head_counts(model)
    total, n_parameters = sum(sizes.values()), sum(part.numel() for part in model.network.parameters())
    demand(total <= n_parameters, f"matrices hold {total} numbers, the network {n_parameters}")
    return f"{len(sizes)} matrices, {total / n_parameters:.0%} of the parameters"


def attention_is_written_as_it_was_read(subject: Subject) -> str:
    """Every attention layer that can be compressed, read and written back, leaves the states as they were."""
    model = subject.copy()
    layers = list(model.attentions())
    if not layers:
        raise NotApplicable("`attentions` names no layer: the family is not compressed")
    names = [layer.name for layer in layers]
    demand(len(set(names)) == len(names), f"layers {names} are not named once each")
    queries = {
        (named.stack, named.layer, named.attention): named.matrix for named in model.weights() if named.name == "q"
    }
    for layer in layers:
        key = (layer.stack, layer.layer, layer.kind)
        demand(key in queries, f"{layer.name}: `weights` has no q of it")
        demand(queries[key].shape == layer.linear("q").weight.shape, f"{layer.name}: q is not that of `weights`")
        layer.write(layer.read())
    worst = max(distance(states, subject.states[key]) for key, states in states_of(model, subject.tokens).items())
    demand(worst <= ROUNDING, f"states differ by {worst:.1e} of the largest after nothing was changed")
    return f"{len(layers)} layers"


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
        twice = [named.name for named in unmatched if rows.intersection(row_hashes(named.matrix))]
        demand(not twice, f"{stack} block {layer}: {twice} hold numbers that another name has already")
        count += len(parameters)
    if not count:
        raise NotApplicable("no block has a matrix among its parameters")
    return f"{count} parameters of blocks"


def matrices_have_the_width_of_the_states(subject: Subject) -> str:
    """Matrices reading states (q, mlp_in, mlp_gate, ssm_in) have `width` columns, those writing them `width` rows."""
    model, n_checked = subject.model, 0
    for named in model.weights():
        role = named.name.partition(".")[0]
        if named.stack not in model.layers or role not in READERS + WRITERS:
            continue
        axis = role in READERS
        width = named.matrix.shape[axis]
        location = f"{location_of(named)}, shape {named.matrix.shape}"
        expected = f"the width {model.width}" + " or a divisor of it" * model.divides_rows
        is_fitting = model.width % width == 0 if model.divides_rows else width == model.width
        demand(is_fitting, f"{location}: {'columns' if axis else 'rows'}, expected {expected}")
        n_checked += 1
    if not n_checked:
        raise NotApplicable(f"`weights` names none of {', '.join(READERS + WRITERS)}")
    return f"{n_checked} matrices"


def location_of(named: WeightMatrix) -> str:
    """Return stack, block and name of a matrix."""
    return f"{named.stack} block {named.layer} {named.name}"


def named_in_blocks(model: Family) -> dict[Block, list[WeightMatrix]]:
    """Return the named matrices of every block; NotApplicable where there are none."""
    matrices_by_block: dict[Block, list[WeightMatrix]] = {}
    for named in model.weights():
        matrices_by_block.setdefault((named.stack, named.layer), []).append(named)
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
        missing, parts = Counter(row_hashes(layout)), []
        for named in unmatched:
            rows = Counter(row_hashes(named.matrix))
            # Each row is taken once.
            if rows <= missing:
                missing -= rows
                parts.append(named)
        if missing:
            parts = [named for named in unmatched if are_proportional(named.matrix, layout)][:1]
        if parts or not layout.size:
            unmatched[:] = [named for named in unmatched if not any(named is part for part in parts)]
            return True
    return False


def are_proportional(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether each row of a matrix is the other's row times a positive number."""
    if first.shape != second.shape:
        return False
    lengths = [np.linalg.norm(matrix, axis=1, keepdims=True) for matrix in (first, second)]
    if any((length == 0).any() for length in lengths):
        return False
    return bool(np.abs(first / lengths[0] - second / lengths[1]).max(initial=0) <= PROPORTIONAL)


def _linears(block: torch.nn.Module) -> list[torch.nn.Module]:
    """Return a block's modules with a matrix `weight`, except embeddings."""
    import torch

    weights = {module: getattr(module, "weight", None) for module in block.modules()}
    return [
        module
        for module, weight in weights.items()
        if isinstance(weight, torch.Tensor) and weight.ndim == 2 and not isinstance(module, torch.nn.Embedding)
    ]


@dataclass(frozen=True)
class Part:
    """Named matrix in the network: the module that applies it, and its share of the module's outputs."""

    module: torch.nn.Module
    outputs: list[int]


class Use(NamedTuple):
    """One matrix of a block, with the matrix that reads what becomes of its output.

    The reader is o for q, k and v, and mlp_out for mlp_in and mlp_gate.
    """

    named: WeightMatrix
    part: Part
    reader: Part
    gated: bool


def matrices_fit_their_names(subject: Subject) -> str:
    """q changes its own row of o's input, k other rows too; v and a gated mlp_in enter linearly."""
    model, n_checked = subject.perturbed_model, 0
    matrices_by_block, one_pass = named_in_blocks(model), model._pass(subject.tokens)
    for key, block in blocks_of(model, subject).items():
        uses = list(_uses(matrices_by_block.get(key, []), block, model.inert_projections))
        before = _read(one_pass, {id(use.reader): use.reader for use in uses})
        for use in uses:
            reference = before.get(id(use.reader))
            # There is none of an expert that no row was sent to, or of a weight that no module applies.
            if reference is not None and reference.size:
                _judge(use, one_pass, reference)
                n_checked += 1
    if not n_checked:
        raise NotApplicable("no named matrix is the weight of a module that runs, with an o or mlp_out that reads it")
    n_matrices = sum(map(len, matrices_by_block.values()))
    return f"{n_checked} of {n_matrices} matrices, those that modules apply and o or mlp_out reads"


def _uses(
    matrices: list[WeightMatrix], block: torch.nn.Module, inert: frozenset[tuple[str, str, str]]
) -> Iterator[Use]:
    """Yield every matrix of JUDGED that, with its reader, is found among the block's modules, except inert ones."""
    modules = _linears(block)
    parts = {(named.attention, named.name): part for named in matrices if (part := _part(named, modules)) is not None}
    for named in matrices:
        role, _, expert = named.name.partition(".")
        suffix = f".{expert}" if expert else ""
        reader = parts.get((named.attention, "o" if named.attention else f"mlp_out{suffix}"))
        part = parts.get((named.attention, named.name))
        is_inert = (named.stack, named.attention, named.name) in inert
        if role in JUDGED and part is not None and reader is not None and not is_inert:
            yield Use(named, part, reader, (None, f"mlp_gate{suffix}") in parts)


def _part(named: WeightMatrix, modules: list[torch.nn.Module]) -> Part | None:
    """Return the module that applies a matrix, and the matrix's outputs; None where there is none.

    The matrix may be all rows of a weight, some rows of a fused one, or rows that were rescaled.
    """
    import torch

    rows = row_hashes(named.matrix)
    for module in modules:
        weight = module.weight.detach().float().cpu().numpy()  # type: ignore[operator]
        for layout in [weight] if isinstance(module, torch.nn.Linear) else [weight, weight.T]:
            if layout.shape[1] != named.matrix.shape[1]:
                continue
            at = {row: number for number, row in enumerate(row_hashes(layout))}
            if at.keys() >= set(rows):
                return Part(module, [at[row] for row in rows])
            if are_proportional(named.matrix, layout):
                return Part(module, list(range(len(layout))))
    return None


def _judge(use: Use, one_pass: Pass, reference: np.ndarray) -> None:
    """Raise Failed unless a matrix changes what its reader reads as its name promises.

    reference: the reader's input [N, in] in a pass of the first window.
    """
    named, role = use.named, use.named.name.partition(".")[0]
    location = f"{location_of(named)} ({named.attention})" if named.attention else location_of(named)

    def read(change: Change) -> np.ndarray:
        rows = _read(one_pass, {0: use.reader}, (use.part, change))[0]
        same = rows.shape == reference.shape
        demand(same, f"{location}: got {rows.shape} further on, expected {reference.shape}")
        return rows

    def count_changed_rows(at: float = 1.0) -> int:
        """Return the number of the reader's rows that change with one row of the output.

        at: which row, from 0 (first) to 1 (last).
        """
        rows = read(lambda rows: _push(rows, round(at * (len(rows) - 1))))
        return int((np.abs(rows - reference).max(axis=1) > ROUNDING * np.abs(reference).max()).sum())

    def is_linear() -> bool:
        """Return whether the reader's input is a linear function of the output, and not a constant."""
        up, down, none = (read(partial(operator.mul, by)) for by in (STEEP, -STEEP, 0.0))
        depends = np.abs(up - none).max() > ROUNDING * np.abs(up).max()
        return bool(depends and np.abs(up + down - 2 * none).max() <= LINEAR * np.abs(up).max())

    question = "are q, k, v and o what they are called?"
    if role == "q":
        rows = count_changed_rows()
        demand(rows <= 1, f"{location}: one query changes {rows} rows of what o reads; {question}")
    elif role == "k":
        # One row may attend to itself alone, and a first row may be padding.
        is_key = len(reference) == 1 or any(count_changed_rows(at) > 1 for at in (0.0, 0.5, 0.9))
        undeclared = "A projection that weighs nothing is declared in `inert_projections`"
        demand(is_key, f"{location}: one key changes no other row of what o reads; {question} {undeclared}")
    elif role == "v":
        demand(is_linear(), f"{location}: what o reads is no linear function of it; {question}")
    elif role == "mlp_in" and use.gated:
        demand(is_linear(), f"{location}: what mlp_out reads is no linear function of it; is it an mlp_gate?")
    else:
        changed = count_changed_rows() > 0
        demand(changed, f"{location}: what mlp_out reads does not depend on it; is it an mlp_out?")


def _push(rows: torch.Tensor, number: int) -> torch.Tensor:
    """Return the rows with one of them moved far off."""
    import torch

    noise = torch.randn(rows.shape[1], generator=torch.Generator().manual_seed(0)).to(rows)
    rows = rows.clone()
    rows[number] += noise * max(3 * float(rows.abs().max()), 1.0)
    return rows


def _read(
    one_pass: Pass, readers: Mapping[int, Part], changed: tuple[Part, Change] | None = None
) -> dict[int, np.ndarray]:
    """Return the readers' inputs [N, in] in a pass of the first window, for modules that ran."""
    import torch

    inputs = {key: part.module for key, part in readers.items()}
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        if changed is not None:
            stack.enter_context(_changing(*changed))
        captured = stack.enter_context(capture({}, inputs))
        one_pass.forward(slice(0, 1))
    return {key: rows.reshape(-1, rows.shape[-1]).double().cpu().numpy() for key, rows in captured.items()}


@contextmanager
def _changing(part: Part, change: Change) -> Iterator[None]:
    """Change a matrix's share of its module's output, inside the context."""

    def hook(module: torch.nn.Module, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        rows = output.reshape(-1, output.shape[-1]).clone()
        if len(rows):
            rows[:, part.outputs] = change(rows[:, part.outputs])
        return rows.reshape(output.shape)

    handle = part.module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()

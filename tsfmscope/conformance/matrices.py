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
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.conformance.subject import SAME, NotApplicable, Subject, demand, distance, states_of
from tsfmscope.models.base import Family
from tsfmscope.models.common.capture import Pass, capture
from tsfmscope.models.common.head_matrices import head_counts
from tsfmscope.models.types import WeightMatrix

if TYPE_CHECKING:
    import torch

# Names as in WeightMatrix; those of experts have a suffix, as in mlp_in.3.
ATTENTION_NAMES = ("q", "k", "v", "o")
MATRIX_NAMES = (*ATTENTION_NAMES, "mlp_in", "mlp_gate", "mlp_out", "ssm_in", "ssm_out")
# Stack, number from 1.
Block = tuple[str, int]
# Largest difference between rows of length 1 that float32 rounding may cause.
PROPORTIONAL = 1e-5
# Matrices that read the states of their own stack.
READERS = ("q", "mlp_in", "mlp_gate", "ssm_in")
# Matrices whose output is added to these states.
WRITERS = ("o", "mlp_out", "ssm_out")


def matrices_are_named_once(subject: Subject) -> str:
    """`weights` names each matrix of every block once, finite, with heads that divide it."""
    model, sizes = subject.model, {}
    for named_matrix in model.weights():
        key = (named_matrix.stack, named_matrix.layer, named_matrix.name, named_matrix.attention)
        location = f"{named_matrix.stack} block {named_matrix.layer} {named_matrix.name}"
        demand(key not in sizes, f"{location} ({named_matrix.attention}) comes twice")
        # A stack whose states are not read may have matrices.
        last = model.layers.get(named_matrix.stack, named_matrix.layer)
        demand(1 <= named_matrix.layer <= last, f"{location}: blocks count from 1 to {last}")
        demand(
            named_matrix.name.partition(".")[0] in MATRIX_NAMES,
            f"{location}: got {named_matrix.name!r}, expected one of {MATRIX_NAMES}",
        )
        demand(
            named_matrix.matrix.ndim == 2 and bool(np.isfinite(named_matrix.matrix).all()),
            f"{location}: no finite matrix [out, in]",
        )
        demand(
            (named_matrix.attention is not None) == (named_matrix.name in ATTENTION_NAMES),
            f"{location}: attention is {named_matrix.attention!r}",
        )
        sizes[key] = named_matrix.matrix.size
    if not sizes:
        raise NotApplicable("`weights` names no matrix")
    for stack, blocks in model.layers.items():
        missing_blocks = set(range(1, blocks + 1)) - {layer for name, layer, *_ in sizes if name == stack}
        demand(not missing_blocks, f"{stack}: blocks {sorted(missing_blocks)} have no matrix")
    # Raises ValueError where heads do not divide q, k, v or o.
    head_counts(model)
    n_parameters = sum(part.numel() for part in model.network.parameters())
    demand(
        sum(sizes.values()) <= n_parameters, f"matrices hold {sum(sizes.values())} numbers, the network {n_parameters}"
    )
    return f"{len(sizes)} matrices, {sum(sizes.values()) / n_parameters:.0%} of the parameters"


def attention_is_written_as_it_was_read(subject: Subject) -> str:
    """Every attention layer that can be compressed, read and written back, leaves the states as they were."""
    model = subject.copy()
    layers = list(model.attentions())
    if not layers:
        raise NotApplicable("`attentions` names no layer: the family is not compressed")
    names = [layer.name for layer in layers]
    demand(len(set(names)) == len(names), f"layers {names} are not named once each")
    queries = {
        (named_matrix.stack, named_matrix.layer, named_matrix.attention): named_matrix.matrix
        for named_matrix in model.weights()
        if named_matrix.name == "q"
    }
    for layer in layers:
        key = (layer.stack, layer.layer, layer.kind)
        demand(key in queries, f"{layer.name}: `weights` has no q of it")
        demand(queries[key].shape == layer.linear("q").weight.shape, f"{layer.name}: q is not that of `weights`")
        layer.write(layer.read())
    worst = max(distance(states, subject.states[key]) for key, states in states_of(model, subject.tokens).items())
    demand(worst <= SAME, f"states differ by {worst:.1e} of the largest after nothing was changed")
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


# Change of rows [N, out] that a matrix returns.
Change = Callable[["torch.Tensor"], "torch.Tensor"]
# Share of the largest number: float32 rounding of sums over a context.
LINEAR = 1e-4
# Factor under which no softmax or activation passes for a linear function.
STEEP = 30.0


@dataclass(frozen=True)
class Part:
    """Named matrix in the network: the module that applies it, and its share of the module's outputs."""

    module: torch.nn.Module
    outputs: list[int]


@dataclass(frozen=True)
class Use:
    """One matrix of a block, with the matrix that reads what becomes of its output.

    The reader is o for q, k and v, and mlp_out for mlp_in and mlp_gate.
    """

    named_matrix: WeightMatrix
    part: Part
    reader: Part
    gated: bool

    @property
    def location(self) -> str:
        """Stack, block and name."""
        kind = f" ({self.named_matrix.attention})" if self.named_matrix.attention else ""
        return f"{self.named_matrix.stack} block {self.named_matrix.layer} {self.named_matrix.name}{kind}"


def matrices_fit_their_names(subject: Subject) -> str:
    """q changes its own row of o's input, k other rows too; v and a gated mlp_in enter linearly."""
    model = subject.perturbed_model
    matrices_by_block, one_pass, n_checked = named_in_blocks(model), model._pass(subject.tokens), 0
    for key, block in blocks_of(model, subject).items():
        uses = [
            use for use in uses_of(matrices_by_block.get(key, []), block) if not _is_idle(use, model.inert_projections)
        ]
        before = _read(one_pass, {id(use.reader): use.reader for use in uses})
        for use in uses:
            reference = before.get(id(use.reader))
            if reference is None or not reference.size:
                # An expert that no row was sent to, or a weight that no module applies.
                continue
            role = use.named_matrix.name.partition(".")[0]
            _JUDGES[role](_Probe(one_pass, use, reference))
            n_checked += 1
    if not n_checked:
        raise NotApplicable("no named matrix is the weight of a module that runs, with an o or mlp_out that reads it")
    n_matrices = sum(map(len, matrices_by_block.values()))
    return f"{n_checked} of {n_matrices} matrices, those that modules apply and o or mlp_out reads"


def uses_of(named: list[WeightMatrix], block: torch.nn.Module) -> Iterator[Use]:
    """Yield every q, k, v, mlp_in and mlp_gate that, with its reader, is found among the block's modules."""
    modules = linears_of(block)
    parts = {
        (named_matrix.attention, named_matrix.name): part
        for named_matrix in named
        if (part := _part(named_matrix, modules)) is not None
    }
    for named_matrix in named:
        role, _, expert = named_matrix.name.partition(".")
        suffix = f".{expert}" if expert else ""
        reader = parts.get((named_matrix.attention, "o" if named_matrix.attention else f"mlp_out{suffix}"))
        part = parts.get((named_matrix.attention, named_matrix.name))
        if role in _JUDGES and part is not None and reader is not None:
            gated = (None, f"mlp_gate{suffix}") in parts
            yield Use(named_matrix, part, reader, gated)


def _part(named_matrix: WeightMatrix, modules: Mapping[str, torch.nn.Module]) -> Part | None:
    """Return the module that applies a matrix, and the matrix's outputs; None where there is none.

    The matrix may be all rows of a weight, some rows of a fused one, or rows that were rescaled.
    """
    import torch

    rows = row_hashes(named_matrix.matrix)
    for module in modules.values():
        weight = module.weight.detach().float().cpu().numpy()  # type: ignore[operator]
        for layout in [weight] if isinstance(module, torch.nn.Linear) else [weight, weight.T]:
            if layout.shape[1] != named_matrix.matrix.shape[1]:
                continue
            at = {row: number for number, row in enumerate(row_hashes(layout))}
            if at.keys() >= set(rows):
                return Part(module, [at[row] for row in rows])
            if are_proportional(named_matrix.matrix, layout):
                return Part(module, list(range(len(layout))))
    return None


def _is_idle(use: Use, idle: frozenset[tuple[str, str, str]]) -> bool:
    return (use.named_matrix.stack, use.named_matrix.attention, use.named_matrix.name) in idle


class _Probe:
    """Runs of the first window with the output of one matrix changed; they return its reader's input."""

    def __init__(self, one_pass: Pass, use: Use, reference: np.ndarray) -> None:
        self._pass, self.use, self.reference = one_pass, use, reference

    def read(self, change: Change) -> np.ndarray:
        """Return the reader's input, [N, in]."""
        rows = _read(self._pass, {0: self.use.reader}, (self.use.part, change))[0]
        same = rows.shape == self.reference.shape
        demand(same, f"{self.use.location}: got {rows.shape} further on, expected {self.reference.shape}")
        return rows

    def count_changed_rows(self, at: float = 1.0) -> int:
        """Return the number of the reader's rows that change with one row of the output.

        at: which row, from 0 (first) to 1 (last).
        """
        rows = self.read(lambda rows: _push(rows, round(at * (len(rows) - 1))))
        differences = np.abs(rows - self.reference).max(axis=1)
        return int((differences > SAME * np.abs(self.reference).max()).sum())

    def is_linear(self) -> bool:
        """Return whether the reader's input is a linear function of the output, and not a constant."""
        up, down, none = (self.read(partial(operator.mul, by)) for by in (STEEP, -STEEP, 0.0))
        largest = np.abs(up).max()
        depends = np.abs(up - none).max() > SAME * largest
        return bool(depends and np.abs(up + down - 2 * none).max() <= LINEAR * largest)


def _judge_q(probe: _Probe) -> None:
    rows = probe.count_changed_rows()
    demand(
        rows <= 1,
        f"{probe.use.location}: one query changes {rows} rows of what o reads; are q, k, v and o what they are called?",
    )


def _judge_k(probe: _Probe) -> None:
    if len(probe.reference) == 1:
        # One row may attend to itself alone.
        return
    # A first row may be padding.
    demand(
        any(probe.count_changed_rows(at) > 1 for at in (0.0, 0.5, 0.9)),
        f"{probe.use.location}: one key changes no other row of what o reads; are q, k, v and o what they are called? "
        "A projection that weighs nothing is declared in `inert_projections`",
    )


def _judge_v(probe: _Probe) -> None:
    demand(
        probe.is_linear(),
        f"{probe.use.location}: what o reads is no linear function of it; are q, k, v and o what they are called?",
    )


def _judge_mlp_in(probe: _Probe) -> None:
    expected = f"what mlp_out reads {'is no linear function of' if probe.use.gated else 'does not depend on'} it"
    met = probe.is_linear() if probe.use.gated else probe.count_changed_rows() > 0
    demand(met, f"{probe.use.location}: {expected}; is it an mlp_{'gate' if probe.use.gated else 'out'}?")


def _judge_mlp_gate(probe: _Probe) -> None:
    changed_rows = probe.count_changed_rows()
    demand(changed_rows > 0, f"{probe.use.location}: what mlp_out reads does not depend on it; is it an mlp_out?")


_JUDGES: Mapping[str, Callable[[_Probe], None]] = {
    "q": _judge_q,
    "k": _judge_k,
    "v": _judge_v,
    "mlp_in": _judge_mlp_in,
    "mlp_gate": _judge_mlp_gate,
}


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
    """Return inputs [N, in] of modules in a pass of the first window, by the keys of `readers`.

    Modules that did not run are left out.
    """
    import torch

    inputs = {key: part.module for key, part in readers.items()}
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        if changed is not None:
            stack.enter_context(_changing(*changed))
        captured = stack.enter_context(capture({}, inputs))
        one_pass.forward(slice(0, 1))
    return {
        key: named_matrix.reshape(-1, named_matrix.shape[-1]).double().cpu().numpy()
        for key, named_matrix in captured.items()
    }


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

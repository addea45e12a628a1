"""Check that q, k, v and the MLP matrices fit their names.

Each is judged by what it changes further on in its block.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.conformance.errors import NotApplicable
from tsfmscope.conformance.matrices import are_proportional, blocks_of, linears_of, named_in_blocks, row_hashes
from tsfmscope.conformance.subject import Subject
from tsfmscope.conformance.verdict import SAME, demand
from tsfmscope.models.common.capture import Pass, capture
from tsfmscope.models.types import WeightMatrix

if TYPE_CHECKING:
    import torch

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

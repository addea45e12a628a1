"""Interface of a truncation method: what it reads, the candidates of a layer, and ranks within a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tsfmscope.compression.candidates import Candidate
from tsfmscope.compression.methods.allocation import least_error
from tsfmscope.models.common.attention import AttentionLayer, Projections

# What a method reads of calibration windows: nothing; the inputs of a layer (`calibration.Moments`); or the inputs and
# the gradients of the family's loss, by matrix (`loss_statistics.LossStatistics`).
Reads = Literal["nothing", "inputs", "gradients"]
# Statistics of all layers by name: one item per layer, of the kind that the method reads.
Statistics = Mapping[str, Any]
# Arguments: layer, its weights, and its statistics (None if the method reads nothing).
CandidateBuilder = Callable[[AttentionLayer, Projections, Any], Iterator[Candidate]]
# Arguments: candidates, number of parameters that they may keep, statistics. Returns one rank per candidate.
Allocate = Callable[[Sequence[Candidate], int, Statistics], list[int]]


class Truncation(NamedTuple):
    """A truncation method.

    candidates: yields the candidates of one layer. reads: the kind of its statistics. allocate: ranks for the rule
    `budget`; raises BudgetError if rank 1 of every candidate exceeds it.
    """

    candidates: CandidateBuilder
    reads: Reads = "nothing"
    allocate: Allocate = least_error

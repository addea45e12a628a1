"""Candidates of a compression method: parts of attention layers, with errors and parameters by rank."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.tasks.compression import matrices, products
from tsfmscope.tasks.compression.budget import Curve, Spectrum
from tsfmscope.tasks.compression.products import Factors
from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.models.common.attention import NAMES, AttentionLayer, Projections
from tsfmscope.tasks.models.common.low_rank import count_numbers

if TYPE_CHECKING:
    from tsfmscope.tasks.compression.calibration import Moments
    from tsfmscope.tasks.models.base import Family

# methods that need second moments of calibration data
WEIGHED = ("activation-aware", "activation-aware-svd", "project")


@dataclass(frozen=True, eq=False)
class Candidate:
    """Matrices of a layer that share one rank: all heads' products of a part ("qk", "vo"), or whole matrices.

    parts: names of what `factors` factorise: one part whose heads have one item each, or one part per item.
    full: the largest rank, at which the weights stay unchanged.
    costs: number of parameters by rank, from rank 1 on. before: number of parameters now.
    shares: weights of the squared relative errors of `factors` in a budget.
    """

    layer: AttentionLayer
    parts: tuple[str, ...]
    factors: list[Factors]
    full: int
    costs: np.ndarray
    before: int
    shares: list[float]

    def curve(self) -> Curve:
        """Return, by rank, the number of parameters and the weighted sum of squared relative errors."""
        weighed = [share * one.errors(self.full)[1:] for share, one in zip(self.shares, self.factors, strict=True)]
        errors = sum(weighed, start=np.zeros(self.full))
        return Curve(self.costs, errors)

    def spectrum(self) -> Spectrum:
        """Return the costs by rank and the singular values of a single matrix; no values if it is idle.

        ValueError if the choice has several factors.
        """
        (one,) = self.factors
        return Spectrum(self.costs, one.values if any(self.shares) else one.values[:0])

    def error(self, rank: int, part: int = 0) -> float:
        """Return the relative error at a rank: root mean square over heads, or that of matrix number `part`."""
        factors = self.factors if len(self.parts) == 1 else [self.factors[part]]
        return float(np.sqrt(np.mean([one.errors(self.full)[rank] for one in factors])))


def choices(
    method: str,
    layers: Sequence[AttentionLayer],
    moments: Mapping[str, Moments] | None,
    idle: Container[tuple[str, str, str]] = frozenset(),
) -> list[Candidate]:
    """Return the parts of every layer that the method truncates.

    idle: matrices without effect, as `inert` lists them. Their parts have shares of 0, so that a budget
    leaves them at rank 1 with every method. ValueError for an unknown method, and if a method that needs
    moments lacks them. ModelError if weights contain NaN or infinity.
    """
    if method not in METHODS:
        raise ValueError(f"method: got {method!r}, expected one of {sorted(METHODS)}")
    if method in WEIGHED and (missing := [one.name for one in layers if one.name not in (moments or {})]):
        raise ValueError(f"method {method}: no moments of {missing[:3]}; gather them over calibration windows")
    found: list[Candidate] = []
    for layer in layers:
        read = layer.read()
        if not all(np.isfinite(one).all() for one in read if one is not None):
            raise ModelError(f"{layer.name}: weights hold NaN or infinity; check the checkpoint and its dtype")
        weight = (moments or {}).get(layer.name) if method in WEIGHED else None
        for choice in METHODS[method](layer, read, weight):
            found += _separate_idle(choice, idle)
    return found


def inert(model: Family, *, univariate: bool) -> frozenset[tuple[str, str, str]]:
    """Return the matrices (stack, attention, matrix) of a family that cannot change any forecast.

    Group attention (Chronos-2) is over one series in our windows, but over several where a user forecasts
    several series together. Its queries and keys therefore count as inert only if `univariate` is true, which
    means that every forecast is of a single series.
    """
    return frozenset(one for one in model.inert_projections if univariate or one[1] != "group")


def _separate_idle(choice: Candidate, idle: Container[tuple[str, str, str]]) -> Iterator[Candidate]:
    """Yield the choice with shares of 0 if its matrices are idle; two choices if only some of them are."""
    layer = choice.layer
    # the name of a part is the letters of its matrices: "qk", "vo", or a single one
    is_idle = {part: all((layer.stack, layer.kind, what) in idle for what in part) for part in choice.parts}
    if not any(is_idle.values()):
        yield choice
    elif all(is_idle.values()):
        yield replace(choice, shares=[0.0] * len(choice.shares))
    else:
        matrices_of = _whole(layer)
        for state in (True, False):
            parts = {part: matrices_of[part] for part in choice.parts if is_idle[part] is state}
            own = [one for part, one in zip(choice.parts, choice.factors, strict=True) if part in parts]
            made = _matrices(layer, parts, own, choice.full)
            yield replace(made, shares=[0.0] * len(own)) if state else made


def _joint(layer: AttentionLayer, read: Projections, moments: Moments | None) -> Iterator[Candidate]:
    """Yield the products of heads: Q-K if nothing lies between projection and product, and V-O always."""
    qk, vo, shares = _plain_parts(layer, read) if moments is None else _weighed_parts(layer, read, moments)
    if layer.plain:
        each = len(read.q) * (read.q.shape[2] + (read.q_bias is not None)) + len(read.k) * read.k.shape[2]
        yield _heads(layer, "qk", qk, shares.qk, each * np.arange(1, read.widths.key + 1))
    each = len(read.o) * read.o.shape[1] + len(read.v) * read.v.shape[2]
    bias = read.o.shape[1] if read.o_bias is not None or read.v_bias is not None else 0
    yield _heads(layer, "vo", vo, shares.vo, bias + each * np.arange(1, read.widths.value + 1))


Parts = tuple[list[Factors], list[Factors], products.Shares]


def _plain_parts(layer: AttentionLayer, read: Projections) -> Parts:
    qk, vo = products.scores(read) if layer.plain else [], products.outputs(read)
    return qk, vo, products.Shares([1.0] * len(qk), [1.0] * len(vo))


def _weighed_parts(layer: AttentionLayer, read: Projections, moments: Moments) -> Parts:
    qk = products.weighed_scores(read, moments.queries, moments.keys) if layer.plain else []
    key_rows = float(np.square(moments.inputs[:, 0]).sum())
    shares = products.output_shares(read, qk, moments.attended, moments.keys, key_rows)
    return qk, products.weighed_outputs(read, moments.attended), shares


def _heads(layer: AttentionLayer, part: str, found: list[Factors], shares: list[float], costs: np.ndarray) -> Candidate:
    costs[-1] = before = stored([layer], part)
    return Candidate(layer, (part,), found, len(costs), costs, before, shares)


def _single(layer: AttentionLayer, read: Projections, moments: Moments | None) -> Iterator[Candidate]:
    """Yield every matrix of a layer as a choice of its own."""
    for what, matrix in _whole(layer).items():
        factors = matrices.plain(matrix) if moments is None else matrices.weighed(matrix, _seen(layer, what, moments))
        yield _matrices(layer, {what: matrix}, [factors], min(matrix.shape))


def _project(layer: AttentionLayer, read: Projections, moments: Moments | None) -> Iterator[Candidate]:
    """Yield Q, K and V together, projected on the leading directions of their inputs."""
    assert moments is not None, "checked by choices"
    whole = {what: matrix for what, matrix in _whole(layer).items() if what != "o"}
    inputs = {"q": moments.queries[:, 1:], "k": moments.inputs[:, 1:], "v": moments.inputs[:, 1:]}
    found = [matrices.projected(matrix, inputs[what]) for what, matrix in whole.items()]
    yield _matrices(layer, whole, found, min(matrix.shape[1] for matrix in whole.values()))


def _matrices(layer: AttentionLayer, whole: dict[str, np.ndarray], found: list[Factors], full: int) -> Candidate:
    """Return a choice of two thin factors per matrix.

    `cost` counts a matrix as dense where factors have more numbers. At the full rank the matrices stay dense.
    """
    costs = np.array([sum(count_numbers(layer, what, rank) for what in whole) for rank in range(1, full + 1)])
    costs[-1] = before = sum(one.size for one in whole.values())
    return Candidate(layer, tuple(whole), found, full, costs, before, [1.0] * len(found))


Maker = Callable[[AttentionLayer, Projections, "Moments | None"], Iterator[Candidate]]
METHODS: dict[str, Maker] = {
    "svd": _single,
    "activation-aware-svd": _single,
    "joint": _joint,
    "activation-aware": _joint,
    "project": _project,
}


def _whole(layer: AttentionLayer) -> dict[str, np.ndarray]:
    """Return the four matrices of a layer, [out, in], as its modules contain them."""
    return {what: layer.linear(what).weight.detach().double().cpu().numpy() for what in NAMES}


def _seen(layer: AttentionLayer, what: str, moments: Moments) -> np.ndarray:
    """Return the R factor of a matrix's inputs.

    The inputs of plain keys are centred: their mean adds the same to all scores of a query, which the softmax
    ignores, and it would otherwise dominate. The inputs of rotated or normed keys are not centred, since
    their mean does not add the same to all scores of a query.
    """
    if what == "k" and layer.plain:
        return moments.keys
    roots = {"q": moments.queries, "k": moments.inputs, "v": moments.inputs, "o": moments.attended}
    return roots[what][:, 1:]


def stored(layers: Sequence[AttentionLayer], parts: Iterable[str] = NAMES) -> int:
    """Return the number of parameters of these projections, biases included."""
    linears = (layer.linear(what) for layer in layers for what in parts)
    return sum(tensor.numel() for linear in linears for tensor in linear.parameters())

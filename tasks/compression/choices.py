"""What a method may choose: parts of attention layers, each with the error and the parameters of every rank."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tasks.compression import matrices, products
from tasks.compression.budget import Curve
from tasks.compression.products import Factors
from tasks.errors import ModelError
from tasks.models.attention import NAMES, AttentionLayer, Projections
from tasks.models.low_rank import cost

if TYPE_CHECKING:
    from tasks.compression.calibration import Moments

WEIGHED = ("aware", "aware-svd", "project")  # methods that ask for moments


@dataclass(frozen=True, eq=False)
class Choice:
    """Matrices of a layer that share one rank: all heads' products of a part ("qk", "vo"), or whole matrices.

    parts: what `factors` are of: one part of several heads, or a part each. full: the largest rank, which leaves the
    weights as they are. costs: parameters by rank from 1 on; before: parameters of today. shares: what the squared
    relative errors of `factors` weigh in a budget.
    """

    layer: AttentionLayer
    parts: tuple[str, ...]
    factors: list[Factors]
    full: int
    costs: np.ndarray
    before: int
    shares: list[float]

    def curve(self) -> Curve:
        """Parameters and summed, weighed squared relative errors by rank."""
        weighed = [share * one.errors(self.full)[1:] for share, one in zip(self.shares, self.factors, strict=True)]
        errors = sum(weighed, start=np.zeros(self.full))
        return Curve(self.costs, errors)

    def error(self, rank: int, part: int = 0) -> float:
        """Relative error: root mean square over the heads, or that of a matrix."""
        factors = self.factors if len(self.parts) == 1 else [self.factors[part]]
        return float(np.sqrt(np.mean([one.errors(self.full)[rank] for one in factors])))


def choices(
    method: str,
    layers: Sequence[AttentionLayer],
    moments: Mapping[str, Moments] | None,
    idle: Container[tuple[str, str, str]] = frozenset(),
) -> list[Choice]:
    """Of every layer. idle: as in Family; a budget gives scores of no weight the rank 1, which plain SVD does not know.

    ValueError for an unknown method, or moments that it needs and does not get; ModelError where weights hold NaN or
    infinity.
    """
    if method not in METHODS:
        raise ValueError(f"method: got {method!r}, expected one of {sorted(METHODS)}")
    if method in WEIGHED and (missing := [one.name for one in layers if one.name not in (moments or {})]):
        raise ValueError(f"method {method}: no moments of {missing[:3]}; gather them over calibration windows")
    found: list[Choice] = []
    for layer in layers:
        read = layer.read()
        if not all(np.isfinite(one).all() for one in read if one is not None):
            raise ModelError(f"{layer.name}: weights hold NaN or infinity; check the checkpoint and its dtype")
        weight = (moments or {}).get(layer.name) if method in WEIGHED else None
        for choice in METHODS[method](layer, read, weight):
            # not of Chronos-2's groups: they have one series in our windows, but users may forecast several together
            weightless = layer.kind == "self" and choice.parts == ("qk",) and (layer.stack, layer.kind, "q") in idle
            found.append(replace(choice, shares=[0.0] * len(choice.shares)) if weightless else choice)
    return found


def _joint(layer: AttentionLayer, read: Projections, moments: Moments | None) -> Iterator[Choice]:
    """Absorbed heads: Q-K where nothing lies between projection and product, V-O everywhere."""
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


def _heads(layer: AttentionLayer, part: str, found: list[Factors], shares: list[float], costs: np.ndarray) -> Choice:
    costs[-1] = before = stored([layer], part)
    return Choice(layer, (part,), found, len(costs), costs, before, shares)


def _single(layer: AttentionLayer, read: Projections, moments: Moments | None) -> Iterator[Choice]:
    """Every matrix of a layer on its own."""
    for what, matrix in _whole(layer).items():
        factors = matrices.plain(matrix) if moments is None else matrices.weighed(matrix, _seen(layer, what, moments))
        yield _matrices(layer, {what: matrix}, [factors], min(matrix.shape))


def _project(layer: AttentionLayer, read: Projections, moments: Moments | None) -> Iterator[Choice]:
    """Q, K and V on the leading directions of what they are given."""
    assert moments is not None, "checked by choices"
    whole = {what: matrix for what, matrix in _whole(layer).items() if what != "o"}
    inputs = {"q": moments.queries[:, 1:], "k": moments.inputs[:, 1:], "v": moments.inputs[:, 1:]}
    found = [matrices.projected(matrix, inputs[what]) for what, matrix in whole.items()]
    yield _matrices(layer, whole, found, min(matrix.shape[1] for matrix in whole.values()))


def _matrices(layer: AttentionLayer, whole: dict[str, np.ndarray], found: list[Factors], full: int) -> Choice:
    """Two thin factors each, or dense where these have more numbers."""
    costs = np.array([sum(cost(layer, what, rank) for what in whole) for rank in range(1, full + 1)])
    costs[-1] = before = sum(one.size for one in whole.values())
    return Choice(layer, tuple(whole), found, full, costs, before, [1.0] * len(found))


Maker = Callable[[AttentionLayer, Projections, "Moments | None"], Iterator[Choice]]
METHODS: dict[str, Maker] = {
    "svd": _single,
    "aware-svd": _single,
    "joint": _joint,
    "aware": _joint,
    "project": _project,
}


def _whole(layer: AttentionLayer) -> dict[str, np.ndarray]:
    """Its four matrices, [out, in], as they stand in its modules."""
    return {what: layer.linear(what).weight.detach().double().cpu().numpy() for what in NAMES}


def _seen(layer: AttentionLayer, what: str, moments: Moments) -> np.ndarray:
    """R of what a matrix multiplies; plain keys less what their softmax does not see, else their mean hides the rest.

    Keys that are rotated or normed count whole: what their mean adds to scores is not the same for all of a query.
    """
    if what == "k" and layer.plain:
        return moments.keys
    roots = {"q": moments.queries, "k": moments.inputs, "v": moments.inputs, "o": moments.attended}
    return roots[what][:, 1:]


def stored(layers: Sequence[AttentionLayer], parts: Iterable[str] = NAMES) -> int:
    """Parameters of these projections, biases among them."""
    linears = (layer.linear(what) for layer in layers for what in parts)
    return sum(tensor.numel() for linear in linears for tensor in linear.parameters())

"""What a method may choose: parts of attention layers, each with the error and the parameters of every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tasks.compression import matrices, products
from tasks.compression.budget import Curve
from tasks.compression.products import Factors
from tasks.errors import ModelError
from tasks.models.attention import NAMES, AttentionLayer, Projections

if TYPE_CHECKING:
    from tasks.compression.calibration import Moments

WEIGHED = ("aware", "aware-svd", "project")  # methods that ask for moments


@dataclass(frozen=True, eq=False)
class Choice:
    """Matrices of a layer that share one rank: all heads' products of a part ("qk", "vo"), or whole matrices.

    parts: what `factors` are of: one part of several heads, or a part each. full: the largest rank, which leaves the
    weights as they are. costs: parameters by rank from 1 on; before: parameters of today.
    """

    layer: AttentionLayer
    parts: tuple[str, ...]
    factors: list[Factors]
    full: int
    costs: np.ndarray
    before: int

    def curve(self) -> Curve:
        """Parameters and summed squared relative errors by rank."""
        errors = sum((one.errors(self.full)[1:] for one in self.factors), start=np.zeros(self.full))
        return Curve(self.costs, errors)

    def error(self, rank: int, part: int = 0) -> float:
        """Relative error: root mean square over the heads, or that of a matrix."""
        factors = self.factors if len(self.parts) == 1 else [self.factors[part]]
        return float(np.sqrt(np.mean([one.errors(self.full)[rank] for one in factors])))


def choices(method: str, layers: Sequence[AttentionLayer], moments: Mapping[str, Moments] | None) -> list[Choice]:
    """Of every layer. ValueError for an unknown method, or moments that it needs and does not get.

    ModelError where weights hold NaN or infinity.
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
        found += METHODS[method](layer, read, weight)
    return found


def _joint(layer: AttentionLayer, read: Projections, moments: Moments | None) -> Iterator[Choice]:
    """Absorbed heads: Q-K where nothing lies between projection and product, V-O everywhere."""
    if layer.plain:
        found = products.weighed_scores(read, moments.queries, moments.keys) if moments else products.scores(read)
        each = len(read.q) * (read.q.shape[2] + (read.q_bias is not None)) + len(read.k) * read.k.shape[2]
        yield _heads(layer, "qk", found, read.widths.key, each, 0)
    found = products.weighed_outputs(read, moments.attended) if moments else products.outputs(read)
    each = len(read.o) * read.o.shape[1] + len(read.v) * read.v.shape[2]
    biased = read.o_bias is not None or read.v_bias is not None
    yield _heads(layer, "vo", found, read.widths.value, each, biased * read.o.shape[1])


def _heads(layer: AttentionLayer, part: str, found: list[Factors], full: int, each: int, bias: int) -> Choice:
    before = stored([layer], part)
    costs = bias + each * np.arange(1, full + 1)
    costs[-1] = before
    return Choice(layer, (part,), found, full, costs, before)


def _single(layer: AttentionLayer, read: Projections, moments: Moments | None) -> Iterator[Choice]:
    """Every matrix of a layer on its own."""
    for what, matrix in _whole(layer).items():
        factors = matrices.plain(matrix) if moments is None else matrices.weighed(matrix, _seen(what, moments))
        yield _matrices(layer, {what: matrix}, [factors], min(matrix.shape))


def _project(layer: AttentionLayer, read: Projections, moments: Moments | None) -> Iterator[Choice]:
    """Q, K and V on the leading directions of what they are given."""
    assert moments is not None, "checked by choices"
    whole = {what: matrix for what, matrix in _whole(layer).items() if what != "o"}
    found = [matrices.projected(matrix, _seen(what, moments)) for what, matrix in whole.items()]
    yield _matrices(layer, whole, found, min(matrix.shape[1] for matrix in whole.values()))


def _matrices(layer: AttentionLayer, whole: dict[str, np.ndarray], found: list[Factors], full: int) -> Choice:
    """Two thin factors each, or dense where these have more numbers."""
    ranks = np.arange(1, full + 1)
    costs = sum((np.minimum(ranks * sum(one.shape), one.size) for one in whole.values()), start=0 * ranks)
    before = sum(one.size for one in whole.values())
    costs[-1] = before
    return Choice(layer, tuple(whole), found, full, costs, before)


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


def _seen(what: str, moments: Moments) -> np.ndarray:
    """R of what a matrix multiplies."""
    root: np.ndarray = {"q": moments.queries, "o": moments.attended}.get(what, moments.inputs)[:, 1:]
    return root


def stored(layers: Sequence[AttentionLayer], parts: Iterable[str] = NAMES) -> int:
    """Parameters of these projections, biases among them."""
    modules = [layer.linear(what) for layer in layers for what in parts]
    return sum(parameter.numel() for module in modules for parameter in module.parameters())

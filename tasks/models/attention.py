"""Attention as compression sees it: the projections of a layer head by head, read and written at any head width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from jaxtyping import Float64

from tasks.errors import ModelError

if TYPE_CHECKING:
    import torch

BLOCK = "compression"  # key of config.json: `widths` of heads, and ranks of `factors`, where there are any
NAMES = ("q", "k", "v", "o")


class Widths(NamedTuple):
    """Dimensions of a head: of its queries and keys, and of its values."""

    key: int
    value: int


class Projections(NamedTuple):
    """One attention layer in float64. Scores are scale * (q x + q_bias) · (k z + k_bias), the output a sum over heads.

    There are h heads of queries and g of keys and values, g a divisor of h: head i reads group i // (h / g).
    """

    q: Float64[np.ndarray, "h key in"]
    k: Float64[np.ndarray, "g key in"]
    v: Float64[np.ndarray, "g value in"]
    o: Float64[np.ndarray, "h out value"]
    q_bias: Float64[np.ndarray, "h key"] | None = None
    k_bias: Float64[np.ndarray, "g key"] | None = None
    v_bias: Float64[np.ndarray, "g value"] | None = None
    o_bias: Float64[np.ndarray, " out"] | None = None

    @property
    def widths(self) -> Widths:
        """Of its heads."""
        return Widths(self.q.shape[1], self.v.shape[1])

    def sliced(self, widths: Widths) -> Self:
        """The first dimensions of every head: of random weights, narrower heads of the same law."""
        key, value = widths
        q_bias, k_bias, v_bias = (
            None if bias is None else bias[:, :width]
            for bias, width in ((self.q_bias, key), (self.k_bias, key), (self.v_bias, value))
        )
        q, k, v, o = self.q[:, :key], self.k[:, :key], self.v[:, :value], self.o[:, :, :value]
        return type(self)(q, k, v, o, q_bias, k_bias, v_bias, self.o_bias)


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """One attention layer of a network. `layer` counts blocks of its stack from 1, `kind` is as in WeightMatrix.

    parts: q, k, v, o -> the name of the torch Linear in `module`. scale: of the scores. plain: nothing (rotation, norm)
    lies between the projections and the product, so that W_Q^T W_K makes the scores; else keys keep their width.
    resize: tells `module` of other widths, after which its forward takes Linears that have them.
    query_scale: what `module` multiplies a query's dimensions with after W_Q; `read` takes it into W_Q, and `resize`
    leaves a scale of 1.
    laid_out: where attention is not along a window's tokens, a mask of these [W, T] as one of the rows that a
    projection is given, of a shape.
    """

    stack: str
    layer: int
    kind: str
    module: Any
    heads: int
    groups: int
    scale: float
    plain: bool
    resize: Callable[[Any, Widths], None]
    parts: Mapping[str, str]
    query_scale: Callable[[Any], np.ndarray] | None = None
    laid_out: Callable[[np.ndarray, tuple[int, ...]], np.ndarray] | None = None

    @property
    def name(self) -> str:
        """STACK.LAYER.KIND, unique in a model."""
        return f"{self.stack}.{self.layer}.{self.kind}"

    def linear(self, what: str) -> Any:
        """The torch Linear of q, k, v or o."""
        return getattr(self.module, self.parts[what])

    def read(self) -> Projections:
        """Its weights, head by head, in float64."""
        q, k, v, o = (_array(self.linear(what).weight) for what in NAMES)
        assert q is not None and k is not None and v is not None and o is not None
        biases = (_array(self.linear(what).bias) for what in NAMES)
        q_bias, k_bias, v_bias, o_bias = biases
        heads, groups = self.heads, self.groups
        if self.query_scale is not None:
            scale = np.tile(self.query_scale(self.module)[: len(q) // heads].astype(np.float64), heads)
            q, q_bias = q * scale[:, None], None if q_bias is None else q_bias * scale
        return Projections(
            q.reshape(heads, -1, q.shape[1]),
            k.reshape(groups, -1, k.shape[1]),
            v.reshape(groups, -1, v.shape[1]),
            np.moveaxis(o.reshape(len(o), heads, -1), 1, 0),
            None if q_bias is None else q_bias.reshape(heads, -1),
            None if k_bias is None else k_bias.reshape(groups, -1),
            None if v_bias is None else v_bias.reshape(groups, -1),
            o_bias,
        )

    def write(self, new: Projections) -> None:
        """Take other weights, of any widths; biases that are None go. ValueError for other keys where not `plain`."""
        self._refuse(new.widths)
        o = np.moveaxis(new.o, 0, 1)
        matrices = {"q": _flat(new.q), "k": _flat(new.k), "v": _flat(new.v), "o": o.reshape(len(o), -1)}
        biases = {"q": new.q_bias, "k": new.k_bias, "v": new.v_bias, "o": new.o_bias}
        for what in NAMES:
            setattr(self.module, self.parts[what], _linear(self.linear(what), matrices[what], biases[what]))
        self.resize(self.module, new.widths)

    def widen(self, widths: Widths, biases: Iterable[str]) -> None:
        """Room for weights of these widths, which are not set; `biases`: which of q, k, v, o have one."""
        import torch

        self._refuse(widths)
        width_of = {"q": self.heads * widths.key, "k": self.groups * widths.key, "v": self.groups * widths.value}
        for what in NAMES:
            old = self.linear(what)
            rows = width_of.get(what, old.weight.shape[0])
            columns = self.heads * widths.value if what == "o" else old.weight.shape[1]
            place = {"device": old.weight.device, "dtype": old.weight.dtype}
            setattr(self.module, self.parts[what], torch.nn.Linear(columns, rows, bias=what in biases, **place))
        self.resize(self.module, widths)

    def put(self, what: str, module: Any) -> None:
        """Another module in the place of the Linear of q, k, v or o, of the same shape."""
        setattr(self.module, self.parts[what], module)
        if self.widths.key != self.widths.value:  # what fills the narrower up may hang on the one that went
            self.resize(self.module, self.widths)

    def shape(self) -> dict[str, Any]:
        """What config.json says of it, and `shape_as` reads."""
        biases = [what for what in NAMES if self.linear(what).bias is not None]
        return {**self.widths._asdict(), "biases": biases}

    @property
    def widths(self) -> Widths:
        """Of its heads."""
        return Widths(*(int(self.linear(what).out_features) // self.groups for what in ("k", "v")))

    def _refuse(self, widths: Widths) -> None:
        if not self.plain and widths.key != self.widths.key:
            raise ValueError(
                f"{self.name}: got keys of width {widths.key}, expected {self.widths.key}: they are rotated or normed"
            )


def shapes(layers: Iterable[AttentionLayer]) -> dict[str, dict[str, Any]]:
    """Of every layer, what `shape_as` reads, by name."""
    return {layer.name: layer.shape() for layer in layers}


def shape_as(layers: Iterable[AttentionLayer], said: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Make room for the weights of a compressed checkpoint. ModelError, naming `where`, for what does not fit."""
    known = {layer.name: layer for layer in layers}
    if unknown := sorted(set(said) - set(known)):
        raise ModelError(f"{where}: {BLOCK} names layers {unknown[:3]}, the network has {sorted(known)[:3]} ...")
    for name, shape in said.items():
        layer = known[name]
        if wrong := _misfit(layer.widths, layer.plain, shape):
            raise ModelError(f"{where}: {BLOCK} says {shape} of {name}, expected {wrong}")
        layer.widen(Widths(shape["key"], shape["value"]), shape.get("biases", ()))


def fit(network: Any, layers: Iterable[AttentionLayer], block: Any, where: str) -> None:
    """Make room for the weights that a checkpoint's config.json tells of, and keep the block; without one, nothing.

    ModelError, naming `where`, for a block that does not fit the network.
    """
    if block is None:
        return
    if not isinstance(block, Mapping) or not isinstance(widths := block.get("widths"), Mapping):
        raise ModelError(f"{where}: got {BLOCK} {block!r}, expected an object with `widths`")
    layers = list(layers)
    shape_as(layers, widths, where)
    if factors := block.get("factors"):
        from tasks.models.low_rank import factored_as

        factored_as(layers, factors, where)
    set_block(network, block)


def block_of(network: Any) -> dict[str, Any] | None:
    """The block that a network carries: in its transformers config, else as its own attribute."""
    found: dict[str, Any] | None = getattr(_teller(network), BLOCK, None)
    return found


def set_block(network: Any, block: Mapping[str, Any] | None) -> None:
    """Make it the block that a network carries, and that is saved with it; None takes it away."""
    teller = _teller(network)
    if block is not None:
        setattr(teller, BLOCK, dict(block))
    elif block_of(network) is not None:
        delattr(teller, BLOCK)


def narrowed(network: Any, attentions: Callable[[Any], Iterable[AttentionLayer]]) -> Any:
    """A subclass of a transformers network whose heads are as wide as its config's block `compression` says, if any.

    Saved under the same name, so that config.json names the architecture of the original.
    """

    def __init__(self: Any, config: Any, **options: Any) -> None:
        network.__init__(self, config, **options)
        fit(self, attentions(self), getattr(config, BLOCK, None), "config.json")

    return type(network.__name__, (network,), {"__init__": __init__, "__module__": network.__module__})


def any_width(module: Any, widths: Widths) -> None:
    """The `resize` of a module that reads its widths off its Linears: there is nothing to tell."""


def told(network: Any) -> dict[str, Any]:
    """What is added to config.json of a network that is not transformers': the block, where it carries one."""
    block = block_of(network)
    return {} if block is None else {BLOCK: block}


def _misfit(full: Widths, plain: bool, shape: Any) -> str | None:
    """What is expected of a layer's shape instead, or None."""
    least = Widths(1 if plain else full.key, 1)
    if isinstance(shape, Mapping):
        found, biases = [shape.get(field) for field in Widths._fields], shape.get("biases", [])
        whole = all(type(new) is int and low <= new <= old for low, new, old in zip(least, found, full, strict=True))
        if whole and isinstance(biases, list | tuple) and all(what in NAMES for what in biases):
            return None
    return f"widths of {tuple(least)} to {tuple(full)} (key, value) and biases among {list(NAMES)}"


def _teller(network: Any) -> Any:
    return getattr(network, "config", network)


def _array(tensor: torch.Tensor | None) -> np.ndarray | None:
    return None if tensor is None else tensor.detach().double().cpu().numpy()


def _flat(heads: np.ndarray) -> np.ndarray:
    return heads.reshape(-1, heads.shape[-1])


def _linear(old: Any, weight: np.ndarray, bias: np.ndarray | None) -> Any:
    import torch

    place = {"device": old.weight.device, "dtype": old.weight.dtype}
    new = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, **place)
    with torch.no_grad():
        new.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight)))
        if bias is not None:
            new.bias.copy_(torch.from_numpy(np.ascontiguousarray(bias.reshape(-1))))
    return new.train(old.training)

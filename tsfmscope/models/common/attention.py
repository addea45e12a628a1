"""Access to attention layers for compression: read and write the projections of every head at any width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from jaxtyping import Float64

from tsfmscope.errors import ModelError

if TYPE_CHECKING:
    import torch

# Key of config.json for the `widths` of heads and the ranks of matrices stored as `factors`.
BLOCK = "compression"
NAMES = ("q", "k", "v", "o")
# Attribute of an attention module: handles of the hooks that fill its heads up.
HANDLES = "narrow_hooks"
# Names of the Linears in most attention modules.
PARTS = {name: f"{name}_proj" for name in NAMES}


class Widths(NamedTuple):
    """Dimensions of one head: `key` for its queries and keys, `value` for its values."""

    key: int
    value: int


class Projections(NamedTuple):
    """Weights of one attention layer, head by head, in float64.

    The scores are scale * (q x + q_bias) · (k z + k_bias). The output is a sum over heads.
    There are h heads of queries and g groups of keys and values, where g divides h.
    Head i reads group i // (h / g).
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
        """Dimensions of one head."""
        return Widths(self.q.shape[1], self.v.shape[1])

    def slice_heads(self, widths: Widths) -> Self:
        """Return the first dimensions of every head.

        If the weights are random, the narrower heads have the same distribution.
        """
        key, value = widths
        q_bias, k_bias, v_bias = (
            None if bias is None else bias[:, :width]
            for bias, width in ((self.q_bias, key), (self.k_bias, key), (self.v_bias, value))
        )
        q, k, v, o = self.q[:, :key], self.k[:, :key], self.v[:, :value], self.o[:, :, :value]
        return type(self)(q, k, v, o, q_bias, k_bias, v_bias, self.o_bias)


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """One attention layer of a network, with what is needed to read and to replace its projections.

    stack, layer: `layer` counts the blocks of its stack from 1. kind: as `attention` in WeightMatrix.
    module: the attention module. heads: number of query heads. groups: number of key and value heads.
    scale: factor of the scores.
    plain: True if nothing (rotation, norm) lies between the projections and their product, so that W_Q^T W_K
    determines the scores. If False, the keys must keep their width.
    resize(module, widths): prepare `module` for Linears of other widths, so that its forward accepts them.
    parts: q, k, v, o -> name of the torch Linear in `module`.
    query_scale(module): factors by which `module` multiplies the dimensions of a query after W_Q. `read`
    folds them into W_Q, and `resize` sets them to 1.
    reorder_mask(mask, shape): map a token mask [W, T] to the row layout `shape` of the projections' inputs; given
    only where attention does not run along the tokens of a window.
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
    reorder_mask: Callable[[np.ndarray, tuple[int, ...]], np.ndarray] | None = None

    @property
    def name(self) -> str:
        """Name STACK.LAYER.KIND, unique in a model."""
        return f"{self.stack}.{self.layer}.{self.kind}"

    def linear(self, projection: str) -> Any:
        """Return the torch Linear of q, k, v or o."""
        return getattr(self.module, self.parts[projection])

    def read(self) -> Projections:
        """Return the layer's weights, head by head, in float64."""
        q, k, v, o = (_array(self.linear(projection).weight) for projection in NAMES)
        assert q is not None and k is not None and v is not None and o is not None
        biases = (_array(self.linear(projection).bias) for projection in NAMES)
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
        """Replace the layer's weights by weights of any head widths.

        A bias that is None in `new` is removed. Raises ValueError if the keys' width changes and the layer is
        not `plain`.
        """
        self._refuse(new.widths)
        o = np.moveaxis(new.o, 0, 1)
        matrices = {"q": _flat(new.q), "k": _flat(new.k), "v": _flat(new.v), "o": o.reshape(len(o), -1)}
        biases = {"q": new.q_bias, "k": new.k_bias, "v": new.v_bias, "o": new.o_bias}
        for projection in NAMES:
            linear = _fill_linear(self.linear(projection), matrices[projection], biases[projection])
            setattr(self.module, self.parts[projection], linear)
        self.resize(self.module, new.widths)

    def widen(self, widths: Widths, biases: Iterable[str]) -> None:
        """Replace the projections by new Linears of these head widths, whose weights the caller must set.

        biases: the projections among q, k, v, o that get a bias. Raises ValueError if the keys' width changes
        and the layer is not `plain`.
        """
        self._refuse(widths)
        width_of = {"q": self.heads * widths.key, "k": self.groups * widths.key, "v": self.groups * widths.value}
        for projection in NAMES:
            old = self.linear(projection)
            rows = width_of.get(projection, old.weight.shape[0])
            columns = self.heads * widths.value if projection == "o" else old.weight.shape[1]
            linear = make_linear(old, rows, columns, projection in biases)
            setattr(self.module, self.parts[projection], linear)
        self.resize(self.module, widths)

    def replace_linear(self, projection: str, module: Any) -> None:
        """Replace the Linear of q, k, v or o by another module of the same shape."""
        setattr(self.module, self.parts[projection], module)
        # Where widths differ, a hook that pads heads with zeros may have been attached to the
        # replaced module: `resize` attaches it again.
        if self.widths.key != self.widths.value:
            self.resize(self.module, self.widths)

    def shape(self) -> dict[str, Any]:
        """Return the layer's widths and biases as config.json stores them and `apply_shapes` reads them."""
        biases = [projection for projection in NAMES if self.linear(projection).bias is not None]
        return {**self.widths._asdict(), "biases": biases}

    @property
    def widths(self) -> Widths:
        """Dimensions of one head, read off the Linears of keys and values."""
        return Widths(*(int(self.linear(projection).out_features) // self.groups for projection in ("k", "v")))

    def _refuse(self, widths: Widths) -> None:
        if not self.plain and widths.key != self.widths.key:
            raise ValueError(
                f"{self.name}: got keys of width {widths.key}, expected {self.widths.key}: they are rotated or normed"
            )


def any_width(module: Any, widths: Widths) -> None:
    """Do nothing: the `resize` of a module whose forward reads head widths off its Linears."""


def layers_of_blocks(
    stack: str,
    blocks: Iterable[Any],
    path: str,
    parts: Mapping[str, str],
    *,
    heads: str = "heads",
    groups: str | None = None,
    scale: str | float = "scale",
    plain: bool = True,
    resize: Callable[[Any, Widths], None] = any_width,
) -> Iterator[AttentionLayer]:
    """Yield the self-attention of every block.

    path: of the attention module in a block; "": the block. heads, groups, scale: names of the module's attributes of
    the number of query heads, of key and value heads (None: as many), and of the factor of the scores, or that factor.
    The other arguments are those of AttentionLayer.
    """
    for layer, block in enumerate(blocks, start=1):
        module = block.get_submodule(path)
        count, factor = getattr(module, heads), getattr(module, scale) if isinstance(scale, str) else scale
        shared = getattr(module, groups) if groups else count
        yield AttentionLayer(stack, layer, "self", module, count, shared, factor, plain, resize, parts)


def shapes(layers: Iterable[AttentionLayer]) -> dict[str, dict[str, Any]]:
    """Return the shape of every layer, by the layer's name, as `apply_shapes` reads it."""
    return {layer.name: layer.shape() for layer in layers}


def apply_shapes(
    layers: Iterable[AttentionLayer], shapes_by_layer: Mapping[str, Mapping[str, Any]], location: str
) -> None:
    """Resize the layers to the widths of a compressed checkpoint; the weights are not set.

    shapes_by_layer: layer name -> shape, as `shapes` returns it. Raises ModelError, which names `location`, if
    a layer is unknown or a shape does not fit.
    """
    layers_by_name = {layer.name: layer for layer in layers}
    if unknown := sorted(set(shapes_by_layer) - set(layers_by_name)):
        raise ModelError(
            f"{location}: {BLOCK} names layers {unknown[:3]}, the network has {sorted(layers_by_name)[:3]} ..."
        )
    for name, shape in shapes_by_layer.items():
        layer = layers_by_name[name]
        if expected := _describe_misfit(layer.widths, layer.plain, shape):
            raise ModelError(f"{location}: {BLOCK} contains {shape} of {name}, expected {expected}")
        layer.widen(Widths(shape["key"], shape["value"]), shape.get("biases", ()))


def _describe_misfit(full: Widths, plain: bool, shape: Any) -> str | None:
    """Return a description of the shapes that are expected, or None if the shape fits."""
    least = Widths(1 if plain else full.key, 1)
    if isinstance(shape, Mapping):
        widths, biases = [shape.get(field) for field in Widths._fields], shape.get("biases", [])
        fits_widths = all(
            type(new) is int and low <= new <= old for low, new, old in zip(least, widths, full, strict=True)
        )
        if fits_widths and isinstance(biases, list | tuple) and all(projection in NAMES for projection in biases):
            return None
    return f"widths of {tuple(least)} to {tuple(full)} (key, value) and biases among {list(NAMES)}"


def _array(tensor: torch.Tensor | None) -> np.ndarray | None:
    return None if tensor is None else tensor.detach().double().cpu().numpy()


def _flat(heads: np.ndarray) -> np.ndarray:
    return heads.reshape(-1, heads.shape[-1])


def make_linear(old: Any, rows: int, columns: int, bias: bool | None = None) -> Any:
    """Return a Linear of this shape on the device and in the dtype of an old one.

    bias: None gives it one if the old one has one.
    """
    import torch

    has_bias = old.bias is not None if bias is None else bias
    like = {"device": old.weight.device, "dtype": old.weight.dtype}
    return torch.nn.Linear(columns, rows, bias=has_bias, **like).train(old.training)


def _fill_linear(old: Any, weight: np.ndarray, bias: np.ndarray | None) -> Any:
    import torch

    new = make_linear(old, len(weight), weight.shape[1], bias is not None)
    with torch.no_grad():
        new.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight)))
        if bias is not None:
            new.bias.copy_(torch.from_numpy(np.ascontiguousarray(bias.reshape(-1))))
    return new


def resizer(parts: Mapping[str, str], width: str) -> Callable[[Any, Widths], None]:
    """Return the `resize` callable of an AttentionLayer whose forward, of a package, has one head width.

    Zeros fill the narrower heads up to the wider ones. Zeros appended to a query and a key do not change their product,
    so nothing is approximated as long as the package's score scale stays that of the original heads.
    parts: names of the projections, as in the layer. width: name of the attribute by which the module's
    forward splits heads. The projections may be any modules that return heads one after the other, at the
    widths that `resize` is called with. Call `resize` again after a projection is replaced.
    """
    return partial(_resize, parts, width)


def _resize(parts: Mapping[str, str], width: str, attention: Any, widths: Widths) -> None:
    for handle in getattr(attention, HANDLES, ()):
        handle.remove()
    wider, handles = max(widths), []
    setattr(attention, width, wider)
    for matrix, own in (("q", widths.key), ("k", widths.key), ("v", widths.value)):
        if own < wider:
            handles.append(getattr(attention, parts[matrix]).register_forward_hook(partial(_pad_heads, own, wider)))
    if widths.value < wider:
        joined = partial(_unpad_heads, widths.value, wider)
        handles.append(getattr(attention, parts["o"]).register_forward_pre_hook(joined))
    setattr(attention, HANDLES, handles)


def _pad_heads(own: int, wider: int, module: Any, inputs: Any, heads: torch.Tensor) -> torch.Tensor:
    """Return heads [..., h * own] as [..., h * wider], with zeros appended to each head."""
    from torch.nn import functional

    return functional.pad(heads.unflatten(-1, (-1, own)), (0, wider - own)).flatten(-2)


def _unpad_heads(own: int, wider: int, module: Any, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    """Undo `_pad_heads` on an input [..., h * wider]: keep the first `own` values of each head."""
    return (inputs[0].unflatten(-1, (-1, wider))[..., :own].flatten(-2),)

"""The `compression` block of a config.json, by which a network and its MLPs are resized before weights are loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.errors import ModelError
from tsfmscope.models.common import int8
from tsfmscope.models.common.attention import BLOCK, AttentionLayer, apply_shapes, make_linear

# Key of the block `compression` in config.json: the paths and the number of neurons of every MLP that lost some.
NEURONS = "neurons"


def apply_block(network: Any, layers: Iterable[AttentionLayer], block: Any, location: str) -> None:
    """Resize a network's layers as a checkpoint's `compression` block requires, and store the block.

    block: the value of BLOCK in config.json; None changes nothing. Raises ModelError, which names `location`, if
    the block does not fit the network.
    """
    if block is None:
        return
    if not isinstance(block, Mapping) or not isinstance(widths := block.get("widths"), Mapping):
        raise ModelError(f"{location}: got {BLOCK} {block!r}, expected an object with `widths`")
    if (bits := block.get(int8.KEY, int8.BITS)) not in (int8.BITS, 32):
        raise ModelError(f"{location}: {BLOCK} contains bits {bits!r}, expected {int8.BITS}, 32 or none")
    layers = list(layers)
    apply_shapes(layers, widths, location)
    if factors := block.get("factors"):
        from tsfmscope.models.common.layers import apply_factors

        apply_factors(layers, factors, location)
    if neurons := block.get(NEURONS):
        apply_neurons(network, neurons, location)
    set_block(network, block)


def block_of(network: Any) -> dict[str, Any] | None:
    """Return the `compression` block of a network, or None.

    It is stored in the network's transformers config, or in the network itself if it has no config.
    """
    block: dict[str, Any] | None = getattr(_config_of(network), BLOCK, None)
    return block


def set_block(network: Any, block: Mapping[str, Any] | None) -> None:
    """Set the `compression` block of a network, which is saved with it; None removes the block."""
    config = _config_of(network)
    if block is not None:
        setattr(config, BLOCK, dict(block))
    elif block_of(network) is not None:
        delattr(config, BLOCK)


def with_compression_block(network: Any, attentions: Callable[[Any], Iterable[AttentionLayer]], **options: Any) -> Any:
    """Return a subclass of a transformers network that applies the `compression` block of its config, if any.

    network: the network's class. attentions: function from a network to its attention layers. options: arguments of the
    network's class besides its config.
    The subclass has the name of the original, so that a saved config.json names the original architecture.
    """

    def __init__(self: Any, config: Any) -> None:
        network.__init__(self, config, **options)
        apply_block(self, attentions(self), getattr(config, BLOCK, None), "config.json")

    return type(network.__name__, (network,), {"__init__": __init__, "__module__": network.__module__})


def config_block(network: Any) -> dict[str, Any]:
    """Return the entries to add to config.json for a network that is not from transformers.

    Contains the `compression` block if the network has one, and nothing otherwise.
    """
    block = block_of(network)
    return {} if block is None else {BLOCK: block}


def _config_of(network: Any) -> Any:
    return getattr(network, "config", network)


@dataclass(frozen=True)
class Mlp:
    """MLP whose neuron i comes from row i of its input Linears and goes to column i of its output.

    stack, layer: as in WeightMatrix. expert: name of the expert, "" without experts. inputs: paths in the network of
    the Linears that are read: one, or two if the MLP is gated. output: path of the Linear that reads the neurons.
    """

    stack: str
    layer: int
    expert: str
    inputs: tuple[str, ...]
    output: str

    @property
    def name(self) -> str:
        """Name STACK.LAYER.mlp, with the expert at its end, unique in a model."""
        return ".".join(filter(None, (self.stack, str(self.layer), "mlp", self.expert)))


def count_neurons(network: Any, mlp: Mlp) -> int:
    """Return the number of neurons of an MLP."""
    return int(network.get_submodule(mlp.output).in_features)


def keep_neurons(
    network: Any,
    mlp: Mlp,
    neuron_ids: Int[np.ndarray, " neuron"],
    weight: Float[np.ndarray, "out neuron"],
    bias: Float[np.ndarray, " out"] | None,
) -> None:
    """Remove the other neurons of an MLP, and set weight and bias of its output Linear.

    bias: None keeps the bias that there is, if any.
    """
    import torch

    _resize(network, mlp.inputs, mlp.output, neuron_ids)
    output = network.get_submodule(mlp.output)
    with torch.no_grad():
        output.weight.copy_(torch.from_numpy(weight))
        if bias is not None:
            output.bias.copy_(torch.from_numpy(bias))


def neuron_entries(network: Any, original: Any, all_mlps: Iterable[Mlp]) -> dict[str, Any]:
    """Return the `compression` entry with which `apply_neurons` prepares a network; empty if no MLP lost a neuron.

    original: the network before compression; only its shapes are read.
    """
    entry = {
        mlp.output: {"inputs": list(mlp.inputs), "width": width}
        for mlp in all_mlps
        if (width := count_neurons(network, mlp)) < count_neurons(original, mlp)
    }
    return {NEURONS: entry} if entry else {}


def apply_neurons(network: Any, entry: Any, location: str) -> None:
    """Give MLPs the numbers of neurons of a compressed checkpoint; the weights are not set.

    entry: as `neuron_entries` returns it under NEURONS. Raises ModelError, which names `location`, if a path is
    not that of a Linear, or a width does not fit.
    """
    if not (isinstance(entry, Mapping) and all(_is_item(item) for item in entry.values())):
        raise ModelError(f"{location}: {BLOCK} contains neurons {entry!r}, expected `inputs` and `width` by path")
    for path, item in entry.items():
        inputs, width = tuple(item["inputs"]), item["width"]
        full = _linear(network, path, location).in_features
        rows = [_linear(network, name, location).out_features for name in inputs]
        if any(count != full for count in rows) or not 1 <= width <= full:
            raise ModelError(
                f"{location}: {BLOCK} contains {width} neurons of {path}, whose inputs have {rows}, expected inputs of "
                f"{full} and 1 to {full} neurons"
            )
        _resize(network, inputs, path, np.arange(width))


def restore_neurons(network: Any, original: Any, entry: Mapping[str, Any]) -> None:
    """Give MLPs the numbers of neurons of the original network; the function stays the same.

    Weights of new neurons are 0.
    original: the network before compression; only its shapes are read. entry: as `neuron_entries` returns it under
    NEURONS.
    """
    import torch

    for path, item in entry.items():
        for name in (*item["inputs"], path):
            full = original.get_submodule(name)
            old, new = _replace(network, name, full.out_features, full.in_features)
            rows, columns = old.weight.shape
            with torch.no_grad():
                new.weight.zero_()[:rows, :columns].copy_(old.weight)
                if old.bias is not None:
                    new.bias.zero_()[:rows].copy_(old.bias)


def _resize(network: Any, inputs: Iterable[str], output: str, neuron_ids: Int[np.ndarray, " neuron"]) -> None:
    """Replace the Linears of an MLP by ones of these neurons; the weight of the output is not set."""
    import torch

    for path in inputs:
        old, new = _replace(network, path, len(neuron_ids), network.get_submodule(path).in_features)
        with torch.no_grad():
            new.weight.copy_(old.weight[neuron_ids])
            if old.bias is not None:
                new.bias.copy_(old.bias[neuron_ids])
    old, new = _replace(network, output, network.get_submodule(output).out_features, len(neuron_ids))
    if old.bias is not None:
        with torch.no_grad():
            new.bias.copy_(old.bias)


def _replace(network: Any, path: str, rows: int, columns: int) -> tuple[Any, Any]:
    """Put a new Linear of this shape in the place of a Linear; return the old and the new one."""
    old = network.get_submodule(path)
    new = make_linear(old, rows, columns)
    network.set_submodule(path, new)
    return old, new


def _linear(network: Any, path: str, location: str) -> Any:
    import torch

    try:
        module = network.get_submodule(path)
    except AttributeError:
        module = None
    if not isinstance(module, torch.nn.Linear):
        raise ModelError(f"{location}: {BLOCK} names neurons of {path!r}, expected the path of a Linear")
    return module


def _is_item(item: Any) -> bool:
    return (
        isinstance(item, Mapping)
        and type(item.get("width")) is int
        and isinstance(item.get("inputs"), list | tuple)
        and bool(item["inputs"])
        and all(isinstance(path, str) for path in item["inputs"])
    )

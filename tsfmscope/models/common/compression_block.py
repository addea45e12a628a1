"""The `compression` block of a config.json, by which a network is resized before weights are loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tsfmscope.errors import ModelError
from tsfmscope.models.common.attention import BLOCK, AttentionLayer, apply_shapes


def apply_block(network: Any, layers: Iterable[AttentionLayer], block: Any, location: str) -> None:
    """Resize a network's layers as a checkpoint's `compression` block requires, and store the block.

    block: the value of BLOCK in config.json; None changes nothing. Raises ModelError, which names `location`, if
    the block does not fit the network.
    """
    if block is None:
        return
    if not isinstance(block, Mapping) or not isinstance(widths := block.get("widths"), Mapping):
        raise ModelError(f"{location}: got {BLOCK} {block!r}, expected an object with `widths`")
    # Written before 0.1.0, when `whole-model` could remove neurons.
    if block.get("neurons"):
        raise ModelError(
            f"{location}: {BLOCK} contains `neurons` (MLPs that lost some), expected `widths` and `factors` alone; "
            "compress the original again"
        )
    layers = list(layers)
    apply_shapes(layers, widths, location)
    if factors := block.get("factors"):
        from tsfmscope.models.common.layers import apply_factors

        apply_factors(layers, factors, location)
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

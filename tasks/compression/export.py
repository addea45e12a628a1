"""Compressed models for others: a folder that says its ranks, the package's own pipeline, a dense checkpoint.

The plain folder is for this project's loader. Its weights lie under a name that no stock package looks for: narrower
matrices a package would refuse, but what it does not find, such as the factors of a product, it draws at random with no
more than a warning.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.errors import ModelError
from tasks.models import registry
from tasks.models.attention import BLOCK, NAMES, Projections, Widths
from tasks.models.folders import COMPRESSED, STOCK, share

if TYPE_CHECKING:
    from tasks.models.base import Family

ROUNDING = 1e-6  # relative, of float32 weights: what differs by less is the same
UNASKED = ("task",)  # of a kept config: what `new` does not take, since it can be nothing else
NETWORKS = ("patchtst", "timesfm", "timesfm-2.5", "t5-text", "vit")  # whose transformers class is what users call


def save(model: Family, folder: Path) -> None:
    """What the family's `load` reads, and, of a model that is not compressed, its package too.

    Of a compressed one, config.json says the ranks and the weights are COMPRESSED, so that every stock package says
    that it finds no model.safetensors. Who may read the files is left to the umask.
    """
    model.save(folder)
    if model.compression is not None:
        if not (folder / STOCK).is_file():
            raise ModelError(f"{folder}: weights were saved in parts; a compressed model must lie in one {STOCK}")
        (folder / STOCK).replace(folder / COMPRESSED)
    share(folder)


def pipeline(folder: Path, family: str, *, device: str = "cpu", **options: Any) -> Any:
    """The model of a folder in the class that the family's own package forecasts with: see `wrapped`."""
    return wrapped(registry.family_class(family).load(Path(folder), device=device), **options)


def wrapped(model: Family, **options: Any) -> Any:
    """A model in the class that its family's own package forecasts with.

    ChronosPipeline, ChronosBoltPipeline, Chronos2Pipeline; uni2ts' MoiraiForecast, which takes options (at least
    prediction_length and context_length; patch_size is the model's own where it has one); of NETWORKS the transformers
    network; of families without a package our Family. ValueError for options that are not taken or are missing.
    """
    if model.name == "moirai":
        return _moirai(model, options)
    if options:
        raise ValueError(f"pipeline of {model.name}: got options {sorted(options)}, expected none")
    make = {"chronos-t5": _chronos, "chronos-bolt": _bolt, "chronos-2": _chronos_2}.get(model.name)
    if make is not None:
        return make(model)
    return model.network if model.name in NETWORKS else model


def densify(model: Family) -> Family:
    """The same function with the weights of the original's shapes, in place: nothing of it is ours any more.

    Heads get zeros up to the original widths, factors are multiplied out as a layer is read, dropped biases are zeros,
    config.json loses its block. Exact but for the rounding of products. ModelError where the original has no room.
    """
    original = {layer.name: layer for layer in _original(model).attentions()}
    for layer in model.attentions():
        full = original[layer.name]
        biases = [what for what in NAMES if full.linear(what).bias is not None]
        layer.write(padded(layer.read(), full.widths, biases, layer.name))
    model.compression = None
    return model


def padded(narrow: Projections, widths: Widths, biases: Collection[str], name: str) -> Projections:
    """Zeros up to the widths, and a bias of each of `biases`; ModelError, naming the layer, for one that has no place.

    An output bias that is not among them comes out of a value's, since attention weights sum to 1.
    """
    q, k, q_bias, k_bias = (_wide(part, widths.key) for part in (narrow.q, narrow.k, narrow.q_bias, narrow.k_bias))
    v, v_bias = (_wide(part, widths.value) for part in (narrow.v, narrow.v_bias))
    o = np.pad(narrow.o, ((0, 0), (0, 0), (0, widths.value - narrow.o.shape[2])))
    made = Projections(q, k, v, o, q_bias, k_bias, v_bias, narrow.o_bias)
    if made.o_bias is not None and "o" not in biases and "v" in biases:
        made = _moved_into_values(made)
    shapes = {"q": q.shape[:2], "k": k.shape[:2], "v": v.shape[:2], "o": o.shape[1:2]}
    for what in NAMES:
        field = f"{what}_bias"
        if what not in biases and getattr(made, field) is not None:
            raise ModelError(f"{name}: its bias of {what} has no place in the original; export it without --dense")
        if what in biases and getattr(made, field) is None:
            made = made._replace(**{field: np.zeros(shapes[what])})
    return made


def _moved_into_values(layer: Projections) -> Projections:
    """The output's bias made by the values': as it is where no values make it.

    A value dimension that is nowhere used gets a bias of 1, and the output reads its bias there. Where all are used,
    the values' biases that W_O makes it of, as where it once came from such.
    """
    assert layer.o_bias is not None
    groups, shared = len(layer.v), len(layer.o) // len(layer.v)
    by_group = layer.o.reshape(groups, shared, *layer.o.shape[1:])
    bias = np.zeros(layer.v.shape[:2]) if layer.v_bias is None else layer.v_bias.copy()
    o = layer.o.copy()
    idle = ~(layer.v.any(axis=2) | by_group.any(axis=(1, 2)) | (bias != 0))  # [g, value]
    if idle.any():
        group, at = np.argwhere(idle)[0]
        bias[group, at], o[group * shared, :, at] = 1.0, layer.o_bias
        return layer._replace(o=o, v_bias=bias, o_bias=None)
    columns = np.concatenate(list(by_group.sum(axis=1)), axis=1)  # [out, g * value]
    found = np.linalg.lstsq(columns, layer.o_bias, rcond=None)[0]
    if np.abs(columns @ found - layer.o_bias).max() > ROUNDING * np.abs(layer.o_bias).max():
        return layer
    return layer._replace(v_bias=bias + found.reshape(bias.shape), o_bias=None)


def _wide(part: Any, width: int) -> Any:
    """Heads [h, narrow, ...] with zeros up to [h, width, ...]; None stays."""
    return None if part is None else np.pad(part, [(0, 0), (0, width - part.shape[1])] + [(0, 0)] * (part.ndim - 2))


def _original(model: Family) -> Family:
    """A model of the same config with nothing compressed, for its shapes alone: its weights are not set."""
    import torch
    from transformers import PreTrainedModel

    network: Any = model.network
    if not isinstance(network, PreTrainedModel):
        told: Any = getattr(model, "config", None)  # what `new` takes, in every family of own networks
        if told is None:
            raise ModelError(f"family {model.name}: keeps no config to make the original of; export without --dense")
        shape = dict(told) if isinstance(told, Mapping) else asdict(told)
        return type(model).new({key: value for key, value in shape.items() if key not in UNASKED}, seed=0)
    config, twin = copy.deepcopy(network.config), copy.copy(model)
    if hasattr(config, BLOCK):
        delattr(config, BLOCK)
    stock = getattr(importlib.import_module(type(network).__module__), type(network).__name__)
    with torch.device("meta"):
        twin.network = stock(config)
    return twin


def _chronos(model: Any) -> Any:
    from chronos import ChronosPipeline
    from chronos.chronos import ChronosModel

    return ChronosPipeline(
        tokenizer=model.chronos.create_tokenizer(), model=ChronosModel(config=model.chronos, model=model.network)
    )


def _bolt(model: Any) -> Any:
    from chronos import ChronosBoltPipeline

    return ChronosBoltPipeline(model=model.network)


def _chronos_2(model: Any) -> Any:
    from chronos import Chronos2Pipeline

    return Chronos2Pipeline(model=model.network)


def _moirai(model: Any, options: Mapping[str, Any]) -> Any:
    from uni2ts.model.moirai import MoiraiForecast

    fixed = {"target_dim": 1, "feat_dynamic_real_dim": 0, "past_feat_dynamic_real_dim": 0}
    size = {} if model.config["patch_size"] is None else {"patch_size": model.config["patch_size"]}
    try:
        return MoiraiForecast(module=model.network, **{**fixed, **size, **options}).eval()
    except TypeError as error:
        raise ValueError(f"pipeline of moirai: {error}") from error

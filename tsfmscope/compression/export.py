"""Export of compressed models: a checkpoint folder, the package's own pipeline, or a dense checkpoint.

The checkpoint folder is for this project's loader. Its weights have a file name that no stock package reads.
A stock package would refuse narrower matrices. But weights that it does not find, such as the factors of a
product, it would initialise at random, with a warning only.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError

from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.models.common import checkpoint_folder, low_bits
from tsfmscope.models.common.attention import BLOCK, NAMES, Projections, Widths
from tsfmscope.models.common.checkpoint_folder import COMPRESSED, STOCK, share

if TYPE_CHECKING:
    from tsfmscope.models.base import Family

# Relative rounding of float32 weights: smaller differences count as none.
REL_TOLERANCE = 1e-6
# Keys of a saved config that `new` does not accept, since they have one possible value only.
DERIVED_KEYS = ("task",)


def save(model: Family, folder: Path) -> None:
    """Save a model for the family's `load`; the family's package reads it too if nothing is compressed.

    The config.json of a compressed model contains the ranks, and its weights are in the file COMPRESSED, so
    that every stock package reports model.safetensors as missing. File permissions follow the umask.
    ModelError if the weights cannot be written, or if those of a compressed model were saved in several
    files.
    """
    try:
        model.save(folder)
    # The writer raises this error for a full disk as well.
    except SafetensorError as error:
        raise ModelError(
            f"{folder}: cannot write the weights ({error}); free disk space, or name another folder"
        ) from error
    if model.compression is not None:
        if not (folder / STOCK).is_file():
            raise ModelError(
                f"{folder}: weights were saved in several files, expected one {STOCK} for a compressed model"
            )
        (folder / STOCK).replace(folder / COMPRESSED)
        low_bits.pack(folder / COMPRESSED)
    share(folder)


def file_bytes(model: Family) -> int:
    """Return the bytes of the files of weights that `save` writes, where float32 weights stay what they are.

    The model is saved to a temporary folder, since families save different weights of their networks, and a file has
    a header. Weights in bfloat16 are saved as the float32 weights that they were rounded from are.
    """
    import torch

    if any(parameter.dtype == torch.bfloat16 for parameter in model.network.parameters()):
        model = copy.copy(model)
        model.network = copy.deepcopy(model.network).float()
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder))
        return sum(file.stat().st_size for file in Path(folder).glob("*.safetensors*"))


def pipeline(folder: Path, family: str, *, device: str = "cpu", **options: Any) -> Any:
    """Load a folder as the class that the family's own package forecasts with; options as in `as_package_model`."""
    return as_package_model(registry.family_class(family).load(Path(folder), device=device), **options)


def as_package_model(model: Family, **options: Any) -> Any:
    """Return the model as the class that its family's own package forecasts with (`Family.stock_model`).

    A family without a package of its own returns itself. ValueError for unknown or missing options.
    """
    if options and not inspect.signature(model.stock_model).parameters:
        raise ValueError(f"pipeline of {model.name}: got options {sorted(options)}, expected none")
    return model.stock_model(**options)


def densify(model: Family) -> Family:
    """Give a compressed model the shapes of the original, in place; its function stays the same.

    Heads are padded with zeros to the original widths, factors are multiplied out, dropped biases become
    zeros, and the config loses its block `compression`. The result is exact up to the rounding of products,
    and stock packages load it. ModelError if the original lacks a bias that the model has.
    """
    original = {layer.name: layer for layer in build_original(model).attentions()}
    for layer in model.attentions():
        full = original[layer.name]
        biases = [name for name in NAMES if full.linear(name).bias is not None]
        layer.write(pad_heads(layer.read(), full.widths, biases, layer.name))
    model.compression = None
    return model


def pad_heads(narrow: Projections, widths: Widths, biases: Collection[str], name: str) -> Projections:
    """Return the layer padded with zeros to the widths, with exactly the biases named in `biases`.

    An output bias that is not in `biases` is moved into the value bias, if `biases` has one; this is exact
    because attention weights sum to 1. ModelError, with the layer's `name`, for a bias that cannot be moved.
    """
    q, k, q_bias, k_bias = (_wide(part, widths.key) for part in (narrow.q, narrow.k, narrow.q_bias, narrow.k_bias))
    v, v_bias = (_wide(part, widths.value) for part in (narrow.v, narrow.v_bias))
    o = np.pad(narrow.o, ((0, 0), (0, 0), (0, widths.value - narrow.o.shape[2])))
    layer = Projections(q, k, v, o, q_bias, k_bias, v_bias, narrow.o_bias)
    if layer.o_bias is not None and "o" not in biases and "v" in biases:
        layer = _move_into_values(layer)
    shapes = {"q": q.shape[:2], "k": k.shape[:2], "v": v.shape[:2], "o": o.shape[1:2]}
    for matrix in NAMES:
        field = f"{matrix}_bias"
        if matrix not in biases and getattr(layer, field) is not None:
            raise ModelError(f"{name}: the original has no bias of {matrix}, but the model has; export without --dense")
        if matrix in biases and getattr(layer, field) is None:
            layer = layer._replace(**{field: np.zeros(shapes[matrix])})
    return layer


def _move_into_values(layer: Projections) -> Projections:
    """Return the layer with its output bias moved into the value bias; unchanged if no value bias yields it.

    If a value dimension is unused, it gets a bias of 1, and its column of W_O becomes the output bias.
    Otherwise the least-squares solution of W_O b_v = b_o is added to the value bias, if it solves the
    equation up to ROUNDING. It does where the output bias came from a value bias.
    """
    assert layer.o_bias is not None
    groups, group_size = len(layer.v), len(layer.o) // len(layer.v)
    by_group = layer.o.reshape(groups, group_size, *layer.o.shape[1:])
    bias = np.zeros(layer.v.shape[:2]) if layer.v_bias is None else layer.v_bias.copy()
    o = layer.o.copy()
    # [g, value]
    idle = ~(layer.v.any(axis=2) | by_group.any(axis=(1, 2)) | (bias != 0))
    if idle.any():
        group, at = np.argwhere(idle)[0]
        bias[group, at], o[group * group_size, :, at] = 1.0, layer.o_bias
        return layer._replace(o=o, v_bias=bias, o_bias=None)
    # [out, g * value]
    columns = np.concatenate(list(by_group.sum(axis=1)), axis=1)
    solution = np.linalg.lstsq(columns, layer.o_bias, rcond=None)[0]
    if np.abs(columns @ solution - layer.o_bias).max() > REL_TOLERANCE * np.abs(layer.o_bias).max():
        return layer
    return layer._replace(v_bias=bias + solution.reshape(bias.shape), o_bias=None)


def _wide(part: Any, width: int) -> Any:
    """Return heads [h, narrow, ...] padded with zeros to [h, width, ...]; None stays None."""
    return None if part is None else np.pad(part, [(0, 0), (0, width - part.shape[1])] + [(0, 0)] * (part.ndim - 2))


def build_original(model: Family, *, seed: int | None = None) -> Family:
    """Return an uncompressed model of the same config with random weights; without a seed only its shapes count.

    ModelError if the family keeps no config to build it from.
    """
    import torch
    from transformers import PreTrainedModel

    network: Any = model.network
    if not isinstance(network, PreTrainedModel):
        # A family with a network of its own has the config of `new` in this attribute.
        config: Any = getattr(model, "config", None)
        if config is None:
            raise ModelError(
                f"family {model.name}: has no config from which to build the original; export without --dense"
            )
        shape = dict(config) if isinstance(config, Mapping) else asdict(config)
        return type(model).new({key: value for key, value in shape.items() if key not in DERIVED_KEYS}, seed=seed or 0)
    config, twin = copy.deepcopy(network.config), copy.copy(model)
    if hasattr(config, BLOCK):
        delattr(config, BLOCK)
    stock = getattr(importlib.import_module(type(network).__module__), type(network).__name__)
    if seed is None:
        with torch.device("meta"):
            twin.network = stock(config)
    else:
        twin.network = checkpoint_folder.build(lambda: stock(config), seed).eval()
    return twin

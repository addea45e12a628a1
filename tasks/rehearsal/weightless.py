"""Models of a config without weights: every parameter is one zero, seen in the parameter's shape.

Such a model has the shapes, the tokens and the methods of its family and takes no memory. Its states are of no use.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsfmscope.tasks import hub
from tsfmscope.tasks.models import registry
from tsfmscope.tasks.rehearsal.layouts import LAYOUTS, Layout
from tsfmscope.tasks.rehearsal.weights import make_network

if TYPE_CHECKING:
    from tsfmscope.tasks.models.base import Family


def weightless_model(layout: Layout, options: Mapping[str, Any]) -> Family:
    """Return the model of a published layout without its weights.

    options: keywords of the family's `load`; those that change the shape of tokens count. Raises LayoutError if the
    family's class cannot be made from the config, ModelError if a package is missing.
    """
    network = make_network(layout)
    _replace_parameters(network)
    made: Any = registry.family_class(layout.family)
    model: Family = made(network, *_further_arguments(layout, options))
    return model


def _further_arguments(layout: Layout, options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what the family's class takes besides the network."""
    if layout.family == "moirai":
        from tsfmscope.tasks.models.moirai.checkpoint import SCHEMA

        return ({**SCHEMA.defaults, **layout.config},)
    if layout.family == "lag-llama":
        from tsfmscope.tasks.models.lag_llama.checkpoint import REQUIRED, make_config

        chosen = {name: value for name, value in options.items() if name in ("tokens", "rope_scaling")}
        return (make_config({key: layout.config[key] for key in REQUIRED} | chosen, layout.name),)
    return (_tokenizer(),) if layout.has_tokenizer else ()


def layout_of(reference: str) -> Layout | None:
    """Return the published layout of a reference hub:ORG/NAME[@REVISION]; None if this project has none."""
    repository = reference.removeprefix(hub.PREFIX).partition("@")[0]
    return next((layout for layout in LAYOUTS.values() if layout.repository == repository), None)


def _replace_parameters(network: Any) -> None:
    """Replace parameters and buffers on the meta device by expanded zeros on the CPU; tied ones stay tied."""
    import torch

    replaced: dict[int, Any] = {}
    for module in network.modules():
        for group in (module._parameters, module._buffers):
            for name, tensor in group.items():
                if tensor is None or not tensor.is_meta:
                    continue
                if id(tensor) not in replaced:
                    zeros = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
                    is_parameter = isinstance(tensor, torch.nn.Parameter)
                    replaced[id(tensor)] = torch.nn.Parameter(zeros, requires_grad=False) if is_parameter else zeros
                group[name] = replaced[id(tensor)]


def _tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    from tsfmscope.tasks.rehearsal.tokenizer import write_tokenizer

    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(path := Path(folder, "tokenizer.json"))
        return PreTrainedTokenizerFast(tokenizer_file=str(path))

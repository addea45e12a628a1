"""What the families built on transformers' T5 share: configs, folders, layers in one pass, weight matrices."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tasks.errors import ModelError
from tasks.models.capture import capture
from tasks.models.types import LayerStates, WeightMatrix

if TYPE_CHECKING:
    pass

Network = TypeVar("Network")

SHAPE = ("d_model", "d_ff", "d_kv", "num_heads", "num_layers", "num_decoder_layers")
HUGE = 2.0**50  # above this, float32 sums of squares are near overflow: contexts are divided by a power of two first


def filled_config(
    config: Mapping[str, Any], required: tuple[str, ...], defaults: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """The config with defaults; ValueError naming keys that are missing or not known."""
    known = set(required) | set(defaults)
    if unknown := sorted(set(config) - known):
        raise ValueError(f"{where} config: got unknown keys {unknown}, expected only {sorted(known)}")
    if missing := [key for key in required if key not in config]:
        raise ValueError(f"{where} config: keys {missing} are missing, expected {list(required)}")
    return {**defaults, **config}


def build(make: Callable[[], Network], seed: int) -> Network:
    """Call `make` with torch's generator seeded, leaving the global generator as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def read_config(folder: Path, family: str) -> dict[str, Any]:
    """config.json of a Chronos checkpoint; ModelError naming what is missing or broken, and the mend."""
    if not folder.is_dir():
        raise ModelError(f"{family}: no folder {folder}; expected one with config.json and *.safetensors")
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{path}: file is missing; a {family} checkpoint needs it beside its *.safetensors")
    try:
        config = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: not valid JSON ({error}); fetch or save the checkpoint again") from error
    if not isinstance(config, dict) or not isinstance(config.get("chronos_config"), dict):
        raise ModelError(f"{path}: key 'chronos_config' is missing, so this is no {family} checkpoint")
    if not any(folder.glob("*.safetensors")):
        found = sorted(p.name for p in folder.iterdir())
        raise ModelError(f"{folder}: got {found}, expected *.safetensors; convert pickled weights to safetensors first")
    return config


def load_network(model_class: Any, folder: Path, device: str) -> Any:
    """A network in float32 and eval mode from safetensors alone, no remote code; ModelError where weights are off."""
    import torch
    from safetensors import SafetensorError

    try:
        network, info = model_class.from_pretrained(
            folder,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except (SafetensorError, OSError, ValueError, TypeError, RuntimeError, AssertionError) as error:
        raise ModelError(
            f"{folder}: weights or config.json cannot be read ({type(error).__name__}: {error}); "
            "fetch or save the checkpoint again"
        ) from error
    missing = sorted(info["missing_keys"])
    if missing or info["mismatched_keys"]:
        raise ModelError(
            f"{folder}: weights do not fit config.json: missing {missing[:5]}, of another shape "
            f"{sorted(map(str, info['mismatched_keys']))[:5]}; use the config that they were saved with"
        )
    for parameter in network.parameters():  # out of the mapped file, and to an alignment that is always the same
        parameter.data = parameter.data.clone()
    return network.to(device).eval()


def run_captured(
    stacks: Mapping[str, Any],
    forward: Callable[[slice], object],
    windows: int,
    batch: int,
) -> Iterator[LayerStates]:
    """Run `forward` on slices of the windows; yield every layer of every T5 stack, [W, T, d] float32 each.

    Layer 0 is what block 0 is given, layer l what block l - 1 answers (residual stream), then the last layer after
    `final_layer_norm`.
    """
    import torch

    inputs: dict[Hashable, Any] = {}
    outputs: dict[Hashable, Any] = {}
    order: list[tuple[str, int, bool]] = []
    for name, stack in stacks.items():
        inputs[name, 0, False] = stack.block[0]
        outputs |= {(name, layer, False): block for layer, block in enumerate(stack.block, start=1)}
        outputs[name, len(stack.block), True] = stack.final_layer_norm
        order += [(name, layer, False) for layer in range(len(stack.block) + 1)] + [(name, len(stack.block), True)]
    parts: dict[tuple[str, int, bool], list[np.ndarray]] = {key: [] for key in order}
    for start in range(0, windows, batch):
        with torch.inference_mode(), capture(outputs, inputs) as states:
            forward(slice(start, start + batch))
        for key, collected in parts.items():
            collected.append(states[key].float().cpu().numpy())
    for name, layer, normed in order:
        yield LayerStates(name, layer, normed, np.concatenate(parts.pop((name, layer, normed))))


def stack_weights(stack: str, network: Any) -> Iterator[WeightMatrix]:
    """Attention and MLP matrices of a T5 stack, [out, in]; `layer` counts from 1, as the states that they make do."""
    for layer, block in enumerate(network.block, start=1):
        for part in block.layer:
            if hasattr(part, "DenseReluDense"):
                yield from _dense_weights(stack, layer, part.DenseReluDense)
                continue
            cross = hasattr(part, "EncDecAttention")
            attention = part.EncDecAttention if cross else part.SelfAttention
            for what in ("q", "k", "v", "o"):
                matrix = _matrix(getattr(attention, what))
                yield WeightMatrix(stack, layer, what, "cross" if cross else "self", attention.n_heads, matrix)


def _dense_weights(stack: str, layer: int, dense: Any) -> Iterator[WeightMatrix]:
    names = {"wi": "mlp_in", "wi_0": "mlp_gate", "wi_1": "mlp_in", "wo": "mlp_out"}
    for name, module in dense.named_children():
        if name in names:
            yield WeightMatrix(stack, layer, names[name], None, None, _matrix(module))


def _matrix(module: Any) -> np.ndarray:
    matrix: np.ndarray = module.weight.detach().float().cpu().numpy()
    return matrix


def tamed(context: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The context over a power of two a window where it is huge, and that factor [W] (1 elsewhere).

    Dividing by a power of two is exact and both families are equivariant to scale, so ids, patches and forecasts (times
    the factor) are those of the original wherever the original does not overflow float32.
    """
    top = np.max(np.abs(np.where(np.isfinite(context), context, 0)), axis=-1, initial=0)
    factor = np.where(top > HUGE, 2.0 ** np.floor(np.log2(np.maximum(top, 1.0))), 1.0)
    return (context / factor[:, None]).astype(np.float32), factor

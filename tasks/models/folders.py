"""What families share of making, reading and loading a model: configs with defaults, seeds, checkpoint folders."""

from __future__ import annotations

import itertools
import json
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tasks.errors import ModelError

Network = TypeVar("Network")
STOCK = "model.safetensors"  # where every package looks for weights
LARGEST_CONFIG = 2**24  # bytes; the largest released one, a tokenizer's words included, has a thousandth
SIZES = (  # keys of config.json that count something of which there is at least one, in one family or another
    *("num_layers", "num_decoder_layers", "num_hidden_layers", "decoder_num_hidden_layers", "n_layer", "n_layers"),
    *("num_heads", "num_attention_heads", "decoder_num_attention_heads", "n_head", "n_heads"),
    *("d_model", "d_ff", "d_kv", "hidden_size", "intermediate_size", "ffn_dim", "dim", "n_embd_per_head"),
)
SPARE = 2**20  # numbers that a network may have beyond those of its file, several times over
WRONG = (
    ValueError,
    TypeError,
    RuntimeError,
    AssertionError,
    ArithmeticError,
    MemoryError,
    OSError,
)  # of packages
COMPRESSED = "compressed.safetensors"  # of narrower or factored weights: where none does, so that none reads them wrong


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


def share(folder: Path) -> None:
    """Give a folder's weights the mode that a new file has there; safetensors from 0.8 lets nobody but the writer read.

    A file tells that mode, since Python reads a umask only by setting it, for all threads.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".mode-") as beside:
        probe = Path(beside, "probe")
        probe.touch()
        mode = stat.S_IMODE(probe.stat().st_mode)
    for path in folder.glob("*.safetensors"):
        path.chmod(mode)


def read_config(folder: Path, family: str) -> dict[str, Any]:
    """config.json of a checkpoint that has safetensors; ModelError naming what is missing or broken, and the mend."""
    if not folder.is_dir():
        raise ModelError(f"{family}: no folder {folder}; expected one with config.json and *.safetensors")
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{path}: file is missing; a {family} checkpoint needs it beside its *.safetensors")
    if (size := path.stat().st_size) > LARGEST_CONFIG:
        raise ModelError(f"{path}: got {size} bytes, expected {LARGEST_CONFIG} at most; this is no {family} checkpoint")
    try:
        config = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON ({error}); fetch or save the checkpoint again") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path}: holds {type(config).__name__}, expected an object; this is no {family} checkpoint")
    for key in SIZES:
        n = config.get(key, 1)
        if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
            raise ModelError(
                f"{path}: {key}: got {n!r}, expected a whole number from 1; fetch or save the checkpoint again"
            )
    if not any(folder.glob("*.safetensors")):
        found = sorted(p.name for p in folder.iterdir())
        raise ModelError(f"{folder}: got {found}, expected *.safetensors; convert pickled weights to safetensors first")
    return config


@contextmanager
def bounded(folder: Path) -> Iterator[None]:
    """While open, a network may be made that fits the folder's weights; ModelError where it grows far beyond, or fails.

    A config.json that asks for a billion layers would otherwise be obeyed until the memory is full.
    """
    from safetensors import SafetensorError
    from torch.nn.modules.module import register_module_parameter_registration_hook

    weights = sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".safetensors", ".ckpt"))
    most, made = 4 * weights + SPARE, 0

    def count(module: Any, name: str, parameter: Any) -> None:
        nonlocal made
        made += 0 if parameter is None else parameter.numel()
        if made > most:
            raise ModelError(
                f"{folder / 'config.json'}: asks for more than {most} numbers, but the weights have {weights} bytes; "
                "use the config that they were saved with"
            )

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    except (*WRONG, SafetensorError) as error:
        raise ModelError(
            f"{folder}: weights or config.json cannot be read ({type(error).__name__}: {error}); "
            "fetch or save the checkpoint again"
        ) from error
    finally:
        handle.remove()


def load_network(model_class: Any, folder: Path, device: str, **changes: Any) -> Any:
    """A network in float32 and eval mode from safetensors alone, no remote code; ModelError where weights are off.

    model_class: one of transformers' kind; changes: what config.json shall say instead.
    """
    import torch

    with bounded(folder):
        if (folder / COMPRESSED).is_file():
            config = model_class.config_class.from_pretrained(folder, local_files_only=True, **changes)
            config.transformers_weights = COMPRESSED  # transformers' own way to name the file; a save drops it
            changes = {"config": config}
        network, info = model_class.from_pretrained(
            folder,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            dtype=torch.float32,
            output_loading_info=True,
            **changes,
        )
    missing = sorted(info["missing_keys"])
    if missing or info["mismatched_keys"]:
        raise ModelError(
            f"{folder}: weights do not fit config.json: missing {missing[:5]}, of another shape "
            f"{sorted(map(str, info['mismatched_keys']))[:5]}; use the config that they were saved with"
        )
    # out of the mapped file, and to an alignment that is always the same
    for tensor in itertools.chain(network.parameters(), network.buffers()):
        tensor.data = tensor.data.clone()
    return network.to(device).eval()

"""Files of a release with random weights, written tensor by tensor, and checks of what is written and loaded.

Names and shapes come from the family's own class on torch's meta device, which holds no numbers. The values of a
tensor depend on the seed and on its name only, so that a loaded network can be compared with them without a second
copy in memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tests.rehearsal.layouts import Layout
from tsfmscope.errors import ModelError
from tsfmscope.models.lag_llama import ALLOWED

if TYPE_CHECKING:
    import torch

Shapes = Mapping[str, tuple[int, ...]]

# Standard deviation of matrices and biases: small enough for finite scores of attention in the largest model.
SPREAD = 0.02
# Relative difference to a published number of parameters that rounding explains: 9M stands for 8.65 million.
ROUNDING = 0.05
# Header of a safetensors file: its length in 8 bytes, padded with spaces to a multiple of 8.
ALIGNMENT = 8
PREFIX = "model."
# State of the two objects in the released hyper-parameters, under their names in gluonts 0.14.
GLUONTS_STATES: tuple[dict[str, Any], ...] = (
    {"__init_args__": OrderedDict()},
    {"__dict__": {"beta": 0.0}, "__fields_set__": set(), "__private_attribute_values__": {}},
)
# T5 (Raffel et al. 2020) has 32,000 pieces and 100 sentinels.
PIECES, SENTINELS = 32_000, 100
# Beginning of a word in T5's pieces.
SPACE = "▁"
SPECIAL = ("<pad>", "</s>", "<unk>")


class LayoutError(ModelError):
    """Error for files or networks that differ from a published layout."""


def tensor_shapes(layout: Layout) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a release by its name, sorted; a tied tensor counts once.

    Raises ModelError if a package is missing, LayoutError if the family's class cannot be made from the config.
    """
    network = make_network(layout)
    prefix = PREFIX if layout.family == "lag-llama" else ""
    return dict(sorted(_distinct(network, prefix).items()))


def make_network(layout: Layout) -> Any:
    """Return the network of a layout on torch's meta device, which holds no numbers.

    Raises ModelError if a package is missing, LayoutError if the family's class cannot be made from the config.
    """
    import torch

    try:
        with torch.device("meta"):
            return _network(layout)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LayoutError(
            f"{layout.name}: the published config makes no network ({type(error).__name__}: {error}); "
            "compare tests/rehearsal/layouts.py with the installed package"
        ) from error


def _network(layout: Layout) -> Any:
    """Return the network of a layout, made on the current device of torch."""
    config = dict(layout.config)
    if layout.family == "moirai":
        from tsfmscope.models.moirai import Moirai

        known = {*Moirai.required, *Moirai.defaults}
        return Moirai.make_network({**Moirai.defaults, **{key: value for key, value in config.items() if key in known}})
    if layout.family == "lag-llama":
        from tsfmscope.models.lag_llama import RELEASED_KEYS, Config, LagLlama

        return LagLlama.make_network(Config.fill({key: config[key] for key in RELEASED_KEYS}, layout.name))
    from transformers import T5Config, T5ForConditionalGeneration

    if layout.family == "chronos-bolt":
        from chronos.chronos_bolt import ChronosBoltModelForForecasting

        return ChronosBoltModelForForecasting(T5Config(**config))
    return T5ForConditionalGeneration(T5Config(**config))


def _distinct(network: Any, prefix: str) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of a network's state, without further names of a shared parameter."""
    first = {name for name, _ in network.named_parameters()}
    further = {name for name, _ in network.named_parameters(remove_duplicate=False)} - first
    state = network.state_dict()
    return {f"{prefix}{name}": tuple(tensor.shape) for name, tensor in state.items() if name not in further}


def random_tensor(name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Return the values of a tensor: 1 in scales of norms, else Gaussian with standard deviation SPREAD."""
    import torch

    if len(shape) == 1 and not name.endswith("bias"):
        return torch.ones(shape)
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    return torch.randn(shape, generator=generator).mul_(SPREAD)


def file_header(shapes: Shapes) -> bytes:
    """Return the beginning of a safetensors file of float32 tensors, as the package safetensors writes it."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name in sorted(shapes):
        end = start + 4 * math.prod(shapes[name])
        header[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return struct.pack("<Q", len(text)) + text


def predict_bytes(shapes: Shapes) -> int:
    """Return the size of the safetensors file of these tensors, which is not written."""
    return len(file_header(shapes)) + 4 * sum(map(math.prod, shapes.values()))


def write_folder(layout: Layout, folder: Path, seed: int) -> dict[str, tuple[int, ...]]:
    """Write the files of a release with random weights, and return the shapes of its tensors.

    Raises LayoutError if the layout contradicts a published fact.
    """
    shapes = tensor_shapes(layout)
    check_published(layout, shapes)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in layout.texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    if layout.has_tokenizer:
        write_tokenizer(folder / "tokenizer.json")
    path = folder / layout.weights
    if layout.family == "lag-llama":
        write_lightning(path, layout.config, {name: random_tensor(name, shapes[name], seed) for name in shapes})
    else:
        with path.open("wb") as file:
            file.write(file_header(shapes))
            for name in sorted(shapes):
                file.write(random_tensor(name, shapes[name], seed).numpy().data)
    check_size(layout, path)
    return shapes


def check_published(layout: Layout, shapes: Shapes) -> None:
    """Raise LayoutError if config or tensors contradict a published fact of the release."""
    checks, texts = layout.checks, layout.texts
    for file, expected in (("config.json", checks.config_sha256), ("generation_config.json", checks.generation_sha256)):
        found = hashlib.sha256(texts.get(file, "").encode()).hexdigest()
        if expected is not None and found != expected:
            raise _differs(layout, f"SHA-256 of {file}", found, expected)
    if checks.tensors is not None and len(shapes) != checks.tensors:
        raise _differs(layout, "number of tensors", len(shapes), checks.tensors)
    parameters = sum(map(math.prod, shapes.values()))
    if checks.parameters is not None and abs(parameters / checks.parameters - 1) > ROUNDING:
        raise _differs(layout, "number of parameters", f"{parameters:,}", f"about {checks.parameters:,.0f}")


def check_size(layout: Layout, path: Path) -> None:
    """Raise LayoutError if the weight file has another size than was published."""
    if layout.checks.bytes is None:
        return
    expected, tolerance = layout.checks.bytes
    if abs((found := path.stat().st_size) - expected) > tolerance * expected:
        raise _differs(layout, f"bytes of {path.name}", f"{found:,}", f"{expected:,} within {100 * tolerance:g} %")


def check_loaded(layout: Layout, network: Any, shapes: Shapes, seed: int) -> int:
    """Compare every tensor of a loaded network with the values that were written, and return their number.

    Raises LayoutError, which names the first tensor that is missing, is of another shape or has other values.
    """
    import torch

    prefix = PREFIX if layout.family == "lag-llama" else ""
    state = network.state_dict()
    for name in shapes:
        if (tensor := state.get(name.removeprefix(prefix))) is None:
            raise _differs(layout, f"tensor {name}", "none in the loaded network", f"shape {shapes[name]}")
        if tuple(tensor.shape) != shapes[name]:
            raise _differs(layout, f"tensor {name}", f"shape {tuple(tensor.shape)}", f"shape {shapes[name]}")
        written = random_tensor(name, shapes[name], seed)
        if not torch.equal(tensor.cpu(), written):
            worst = (tensor.cpu() - written).abs().max().item()
            raise _differs(layout, f"tensor {name}", f"values that differ by up to {worst:.3g}", "those of the file")
    return len(shapes)


def check_files(layout: Layout, folder: Path, shapes: Shapes) -> None:
    """Compare the tensors of the safetensors files of a folder with the layout, without reading their values.

    Raises LayoutError, which names missing files and the first tensors that are missing, unknown, or of another
    shape or dtype.
    """
    from safetensors import SafetensorError, safe_open

    missing = [name for name in (*layout.texts, layout.weights) if not (folder / name).is_file()]
    if missing:
        raise _differs(layout, f"files of {folder}", f"no {', '.join(missing)}", "all files of the release")
    if not layout.weights.endswith(".safetensors"):
        return
    path = folder / layout.weights
    try:
        with safe_open(path, "numpy") as file:
            names = list(file.keys())
            found = {name: _shape_and_dtype(file.get_slice(name)) for name in names}
    except (SafetensorError, OSError) as error:
        raise LayoutError(f"{path}: cannot be read ({error}); write or fetch it again") from error
    expected = {name: (shape, "F32") for name, shape in shapes.items()}
    for name in [*expected, *(set(found) - set(expected))]:
        if found.get(name) != expected.get(name):
            raise _differs(layout, f"tensor {name} of {path}", _text(found.get(name)), _text(expected.get(name)))


def _shape_and_dtype(tensor: Any) -> tuple[tuple[int, ...], str]:
    return tuple(tensor.get_shape()), str(tensor.get_dtype())


def _text(tensor: tuple[tuple[int, ...], str] | None) -> str:
    return "none" if tensor is None else f"{tensor[1]} {list(tensor[0])}"


def _differs(layout: Layout, fact: str, actual: object, expected: object) -> LayoutError:
    return LayoutError(
        f"{layout.name}: {fact}: got {actual}, expected {expected}; the installed package or "
        f"tests/rehearsal/layouts.py differs from {layout.repository}: compare both with its files on the hub"
    )


def folder_bytes(folder: Path) -> int:
    """Return the size of all files of a folder, links followed once."""
    return sum(path.stat().st_size for path in _files(folder))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def write_lightning(path: Path, kwargs: Mapping[str, Any], state: Mapping[str, torch.Tensor]) -> None:
    """Write a checkpoint with these `model_kwargs` and weights, and zero moments of Adam.

    The moments are written because the released file has the size of the weights three times.
    """
    import torch

    moments = {
        number: {"step": torch.tensor(1.0), "exp_avg": torch.zeros_like(tensor), "exp_avg_sq": torch.zeros_like(tensor)}
        for number, tensor in enumerate(state.values())
    }
    with _gluonts_objects() as (head, loss):
        contents = {
            "epoch": 0,
            "global_step": 1,
            "pytorch-lightning_version": "2.0.4",
            "state_dict": OrderedDict(state),
            "optimizer_states": [{"state": moments, "param_groups": [{"lr": 1e-4, "params": list(moments)}]}],
            "lr_schedulers": [],
            "hparams_name": "kwargs",
            "hyper_parameters": {"model_kwargs": {**kwargs, "distr_output": head}, "loss": loss, "lr": 1e-4},
        }
        torch.save(contents, path)


@contextmanager
def _gluonts_objects() -> Iterator[list[Any]]:
    """Yield objects that are pickled under the names of gluonts' head and loss.

    pickle looks up the class of an object by its name, and the installed gluonts may lack the modules. Modules with
    nothing but the class stand in for them until the block ends.
    """
    objects, before = [], {}
    for (_, name), state in zip(ALLOWED, GLUONTS_STATES, strict=True):
        module, _, attribute = name.rpartition(".")
        members = {"__module__": module, "__getstate__": lambda self, state=state: state}
        stand_in = ModuleType(module)
        setattr(stand_in, attribute, made := type(attribute, (), members))
        before[module] = sys.modules.get(module)
        sys.modules[module] = stand_in
        objects.append(made())
    try:
        yield objects
    finally:
        for module, original in before.items():
            if original is None:
                del sys.modules[module]
            else:
                sys.modules[module] = original


def write_tokenizer(path: Path) -> None:
    """Write tokenizer.json: a Unigram model of the printable ASCII characters, filled up with unused pieces."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import Unigram

    characters = [SPACE, *map(chr, range(33, 127)), "\n"]
    vocabulary = [(piece, 0.0) for piece in SPECIAL] + [(piece, -5.0) for piece in characters]
    vocabulary += [(f"{SPACE}unused{number}", -20.0) for number in range(PIECES - len(vocabulary))]
    vocabulary += [(f"<extra_id_{number}>", 0.0) for number in reversed(range(SENTINELS))]
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=2, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE)
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE)
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in SPECIAL])
    tokenizer.save(str(path), pretty=False)

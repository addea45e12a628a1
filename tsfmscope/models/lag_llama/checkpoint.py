"""Lag-Llama's checkpoints: our folders, and the released Lightning file.

The Lightning file is pickled and therefore not trusted. It is read with torch's weights-only loading and an
allowlist of two names, which are replaced by empty classes of ours, so that the file cannot run any code.
(gluonts has not had its own `modules.loss` since 0.17 anyway.)
"""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from tsfmscope.errors import ModelError
from tsfmscope.files import open_regular
from tsfmscope.models.common import checkpoint_folder, own_checkpoint
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.own_checkpoint import Release, SavedConfig, one_of
from tsfmscope.series.calendar import FEATURES

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.lag_llama.network import LagLlamaNetwork

NAME = "lag-llama"
# Prefix of every name in the released state dict, and in ours.
PREFIX = "model."
# gluonts' get_lags_for_frequency of Q, M, W, D, H, T, S with one default lag, merged, sorted, minus
# 1, as in the release. They are written out because gluonts may change; a test compares them with
# the installed gluonts.
LAGS = (
    *(0, 7, 8, 10, 11, 12, 13, 14, 19, 20, 21, 22, 23, 24, 26, 27, 28, 29, 30, 34, 35, 36, 46, 47, 48, 50, 51, 52, 55),
    *(57, 58, 59, 60, 61, 70, 71, 72, 83, 94, 95, 96, 102, 103, 104, 117, 118, 119, 120, 121, 142, 143, 144, 154, 155),
    *(156, 166, 167, 168, 177, 178, 179, 180, 181, 334, 335, 336, 362, 363, 364, 502, 503, 504, 670, 671, 672, 718),
    *(719, 720, 726, 727, 728, 1090, 1091, 1092),
)
# Largest number that a config may contain: more than any such model needs, and small enough for the
# network to be built.
LARGEST = 4096


class Inert:
    """Placeholder for a pickled object; it takes no arguments and keeps no state."""

    def __setstate__(self, state: object) -> None:
        """Discard the state."""


class StudentTOutput(Inert):
    """Placeholder for gluonts' head of that name."""


class NegativeLogLikelihood(Inert):
    """Placeholder for gluonts' loss of that name."""


# Objects in the released hyper-parameters that torch's weights-only loading does not allow by
# itself.
ALLOWED = (
    (StudentTOutput, "gluonts.torch.distributions.studentT.StudentTOutput"),
    (NegativeLogLikelihood, "gluonts.torch.modules.loss.NegativeLogLikelihood"),
)
# Hyper-parameters that give the shape, besides the lags.
RELEASED_KEYS = ("context_length", "n_layer", "n_head", "n_embd_per_head")
# Values that the released hyper-parameters must have.
EXPECTED = {"input_size": 1, "scaling": "robust", "time_feat": True, "rope_scaling": None}


class Config(SavedConfig):
    """Shape of a model, and how it reads windows; names are those of the released hyper-parameters.

    context_length: number of tokens in training.
    n_layer, n_head, n_embd_per_head: blocks, heads per block, width of one head.
    lags: offsets of the values that a token contains, in steps before the token's own step, ascending.
    missing: value of a missing step. "zero" is 0 in the data's units, as in the release. "median" is the
    context's median, from which a model learns faster, because 0 may be far from the level of the series: a
    small model's WQL, relative to that of forecasting the context's median, was 0.34 after 700 training steps
    with "median", and 0.54 after 1,100 steps with "zero".
    tokens: number of steps at the end of a context that become tokens; the steps before them are history.
    None means context_length.
    rope_scaling: None, or "linear", which divides positions by max(1, (tokens + horizon) / context_length).
    The release advises it for more tokens than in training.
    """

    context_length: Any
    n_layer: Any
    n_head: Any
    n_embd_per_head: Any
    lags: Any = LAGS
    missing: Annotated[str, one_of("zero", "median")] = "zero"
    tokens: Any = None
    rope_scaling: Annotated[str | None, one_of(None, "linear")] = None

    def find_problem(self) -> str | None:
        """Make a tuple of the lags. Return why a config cannot be used, or None."""
        if not isinstance(self.lags, list | tuple):
            return f"lags: got {self.lags!r}, expected a list of whole numbers"
        self.lags = tuple(self.lags)
        for name in ("context_length", "n_layer", "n_head", "n_embd_per_head", "tokens"):
            value = getattr(self, name)
            is_number = type(value) is int and 1 <= value <= LARGEST
            if not is_number and (name, value) != ("tokens", None):
                return f"{name}: got {value!r}, expected a whole number from 1 to {LARGEST}"
        if self.n_embd_per_head % 2:
            return f"n_embd_per_head: got {self.n_embd_per_head}, expected an even number, as rotation pairs"
        are_valid = all(type(lag) is int and 0 <= lag <= LARGEST for lag in self.lags)
        if not self.lags or not are_valid or list(self.lags) != sorted(set(self.lags)):
            return f"lags: got {list(self.lags)[:10]}, expected ascending whole numbers from 0 to {LARGEST}"
        return None


RELEASE = Release(Config, {}, NAME, PREFIX, is_ours=True)


def make_network(config: Mapping[str, Any]) -> LagLlamaNetwork:
    """Return a network of that shape, with weights drawn from torch's generator."""
    from tsfmscope.models.lag_llama.network import STATIC_FEATURES, LagLlamaNetwork

    inputs = len(config["lags"]) + STATIC_FEATURES + FEATURES
    layers, heads, head_width = (config[name] for name in ("n_layer", "n_head", "n_embd_per_head"))
    return LagLlamaNetwork(inputs=inputs, layers=layers, heads=heads, head_width=head_width)


def write(folder: Path, network: LagLlamaNetwork, config: Mapping[str, Any]) -> None:
    """Write config.json, and model.safetensors with the released names of tensors."""
    saved = {"model_type": NAME, **config}
    own_checkpoint.write(folder, network, saved, network.state_dict(prefix=PREFIX))


def read(folder: Path, attentions: Callable[[Any], Iterable[AttentionLayer]]) -> tuple[LagLlamaNetwork, dict[str, Any]]:
    """Read a folder that `write` wrote, or the released file if there are no safetensors.

    Raises ModelError, which names what is wrong.
    """
    path = folder / checkpoint_folder.PICKLED
    if checkpoint_folder.weight_files(folder) == [path]:
        config, state = _read_released(path)
        network = own_checkpoint.make_empty(lambda: make_network(config), attentions, None, folder)
        return own_checkpoint.fill(network, state, folder, prefix=PREFIX, source=path.name), config
    saved = checkpoint_folder.read_config(folder, NAME)
    checkpoint_folder.check_model_type(saved, folder, NAME)
    del saved["model_type"]
    return own_checkpoint.read(folder, saved, RELEASE, make_network, attentions)


def _read_released(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return config and weights of a Lightning checkpoint.

    They are read from hyper_parameters.model_kwargs and state_dict. Raises ModelError if they are not of this
    family.
    """
    state, hyper_parameters = read_lightning(path)
    saved = hyper_parameters.get("model_kwargs")
    if not isinstance(saved, Mapping):
        raise ModelError(f"{path}: hyper_parameters have no model_kwargs; this is no {NAME} checkpoint")
    wrong = {key: saved.get(key) for key, value in EXPECTED.items() if saved.get(key) != value}
    if wrong or not isinstance(saved.get("distr_output"), StudentTOutput):
        raise ModelError(f"{path}: got {wrong or saved.get('distr_output')}, expected {EXPECTED} and a StudentTOutput")
    try:
        config = {key: saved[key] for key in RELEASED_KEYS if key in saved}
        return Config.fill(config | {"lags": saved.get("lags_seq")}, str(path)), state
    except ValueError as error:
        raise ModelError(f"{error}; this is no {NAME} checkpoint") from error


def read_lightning(path: Path) -> tuple[dict[str, torch.Tensor], Mapping[str, Any]]:
    """Return state dict and hyper-parameters of a Lightning checkpoint.

    Raises ModelError, which names what is refused, missing or damaged.
    """
    import torch

    try:
        with torch.serialization.safe_globals(list(ALLOWED)), open_regular(path) as file:
            _check_unpacked_size(file)
            checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(f"{path}: {_describe_refusal(error)}") from error
    except CompressedParts as error:
        raise ModelError(f"{path}: {error}; save it again with torch.save") from error
    # A damaged pickle may raise any exception.
    except Exception as error:
        problem = f"{type(error).__name__}: {_first_line(error)}"
        raise ModelError(f"{path}: cannot be read ({problem}); fetch the checkpoint again") from error
    entries = checkpoint if isinstance(checkpoint, dict) else {}
    state, hyper_parameters = entries.get("state_dict"), entries.get("hyper_parameters")
    if not isinstance(state, dict) or not isinstance(hyper_parameters, dict):
        keys = sorted(map(str, checkpoint))[:10] if isinstance(checkpoint, dict) else type(checkpoint).__name__
        raise ModelError(f"{path}: got {keys}, expected a Lightning checkpoint with state_dict and hyper_parameters")
    if wrong := [name for name, value in state.items() if not isinstance(value, torch.Tensor)]:
        raise ModelError(f"{path}: state_dict holds {wrong[:5]}, which are no tensors; fetch the checkpoint again")
    return dict(state), hyper_parameters


class CompressedParts(Exception):
    """Error for a zip file whose parts are larger than the file, as torch.save writes none."""


def _check_unpacked_size(file: BinaryIO) -> None:
    """Raise CompressedParts if a zip file unpacks to more bytes than it has; other files are left to torch."""
    if zipfile.is_zipfile(file):
        unpacked, size = sum(part.file_size for part in zipfile.ZipFile(file).infolist()), file.seek(0, os.SEEK_END)
        if unpacked > size:
            raise CompressedParts(f"got {size:,} bytes that unpack to {unpacked:,}, expected no compression")
    file.seek(0)


def _describe_refusal(error: pickle.UnpicklingError) -> str:
    """Return one line that names the refused object and the allowed ones."""
    allowed = ", ".join(name for _, name in ALLOWED)
    match = re.search(r"GLOBAL (\S+)", str(error))
    problem = f"holds {match[1]}, which is refused" if match else f"is refused ({_first_line(error)})"
    return f"{problem}; apart from tensors and plain data, only {allowed} may be in a checkpoint. Nothing in it was run"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]

"""Lag-Llama (Rasul et al. 2024): a decoder with one token per step, described by the values at 84 lags.

The code is written by us, because the released code is not a package. Names, shapes and inputs are those of
the release, so that its checkpoint loads.
"""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, ClassVar, Self, cast

import numpy as np

from tsfmscope.errors import ModelError
from tsfmscope.files import open_regular
from tsfmscope.models.common import checkpoint_folder, own_checkpoint
from tsfmscope.models.common.attention import PARTS, AttentionLayer, layers_of_blocks
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.own_checkpoint import Release, SavedConfig, one_of
from tsfmscope.models.common.scale import clip_float32, rescale_extreme
from tsfmscope.models.facts import APACHE, Released, page
from tsfmscope.models.own_network import OwnNetwork
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.series.calendar import FEATURES, NOMINAL_FREQ, NOMINAL_START, calendar_features, step_dates, window_dates
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.lag_llama_network import LagLlamaNetwork, Standardised

# Windows that are scaled at once.
SLICE = 1024
# Prefix of every name in the released state dict, and in ours.
PREFIX = "model."
# gluonts' get_lags_for_frequency of Q, M, W, D, H, T, S with one default lag, merged, sorted, minus
# 1, as in the release. gluonts may change: a test compares them with the installed one.
LAGS = (
    *(0, 7, 8, 10, 11, 12, 13, 14, 19, 20, 21, 22, 23, 24, 26, 27, 28, 29, 30, 34, 35, 36, 46, 47, 48, 50, 51, 52, 55),
    *(57, 58, 59, 60, 61, 70, 71, 72, 83, 94, 95, 96, 102, 103, 104, 117, 118, 119, 120, 121, 142, 143, 144, 154, 155),
    *(156, 166, 167, 168, 177, 178, 179, 180, 181, 334, 335, 336, 362, 363, 364, 502, 503, 504, 670, 671, 672, 718),
    *(719, 720, 726, 727, 728, 1090, 1091, 1092),
)
# Hyper-parameters that give the shape, besides the lags.
RELEASED_KEYS = ("context_length", "n_layer", "n_head", "n_embd_per_head")
# Values that the released hyper-parameters must have.
EXPECTED = {"input_size": 1, "scaling": "robust", "time_feat": True, "rope_scaling": None}
# Largest number of a config: more than a model needs, small enough to build the network.
LARGEST = 4096


class Inert:
    """Placeholder for a pickled object; it takes no arguments and keeps no state."""

    def __setstate__(self, state: object) -> None:
        """Discard the state."""


class StudentTOutput(Inert):
    """Placeholder for gluonts' head of that name."""


class NegativeLogLikelihood(Inert):
    """Placeholder for gluonts' loss of that name."""


# Objects in the released hyper-parameters that torch's weights-only loading does not allow.
ALLOWED = (
    (StudentTOutput, "gluonts.torch.distributions.studentT.StudentTOutput"),
    (NegativeLogLikelihood, "gluonts.torch.modules.loss.NegativeLogLikelihood"),
)


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


class LagLlama(OwnNetwork):
    """Lag-Llama models.

    Rows of the decoder: one per step, for the last `tokens` steps of a context. Shorter contexts are padded
    on the left. The steps before the tokens, as far as the largest lag, are history: the lags and the scaler
    read them. A token whose own step is missing is PADDING; it is attended to nevertheless, because the
    release has no mask. The future is not read: only states of the context are returned, and the future
    cannot change them. Six calendar features of each step are inputs, as in the release. A series without
    dates has nominal ones (`tsfmscope.series.calendar`), and the features of steps before the first
    value are zero. loc and scale are inputs too (log1p|loc|, log scale), so a scaled copy of a window gives
    different states.
    """

    name: ClassVar[str] = "lag-llama"
    released: ClassVar[Released] = Released(
        ("time-series-foundation-models/Lag-Llama",), APACHE, page("time-series-foundation-models/Lag-Llama")
    )
    example: ClassVar[Mapping[str, Any]] = {
        "context_length": 48, "n_layer": 3, "n_head": 2, "n_embd_per_head": 8, "lags": (0, 1, 2, 7, 24),
    }  # fmt: skip
    revision: ClassVar[str | None] = "calendar features of dates"
    stacks: ClassVar[tuple[str, ...]] = ("decoder",)
    mlp: ClassVar[Mapping[str, str]] = {"mlp.c_fc1": "mlp_gate", "mlp.c_fc2": "mlp_in", "mlp.c_proj": "mlp_out"}
    lagged: ClassVar[bool] = True
    dated: ClassVar[bool] = True
    output_modules: ClassVar[tuple[str, ...]] = ("param_proj",)
    # Empty, because loc and scale are inputs of the network.
    equivariant: ClassVar[frozenset[str]] = frozenset()
    release: ClassVar[Release] = Release(Config, {}, "lag-llama", PREFIX, is_ours=True)
    network: LagLlamaNetwork

    @classmethod
    def make_network(cls, config: Mapping[str, Any]) -> LagLlamaNetwork:
        """Return a network of that shape, with weights drawn from torch's generator."""
        from tsfmscope.models.lag_llama_network import STATIC_FEATURES, LagLlamaNetwork

        inputs = len(config["lags"]) + STATIC_FEATURES + FEATURES
        layers, heads, head_width = (config[name] for name in ("n_layer", "n_head", "n_embd_per_head"))
        return LagLlamaNetwork(inputs=inputs, layers=layers, heads=heads, head_width=head_width)

    @classmethod
    def load(
        cls, folder: Path, *, device: str = "cpu", tokens: int | None = None, rope_scaling: str | None = None
    ) -> Self:
        """Return the model of a folder that `save` wrote, or of one with the released lag-llama.ckpt.

        tokens, rope_scaling: replace the checkpoint's values if they are not None; `save` stores them.
        Raises ModelError, which names what is wrong.
        """
        folder = Path(folder)
        path = folder / checkpoint_folder.PICKLED
        if checkpoint_folder.weight_files(folder) == [path]:
            config, state = _read_released(path)
            network = own_checkpoint.make_empty(lambda: cls.make_network(config), cls.attention_layers, None, folder)
            own_checkpoint.fill(network, state, folder, prefix=PREFIX, source=path.name)
            model = cls(network.to(device), config)
        else:
            model = super().load(folder, device=device)
        options = {"tokens": tokens, "rope_scaling": rope_scaling}
        changes = {name: value for name, value in options.items() if value is not None}
        model.config = Config.fill(model.config | changes, f"{folder} with options {changes}")
        return model

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the decoder."""
        return {"decoder": self.network.blocks}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield the self-attention of every block; queries and keys are rotated."""
        scale = network.head_width**-0.5
        return layers_of_blocks("decoder", network.blocks, "attn", PARTS | {"o": "c_proj"}, scale=scale, plain=False)

    @property
    def width(self) -> int:
        """Width of the hidden states: number of heads times their width."""
        return int(self.config["n_head"] * self.config["n_embd_per_head"])

    @property
    def tokens(self) -> int:
        """Number of context steps that become tokens."""
        return int(self.asked_tokens or self.config["tokens"] or self.config["context_length"])

    @property
    def max_context(self) -> int:
        """Number of steps that the model reads: its tokens, and the history as far as the largest lag."""
        return int(self.tokens + self.config["lags"][-1])

    def rope_factor(self, horizon: int) -> float:
        """Return the number by which positions are divided; 1 without `rope_scaling`."""
        if self.config["rope_scaling"] is None:
            return 1.0
        return float(max(1.0, (self.tokens + horizon) / self.config["context_length"]))

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of context steps that become tokens."""
        return {"decoder": min(context, self.tokens)}

    def loss(self, context: torch.Tensor, future: torch.Tensor, dates: torch.Tensor | None = None) -> torch.Tensor:
        """Return the mean Student-t negative log likelihood of each step after the first token.

        Each step is predicted from the steps before it. Missing steps have no weight. loc and scale are those
        of context and history. The likelihood is that of the scaled values: the release's loss is larger by
        the mean log scale, which does not depend on the weights.

        dates: seconds since 1970 of the steps of context and future, [B, C + H], with the smallest int64 for
        a step without a date. None: every context starts at the nominal date.
        """
        import torch

        from tsfmscope.models.lag_llama_network import features

        past = self._past(context.to(self.network.device))
        scaled = self._standardise(past, torch.ones(len(past), dtype=torch.float64, device=past.device))
        future = future.to(past.device)
        steps = torch.cat((scaled.steps, scaled.apply(future)), dim=1)
        observed = ~torch.isnan(torch.cat((past, future), dim=1))
        positions = torch.arange(past.shape[1] - self.tokens, steps.shape[1] - 1, device=past.device)
        calendar = self._calendar(_dates(context, future) if dates is None else dates, context.shape[1])
        inputs = features(steps, scaled.static, self._lags, positions, calendar[:, :-1].to(past.device))
        answer = self.network(inputs, self.rope_factor(future.shape[1]))
        distribution = torch.distributions.StudentT(answer.df, answer.loc, answer.scale, validate_args=False)
        weights = observed[:, positions + 1].float()
        losses = -distribution.log_prob(steps[:, positions + 1])
        return cast("torch.Tensor", (losses * weights).sum() / weights.sum().clamp_min(1.0))

    def _tokenize(self, windows: Windows) -> Tokens:
        import torch

        from tsfmscope.models.lag_llama_network import features

        context, factor = rescale_extreme(windows.context)
        calendar = self._window_calendar(windows)[:, : self.tokens]
        arrays: dict[str, list[np.ndarray]] = {"inputs": [], "loc": [], "scale": []}
        for start in range(0, len(windows), SLICE):
            part = slice(start, start + SLICE)
            scaled = self._standardise(self._past(torch.from_numpy(context[part])), torch.from_numpy(factor[part]))
            positions = torch.arange(self.max_context - self.tokens, self.max_context)
            of_tokens = features(scaled.steps, scaled.static, self._lags.cpu(), positions, calendar[part])
            arrays["inputs"].append(of_tokens.numpy())
            arrays["loc"].append(clip_float32(scaled.loc.double().numpy() * factor[part]))
            arrays["scale"].append(clip_float32(scaled.scale.double().numpy() * factor[part]))
        observed = ~np.isnan(self._past(torch.from_numpy(context))[:, -self.tokens :].numpy())
        kinds = np.where(observed, TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        rope = np.full(len(windows), self.rope_factor(windows.horizon), dtype=np.float32)
        inputs = {name: np.concatenate(parts) for name, parts in arrays.items()} | {"rope_factor": rope}
        return Tokens(inputs, {"decoder": kinds}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        import torch

        network, inputs = self.network.eval(), tokens.arrays["inputs"]
        rope_factor = float(tokens.arrays["rope_factor"][0])

        def forward(part: slice) -> None:
            network(torch.from_numpy(np.array(inputs[part])).to(network.device), rope_factor)

        return Pass({"decoder": Stack(network.blocks, network.transformer.ln_f)}, forward)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        import torch

        from tsfmscope.models.lag_llama_network import ROWS, sample_paths

        network = self.network.eval()
        context, factor = rescale_extreme(windows.context)
        rope_factor, parts = self.rope_factor(windows.horizon), []
        calendar = self._window_calendar(windows).to(network.device)
        for start in range(0, len(windows), max(1, ROWS // samples)):
            part = slice(start, start + max(1, ROWS // samples))
            past = self._past(torch.from_numpy(context[part])).to(network.device)
            scaled = self._standardise(past, torch.from_numpy(factor[part]).to(network.device))
            draws = np.stack([np.random.default_rng(seed).random((samples, windows.horizon)) for seed in seeds[part]])
            paths = sample_paths(network, scaled, self._lags, self.tokens, calendar[part], draws, rope_factor)
            quantiles = np.moveaxis(np.quantile(paths, levels, axis=1), 0, 1)  # [W, Q, H]
            loc, scale = (tensor.double().cpu().numpy()[:, None, None] for tensor in (scaled.loc, scaled.scale))
            parts.append((quantiles * scale + loc) * factor[part, None, None])
        return np.concatenate(parts)

    def _window_calendar(self, windows: Windows) -> torch.Tensor:
        """Return the calendar features of the tokens and the horizon of each window, [W, T + H, 6]."""
        import torch

        context = min(self.tokens, windows.context.shape[1])
        return self._calendar(torch.from_numpy(window_dates(windows, context).astype(np.int64)), context)

    def _calendar(self, dates: torch.Tensor, context: int) -> torch.Tensor:
        """Return the calendar features of tokens and horizon, [B, T + H, 6].

        dates: seconds since 1970, [B, context + H]. Features of tokens before the context are 0.
        """
        import torch
        from torch.nn import functional

        seconds: np.ndarray = dates[:, max(0, context - self.tokens) :].cpu().numpy()
        features = torch.from_numpy(calendar_features(seconds.view("datetime64[s]")))
        return functional.pad(features, (0, 0, max(0, self.tokens - context), 0))

    @property
    def _lags(self) -> torch.Tensor:
        import torch

        return torch.tensor(self.config["lags"], device=self.network.device)

    def _past(self, context: torch.Tensor) -> torch.Tensor:
        """Return the last steps [W, max_context] of contexts [W, C], with NaN before the first step."""
        from torch.nn import functional

        context = context[:, -self.max_context :].float()
        return functional.pad(context, (self.max_context - context.shape[1], 0), value=float("nan"))

    def _standardise(self, past: torch.Tensor, factor: torch.Tensor) -> Standardised:
        from tsfmscope.models.lag_llama_network import standardise

        return standardise(past, factor, self.config["missing"])


def _dates(context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
    """Return nominal dates of the steps of context and future, [B, C + H], in seconds since 1970."""
    import torch

    steps = context.shape[1] + future.shape[1]
    dates = step_dates(np.array([NOMINAL_START]), NOMINAL_FREQ, np.zeros(1, dtype=np.int64), steps)
    return torch.from_numpy(dates.astype(np.int64)).expand(len(context), -1)


def _read_released(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return config and weights of a Lightning checkpoint; ModelError if it is of another family."""
    state, hyper_parameters = read_lightning(path)
    saved = hyper_parameters.get("model_kwargs")
    if not isinstance(saved, Mapping):
        raise ModelError(f"{path}: hyper_parameters have no model_kwargs; this is no {LagLlama.name} checkpoint")
    wrong = {key: saved.get(key) for key, value in EXPECTED.items() if saved.get(key) != value}
    if wrong or not isinstance(saved.get("distr_output"), StudentTOutput):
        raise ModelError(f"{path}: got {wrong or saved.get('distr_output')}, expected {EXPECTED} and a StudentTOutput")
    try:
        config = {key: saved[key] for key in RELEASED_KEYS if key in saved}
        return Config.fill(config | {"lags": saved.get("lags_seq")}, str(path)), state
    except ValueError as error:
        raise ModelError(f"{error}; this is no {LagLlama.name} checkpoint") from error


def read_lightning(path: Path) -> tuple[dict[str, torch.Tensor], Mapping[str, Any]]:
    """Return state dict and hyper-parameters of a Lightning checkpoint, which is pickled and therefore not trusted.

    It is read with torch's weights-only loading and an allowlist of two names, which are replaced by empty classes of
    ours, so that the file cannot run any code. (gluonts has not had its own `modules.loss` since 0.17 anyway.)
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

"""Lag-Llama (Rasul et al. 2024): a decoder with one token per step, described by the values at 84 lags.

The code is written by us, because the released code is not a package. Names, shapes and inputs are those of
the release, so that its checkpoint loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tsfmscope.models.common.attention import PARTS, AttentionLayer, layers_of_blocks
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.scale import clip_float32, rescale_extreme
from tsfmscope.models.facts import APACHE, Released, page
from tsfmscope.models.lag_llama import checkpoint
from tsfmscope.models.own_network import CheckpointModule, OwnNetwork
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.series.calendar import NOMINAL_FREQ, NOMINAL_START, calendar_features, step_dates, window_dates
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.lag_llama.network import LagLlamaNetwork, Standardised

# Windows that are scaled at once.
SLICE = 1024


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
    checkpoints: ClassVar[CheckpointModule] = checkpoint
    stacks: ClassVar[tuple[str, ...]] = ("decoder",)
    mlp: ClassVar[Mapping[str, str]] = {"mlp.c_fc1": "mlp_gate", "mlp.c_fc2": "mlp_in", "mlp.c_proj": "mlp_out"}
    lagged: ClassVar[bool] = True
    dated: ClassVar[bool] = True
    output_modules: ClassVar[tuple[str, ...]] = ("param_proj",)
    # Empty, because loc and scale are inputs of the network.
    equivariant: ClassVar[frozenset[str]] = frozenset()
    network: LagLlamaNetwork

    @classmethod
    def load(
        cls, folder: Path, *, device: str = "cpu", tokens: int | None = None, rope_scaling: str | None = None
    ) -> Self:
        """Return the model of a folder that `save` wrote, or of one with the released lag-llama.ckpt.

        tokens, rope_scaling: replace the checkpoint's values if they are not None; `save` stores them.
        Raises ModelError, which names what is wrong.
        """
        model = super().load(folder, device=device)
        options = {"tokens": tokens, "rope_scaling": rope_scaling}
        changes = {name: value for name, value in options.items() if value is not None}
        model.config = checkpoint.Config.fill(model.config | changes, f"{folder} with options {changes}")
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

        from tsfmscope.models.lag_llama.network import features

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
        loss: torch.Tensor = (losses * weights).sum() / weights.sum().clamp_min(1.0)
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        import torch

        from tsfmscope.models.lag_llama.network import features

        context, factor = rescale_extreme(windows.context)
        calendar = self._window_calendar(windows)[:, : self.tokens]
        arrays: dict[str, list[np.ndarray]] = {"inputs": [], "loc": [], "scale": []}
        for start in range(0, len(windows), SLICE):
            part = slice(start, start + SLICE)
            scaled = self._standardise(self._past(torch.from_numpy(context[part])), torch.from_numpy(factor[part]))
            positions = torch.arange(self.max_context - self.tokens, self.max_context)
            inputs = features(scaled.steps, scaled.static, self._lags.cpu(), positions, calendar[part])
            arrays["inputs"].append(inputs.numpy())
            arrays["loc"].append(clip_float32(scaled.loc.double().numpy() * factor[part]))
            arrays["scale"].append(clip_float32(scaled.scale.double().numpy() * factor[part]))
        observed = ~np.isnan(self._past(torch.from_numpy(context))[:, -self.tokens :].numpy())
        kinds = np.where(observed, TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        rope = np.full(len(windows), self.rope_factor(windows.horizon), dtype=np.float32)
        return Tokens(
            arrays={name: np.concatenate(parts) for name, parts in arrays.items()} | {"rope_factor": rope},
            kinds={"decoder": kinds},
            types={},
            series=windows.series,
            origin=windows.origin,
        )

    def _pass(self, tokens: Tokens) -> Pass:
        import torch

        network, inputs = self.network.eval(), tokens.arrays["inputs"]
        rope_factor = float(tokens.arrays["rope_factor"][0])

        def forward(part: slice) -> None:
            network(torch.from_numpy(np.array(inputs[part])).to(network.device), rope_factor)

        return Pass({"decoder": Stack(network.blocks, network.transformer.ln_f)}, forward)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        import torch

        from tsfmscope.models.lag_llama.network import ROWS, sample_paths

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
        from tsfmscope.models.lag_llama.network import standardise

        return standardise(past, factor, self.config["missing"])


def _dates(context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
    """Return nominal dates of the steps of context and future, [B, C + H], in seconds since 1970."""
    import torch

    steps = context.shape[1] + future.shape[1]
    dates = step_dates(np.array([NOMINAL_START]), NOMINAL_FREQ, np.zeros(1, dtype=np.int64), steps)
    return torch.from_numpy(dates.astype(np.int64)).expand(len(context), -1)

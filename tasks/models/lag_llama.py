"""Lag-Llama (Rasul et al. 2024): a decoder whose tokens are one step each, described by the values at 84 lags.

Written by us: the released code is no package. Names, shapes and inputs are the release's, so its checkpoint loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tasks.models import folders
from tasks.models import lag_llama_checkpoint as checkpoint
from tasks.models.attention import AttentionLayer
from tasks.models.base import Forecaster
from tasks.models.capture import Pass, Stack
from tasks.models.scale import saturated, tamed
from tasks.models.types import TokenKind, Tokens, WeightMatrix
from tasks.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tasks.models.lag_llama_checkpoint import LagLlamaConfig
    from tasks.models.lag_llama_network import LagLlamaNetwork, Standardised

SLICE = 1024  # windows scaled at once


class LagLlama(Forecaster):
    """Rows of the decoder: one a step, the last `tokens` steps of a context; shorter contexts are padded on the left.

    Steps before them, as far as the largest lag, are history: read as lags and by the scaler. A token whose own step is
    missing is PADDING, but the release has no mask: it is attended to. The future is not read: the states asked for are
    those of the context, which it could not change. Windows have no calendar and neither have training batches, so the
    six time features are 0, the middle of the range [-0.5, 0.5] of each; the release reads the series' dates. loc and
    scale are inputs too (log1p|loc|, log scale), so a scaled copy of a window is another window.
    """

    name: ClassVar[str] = "lag-llama"
    stacks: ClassVar[tuple[str, ...]] = ("decoder",)
    lagged: ClassVar[bool] = True
    network: LagLlamaNetwork

    def __init__(self, network: LagLlamaNetwork, config: LagLlamaConfig, *, batch: int = 64) -> None:
        """Wrap a network of that config; batch: windows a forward pass."""
        self.network = network.eval()
        self.config = config
        self.batch = batch

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Random weights. Keys: those of `lag_llama_checkpoint.LagLlamaConfig`; those of DEFAULTS where they differ."""
        full = checkpoint.made_config(config, cls.name)
        return cls(folders.build(lambda: checkpoint.make_network(full), seed), full)

    @classmethod
    def load(
        cls, folder: Path, *, device: str = "cpu", tokens: int | None = None, rope_scaling: str | None = None
    ) -> Self:
        """A folder that `save` wrote, or one with the released lag-llama.ckpt. ModelError names what is wrong.

        tokens, rope_scaling: how to read windows, where not as the checkpoint says; `save` keeps them.
        """
        network, config = checkpoint.read(Path(folder))
        if tokens is not None:
            config = replace(config, tokens=tokens)
        if rope_scaling is not None:
            config = replace(config, rope_scaling=rope_scaling)
        return cls(network.to(device), config)

    def save(self, folder: Path) -> None:
        """config.json, and model.safetensors under the released names."""
        checkpoint.write(folder, self.network, self.config)

    @property
    def layers(self) -> Mapping[str, int]:
        """Blocks of the decoder."""
        return {"decoder": self.config.n_layer}

    @property
    def width(self) -> int:
        """Heads times their width."""
        return self.config.n_head * self.config.n_embd_per_head

    @property
    def tokens(self) -> int:
        """Steps of a context that become tokens."""
        return self.asked_tokens or self.config.tokens or self.config.context_length

    @property
    def max_context(self) -> int:
        """Steps of context that the model reads: its tokens, and history as far as the largest lag."""
        return self.tokens + self.config.lags[-1]

    def rope_factor(self, horizon: int) -> float:
        """What positions are divided by."""
        if self.config.rope_scaling is None:
            return 1.0
        return max(1.0, (self.tokens + horizon) / self.config.context_length)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Steps of the context that become tokens."""
        return {"decoder": min(context, self.tokens)}

    def weights(self) -> Iterator[WeightMatrix]:
        """q, k, v, o, mlp_gate (the one in the SiLU), mlp_in, mlp_out; `layer` counts from 1, as their states do."""
        for layer, block in enumerate(self.network.blocks, start=1):
            attn, heads = block.attn, self.config.n_head
            for what, module in {"q": attn.q_proj, "k": attn.k_proj, "v": attn.v_proj, "o": attn.c_proj}.items():
                yield WeightMatrix.of(module, "decoder", layer, what, attention="self", heads=heads)
            mlp = {"mlp_gate": block.mlp.c_fc1, "mlp_in": block.mlp.c_fc2, "mlp_out": block.mlp.c_proj}
            for what, module in mlp.items():
                yield WeightMatrix.of(module, "decoder", layer, what)

    def attentions(self) -> Iterator[AttentionLayer]:
        """Self-attention of every block; queries and keys are rotated."""
        from tasks.models.lag_llama_network import attentions

        return attentions(self.network)

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Student-t negative log likelihood of each step after the first token, given those before it.

        Missing steps weigh nothing; loc and scale are those of context and history. Of scaled values: the release's
        loss is larger by the mean log scale, which no weight moves.
        """
        import torch

        from tasks.models.lag_llama_network import features

        past = self._past(context.to(self.network.device))
        scaled = self._standardised(past, torch.ones(len(past), dtype=torch.float64, device=past.device))
        future = future.to(past.device)
        steps = torch.cat((scaled.steps, scaled.apply(future)), dim=1)
        observed = ~torch.isnan(torch.cat((past, future), dim=1))
        positions = torch.arange(past.shape[1] - self.tokens, steps.shape[1] - 1, device=past.device)
        inputs = features(steps, scaled.static, self._lags, positions)
        answer = self.network(inputs, self.rope_factor(future.shape[1]))
        distribution = torch.distributions.StudentT(answer.df, answer.loc, answer.scale, validate_args=False)
        weights = observed[:, positions + 1].float()
        losses = -distribution.log_prob(steps[:, positions + 1])
        loss: torch.Tensor = (losses * weights).sum() / weights.sum().clamp_min(1.0)
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        import torch

        from tasks.models.lag_llama_network import features

        context, factor = tamed(windows.context)
        arrays: dict[str, list[np.ndarray]] = {"inputs": [], "loc": [], "scale": []}
        for start in range(0, len(windows), SLICE):
            part = slice(start, start + SLICE)
            scaled = self._standardised(self._past(torch.from_numpy(context[part])), torch.from_numpy(factor[part]))
            positions = torch.arange(self.max_context - self.tokens, self.max_context)
            arrays["inputs"].append(features(scaled.steps, scaled.static, self._lags.cpu(), positions).numpy())
            arrays["loc"].append(saturated(scaled.loc.double().numpy() * factor[part]))
            arrays["scale"].append(saturated(scaled.scale.double().numpy() * factor[part]))
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

        from tasks.models.lag_llama_sampling import ROWS, sample_paths

        network = self.network.eval()
        context, factor = tamed(windows.context)
        rope_factor, parts = self.rope_factor(windows.horizon), []
        for start in range(0, len(windows), max(1, ROWS // samples)):
            part = slice(start, start + max(1, ROWS // samples))
            past = self._past(torch.from_numpy(context[part])).to(network.device)
            scaled = self._standardised(past, torch.from_numpy(factor[part]).to(network.device))
            draws = np.stack([np.random.default_rng(seed).random((samples, windows.horizon)) for seed in seeds[part]])
            paths = sample_paths(network, scaled, self._lags, self.tokens, draws, rope_factor)
            quantiles = np.moveaxis(np.quantile(paths, levels, axis=1), 0, 1)  # [W, Q, H]
            loc, scale = (place.double().cpu().numpy()[:, None, None] for place in (scaled.loc, scaled.scale))
            parts.append((quantiles * scale + loc) * factor[part, None, None])
        return np.concatenate(parts)

    @property
    def _lags(self) -> torch.Tensor:
        import torch

        return torch.tensor(self.config.lags, device=self.network.device)

    def _past(self, context: torch.Tensor) -> torch.Tensor:
        """The last steps [W, max_context] of contexts [W, C], NaN before their first."""
        from torch.nn import functional

        context = context[:, -self.max_context :].float()
        return functional.pad(context, (self.max_context - context.shape[1], 0), value=float("nan"))

    def _standardised(self, past: torch.Tensor, factor: torch.Tensor) -> Standardised:
        from tasks.models.lag_llama_network import standardise

        return standardise(past, factor, self.config.missing)

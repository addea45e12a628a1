"""Chronos-T5 (Ansari et al. 2024): mean-scaled, quantised values as tokens of an encoder-decoder T5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from jaxtyping import Float64

from tasks.models import folders, t5
from tasks.models.chebyshev import chebyshev_embedding
from tasks.models.scale import saturated, tamed
from tasks.models.types import TokenKind, Tokens
from tasks.series.types import Windows

if TYPE_CHECKING:
    import torch

REQUIRED = (*t5.SHAPE, "n_tokens", "context_length", "prediction_length")
DEFAULTS = {  # config.json of the released amazon/chronos-t5-*; dropout is theirs too
    "dropout_rate": 0.1,
    "initializer_factor": 0.05,
    "low_limit": -15.0,
    "high_limit": 15.0,
    "num_samples": 20,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "chebyshev_rank": None,  # rank of a frozen embedding of the values; None: trained, and the head's too
}
PAD, EOS, SPECIAL = 0, 1, 2  # ids of padding and end, number of special ids, in every released config


class ChronosT5(t5.T5Ids, t5.T5Family):
    """Rows of the encoder: one a context step, then EOS. Rows of the decoder: START, then the future but its last step.

    A row's type is its own input id, in both stacks. A decoder row is FUTURE where its own input was observed; row 0
    reads the start token and stands for no value (kind START). As in training, missing future steps are read as PAD
    and attended to, as T5 masks nothing in its decoder.
    """

    name: ClassVar[str] = "chronos-t5"
    network: Any  # transformers' T5ForConditionalGeneration

    def __init__(self, network: Any, *, batch: int = 32) -> None:
        """Wrap a T5ForConditionalGeneration whose config holds `chronos_config`; batch: windows a forward pass.

        A `chebyshev_rank` in the config freezes the embedding of both stacks.
        """
        from chronos.chronos import ChronosConfig

        from tasks.models.t5_attention import use_windowwise

        self.network = network.eval()
        use_windowwise(network.encoder)
        self.batch = batch
        self.chronos = ChronosConfig(**network.config.chronos_config)
        self._tokenizer = self.chronos.create_tokenizer()
        if getattr(network.config, "chebyshev_rank", None) is not None:
            network.shared.weight.requires_grad_(False)

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Random weights. Keys: REQUIRED, and those of DEFAULTS where they differ; input and output ids are tied.

        Not so where `chebyshev_rank` is given: then the embedding of both stacks is `chebyshev_embedding` of the bin
        centres, rounded to float32 and frozen, and the head is its own and trained, drawn and scaled as the tied one.
        """
        from transformers import T5Config

        full = folders.filled_config(config, REQUIRED, DEFAULTS, cls.name)
        chronos = {
            "tokenizer_class": "MeanScaleUniformBins",
            "tokenizer_kwargs": {"low_limit": full["low_limit"], "high_limit": full["high_limit"]},
            "n_special_tokens": SPECIAL,
            "pad_token_id": PAD,
            "eos_token_id": EOS,
            "use_eos_token": True,
            "model_type": "seq2seq",
            **{k: full[k] for k in ("context_length", "prediction_length", "n_tokens")},
            **{k: full[k] for k in ("num_samples", "temperature", "top_k", "top_p")},
        }
        t5_config = T5Config(
            **{k: full[k] for k in (*t5.SHAPE, "dropout_rate", "initializer_factor")},
            vocab_size=full["n_tokens"],
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=PAD,
            chronos_pipeline_class="ChronosPipeline",
            chronos_config=chronos,
        )
        frozen = {} if full["chebyshev_rank"] is None else {"chebyshev_rank": full["chebyshev_rank"]}
        t5_config.update(frozen)
        made = cls(folders.build(lambda: cls._network_class(frozen)(t5_config), seed))
        if frozen:
            made._freeze(full["chebyshev_rank"], seed)
        return made

    def _freeze(self, rank: int, seed: int) -> None:
        """Set the embedding of both stacks, and draw a head as T5 draws the tied one."""
        import torch

        centres, head = self._tokenizer.centers.double().numpy(), self.network.lm_head.weight
        values, special = chebyshev_embedding(centres, rank=rank, width=self.width, seed=seed)
        # the id between the special ones and the first bin is never made; where it is sampled, it is read as that bin
        rows = np.concatenate((special, values[:1], values))
        drawn = torch.randn(head.shape, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            self.network.shared.weight.copy_(torch.from_numpy(rows))
            head.copy_(drawn * self.network.config.initializer_factor)

    @classmethod
    def _network_class(cls, config: Mapping[str, Any]) -> Any:
        from transformers import T5ForConditionalGeneration

        return t5.untied(T5ForConditionalGeneration) if "chebyshev_rank" in config else T5ForConditionalGeneration

    @classmethod
    def _foreign(cls, block: Mapping[str, Any]) -> str | None:
        got, wanted = (block.get("model_type"), block.get("tokenizer_class")), ("seq2seq", "MeanScaleUniformBins")
        return None if got == wanted else f"got model_type, tokenizer_class {got}, expected {wanted}"

    def id_values(self) -> Float64[np.ndarray, " id"]:
        """Bin centres, as the package's `output_transform` answers them; NaN of PAD, EOS and the id below the bins."""
        centres = self._tokenizer.centers.double().cpu().numpy()
        return np.pad(centres, (self.chronos.n_special_tokens + 1, 0), constant_values=np.nan)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Context steps; horizon less the last step, which no decoder row reads."""
        return {"encoder": min(context, self.max_context), "decoder": horizon - 1}

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Cross entropy of the future's ids and EOS, missing steps left out (chronos' scripts/training/train.py)."""
        device = self.network.device
        ids, mask, scale = self._context_ids(context.to(device))
        labels = self._ids(future.to(device), scale)
        labels = self._with_eos(labels.masked_fill(labels == PAD, -100))
        loss: torch.Tensor = self.network(input_ids=ids, attention_mask=mask, labels=labels).loss
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        import torch

        context, factor = tamed(windows.context)
        ids, mask, scale = self._context_ids(torch.from_numpy(context))
        future = torch.from_numpy((windows.future / factor[:, None]).astype(np.float32))
        start = torch.full((len(windows), 1), self.network.config.decoder_start_token_id)
        decoder = torch.cat((start, self._ids(future, scale)), dim=1)[:, : windows.horizon].int().numpy()
        encoder, observed = ids.int().numpy(), mask.numpy()
        encoder_kinds = np.where(observed, TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        if self.chronos.use_eos_token:
            encoder_kinds[:, -1] = TokenKind.EOS
        decoder_kinds = np.where(decoder == PAD, TokenKind.PADDING, TokenKind.FUTURE).astype(np.int8)
        decoder_kinds[:, 0] = TokenKind.START
        scales = saturated(scale.numpy().astype(np.float64) * factor)
        return Tokens(
            arrays={"ids": encoder, "mask": observed, "scale": scales, "decoder_ids": decoder},
            kinds={"encoder": encoder_kinds, "decoder": decoder_kinds},
            types={"encoder": encoder, "decoder": decoder},
            series=windows.series,
            origin=windows.origin,
        )

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        import torch

        from tasks.models.t5_sampling import sample_ids

        self.network.eval()
        context, factor = tamed(windows.context)
        draws = np.stack([np.random.default_rng(seed).random((samples, windows.horizon)) for seed in seeds])
        device, done, blocks = self.network.device, 0, []
        history = torch.from_numpy(context)
        while done < windows.horizon:  # the package's recursion: the (lower) median joins the context
            steps = min(self.prediction_length, windows.horizon - done)
            ids, mask, scale = self._context_ids(history)
            uniforms = torch.from_numpy(draws[:, :, done : done + steps])
            sampled = sample_ids(self.network, ids.to(device), mask.to(device), uniforms, self.chronos)
            values = self._tokenizer.output_transform(sampled.cpu(), scale)
            blocks.append(values)
            history = torch.cat((history, values.median(dim=1).values), dim=-1)
            done += steps
        paths = torch.cat(blocks, dim=-1).numpy().astype(np.float64)  # [W, S, H]
        quantiles: np.ndarray = np.moveaxis(np.quantile(paths, levels, axis=1), 0, 1) * factor[:, None, None]
        return quantiles

    def _context_ids(self, context: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids [B, T] with EOS, mask [B, T], scale [B]; the package's own transform, kept on the context's device."""
        import torch

        context = context[..., -self.max_context :].float()
        observed = ~torch.isnan(context)
        scale = torch.nansum(context.abs() * observed, dim=-1) / observed.sum(dim=-1)
        scale = torch.where(scale > 0, scale, 1.0)
        ids = self._ids(context, scale)
        if not self.chronos.use_eos_token:
            return ids, observed, scale
        return self._with_eos(ids), torch.cat((observed, observed.new_ones(len(ids), 1)), dim=1), scale

    def _ids(self, values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        import torch

        boundaries = self._tokenizer.boundaries.to(values.device)
        ids: torch.Tensor = (
            torch.bucketize(values / scale[:, None], boundaries, right=True) + self.chronos.n_special_tokens
        )
        ids = ids.clamp(0, self.chronos.n_tokens - 1)
        return ids.masked_fill(torch.isnan(values), PAD)

    def _with_eos(self, ids: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.cat((ids, ids.new_full((len(ids), 1), EOS)), dim=1)

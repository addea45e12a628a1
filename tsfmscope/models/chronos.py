"""Chronos-T5 (Ansari et al. 2024), whose tokens are quantised values, and Chronos-Bolt, which reads patches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from jaxtyping import Float64, Int8

from tsfmscope.errors import HealthError
from tsfmscope.models.base import QUANTILES
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.capture import Pass
from tsfmscope.models.common.embeddings import chebyshev_embedding
from tsfmscope.models.common.scale import clip_float32, remove_level, rescale_extreme
from tsfmscope.models.facts import APACHE, Package, Released, page
from tsfmscope.models.t5 import SHAPE, SMALL, T5Family, T5Ids, make_config, with_own_head
from tsfmscope.models.types import COMPARED_LEVELS, ForecastGraph, PackageForecast, TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

REQUIRED = (*SHAPE, "n_tokens", "context_length", "prediction_length")
# Values in config.json of the released amazon/chronos-t5-*, dropout included. `chebyshev_rank` is
# ours: rank of a frozen embedding of the values; None: a trained embedding, tied to the head.
DEFAULTS = {
    "dropout_rate": 0.1, "initializer_factor": 0.05, "low_limit": -15.0, "high_limit": 15.0, "num_samples": 20,
    "temperature": 1.0, "top_k": 50, "top_p": 1.0, "chebyshev_rank": None,
}  # fmt: skip
# Ids of padding and end, and the number of special ids, in every released config.
PAD, EOS, SPECIAL = 0, 1, 2
BOLT_REQUIRED = (*SHAPE, "context_length", "prediction_length")
# Values in config.json of the released amazon/chronos-bolt-*.
BOLT_DEFAULTS = {
    "dropout_rate": 0.1, "initializer_factor": 0.05, "input_patch_size": 16, "input_patch_stride": 16,
    "quantiles": QUANTILES, "use_reg_token": True,
}  # fmt: skip


class ChronosT5(T5Ids, T5Family):
    """Chronos-T5 models.

    Rows of the encoder: one per context step, then EOS. Rows of the decoder: START, then one per step of the
    future except the last. In both stacks, the type of a row is its own input id. A decoder row is FUTURE if
    its own input was observed. Row 0 of the decoder reads the start token and stands for no value (kind
    START). As in training, missing future steps are read as PAD and attended to, because the decoder gets no
    padding mask.
    """

    name = "chronos-t5"
    released = Released(
        tuple(f"amazon/chronos-t5-{size}" for size in ("tiny", "mini", "small", "base", "large")),
        APACHE,
        "github.com/amazon-science/chronos-forecasting, README.md",
    )
    package = Package(
        "chronos-forecasting", "chronos:BaseChronosPipeline", network="transformers:T5ForConditionalGeneration"
    )
    architectures = ("ChronosPipeline",)
    config_keys = ("chronos_config.tokenizer_class",)
    example: ClassVar[Mapping[str, Any]] = {
        **SMALL, "context_length": 48, "prediction_length": 12, "n_tokens": 128, "initializer_factor":
        1.0,
    }  # fmt: skip
    # A window is divided by its mean absolute value, and is not centred.
    equivariant = frozenset({"scale"})

    def __init__(self, network: Any, *, batch: int = 32) -> None:
        """Wrap a T5ForConditionalGeneration whose config contains `chronos_config`.

        batch: windows per forward pass. A `chebyshev_rank` in the config freezes the embedding of both
        stacks.
        """
        from chronos.chronos import ChronosConfig

        from tsfmscope.models.t5_decoding import use_windowwise

        super().__init__(network, batch=batch)
        use_windowwise(network.encoder)
        self.chronos = ChronosConfig(**network.config.chronos_config)
        self._tokenizer = self.chronos.create_tokenizer()
        if getattr(network.config, "chebyshev_rank", None) is not None:
            network.shared.weight.requires_grad_(False)

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights.

        config: the keys of REQUIRED, and any of DEFAULTS. By default the head shares the weights of the
        embedding. If `chebyshev_rank` is given, the embedding of both stacks is `chebyshev_embedding` of the
        bin centres, rounded to float32 and frozen. The head then has weights of its own, which are trained
        and initialised as a tied head is.
        Raises ValueError for missing or unknown keys and for an impossible `chebyshev_rank`.
        """
        full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, cls.name)
        chronos = {
            "tokenizer_class": "MeanScaleUniformBins",
            "tokenizer_kwargs": {"low_limit": full["low_limit"], "high_limit": full["high_limit"]},
            **{"n_special_tokens": SPECIAL, "pad_token_id": PAD, "eos_token_id": EOS, "use_eos_token": True},
            **{k: full[k] for k in ("context_length", "prediction_length", "n_tokens")},
            **{k: full[k] for k in ("num_samples", "temperature", "top_k", "top_p")},
            "model_type": "seq2seq",
        }
        own = {"chronos_pipeline_class": "ChronosPipeline", "chronos_config": chronos}
        t5_config = make_config(full, full["n_tokens"], **own)
        frozen = {} if full["chebyshev_rank"] is None else {"chebyshev_rank": full["chebyshev_rank"]}
        t5_config.update(frozen)
        model = cls(checkpoint_folder.build(lambda: cls._network_class(frozen)(t5_config), seed))
        if frozen:
            model._freeze(full["chebyshev_rank"], seed)
        return model

    def _freeze(self, rank: int, seed: int) -> None:
        """Set the embedding of both stacks, and initialise the head as T5 initialises a tied one."""
        import torch

        centres, head = self._tokenizer.centers.double().numpy(), self.network.lm_head.weight
        values, special = chebyshev_embedding(centres, rank=rank, width=self.width, seed=seed)
        # The tokeniser never produces the id between the special ids and the first bin. If that id
        # is sampled, it is read as the first bin, so it gets the same vector.
        rows = np.concatenate((special, values[:1], values))
        gaussian = torch.randn(head.shape, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            self.network.shared.weight.copy_(torch.from_numpy(rows))
            head.copy_(gaussian * self.network.config.initializer_factor)

    @classmethod
    def _network_class(cls, config: Mapping[str, Any]) -> Any:
        from transformers import T5ForConditionalGeneration

        return with_own_head(T5ForConditionalGeneration) if "chebyshev_rank" in config else T5ForConditionalGeneration

    @classmethod
    def _mismatch(cls, block: Mapping[str, Any]) -> str | None:
        actual, expected = (block.get("model_type"), block.get("tokenizer_class")), ("seq2seq", "MeanScaleUniformBins")
        return None if actual == expected else f"got model_type, tokenizer_class {actual}, expected {expected}"

    def id_values(self) -> Float64[np.ndarray, " id"]:
        """Return the bin centres that the package's `output_transform` uses.

        PAD, EOS and the id below the first bin have NaN.
        """
        centres = self._tokenizer.centers.double().cpu().numpy()
        return np.pad(centres, (self.chronos.n_special_tokens + 1, 0), constant_values=np.nan)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of context steps, and the horizon minus 1 for the decoder.

        No decoder row reads the last step of the horizon.
        """
        return {"encoder": min(context, self.max_context), "decoder": horizon - 1}

    def stock_model(self) -> Any:
        """Return a ChronosPipeline of the package chronos."""
        from chronos import ChronosPipeline
        from chronos.chronos import ChronosModel

        network = ChronosModel(config=self.chronos, model=self.network)
        return ChronosPipeline(tokenizer=self.chronos.create_tokenizer(), model=network)

    def forecast_with_package(self, network: Any, windows: Windows, tokens: Tokens) -> PackageForecast:
        """Return the logits on our ids, which must be those of the package's tokenizer."""
        import torch

        tokenizer = self.stock_model_of(network).tokenizer
        ids, mask, _ = tokenizer.context_input_transform(torch.from_numpy(windows.context))
        if not (np.array_equal(ids, tokens.arrays["ids"]) and np.array_equal(mask, tokens.arrays["mask"])):
            raise HealthError("the package's tokenizer makes other ids")
        return super().forecast_with_package(network, windows, tokens)

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the cross entropy of the future's ids and EOS; missing steps are left out.

        Source: scripts/training/train.py of chronos-forecasting.
        """
        device = self.network.device
        ids, mask, scale = self._context_ids(context.to(device))
        labels = self._ids(future.to(device), scale)
        labels = self._with_eos(labels.masked_fill(labels == PAD, -100))
        loss: torch.Tensor = self.network(input_ids=ids, attention_mask=mask, labels=labels).loss
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        import torch

        context, factor = rescale_extreme(windows.context)
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
        scales = clip_float32(scale.numpy().astype(np.float64) * factor)
        arrays = {"ids": encoder, "mask": observed, "scale": scales, "decoder_ids": decoder}
        kinds, types = {"encoder": encoder_kinds, "decoder": decoder_kinds}, {"encoder": encoder, "decoder": decoder}
        return Tokens(arrays, kinds, types, windows.series, windows.origin)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        import torch

        from tsfmscope.models.t5_decoding import sample_ids

        self.network.eval()
        context, factor = rescale_extreme(windows.context)
        draws = np.stack([np.random.default_rng(seed).random((samples, windows.horizon)) for seed in seeds])
        device, done, blocks = self.network.device, 0, []
        history = torch.from_numpy(context)
        # The package's recursion: the (lower) median of the samples is appended to the context.
        while done < windows.horizon:
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
        """Return ids [B, T] with EOS, mask [B, T] and scale [B].

        The computation is that of the package's own transform, but stays on the context's device.
        """
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


class ChronosBolt(T5Family):
    """Chronos-Bolt models.

    Rows of the encoder: one per patch, then REG where the model has it. The decoder has one row per window.
    A patch without an observed step is PADDING. There is no vocabulary, so `types` is empty.
    """

    name = "chronos-bolt"
    released = Released(
        tuple(f"amazon/chronos-bolt-{size}" for size in ("tiny", "mini", "small", "base")),
        APACHE,
        page("amazon/chronos-bolt-base"),
    )
    package = Package(
        "chronos-forecasting",
        "chronos:BaseChronosPipeline",
        network="chronos.chronos_bolt:ChronosBoltModelForForecasting",
    )
    architectures = ("ChronosBoltModelForForecasting", "ChronosBoltPipeline")
    config_keys = ("chronos_config.input_patch_size",)
    foreign_keys = ("chronos_config.max_output_patches",)
    example: ClassVar[Mapping[str, Any]] = {
        **SMALL, "context_length": 48, "prediction_length": 12, "input_patch_size": 8,
        "input_patch_stride": 8, "initializer_factor": 1.0,
    }  # fmt: skip
    # The decoder has one token per window.
    output_stack = "encoder"
    direct_quantiles = True
    output_modules = ("output_patch_embedding",)
    inert_projections = frozenset((("decoder", "self", "q"), ("decoder", "self", "k")))

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights.

        config: the keys of BOLT_REQUIRED, and any of BOLT_DEFAULTS. Raises ValueError for missing or unknown keys.
        """
        from chronos.chronos_bolt import ChronosBoltModelForForecasting

        full = checkpoint_folder.filled_config(config, BOLT_REQUIRED, BOLT_DEFAULTS, cls.name)
        names = ("context_length", "prediction_length", "input_patch_size", "input_patch_stride", "use_reg_token")
        chronos = {**{k: full[k] for k in names}, "quantiles": [float(q) for q in full["quantiles"]]}
        own = {"chronos_pipeline_class": "ChronosBoltPipeline", "chronos_config": chronos}
        t5_config = make_config(full, 2 if full["use_reg_token"] else 1, **own)
        return cls(checkpoint_folder.build(lambda: ChronosBoltModelForForecasting(t5_config), seed))

    @classmethod
    def _network_class(cls, config: Mapping[str, Any]) -> Any:
        from chronos.chronos_bolt import ChronosBoltModelForForecasting

        return ChronosBoltModelForForecasting

    @classmethod
    def _mismatch(cls, block: Mapping[str, Any]) -> str | None:
        missing = {"input_patch_size", "input_patch_stride", "quantiles"} - set(block)
        return f"chronos_config lacks {sorted(missing)}" if missing else None

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of context patches, and one decoder row.

        The context is padded on the left to whole patches.
        """
        config = self.network.chronos_config
        size, stride = config.input_patch_size, config.input_patch_stride
        padded = -(-min(context, self.max_context) // size) * size
        return {"encoder": (padded - size) // stride + 1, "decoder": 1}

    def stock_model(self) -> Any:
        """Return a ChronosBoltPipeline of the package chronos."""
        from chronos import ChronosBoltPipeline

        return ChronosBoltPipeline(model=self.network)

    def forecast_graph(self) -> ForecastGraph:
        """Return the forecast of at most `prediction_length` steps, which is one forward pass."""
        from tsfmscope.models.graphs import BoltGraph

        network = self.network.eval()
        levels = tuple(network.chronos_config.quantiles)
        longest = int(network.chronos_config.prediction_length)
        return ForecastGraph(lambda _, horizon: BoltGraph(network, horizon), self.max_context, longest, levels)

    def forecast_with_package(self, network: Any, windows: Windows, tokens: Tokens) -> PackageForecast:
        """Return the quantiles of the package's pipeline."""
        import torch

        found, _ = self.stock_model_of(network).predict_quantiles(
            torch.from_numpy(windows.context), windows.horizon, quantile_levels=list(COMPARED_LEVELS)
        )
        return PackageForecast(found.permute(0, 2, 1).numpy())

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the quantile loss of the scaled future from the package's own forward pass.

        Missing steps have no weight. As in the package, a context without observed steps has scale 1, and one of
        equal values has scale 1e-5. After such a context, the loss of a future near 1e37 is infinite.
        """
        device = self.network.device
        loss: torch.Tensor = self.network(context=context.to(device), target=future.to(device)).loss
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        arrays, kinds = patch_context(self.network, windows.context[:, -self.max_context :])
        if self.network.chronos_config.use_reg_token:
            kinds = np.pad(kinds, ((0, 0), (0, 1)), constant_values=TokenKind.REG)
        decoder_kinds = np.full((len(windows), 1), TokenKind.FUTURE, dtype=np.int8)
        return Tokens(arrays, {"encoder": kinds, "decoder": decoder_kinds}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        import torch

        network, arrays = self.network.eval(), tokens.arrays
        device = network.device

        def forward(part: slice) -> None:
            masks = torch.from_numpy(arrays["masks"][part].astype(np.float32)).to(device)
            patches = torch.from_numpy(np.array(arrays["patches"][part])).to(device)
            embedded = network.input_patch_embedding(torch.cat((patches, masks), dim=-1))
            attended = (masks.sum(dim=-1) > 0).to(embedded.dtype)
            if network.chronos_config.use_reg_token:
                reg = network.shared(torch.full((len(embedded), 1), network.config.reg_token_id, device=device))
                embedded = torch.cat((embedded, reg), dim=1)
                attended = torch.cat((attended, attended.new_ones(len(embedded), 1)), dim=1)
            encoded = network.encoder(attention_mask=attended, inputs_embeds=embedded).last_hidden_state
            network.decode(embedded, attended, encoded)

        return self._pass_of(forward)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        from chronos import ChronosBoltPipeline

        pipeline = ChronosBoltPipeline(self.network.eval())

        def predict(context: torch.Tensor) -> torch.Tensor:
            quantiles: torch.Tensor = pipeline.predict_quantiles(
                context, prediction_length=windows.horizon, quantile_levels=list(levels)
            )[0]
            return quantiles

        return forecast_rescaled(predict, windows.context[:, -self.max_context :], self.batch)


def patch_context(network: Any, context: np.ndarray) -> tuple[dict[str, np.ndarray], Int8[np.ndarray, "window token"]]:
    """Return the arrays of a context's scaled patches, and the kinds of their tokens.

    network: Chronos-Bolt or Chronos-2 of the package chronos. context: the steps that it reads.
    """
    import torch

    centred, level = remove_level(context)
    rescaled, factor = rescale_extreme(centred)
    values = torch.from_numpy(rescaled)
    scaled, (loc, scale) = network.instance_norm(values)
    masks = torch.nan_to_num(network.patch((~torch.isnan(values)).float()), nan=0.0)
    arrays = {
        "patches": torch.where(masks > 0, network.patch(scaled), 0.0).numpy(),
        "masks": masks.bool().numpy(),
        "loc": clip_float32(loc[:, 0].numpy().astype(np.float64) * factor + level),
        "scale": clip_float32(scale[:, 0].numpy().astype(np.float64) * factor),
    }
    kinds = np.where(arrays["masks"].any(axis=-1), TokenKind.OBSERVATION, TokenKind.PADDING)
    return arrays, kinds.astype(np.int8)


def forecast_rescaled(
    predict: Callable[[torch.Tensor], torch.Tensor], context: np.ndarray, batch: int
) -> Float64[np.ndarray, "window quantile horizon"]:
    """Return forecasts of contexts, which are centred and whose huge values are divided before `predict` sees them.

    predict: function from a batch of contexts to quantiles [B, H, Q], by a pipeline of the package chronos.
    """
    import torch

    centred, level = remove_level(context)
    rescaled, factor = rescale_extreme(centred)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="We recommend keeping prediction length")
        # float64, because values times the factor may exceed the range of float32.
        parts = [
            predict(torch.from_numpy(rescaled[start : start + batch])).double().numpy()
            for start in range(0, len(rescaled), batch)
        ]
    values: np.ndarray = np.moveaxis(np.concatenate(parts), 2, 1) * factor[:, None, None] + level[:, None, None]
    return values

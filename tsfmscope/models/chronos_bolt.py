"""Chronos-Bolt: a T5 encoder over instance-normed patches.

One decoder token predicts quantiles of the whole horizon.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tsfmscope.models.base import QUANTILES
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.capture import Pass
from tsfmscope.models.common.scale import clip_float32, remove_level, rescale_extreme
from tsfmscope.models.facts import APACHE, Package, Released, page
from tsfmscope.models.t5 import shared
from tsfmscope.models.types import COMPARED_LEVELS, ForecastGraph, PackageForecast, TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

REQUIRED = (*shared.SHAPE, "context_length", "prediction_length")
# Values in config.json of the released amazon/chronos-bolt-*.
DEFAULTS = {
    "dropout_rate": 0.1,
    "initializer_factor": 0.05,
    "input_patch_size": 16,
    "input_patch_stride": 16,
    "quantiles": QUANTILES,
    "use_reg_token": True,
}


class ChronosBolt(shared.T5Family):
    """Chronos-Bolt models.

    Rows of the encoder: one per patch, then REG where the model has it. The decoder has one row per window.
    A patch without an observed step is PADDING. There is no vocabulary, so `types` is empty.
    """

    name: ClassVar[str] = "chronos-bolt"
    released: ClassVar[Released] = Released(
        tuple(f"amazon/chronos-bolt-{size}" for size in ("tiny", "mini", "small", "base")),
        APACHE,
        page("amazon/chronos-bolt-base"),
    )
    package: ClassVar[Package | None] = Package(
        "chronos-forecasting",
        "chronos:BaseChronosPipeline",
        network="chronos.chronos_bolt:ChronosBoltModelForForecasting",
    )
    architectures: ClassVar[tuple[str, ...]] = ("ChronosBoltModelForForecasting", "ChronosBoltPipeline")
    config_keys: ClassVar[tuple[str, ...]] = ("chronos_config.input_patch_size",)
    foreign_keys: ClassVar[tuple[str, ...]] = ("chronos_config.max_output_patches",)
    example: ClassVar[Mapping[str, Any]] = {
        **shared.SMALL, "context_length": 48, "prediction_length": 12, "input_patch_size": 8,
        "input_patch_stride": 8, "initializer_factor": 1.0,
    }  # fmt: skip
    # The decoder has one token per window.
    output_stack: ClassVar[str] = "encoder"
    direct_quantiles: ClassVar[bool] = True
    output_modules: ClassVar[tuple[str, ...]] = ("output_patch_embedding",)
    inert_projections: ClassVar[frozenset[tuple[str, str, str]]] = frozenset(
        (("decoder", "self", "q"), ("decoder", "self", "k"))
    )
    # A ChronosBoltModelForForecasting of the package chronos.
    network: Any

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights.

        config: the keys of REQUIRED, and any of DEFAULTS. Raises ValueError for missing or unknown keys.
        """
        from chronos.chronos_bolt import ChronosBoltModelForForecasting
        from transformers import T5Config

        full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, cls.name)
        names = ("context_length", "prediction_length", "input_patch_size", "input_patch_stride", "use_reg_token")
        t5_config = T5Config(
            **{k: full[k] for k in (*shared.SHAPE, "dropout_rate", "initializer_factor")},
            vocab_size=2 if full["use_reg_token"] else 1,
            pad_token_id=0,
            eos_token_id=1,
            decoder_start_token_id=0,
            chronos_pipeline_class="ChronosBoltPipeline",
            chronos_config={**{k: full[k] for k in names}, "quantiles": [float(q) for q in full["quantiles"]]},
        )
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
        import torch

        network = self.network
        centred, level = remove_level(windows.context[:, -self.max_context :])
        context, factor = rescale_extreme(centred)
        values = torch.from_numpy(context)
        scaled, (loc, scale) = network.instance_norm(values)
        masks = torch.nan_to_num(network.patch((~torch.isnan(values)).float()), nan=0.0)
        patches = torch.where(masks > 0, network.patch(scaled), 0.0)
        observed = (masks.sum(dim=-1) > 0).numpy()
        kinds = np.where(observed, TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        if network.chronos_config.use_reg_token:
            kinds = np.pad(kinds, ((0, 0), (0, 1)), constant_values=TokenKind.REG)
        return Tokens(
            arrays={
                "patches": patches.numpy(),
                "masks": masks.bool().numpy(),
                "loc": clip_float32(loc[:, 0].numpy().astype(np.float64) * factor + level),
                "scale": clip_float32(scale[:, 0].numpy().astype(np.float64) * factor),
            },
            kinds={"encoder": kinds, "decoder": np.full((len(windows), 1), TokenKind.FUTURE, dtype=np.int8)},
            types={},
            series=windows.series,
            origin=windows.origin,
        )

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
        import torch
        from chronos import ChronosBoltPipeline

        centred, level = remove_level(windows.context[:, -self.max_context :])
        context, factor = rescale_extreme(centred)
        pipeline = ChronosBoltPipeline(self.network.eval())
        parts = []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="We recommend keeping prediction length")
            for start in range(0, len(windows), self.batch):
                part = torch.from_numpy(context[start : start + self.batch])
                quantiles, _ = pipeline.predict_quantiles(
                    part, prediction_length=windows.horizon, quantile_levels=list(levels)
                )
                # float64, because values times the factor may exceed the range of float32.
                parts.append(quantiles.double().numpy())
        values: np.ndarray = np.moveaxis(np.concatenate(parts), 2, 1) * factor[:, None, None]  # [W, Q, H]
        values += level[:, None, None]
        return values

"""Moirai 2.0-R (Liu et al. 2025) of uni2ts: a decoder over the patches of one series.

Each patch predicts quantiles of the patches after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from tsfmscope.models.base import QUANTILES
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.scale import level_weights
from tsfmscope.models.facts import TOLLAMA, Package, Released
from tsfmscope.models.moirai import MoiraiFamily, find_common_problem, package_class
from tsfmscope.models.moirai_patches import Packed, pack
from tsfmscope.models.types import ForecastGraph, PackageForecast, TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

# Keys whose values are whole numbers.
COUNTS = ("d_ff", "num_layers", "patch_size", "num_predict_token", "max_seq_len")


class Moirai2(MoiraiFamily):
    """Moirai 2 models, whose network is a Moirai2Module. Half of each head is rotated.

    Rows of the decoder: one per context patch. As in the package's predictor, a missing step of the context is the
    mean of the steps before it, and the model also reads which steps are missing. Patches before the first observed
    step are PADDING, and no later patch attends to them. A later patch without an observed step is PADDING too,
    because it stands for no value, but it is attended to. States are computed from values that were scaled in
    float64; the package rounds loc and scale to float32 first.

    One forward pass predicts `num_predict_token` patches. A longer horizon takes several passes, as in the package.
    Each of the Q quantiles forecast so far is appended to the context as one path, and each path is forecast again. The
    next quantiles are those of the Q x Q forecasts. From the second pass on, Q times as many windows run.

    Deviations from the package's predictor: the mean that fills a gap starts at the context, not at the series. Missing
    steps before the first value count as padding. Beyond one pass, the paths of a series without any value do not
    attend to its empty patches.
    """

    name = "moirai-2"
    released = Released(("Salesforce/moirai-2.0-R-small",), "cc-by-nc-4.0", TOLLAMA)
    package = Package(
        "uni2ts", "uni2ts.model.moirai2:Moirai2Module", network="uni2ts.model.moirai2:Moirai2Module", first_rows=True
    )
    config_keys = ("num_predict_token", "quantile_levels")
    example: ClassVar[Mapping[str, Any]] = {
        "d_model": 128, "d_ff": 48, "num_layers": 3, "patch_size": 8, "num_predict_token": 2,
    }  # fmt: skip
    required = ("d_model", "d_ff", "num_layers", "patch_size")
    # Arguments of uni2ts' Moirai2Module, as far as the paper names them (Liu et al. 2025); attn_dropout_p is always 0.
    defaults: ClassVar[Mapping[str, Any]] = {
        "max_seq_len": 512, "dropout_p": 0.0, "scaling": True, "num_predict_token": 4,
        "quantile_levels": list(QUANTILES),
    }  # fmt: skip
    stored = ("num_predict_token", "quantile_levels")
    pipeline = ("uni2ts.model.moirai2", "Moirai2Forecast")
    stacks = ("decoder",)
    direct_quantiles = True
    output_modules = ("out_proj",)

    @classmethod
    def find_problem(cls, config: Mapping[str, Any]) -> str | None:
        """Return the reason why a config is unusable, or None."""
        levels = config["quantile_levels"]
        if not isinstance(levels, list | tuple) or not all(isinstance(part, float) and 0 < part < 1 for part in levels):
            return f"got quantile_levels {levels!r}, expected numbers between 0 and 1"
        if not levels or list(levels) != sorted(set(levels)):
            return f"got quantile_levels {levels!r}, expected ascending numbers"
        return find_common_problem(config, COUNTS)

    @classmethod
    def make_network(cls, config: Mapping[str, Any]) -> Any:
        """Return a Moirai2Module."""
        options = {**config, "quantile_levels": tuple(config["quantile_levels"]), "attn_dropout_p": 0.0}
        return package_class("uni2ts.model.moirai2.module", "Moirai2Module", cls.name)(**options)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of context patches; the context is padded on the left to whole patches."""
        return {"decoder": -(-context // self.network.patch_size)}

    def forecast_graph(self) -> ForecastGraph:
        """Return the forecast of at most `num_predict_token` patches, which is one forward pass."""
        from tsfmscope.models.graphs import Moirai2Graph

        network = self.network.eval()
        size, levels = network.patch_size, tuple(network.quantile_levels)
        longest, ahead = network.max_seq_len * size, network.num_predict_token * size
        return ForecastGraph(lambda context, horizon: Moirai2Graph(network, context, horizon), longest, ahead, levels)

    def forecast_with_package(self, network: Any, windows: Windows, tokens: Tokens) -> PackageForecast:
        """Return the quantiles of uni2ts' class around its module."""
        forecaster, inputs = self._package_run(network, windows)
        return PackageForecast(forecaster(**inputs).numpy(), tuple(network.quantile_levels))

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the mean quantile loss of all predictions of observed steps, in units of the context's scale.

        Every patch from the first observed step on predicts the `num_predict_token` patches after it, so that all
        steps of context and future but those of the first patch are predicted. The package has no training code for
        this version; its PackedQuantileMAELoss takes the same mean over levels.
        """
        import torch

        network = self.network
        packed = self._pack_windows(context.cpu().numpy(), future.cpu().numpy())
        shape = (network.num_predict_token, network.num_quantiles, network.patch_size)
        predicted = network.out_proj(self._encode(packed, slice(None))).unflatten(-1, shape)  # [B, T, N, Q, P]
        levels = torch.tensor(network.quantile_levels, device=predicted.device)[:, None]
        steps, observed, begun = (
            torch.from_numpy(np.array(part)).to(predicted.device)
            for part in (packed.patches, packed.observed, packed.sample_id > 0)
        )
        total, count = predicted.new_zeros(()), predicted.new_zeros(())
        for ahead in range(1, min(network.num_predict_token, steps.shape[1] - 1) + 1):
            errors = steps[:, ahead:, None] - predicted[:, :-ahead, ahead - 1]  # [B, T, Q, P]
            pinball = torch.maximum(levels * errors, (levels - 1) * errors).mean(dim=-2)
            weights = observed[:, ahead:] & begun[:, :-ahead, None]
            total, count = total + (pinball * weights).sum(), count + weights.sum()
        loss: torch.Tensor = total / count.clamp_min(1)
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        packed = self._pack_windows(windows.context, windows.future[:, :0])
        kinds = np.where(packed.observed.any(axis=-1), TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        return Tokens(packed.arrays(), {"decoder": kinds}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        decoder = self.network.eval().encoder
        packed = Packed.of(tokens.arrays, tokens.kinds["decoder"].shape[1])

        def forward(part: slice) -> None:
            self._encode(packed, part)

        return Pass({"decoder": Stack(decoder.layers, decoder.norm)}, forward)

    def _encode(self, packed: Packed, part: slice) -> torch.Tensor:
        """Return the decoder's output [B, T, d]: `Moirai2Module.forward` between its scaler and its head."""
        import torch
        from uni2ts.common.torch_util import packed_causal_attention_mask

        network = self.network
        patches, observed, sample, time = (
            torch.from_numpy(np.array(array[part])).to(self._device)
            for array in (packed.patches, packed.observed, packed.sample_id, packed.time_id)
        )
        sample, time = sample.long(), time.long()
        embedded = network.in_proj(torch.cat((patches, observed.to(patches.dtype)), dim=-1))
        mask = packed_causal_attention_mask(sample, time)
        states: torch.Tensor = network.encoder(embedded, mask, time_id=time, var_id=torch.zeros_like(sample))
        return states

    def _pack_windows(self, context: np.ndarray, future: np.ndarray) -> Packed:
        network = self.network
        minimum = network.scaler.minimum_scale if network.scaling else None
        return pack(context, future, size=network.patch_size, minimum_scale=minimum, fills_gaps=True)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        own = self.network.quantile_levels
        context, count = windows.context.astype(np.float64), len(own)
        paths = self._predict(context)  # [W, Q, H]
        while paths.shape[2] < windows.horizon:
            # Each path is a context of its own; its quantiles and those of the other paths give the next quantiles.
            begun = np.concatenate((np.repeat(context[:, None], count, axis=1), paths), axis=2)
            after = self._predict(begun.reshape(-1, begun.shape[2])).reshape(len(context), count * count, -1)
            paths = np.concatenate((paths, np.moveaxis(np.quantile(after, own, axis=1), 0, 1)), axis=2)
        values: np.ndarray = np.einsum("wqh,ql->wlh", paths[:, :, : windows.horizon], level_weights(own, levels))
        return values

    def _predict(self, context: Float[np.ndarray, "window step"]) -> Float[np.ndarray, "window quantile horizon"]:
        """Return quantiles of the `num_predict_token` patches after a context, in the data's units."""
        import torch

        network = self.network.eval()
        packed = self._pack_windows(context, context[:, :0])
        shape, parts = (network.num_predict_token, network.num_quantiles, network.patch_size), []
        with torch.inference_mode():
            for start in range(0, len(context), self.batch):
                last = self._encode(packed, slice(start, start + self.batch))[:, -1]
                parts.append(network.out_proj(last).unflatten(-1, shape).double().cpu().numpy())
        quantiles = np.moveaxis(np.concatenate(parts), 2, 1).reshape(len(context), network.num_quantiles, -1)
        values: np.ndarray = quantiles * packed.scale[:, None, None] + packed.loc[:, None, None]
        return values

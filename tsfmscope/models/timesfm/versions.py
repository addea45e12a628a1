"""TimesFM 2.0 and 2.5 (Das et al. 2024) of transformers: patches of one series in a causal decoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.facts import APACHE, TOLLAMA, Package, Released, page
from tsfmscope.models.timesfm import patches as timesfm_patches
from tsfmscope.models.timesfm.patches import Patched, Steps
from tsfmscope.models.timesfm.shared import SHARED, TimesFMFamily
from tsfmscope.models.types import WeightMatrix

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.graphs.timesfm import Scale


class TimesFM(TimesFMFamily):
    """TimesFM 2.0 models (google/timesfm-2.0-500m-pytorch; 1.0 with position embeddings).

    Each dimension of a query has a scale, one diagonal for all heads. It is folded into the W_Q that
    `weights` returns, so scores are plain q·k. The embedding of the frequency is added to every patch. A
    frequency id beyond the model's embeddings takes the last one.
    """

    name: ClassVar[str] = "timesfm"
    released: ClassVar[Released] = Released(
        ("google/timesfm-2.0-500m-pytorch",), APACHE, page("google/timesfm-2.0-500m-pytorch")
    )
    package: ClassVar[Package | None] = Package(
        "transformers", "transformers", network="transformers:TimesFmModelForPrediction"
    )
    architectures: ClassVar[tuple[str, ...]] = ("TimesFmModelForPrediction",)
    example: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 16, "intermediate_size": 24, "initializer_range": 0.2, "num_attention_heads": 2,
        "num_hidden_layers": 3, "head_dim": 6, "patch_length": 8, "context_length": 48, "horizon_length": 12,
    }  # fmt: skip
    plain_attention: ClassVar[bool] = True
    output_modules: ClassVar[tuple[str, ...]] = ("horizon_ff_layer",)
    model_type: ClassVar[str] = "timesfm"
    reads_frequency: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {
        **SHARED,
        "freq_size": 3,
        "tolerance": 1e-6,
        "attention_dropout": 0.0,
        "use_positional_embedding": False,
        "min_timescale": 1,
        "max_timescale": 10_000,
    }

    def weights(self) -> Iterator[WeightMatrix]:
        """Yield q (its scale folded in), k, v, o (self), mlp_in and mlp_out of every block.

        `layer` counts blocks from 1, as the states that the blocks return do.
        """
        from tsfmscope.models.timesfm.attention import query_scale

        for layer, block in enumerate(self._decoder().layers, start=1):
            attention, heads = block.self_attn, int(block.self_attn.num_heads)
            # Less than head_dim where values are wider than keys.
            width = attention.q_proj.weight.shape[0] // heads
            scale = np.tile(query_scale(attention)[:width], heads)
            for matrix in ("q", "k", "v", "o"):
                module = getattr(attention, f"{matrix}_proj")
                weights = WeightMatrix.of(module, "decoder", layer, matrix, attention="self", heads=heads)
                yield dataclasses.replace(weights, matrix=weights.matrix * scale[:, None]) if matrix == "q" else weights
            # Only its name is that of a gate.
            yield WeightMatrix.of(block.mlp.gate_proj, "decoder", layer, "mlp_in")
            yield WeightMatrix.of(block.mlp.down_proj, "decoder", layer, "mlp_out")

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield self-attention of every block."""
        from tsfmscope.models.timesfm.attention import scaled_layers

        return scaled_layers(network)

    @classmethod
    def _classes(cls) -> tuple[Any, Any]:
        from transformers import TimesFmConfig, TimesFmModelForPrediction

        return TimesFmConfig, TimesFmModelForPrediction

    @classmethod
    def _find_problem(cls, config: Mapping[str, Any]) -> str | None:
        return odd_context(config, 512)

    @property
    def _averages_mirror_image(self) -> bool:
        return False

    @property
    def _keeps_sign(self) -> bool:
        return False

    @property
    def _appended_output(self) -> int:
        return 0

    def _decoder(self) -> Any:
        return self.network.decoder

    def _make_patches(self, steps: Steps) -> Patched:
        return timesfm_patches.scale_by_first_patch(steps, self._size, self.network.config.tolerance)

    def _traced_scale(self) -> Scale:
        from tsfmscope.models.graphs.timesfm import scale_by_first_patch

        return partial(scale_by_first_patch, self.network.config.tolerance)

    def _decode(self, patches: torch.Tensor, masks: torch.Tensor, freq: torch.Tensor) -> torch.Tensor:
        import torch

        decoder, config = self._decoder(), self.network.config
        masked = masks.to(patches.dtype)
        # 1 where all steps of a patch are masked.
        padded = masked.amin(dim=-1)
        states: torch.Tensor = decoder.input_ff_layer(torch.cat((patches, masked), dim=-1))
        if config.use_positional_embedding:
            positions = decoder.position_emb(states.shape[1]).expand(states.shape[0], -1, -1)
            states = states + decoder._timesfm_shift_padded_seq(padded, positions)
        states = states + decoder.freq_emb(freq.clamp(max=config.freq_size - 1))[:, None]
        mask = decoder._prepare_4d_attention_mask(padded, states.shape[1], states.dtype, states.device)
        for block in decoder.layers:
            states = block(states, attention_mask=mask, paddings=padded)
        return states

    def _outputs(self, states: torch.Tensor) -> torch.Tensor:
        flat: torch.Tensor = self.network.horizon_ff_layer(states)
        return flat.view(*flat.shape[:-1], self.prediction_length, 1 + len(self.network.config.quantiles))

    def _queries(self) -> list[Any]:
        return [block.self_attn.q_proj for block in self._decoder().layers]


class TimesFM25(TimesFMFamily):
    """TimesFM 2.5 models (google/timesfm-2.5-200m-transformers).

    Queries and keys are rotated, then normed, so attention is not plain. Three settings of the config change
    forecasts. With `force_flip_invariance`, a forecast is the mean of the window's own and the negative of
    its mirror image's. With `use_continuous_quantile_head`, quantiles around the median come from a head of
    their own. With `infer_is_positive`, a window without a negative step is forecast without one; the package
    requires that of all windows of a batch at once, so its forecast of a window depends on the others of the batch.
    """

    name: ClassVar[str] = "timesfm-2.5"
    released: ClassVar[Released] = Released(
        ("google/timesfm-2.5-200m-transformers",),
        APACHE,
        # The page of the same weights in the layout of Google's package.
        f"{TOLLAMA} (google/timesfm-2.5-200m-pytorch)",
    )
    package: ClassVar[Package | None] = Package(
        "transformers", "transformers", network="transformers:TimesFm2_5ModelForPrediction"
    )
    architectures: ClassVar[tuple[str, ...]] = ("TimesFm2_5ModelForPrediction",)
    example: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 16, "intermediate_size": 24, "initializer_range": 0.2, "num_attention_heads": 2,
        "num_hidden_layers": 3, "head_dim": 6, "patch_length": 8, "context_length": 48, "horizon_length": 12,
        "output_quantile_len": 12,
    }  # fmt: skip
    output_modules: ClassVar[tuple[str, ...]] = ("output_projection_point", "output_projection_quantiles")
    model_type: ClassVar[str] = "timesfm2_5"
    reads_frequency: ClassVar[bool] = False
    defaults: ClassVar[Mapping[str, Any]] = {
        **SHARED,
        # As many as there are heads.
        "num_key_value_heads": None,
        "output_quantile_len": 1024,
        "decode_index": 5,
        "use_bias": False,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "activation": "swish",
        "use_continuous_quantile_head": True,
        "force_flip_invariance": True,
        "infer_is_positive": True,
    }

    def prepare_example(self) -> None:
        """Give the embedding a bias.

        The bias of a new embedding is 0, and then all states of a constant series are 0.
        """
        import torch

        with torch.no_grad():
            self.network.model.input_ff_layer.output_layer.bias.fill_(0.1)

    def weights(self) -> Iterator[WeightMatrix]:
        """Yield q, k, v, o (self), mlp_in and mlp_out of every block; `layer` counts blocks from 1.

        Keys and values may have fewer heads than queries.
        """
        config = self.network.config
        for layer, block in enumerate(self._decoder().layers, start=1):
            for matrix in ("q", "k", "v", "o"):
                heads = int(config.num_key_value_heads if matrix in ("k", "v") else config.num_attention_heads)
                module = getattr(block.self_attn, f"{matrix}_proj")
                yield WeightMatrix.of(module, "decoder", layer, matrix, attention="self", heads=heads)
            yield WeightMatrix.of(block.mlp.fc1, "decoder", layer, "mlp_in")
            yield WeightMatrix.of(block.mlp.fc2, "decoder", layer, "mlp_out")

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield self-attention of every block."""
        from tsfmscope.models.timesfm.attention import rotary_layers

        return rotary_layers(network)

    @classmethod
    def _classes(cls) -> tuple[Any, Any]:
        from transformers import TimesFm2_5Config, TimesFm2_5ModelForPrediction

        def config(**keys: Any) -> Any:
            heads = keys.pop("num_key_value_heads") or keys["num_attention_heads"]
            return TimesFm2_5Config(**keys, num_key_value_heads=heads)

        return config, TimesFm2_5ModelForPrediction

    @classmethod
    def _find_problem(cls, config: Mapping[str, Any]) -> str | None:
        median, levels = config.get("decode_index", 5), len(config.get("quantiles", range(9)))
        # Otherwise the median of a mirrored window would be another quantile.
        if 2 * median != levels + 1:
            return f"got decode_index {median} of {levels} quantiles, expected the middle one"
        steps, horizon = config.get("output_quantile_len", 1024), config.get("horizon_length", 128)
        if steps < horizon:
            return f"got output_quantile_len {steps}, expected at least horizon_length {horizon}"
        return odd_context(config, 16384)

    @property
    def _averages_mirror_image(self) -> bool:
        return bool(self.network.config.force_flip_invariance)

    @property
    def _keeps_sign(self) -> bool:
        return bool(self.network.config.infer_is_positive)

    @property
    def _appended_output(self) -> int:
        return int(self.network.config.decode_index)

    def _decoder(self) -> Any:
        return self.network.model

    def _make_patches(self, steps: Steps) -> Patched:
        return timesfm_patches.scale_running(steps, self._size)

    def _traced_scale(self) -> Scale:
        from tsfmscope.models.graphs.timesfm import scale_running

        return scale_running

    def _decode(self, patches: torch.Tensor, masks: torch.Tensor, freq: torch.Tensor) -> torch.Tensor:
        import torch
        from transformers.masking_utils import create_causal_mask

        decoder = self._decoder()
        states: torch.Tensor = decoder.input_ff_layer(torch.cat((patches, masks.to(patches.dtype)), dim=-1))
        padded = masks[..., -1]
        at = torch.arange(states.shape[1], device=states.device)[None] - padded.sum(dim=-1, keepdim=True)
        mask = create_causal_mask(decoder.config, states, (~padded).long(), past_key_values=None)
        rotation = decoder.rotary_emb(states, at)
        for block in decoder.layers:
            states = block(states, position_embeddings=rotation, attention_mask=mask, position_ids=at)
        return states

    def _outputs(self, states: torch.Tensor) -> torch.Tensor:
        import torch

        network, median = self.network, self._appended_output
        quantiles = 1 + len(network.config.quantiles)
        points: torch.Tensor = network.output_projection_point(states)
        points = points.view(*points.shape[:-1], self.prediction_length, quantiles)
        if not network.config.use_continuous_quantile_head:
            return points
        spread = network.output_projection_quantiles(states).unflatten(-1, (-1, quantiles))
        spread = spread[..., : self.prediction_length, :]
        around = spread - spread[..., median : median + 1] + points[..., median : median + 1]
        return torch.cat((points[..., :1], around[..., 1:]), dim=-1)

    def _queries(self) -> list[Any]:
        return []


def odd_context(config: Mapping[str, Any], usual: int) -> str | None:
    """Return what is wrong with a context length, or None.

    The package cuts the context into whole patches. usual: the length where the config has none.
    """
    context, size = config.get("context_length", usual), config.get("patch_length", 32)
    return f"got context_length {context}, expected a multiple of patch_length {size}" if context % size else None

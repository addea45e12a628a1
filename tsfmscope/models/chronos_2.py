"""Chronos-2 (Ansari et al. 2025): an encoder over patches of a series and its horizon.

It predicts quantiles of each patch of the horizon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tsfmscope.errors import ModelError
from tsfmscope.models.base import Forecaster, Pretrained
from tsfmscope.models.chronos import forecast_rescaled, patch_context
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import AttentionLayer, resizer
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.facts import APACHE, TOLLAMA, Package, Released
from tsfmscope.models.types import COMPARED_LEVELS, ForecastGraph, PackageForecast, TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

CORE = ("d_model", "d_ff", "d_kv", "num_heads", "num_layers")
REQUIRED = (*CORE, "context_length")
LEVELS = (0.01, *(round(0.05 * n, 2) for n in range(1, 20)), 0.99)
# Meant to be the values of the released amazon/chronos-2; its config.json was not available.
DEFAULTS = {
    "dropout_rate": 0.1, "initializer_factor": 0.05, "feed_forward_proj": "relu", "rope_theta": 10000.0,
    "input_patch_size": 16, "max_output_patches": 64, "quantiles": LEVELS, "use_arcsinh": True,
}  # fmt: skip
# Attention of a block -> its index among the block's layers; the MLP is the last layer.
ATTENTION = {"time": 0, "group": 1}
# Projection -> its name in an attention module.
PARTS = {matrix: matrix for matrix in ("q", "k", "v", "o")}


class Chronos2(Pretrained, Forecaster):
    """Chronos-2 models.

    Rows of the encoder: one per patch of the context, then REG, then one per patch of the horizon (MASK). The
    patches of the horizon read the time and no value. There are at most `max_output_patches` of them; longer
    horizons are forecast in several steps, as in the package. A patch without an observed step is PADDING and
    is not attended to.

    Every window is a group of its own. Group attention then weighs a single series, so its W_Q and W_K have
    no effect and get no gradient; exclude them from spectra of models that were trained here. Time attention
    is rotary, so attention is not plain.
    """

    name = "chronos-2"
    released = Released(
        ("amazon/chronos-2", "autogluon/chronos-2-small", "autogluon/chronos-2-synth"),
        APACHE,
        f"{TOLLAMA}; cards of the other two on the hub",
    )
    package = Package(
        "chronos-forecasting", "chronos:BaseChronosPipeline", network="chronos.chronos2.model:Chronos2Model"
    )
    architectures = ("Chronos2Model", "Chronos2Pipeline")
    config_keys = ("chronos_config.max_output_patches",)
    example: ClassVar[Mapping[str, Any]] = {
        "d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 3, "num_layers": 3, "context_length": 48,
        "input_patch_size": 8, "max_output_patches": 2, "initializer_factor": 0.5,
    }  # fmt: skip
    stacks = ("encoder",)
    mlp: ClassVar[Mapping[str, str]] = {"layer.2.mlp.wi": "mlp_in", "layer.2.mlp.wo": "mlp_out"}
    direct_quantiles = True
    output_modules = ("output_patch_embedding",)
    inert_projections = frozenset((("encoder", "group", "q"), ("encoder", "group", "k")))

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights.

        config: the keys of REQUIRED, and any of DEFAULTS. Raises ValueError for missing or unknown keys.
        """
        from chronos.chronos2.config import Chronos2CoreConfig
        from chronos.chronos2.model import Chronos2Model

        full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, cls.name)
        core = (*CORE, "dropout_rate", "initializer_factor", "feed_forward_proj", "rope_theta")
        size = full["input_patch_size"]
        # The package's forward pass requires the REG token.
        chronos = {
            **{name: full[name] for name in ("context_length", "max_output_patches", "use_arcsinh")},
            **{"input_patch_size": size, "input_patch_stride": size, "output_patch_size": size, "use_reg_token": True},
            "quantiles": [float(level) for level in full["quantiles"]],
        }
        shape = {name: full[name] for name in core}
        core_config = Chronos2CoreConfig(**shape, chronos_pipeline_class="Chronos2Pipeline", chronos_config=chronos)
        return cls(checkpoint_folder.build(lambda: Chronos2Model(core_config), seed))

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Return the model of a released or saved checkpoint; only safetensors are read.

        Raises ModelError, which names the wrong file.
        """
        from chronos.chronos2.model import Chronos2Model

        folder = Path(folder)
        chronos = checkpoint_folder.read_config(folder, cls.name).get("chronos_config")
        if not isinstance(chronos, dict) or "max_output_patches" not in chronos:
            problem = f"{folder / 'config.json'}: contains no chronos_config with max_output_patches"
            raise ModelError(checkpoint_folder.of_other_family(problem, cls.name))
        if not chronos.get("use_reg_token"):
            raise ModelError(
                f"{folder / 'config.json'}: got use_reg_token {chronos.get('use_reg_token')}, expected true: "
                "chronos-forecasting runs no other; train it with the token"
            )
        return cls(cls.load_network(Chronos2Model, folder, device))

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the encoder."""
        return {"encoder": self.network.encoder.block}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield time and group attention of every block; keys of time attention are rotary and keep their width."""
        resize = resizer(PARTS, "kv_proj_dim")
        for layer, block in enumerate(network.encoder.block, start=1):
            for kind, at in ATTENTION.items():
                of = block.layer[at].self_attention
                plain = not of.use_rope
                yield AttentionLayer("encoder", layer, kind, of, of.n_heads, of.n_heads, 1.0, plain, resize, PARTS)

    @property
    def max_context(self) -> int:
        """Number of context steps that the model reads.

        A longer context is cut to its last steps, as in the package.
        """
        return int(self.network.chronos_config.context_length)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of context patches (padded on the left); the rows of the horizon do not count."""
        config = self.network.chronos_config
        padded = -(-min(context, self.max_context) // config.input_patch_size) * config.input_patch_size
        return {"encoder": (padded - config.input_patch_size) // config.input_patch_stride + 1}

    def stock_model(self) -> Any:
        """Return a Chronos2Pipeline of the package chronos."""
        from chronos import Chronos2Pipeline

        return Chronos2Pipeline(model=self.network)

    def forecast_graph(self) -> ForecastGraph:
        """Return the forecast of at most `max_output_patches` patches, which is one forward pass."""
        from tsfmscope.models.graphs import Chronos2Graph

        network, config = self.network.eval(), self.network.chronos_config
        longest = int(config.max_output_patches * config.output_patch_size)
        embed, context, levels = self._embed_patches, self.max_context, tuple(config.quantiles)
        return ForecastGraph(lambda _, horizon: Chronos2Graph(network, embed, horizon), context, longest, levels)

    def forecast_with_package(self, network: Any, windows: Windows, tokens: Tokens) -> PackageForecast:
        """Return the quantiles of the package's pipeline."""
        import torch

        found, _ = self.stock_model_of(network).predict_quantiles(
            torch.from_numpy(windows.context)[:, None], windows.horizon, quantile_levels=list(COMPARED_LEVELS)
        )
        return PackageForecast(np.stack([series[0].numpy().T for series in found]))

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the quantile loss of the scaled future from the package's own forward pass.

        Each series is a group of its own. Missing steps have no weight.
        """
        device = self.network.device
        loss: torch.Tensor = self.network(
            context=context.to(device), future_target=future.to(device), num_output_patches=self._ahead(future.shape[1])
        ).loss
        return loss

    def _ahead(self, horizon: int) -> int:
        """Return the number of horizon patches that one forward pass predicts."""
        config = self.network.chronos_config
        return int(min(-(-horizon // config.output_patch_size), config.max_output_patches))

    def _tokenize(self, windows: Windows) -> Tokens:
        arrays, kinds = patch_context(self.network, windows.context[:, -self.max_context :])
        kinds = np.pad(kinds, ((0, 0), (0, 1)), constant_values=TokenKind.REG)
        kinds = np.pad(kinds, ((0, 0), (0, self._ahead(windows.horizon))), constant_values=TokenKind.MASK)
        return Tokens(arrays, {"encoder": kinds}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        import torch

        network, arrays = self.network.eval(), tokens.arrays
        encoder, ahead = network.encoder, tokens.kinds["encoder"].shape[1] - arrays["patches"].shape[1] - 1

        def forward(part: slice) -> None:
            patches, masks = (torch.from_numpy(np.array(arrays[name][part])) for name in ("patches", "masks"))
            states, attended = self._embed_patches(patches.to(network.device), masks.to(network.device), ahead)
            at = torch.arange(states.shape[1], device=states.device)[None]
            over_time = encoder._expand_and_invert_time_attention_mask(attended, states.dtype)
            # Not the package's mask: there a padding row reads those of other windows in its batch.
            alone = torch.eye(len(states), dtype=states.dtype, device=states.device)
            over_group = ((1 - alone) * torch.finfo(states.dtype).min)[None, None]
            for block in encoder.block:
                states = block(states, position_ids=at, attention_mask=over_time, group_time_mask=over_group)[0]
            encoder.final_layer_norm(states)

        return Pass({"encoder": Stack(encoder.block, encoder.final_layer_norm)}, forward)

    def _embed_patches(
        self, patches: torch.Tensor, masks: torch.Tensor, ahead: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the input of block 0, [B, T, d], and a mask of the attended rows, [B, T].

        The rows are the context's patches, REG, and the horizon's patches.
        """
        import torch

        network, config = self.network, self.network.chronos_config
        size, count = config.input_patch_size, patches.shape[1]
        steps = torch.arange(-count * size, ahead * size, dtype=torch.float32, device=patches.device)
        time = (steps / config.time_encoding_scale).unflatten(0, (count + ahead, size)).expand(patches.shape[0], -1, -1)
        nothing = patches.new_zeros(patches.shape[0], ahead, 2 * size)
        read = torch.cat((torch.cat((patches, masks.to(patches.dtype)), dim=-1), nothing), dim=1)
        embedded = network.input_patch_embedding(torch.cat((time, read), dim=-1))
        token = torch.full((patches.shape[0], 1), network.config.reg_token_id, device=patches.device)
        states = torch.cat((embedded[:, :count], network.shared(token), embedded[:, count:]), dim=1)
        attended = states.new_ones(states.shape[:2])
        attended[:, :count] = masks.any(dim=-1).to(states.dtype)
        return states, attended

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        import torch
        from chronos import Chronos2Pipeline

        pipeline = Chronos2Pipeline(self.network.eval())

        def predict(context: torch.Tensor) -> torch.Tensor:
            quantiles, _ = pipeline.predict_quantiles(
                context[:, None], prediction_length=windows.horizon, quantile_levels=list(levels), batch_size=self.batch
            )
            return torch.cat(list(quantiles))

        # The pipeline's DataLoader draws a seed from torch's global generator, whose state must not change.
        with torch.random.fork_rng(devices=[]):
            return forecast_rescaled(predict, windows.context[:, -self.max_context :], self.batch)

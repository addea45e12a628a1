"""FlowState (Graf et al. 2025) of IBM: S5 state spaces encode steps, basis functions decode forecasts; no attention.

We wrote the network: the package, granite-tsfm, declares versions of torch that exclude ours. Names, shapes and
arithmetic are the package's, so the releases r1 and r1.1 (ibm-granite/granite-timeseries-flowstate-r1) load.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64
from pydantic import Field

from tsfmscope.errors import ModelError
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.own_checkpoint import Count, Positive, PositiveOrNone, Release, SavedConfig, Switch, one_of
from tsfmscope.models.common.scale import level_weights
from tsfmscope.models.facts import APACHE, Package, Released, page
from tsfmscope.models.own_network import OwnNetwork
from tsfmscope.models.types import ForecastGraph, PackageForecast, TokenKind, Tokens, WeightMatrix
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.flowstate_network import FlowStateNetwork

# Smallest variance of the steps up to one of them, in the data's units: `eps` of the package's FlowStateCausalRevIN.
LEAST_VARIANCE = 1e-5
# Most steps that the package reads, whatever the scale factor.
LONGEST = 16 * 1024
# Observed steps up to a row from which `loss` takes its forecast: earlier ones have hardly any scale.
LEAST_OBSERVED = 8
# Scaled targets of the loss are clipped to this: the scale of a constant context is 0.003.
LARGEST_TARGET = 100.0


class Config(SavedConfig):
    """Keys of FlowStateConfig with its defaults."""

    context_length: Count
    embedding_feature_dim: Count
    encoder_num_layers: Count
    encoder_state_dim: Count
    encoder_num_hippo_blocks: Count
    decoder_patch_len: Count
    decoder_dim: Count
    scale_factor: Positive = 1.0
    # Our own key.
    base_season: PositiveOrNone = None
    mlp_type: Annotated[str, one_of("gated", "transformer")] = "gated"
    out_gating: Switch = False
    decoder_type: Annotated[str, one_of("legs", "hlegs", "four")] = "legs"
    quantiles: Any = Field([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])

    def find_problem(self) -> str | None:
        """Return why a config cannot be used, or None."""
        if self.encoder_state_dim % self.encoder_num_hippo_blocks:
            return (
                f"encoder_state_dim: got {self.encoder_state_dim}, expected a multiple of encoder_num_hippo_blocks "
                f"{self.encoder_num_hippo_blocks}"
            )
        if self.decoder_type == "four" and self.decoder_dim % 2 == 0:
            return f"decoder_dim: got {self.decoder_dim}, expected an odd number, since decoder_type is 'four'"
        quantiles = self.quantiles
        if not isinstance(quantiles, list) or not quantiles or not all(type(level) is float for level in quantiles):
            return f"quantiles: got {quantiles!r}, expected a list of numbers between 0 and 1"
        if quantiles != sorted(set(quantiles)) or not 0 < quantiles[0] <= quantiles[-1] < 1:
            return f"quantiles: got {quantiles}, expected ascending numbers between 0 and 1"
        # A season has at least two steps, which is the largest factor.
        largest = max(self.scale_factor, (self.base_season or 0) / 2)
        if largest > (limit := min(self.decoder_patch_len, self.context_length / 2)):
            return (
                f"scale_factor and base_season: got a scale factor of {largest:g} for the shortest season, expected at "
                f"most {limit:g}, so that a step is forecast (decoder_patch_len) and two are read (context_length)"
            )
        return None


class Scaled(NamedTuple):
    """Steps of a context and masked steps after it, each scaled by the observed steps up to itself.

    values: (step - loc) / scale, 0 where a step is missing or masked. missing: 1 there, else 0. attended: False before
    the first observed step of a series. loc, scale: in the data's units.
    """

    values: Float32[np.ndarray, "window token"]
    missing: Float32[np.ndarray, "window token"]
    attended: Bool[np.ndarray, "window token"]
    loc: Float64[np.ndarray, "window token"]
    scale: Float64[np.ndarray, "window token"]

    def inputs(self) -> dict[str, np.ndarray]:
        """Return what the network reads."""
        return {"values": self.values, "missing": self.missing, "attended": self.attended}


def scale_causally(context: Float[np.ndarray, "window context"], steps: int, masked: int) -> Scaled:
    """Return the last `steps` of contexts, and `masked` unknown steps after them.

    Equation: loc[t] is the mean of the observed steps up to t, scale[t]² the mean of (x[s] - loc[s])² over these, at
    least LEAST_VARIANCE. Source: FlowStateCausalRevIN of granite-tsfm, there in float32.
    """
    values = context[:, -steps:].astype(np.float64)
    observed = ~np.isnan(values)
    # A series that began before these steps is read from the first of them on, observed or not.
    attended = np.logical_or.accumulate(~np.isnan(context), axis=1)[:, -steps:]
    # Relative to the first observed step, so that equal steps have a deviation of exactly 0.
    first = np.take_along_axis(values, observed.argmax(axis=1)[:, None], axis=1)
    first = np.where(observed.any(axis=1, keepdims=True), first, 0.0)
    centred = np.where(observed, values - first, 0.0)
    count = np.maximum(observed.cumsum(axis=1), 1)
    mean = centred.cumsum(axis=1) / count
    deviation = np.where(observed, centred - mean, 0.0)
    scale = np.sqrt(np.maximum((deviation**2).cumsum(axis=1) / count, LEAST_VARIANCE))
    after = ((0, 0), (0, masked))
    return Scaled(
        np.pad((deviation / scale).astype(np.float32), after),
        np.pad((~observed).astype(np.float32), after, constant_values=1.0),
        np.pad(attended, after, constant_values=True),
        np.pad(first + mean, after, mode="edge"),
        np.pad(scale, after, mode="edge"),
    )


class FlowState(OwnNetwork):
    """FlowState models of versions r1 and r1.1.

    Rows of the encoder: one per step of the context. A forecast of more than a patch of steps has masked rows after
    them, of kind MASK, as in the package. A missing step is 0 after scaling and marked as missing; its row is PADDING,
    but is read by later ones. Rows before the first observed step are PADDING too and read by no row: the package gets
    the series without them. Each row is scaled by the mean and deviation of the steps up to it. The encoder has no
    final norm: the last state is that of the last layer.

    Scale factor: the time axis is stretched by it, so that the model reads context_length / factor steps and forecasts
    patches of decoder_patch_len / factor steps. It is the config's `scale_factor`, 1 in the releases, as it is the
    default of the package. The package recommends 24 over the season of the data, in steps. The option `base_season`
    (24) takes that for data sets with a season.

    Matrices: ssm_in is B and ssm_out is C of an S5 block, complex in the package and here as real maps, [2 N, d] and
    [d, 2 N] for N complex states: real parts, then imaginary parts. Between them, each state is multiplied by a number
    per step, which is no matrix. An MLP of version r1.1 has mlp_in, mlp_gate and mlp_out; in r1 the gate is all. The
    output gate of an S5 block in r1.1 is not named.

    One forward pass forecasts a patch and up to half a window. A longer horizon takes several passes, which append the
    median to the context. The package forecasts up to a whole window at once, from hardly any context. Where its
    horizon is one step short of whole patches it returns too few steps; here it returns all.

    States are computed from values that were scaled in float64, in the package in float32.
    """

    name: ClassVar[str] = "flowstate"
    released: ClassVar[Released] = Released(
        # The page of ibm-research/flowstate says: for research use only.
        ("ibm-granite/granite-timeseries-flowstate-r1",),
        APACHE,
        page("ibm-granite/granite-timeseries-flowstate-r1"),
    )
    package: ClassVar[Package | None] = Package(
        "granite-tsfm",
        "tsfm_public:FlowStateForPrediction",
        has_our_network=False,
        network="tsfm_public:FlowStateForPrediction",
        inner="model",
        rows_first=True,
    )
    # `save` names the first class; the release r1 names the second, which is part of it.
    architectures: ClassVar[tuple[str, ...]] = ("FlowStateForPrediction", "FlowStateModel")
    example: ClassVar[Mapping[str, Any]] = {
        "context_length": 60, "embedding_feature_dim": 16, "encoder_num_layers": 3, "encoder_state_dim": 12,
        "encoder_num_hippo_blocks": 2, "decoder_patch_len": 8, "decoder_dim": 6, "mlp_type": "transformer",
        "out_gating": True,
    }  # fmt: skip
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    branches: ClassVar[Mapping[str, tuple[str, str]]] = {"ssm": ("attention", "state space"), "mlp.w3": ("mlp", "MLP")}
    width_key: ClassVar[str] = "embedding_feature_dim"
    final_norm: ClassVar[bool] = False
    direct_quantiles: ClassVar[bool] = True
    output_modules: ClassVar[tuple[str, ...]] = ("decoder",)
    # Rows are in the order of time, but each is scaled by all steps before it. The check of the order swaps steps, and
    # can tell only where a scale stays the same.
    in_time_order: ClassVar[bool] = False
    deviation_floor: ClassVar[float] = math.sqrt(LEAST_VARIANCE)
    unnamed: ClassVar[frozenset[str]] = frozenset({"ssm"})
    # A config.json without a key has the value of r1 and r1.1.
    release: ClassVar[Release] = Release(Config, {"with_missing": True}, "r1 and r1.1", "model.")
    network: FlowStateNetwork

    def __init__(self, network: FlowStateNetwork, config: Mapping[str, Any], *, batch: int = 16) -> None:
        """Wrap a network of that config; batch: windows per forward pass, fewer than elsewhere as a row is a step."""
        super().__init__(network, dict(config), batch=batch)

    @classmethod
    def make_network(cls, config: Mapping[str, Any]) -> FlowStateNetwork:
        """Return a network with weights drawn as the package draws them, from torch's generator."""
        from tsfmscope.models.flowstate_network import FlowStateNetwork

        network = FlowStateNetwork(config)
        # A network on the meta device gets the weights of a file.
        return network if network.device.type == "meta" else network.initialize()

    @classmethod
    def read_saved_config(cls, folder: Path) -> tuple[dict[str, Any], Release]:
        """Return config.json and the release; ModelError for a class that is not read."""
        # The releases have a prediction_length of -1, for one patch; it is not read here.
        saved = checkpoint_folder.read_config(folder, cls.name, frozenset({"prediction_length"}))
        checkpoint_folder.check_model_type(saved, folder, cls.name)
        if (named := saved.get("architectures") or [cls.architectures[0]])[0] not in cls.architectures:
            raise ModelError(
                f"{folder / 'config.json'}: got architectures {named}, expected one of {list(cls.architectures)}; "
                "other classes are not read"
            )
        return saved, cls.release

    def saved_config(self) -> dict[str, Any]:
        """Return config.json; the package has to read its least context too."""
        return super().saved_config() | {"min_context": self.config["context_length"]}

    @classmethod
    def load(
        cls, folder: Path, *, device: str = "cpu", scale_factor: float | None = None, base_season: float | None = None
    ) -> Self:
        """Load a released or saved checkpoint, safetensors only; ModelError names the file that is wrong.

        scale_factor: replaces the config's. base_season: the scale factor of a data set with a season is this over the
        season, both in steps. `save` stores both.
        """
        model = super().load(folder, device=device)
        options = {"scale_factor": scale_factor, "base_season": base_season}
        changes = {name: value for name, value in options.items() if value is not None}
        try:
            model.config = Config.fill(model.config | changes, f"{folder} with options {changes}")
        except ValueError as error:
            raise ModelError(f"{error}; change the option") from error
        return model

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the encoder."""
        return {"encoder": self.network.layers}

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of the quantiles that the network predicts, ascending."""
        return tuple(self.config["quantiles"])

    @property
    def max_context(self) -> int:
        """Number of context steps that are read for a short forecast, at the config's scale factor."""
        return self._window(self.config["scale_factor"])

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of steps that are read; with a `base_season`, that for the shortest season."""
        base = self.config["base_season"]
        factors = [self.config["scale_factor"], *([] if base is None else [base / 2])]
        return {"encoder": min(self._context(context, horizon, factor) for factor in factors)}

    def weights(self) -> Iterator[WeightMatrix]:
        """Yield ssm_in, ssm_out and the matrices of the MLP or gate of every layer; `layer` counts from 1."""
        for number, layer in enumerate(self.network.layers, start=1):
            for name, matrix in (("ssm_in", layer.ssm.input_matrix), ("ssm_out", layer.ssm.output_matrix)):
                yield WeightMatrix("encoder", number, name, None, None, matrix.detach().float().cpu().numpy())
            if layer.mlp is None:
                yield WeightMatrix.of(layer.out, "encoder", number, "mlp_gate")
                continue
            for name, module in (("mlp_gate", layer.mlp.w1), ("mlp_in", layer.mlp.w2), ("mlp_out", layer.mlp.w3)):
                yield WeightMatrix.of(module, "encoder", number, name)

    def forecast_graph(self) -> ForecastGraph:
        """Return the forecast of a patch and half a window, which is one forward pass, at the config's scale factor.

        With a `base_season`, forecasts depend on the season of the data, so `make` raises ModelError.
        """
        from tsfmscope.models.graphs import FlowStateGraph

        factor = self.config["scale_factor"]

        def make(context: int, horizon: int) -> FlowStateGraph:
            if self.config["base_season"] is not None:
                raise ModelError(
                    "family flowstate: expected a forecast of the context alone, found one that depends on the season "
                    "of the data (base_season); in config.json, set base_season to null and scale_factor to "
                    "base_season over the season"
                )
            masked = self._masked(horizon, factor)
            steps = self._context(context, horizon, factor), masked, self._patch(factor)
            return FlowStateGraph(self.network.eval(), self.levels, LEAST_VARIANCE, factor, steps, horizon)

        return ForecastGraph(make, self.max_context, self._longest(factor), self.levels)

    def forecast_with_package(self, network: Any, windows: Windows, tokens: Tokens) -> PackageForecast:
        """Return the quantiles of granite-tsfm's class, after a run of its encoder over all of our rows."""
        import torch

        past = torch.from_numpy(windows.context)[:, :, None]
        masked = int((tokens.kinds["encoder"] == TokenKind.MASK).sum(axis=1)[0])
        kept = tokens.kinds["encoder"].shape[1] - masked
        # A forecast runs the last layer for the last rows only; states are captured from this first run, of all rows.
        network.config.min_context = 1
        options = {"scale_factor": self._factor(windows.season), "batch_first": True}
        network.model(past[:, -kept:], mask_n=masked, **options)
        output = network(past, prediction_length=windows.horizon, **options)
        return PackageForecast(output.quantile_outputs[..., 0].numpy(), self.levels)

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the pinball loss of the forecasts of all rows, in units of each row's scale.

        Equation: mean over rows, known steps and quantiles of 2 max(level e, (level - 1) e), e = step - quantile.
        Source: paper, "parallel predictions": every row of the context forecasts the patch after it. The package
        contains no loss; its FlowStateCausalRevIN scales targets by the row that forecasts them. Rows with fewer than
        8 observed steps are left out, and targets are clipped to 100 scales. A future of more than a patch has masked
        rows, as in a forecast. The scale factor is the config's. ValueError where the future leaves no context.
        """
        import torch

        steps, factor, device = future.shape[1], self.config["scale_factor"], self.network.device
        if steps > self._longest(factor):
            raise ValueError(f"future: got {steps} steps, expected at most {self._longest(factor)}, see context_length")
        patch, masked = self._patch(factor), self._masked(steps, factor)
        kept = self._context(context.shape[1], steps, factor)
        cut = scale_causally(context.cpu().numpy(), kept, masked)
        states = self.network(*self._on_device(*cut.inputs().values()), factor)
        predicted = self.network.decoder(states, patch, factor)  # [B, T, Q, P]
        series = np.concatenate((context.cpu().numpy()[:, -kept:], future.cpu().numpy()), axis=1).astype(np.float64)
        rest = kept + masked + patch - series.shape[1]
        series = np.pad(series, ((0, 0), (0, rest)), constant_values=np.nan)
        target = np.lib.stride_tricks.sliding_window_view(series[:, 1:], patch, axis=1)  # [B, T, P]
        target = (target - cut.loc[..., None]) / cut.scale[..., None]
        # The last row is always counted, so that a short context has a loss.
        counted = (1 - cut.missing).cumsum(axis=1) >= LEAST_OBSERVED
        counted[:, -masked - 1 :] = True
        known = torch.from_numpy(~np.isnan(target) & counted[..., None]).to(device)[:, :, None]
        aim = np.clip(np.nan_to_num(target), -LARGEST_TARGET, LARGEST_TARGET).astype(np.float32)
        errors = torch.from_numpy(aim).to(device)[:, :, None] - predicted
        levels = torch.tensor(self.levels, device=device)[:, None]
        pinball = 2 * (levels * errors - errors.clamp_max(0))
        return cast("torch.Tensor", (pinball * known).sum() / (known.sum() * len(self.levels)).clamp_min(1))

    def _tokenize(self, windows: Windows) -> Tokens:
        factor = self._factor(windows.season)
        kept = self._context(windows.context.shape[1], windows.horizon, factor)
        masked = self._masked(windows.horizon, factor)
        cut = scale_causally(windows.context, kept, masked)
        kinds = np.where(cut.missing == 0, TokenKind.OBSERVATION, TokenKind.PADDING)
        kinds[:, kept:] = TokenKind.MASK
        arrays = {**cut.inputs(), "factor": np.full(len(kinds), factor)}
        return Tokens(arrays, {"encoder": kinds.astype(np.int8)}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        network = self.network.eval()
        inputs = [tokens.arrays[name] for name in ("values", "missing", "attended")]
        # Windows of one data set have one season.
        factor = float(tokens.arrays["factor"][0]) if len(tokens) else self.config["scale_factor"]

        def forward(part: slice) -> None:
            network(*self._on_device(*(array[part] for array in inputs)), factor)

        return Pass({"encoder": Stack(network.layers, None)}, forward)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        factor, median = self._factor(windows.season), level_weights(self.levels, (0.5,))
        values = self._forecast_in_parts(
            windows,
            lambda history, remaining: self._predict(history, min(remaining, self._longest(factor)), factor),
            lambda part: np.einsum("wqh,ql->wh", part, median),
        )
        return np.asarray(np.einsum("wqh,ql->wlh", values, level_weights(self.levels, levels)))

    def _predict(
        self, context: Float[np.ndarray, "window step"], steps: int, factor: float
    ) -> Float[np.ndarray, "window quantile horizon"]:
        """Return quantiles of the steps after a context by one forward pass, in the data's units."""
        network, patch, masked = self.network, self._patch(factor), self._masked(steps, factor)
        cut = scale_causally(context, self._context(context.shape[1], steps, factor), masked)
        last = cut.values.shape[1] - masked - 1
        # Each row forecasts one patch. The last one, of the horizon's end, comes first: the others overwrite its start.
        starts = [masked, *range(0, masked, patch)]

        def run(*inputs: torch.Tensor) -> torch.Tensor:
            states = network(*inputs, factor)
            patches = network.decoder(states[:, [last + row for row in starts]], patch, factor)  # [B, S, Q, P]
            block: torch.Tensor = patches.new_empty((len(patches), len(self.levels), masked + patch))
            for number, row in enumerate(starts):
                block[:, :, row : row + patch] = patches[:, number]
            return block[:, :, :steps]

        scaled = _at_levels(self._run_in_batches(run, *cut.inputs().values()), self.levels)
        return np.asarray(scaled * cut.scale[:, None, -1:] + cut.loc[:, None, -1:])

    def _factor(self, season: int) -> float:
        """Return the scale factor for data with this season, in steps; 1 where they have none."""
        base = self.config["base_season"]
        return float(self.config["scale_factor"] if base is None or season < 2 else base / season)

    def _window(self, factor: float) -> int:
        """Return the number of steps that are read, masked ones among them."""
        return min(LONGEST, int(self.config["context_length"] / factor))

    def _patch(self, factor: float) -> int:
        """Return the number of steps that one row forecasts. The package's rounding."""
        return int(self.config["decoder_patch_len"] / factor + 1e-6)

    def _longest(self, factor: float) -> int:
        """Return the number of steps that one forward pass forecasts at most."""
        return self._patch(factor) + self._window(factor) // 2

    def _masked(self, horizon: int, factor: float) -> int:
        """Return the number of masked rows after the context."""
        return max(min(horizon, self._longest(factor)) - self._patch(factor), 0)

    def _context(self, context: int, horizon: int, factor: float) -> int:
        """Return the number of context steps that are read."""
        return min(context, self._window(factor) - self._masked(horizon, factor))


def _at_levels(
    values: Float[np.ndarray, "window quantile step"], levels: tuple[float, ...]
) -> Float[np.ndarray, "window quantile step"]:
    """Return quantiles at the levels as the package does: of the predicted ones, as if these were a sample.

    The lowest of nine is thus 0.8 times the second and 0.2 times the first in ascending order.
    """
    ascending = np.sort(values, axis=1)
    order = np.linspace(0, 1, values.shape[1])
    return np.asarray(np.einsum("wqh,ql->wlh", ascending, level_weights(order.tolist(), levels)))

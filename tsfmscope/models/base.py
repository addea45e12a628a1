"""Abstract classes of a model family, of a forecasting family and of families whose matrices are those of Linears.

Public methods check their arguments and results; private methods do the work.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np
from jaxtyping import Float, Float32, Float64

from tsfmscope.errors import HealthError, ModelError
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import NAMES, AttentionLayer
from tsfmscope.models.common.capture import Pass, Rows, run_captured, run_head, run_kept, run_projected
from tsfmscope.models.common.compression_block import block_of, set_block, with_compression_block
from tsfmscope.models.common.scale import clip_float32, observed_moments
from tsfmscope.models.facts import Package, Released
from tsfmscope.models.types import Forecast, ForecastGraph, LayerStates, PackageForecast, Tokens, WeightMatrix
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.series.catalog import Modality

# Levels of the Chronos evaluation (Ansari et al. 2024, section 5.4).
QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# Multiple of `Family.deviation_floor` up to which results depend on the unit: a floor that is added to the variance
# changes the scale by 0.5 % there, one that is added to the deviation by 10 %.
NEAR_FLOOR = 10.0


class Family(ABC):
    """One loaded model of one family.

    A subclass contains model code only. It implements the abstract methods and overrides nothing concrete, except
    `id_values`, `id_positions`, `loss_horizon`, `max_context`, `attention_layers`, `stock_model`, `forecast_graph`,
    `prepare_example`, `read_package_network` and `forecast_with_package` where their defaults do not hold.
    """

    name: ClassVar[str]
    # Names of the stacks, in the order of the forward pass. The first reads the tokenised series.
    stacks: ClassVar[tuple[str, ...]]
    # Stack whose last layer stands for the model in studies of isotropy: the forecast is read from it.
    # By default the last one. A family whose last stack has too few tokens to measure names another.
    output_stack: ClassVar[str]
    # Whether each stack ends with a norm. If not, no state is normed.
    final_norm: ClassVar[bool] = True
    # Modality of the data sets that the family reads.
    modality: ClassVar[Modality] = "series"
    # The model reads steps before its tokens, as lags.
    lagged: ClassVar[bool] = False
    # The model reads the dates of the steps, and its `loss` takes them as a third argument.
    dated: ClassVar[bool] = False
    # Self-attention scores are q·k: neither queries nor keys are rotated or normed before.
    plain_attention: ClassVar[bool] = False
    # Matrices, as (stack, attention, matrix), that have no effect on the output.
    inert_projections: ClassVar[frozenset[tuple[str, str, str]]] = frozenset()
    # Forecasts are sampled from a softmax over ids, computed from the rows of the last stack.
    softmax_head: ClassVar[bool] = False
    # Names of the network's modules that `loss` runs last and whose outputs it compares with the data: logits where
    # `softmax_head` is True, else scaled forecasts or parameters of a distribution. Healing matches
    # these outputs. Empty: the family cannot be healed.
    output_modules: ClassVar[tuple[str, ...]] = ()
    # A value of 0 has a hidden state of 0, so all states of a constant series may be zero.
    zero_states: ClassVar[bool] = False
    # The OBSERVATION rows of layer 0 are in the order of the steps that they read.
    in_time_order: ClassVar[bool] = True
    # Least standard deviation, in the data's units, that the release's scaling divides by, or what it adds to it.
    # Contexts that vary by little more have other states in another unit. 0: the family has no such floor.
    deviation_floor: ClassVar[float] = 0.0
    # Modules of a block that `weights` leaves out, such as a router.
    unnamed: ClassVar[frozenset[str]] = frozenset()
    # Layers may cut rows of states into equal parts, so that matrices have a part of the width.
    divides_rows: ClassVar[bool] = False
    # The reason why processes cannot share a training batch of this family; empty if they can.
    no_ddp_reason: ClassVar[str] = ""
    # Released checkpoints, and the package of others that reads them; None: there is none.
    released: ClassVar[Released] = Released()
    package: ClassVar[Package | None] = None
    # Packages that the family imports late and that this project does not depend on.
    requires: ClassVar[tuple[str, ...]] = ()
    # The last change of the results of this family alone. It enters the keys of the family's jobs and recipes.
    revision: ClassVar[str | None] = None
    # How a config.json is recognised, besides by the family's name as its `model_type`: names of classes that it may
    # name, or else keys ("key", or "block.key" inside an object) of which it has all, and none of `foreign_keys`.
    architectures: ClassVar[tuple[str, ...]] = ()
    config_keys: ClassVar[tuple[str, ...]] = ()
    foreign_keys: ClassVar[tuple[str, ...]] = ()
    # Config of a small model, for tests of the family.
    example: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    # The module that is trained and saved.
    network: torch.nn.Module
    # Windows in one forward pass. It changes results by rounding only.
    batch: int
    # Steps that become tokens, for a lagged family. None: the number that the checkpoint gives.
    asked_tokens: int | None = None
    # What the checkpoint has in place of the family's decoder and head, which were therefore left out: the model has
    # states and weights, and neither forecast nor loss. None: the model is complete.
    missing: str | None = None

    def __init_subclass__(cls) -> None:
        """Set `output_stack` to the last stack where a subclass names its stacks and nothing else."""
        super().__init_subclass__()
        if "stacks" in vars(cls) and "output_stack" not in vars(cls):
            cls.output_stack = cls.stacks[-1]

    # -- making, loading, saving -------------------------------------------------------------------
    @classmethod
    @abstractmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model of the family with random weights."""

    @final
    @classmethod
    def new_example(cls, config: Mapping[str, Any] | None = None, *, seed: int) -> Self:
        """Return a small random model for tests, of `example` or of another config."""
        model = cls.new(config or cls.example, seed=seed)
        model.prepare_example()
        return model

    def prepare_example(self) -> None:  # noqa: B027
        """Change a new model whose states are of no use before training; by default nothing is changed."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Return the model of a folder with config.json and safetensors.

        The registry resolves hub references to folders.
        """

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write a checkpoint that `load` and the family's own package can read."""

    # -- facts -------------------------------------------------------------------------------------
    @property
    @abstractmethod
    def layers(self) -> Mapping[str, int]:
        """Mapping from stack to its number n of blocks.

        States exist for layers 0..n, and for layer n after the final norm where the family has one.
        """

    @property
    @abstractmethod
    def width(self) -> int:
        """Width d of the hidden states."""

    @property
    def loss_horizon(self) -> int | None:
        """Number of future steps that `loss` needs; None if it takes any number."""
        return None

    @property
    def max_context(self) -> int | None:
        """Largest number of context steps that the model reads, the last ones; None if it reads all."""
        return None

    @final
    def count_near_floor(self, context: Float[np.ndarray, "window step"]) -> int:
        """Count contexts that vary in the steps that are read, but by at most NEAR_FLOOR times `deviation_floor`."""
        read = context[:, -(self.max_context or context.shape[1]) :].astype(np.float64)
        _, deviation = observed_moments(read, ~np.isnan(read))
        return int(((deviation > 0) & (deviation <= NEAR_FLOOR * self.deviation_floor)).sum())

    @abstractmethod
    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return, for each stack, the number of rows that stand for values in one full window."""

    @property
    def compression(self) -> dict[str, Any] | None:
        """Block `compression` of config.json, which `save` writes; None if the model is not compressed.

        It contains the `widths` as `attention.shapes` returns them, the ranks of `factors` if matrices are
        stored as factors, and a record of how the model was compressed. Setting the block changes no weight.
        """
        return block_of(self.network)

    @compression.setter
    def compression(self, block: Mapping[str, Any] | None) -> None:
        set_block(self.network, block)

    @final
    def with_condition(self, context: int, history: int) -> tuple[Self, int]:
        """Return this model under a condition, and the number of context steps that its windows need.

        With `history` steps before the context, a lagged family makes tokens of all `context` steps and its
        windows need `context + history` steps. Other families read no history.
        """
        if not (history and self.lagged):
            return self, context
        model = copy.copy(self)
        model.asked_tokens = context
        return model, context + history

    def id_values(self) -> Float64[np.ndarray, " id"] | None:
        """Return the value of each id in the units of the scaled series, NaN for special ids.

        Returns None for a family without a vocabulary of values. Only families that quantise single values
        override this method.
        """
        return None

    def id_positions(self) -> Float64[np.ndarray, " id"] | None:
        """Return the place of each id on a line where near ids mean nearly the same, NaN for special ids.

        Returns None for a family without such ids. By default these are `id_values`.
        """
        return self.id_values()

    def stock_model(self) -> Any:
        """Return the model as the class that its own package forecasts with; by default this model.

        A family may take keyword arguments here, which `export` passes on.
        """
        return self

    @final
    def stock_model_of(self, network: Any, **options: Any) -> Any:
        """Return `stock_model` around another network."""
        twin = copy.copy(self)
        twin.network = network
        return twin.stock_model(**options)

    def read_package_network(self, network_class: Any, folder: Path) -> Any:
        """Return a network of `package.network`, made of our config and of the tensors of a folder.

        No package reads a checkpoint folder: some would instantiate what its config.json names.
        """
        return checkpoint_folder.load_network(network_class, folder, "cpu")

    def forecast_with_package(self, network: Any, windows: Windows, tokens: Tokens) -> PackageForecast:
        """Run the package's network on windows, and on the tokens that this family makes of them.

        A family whose `package` names a network to compare with overrides this method; ModelError if it does not.
        """
        raise ModelError(
            f"family {self.name}: `package` names a network, but forecast_with_package is not written; write it, "
            "or leave the network out (docs/plugins.md)"
        )

    @final
    def check_complete(self) -> None:
        """Raise ModelError if the checkpoint has no decoder or head of the family, so that it does not forecast."""
        if self.missing is not None:
            raise ModelError(
                f"family {self.name}: expected a checkpoint with a forecasting head, found its encoder alone "
                f"({self.missing}); inspect, embed, states and weights read it"
            )

    # -- work --------------------------------------------------------------------------------------
    @final
    def tokenize(self, windows: Windows) -> Tokens:
        """Return the tokens of the windows; where a stack reads the future, it is teacher-forced.

        Raises HealthError if the family returns kinds for an unknown stack or for another number of windows.
        """
        tokens = self._tokenize(windows)
        for stack, kinds in tokens.kinds.items():
            if stack not in self.stacks or len(kinds) != len(windows):
                raise HealthError(
                    f"{self.name}: kinds of stack {stack!r}: got {len(kinds)} windows, expected {len(windows)}"
                )
        return tokens

    @final
    def hidden_states(self, tokens: Tokens, rows: Mapping[str, np.ndarray] | None = None) -> Iterator[LayerStates]:
        """Return an iterator over the states of every layer of every stack, from one forward pass over the tokens.

        The pass runs when the first layer is asked for. Stacks follow one another. In each, layer 0 comes first
        and the normed state last. A family without a final norm has no normed state: its last state is the output
        of the last block.
        rows: stack -> ascending ids (window * T + position) of the wanted tokens. If given, states are [N, d]
        for these tokens only, a stack without wanted tokens is left out, and windows without wanted tokens
        are not run.
        Raises HealthError if a state is not finite, is all zero (unless `zero_states`), or does not have the
        rows of the tokens. Raises ValueError for ids that are not ascending or out of range.
        """
        if rows is None:
            layers = run_captured(self._pass(tokens), len(tokens), self.batch)
            shapes = {stack: kinds.shape for stack, kinds in tokens.kinds.items()}
        else:
            tokens, requested = _select_windows(tokens, rows)
            layers = run_kept(self._pass(tokens), len(tokens), self.batch, requested)
            shapes = {stack: wanted.ids.shape for stack, wanted in requested.items()}
        return (self._check_states(layer, shapes[layer.stack]) for layer in layers)

    @final
    def attention_inputs(self, tokens: Tokens) -> Iterator[LayerStates]:
        """Yield the input of the self-attention projections of every block, from one forward pass.

        Stacks follow one another. `layer` counts blocks from 1, as in `weights`. Yields nothing if
        `plain_attention` is False, because W_Q^T W_K alone does not determine the scores there.
        Raises HealthError if a state is not finite, is all zero, or does not have the rows of the tokens.
        """
        if self.plain_attention:
            for layer in run_projected(self._pass(tokens), len(tokens), self.batch):
                if problem := _unhealthy(layer.states, (*tokens.kinds[layer.stack].shape, self.width)):
                    raise HealthError(f"{self.name} {layer.stack} block {layer.layer}: {problem}")
                yield layer

    @final
    def forecast_logits(self, tokens: Tokens) -> Iterator[Float32[np.ndarray, "window token id"]]:
        """Yield the model's logits over all ids for every row of the last stack, batch by batch.

        Row t predicts the token that follows token t. Yields nothing if `softmax_head` is False.
        Raises HealthError if a logit is NaN or +inf, or if the rows are not those of the tokens.
        """
        one_pass = self._pass(tokens)
        for start in range(0, len(tokens), self.batch) if self.softmax_head else ():
            part = slice(start, start + self.batch)
            logits, expected = run_head(one_pass, part), tokens.kinds[self.stacks[-1]][part].shape
            if logits.shape[:2] != expected:
                raise HealthError(f"{self.name} logits: got rows {logits.shape[:2]}, expected {expected}")
            if np.isnan(logits).any() or np.isposinf(logits).any():
                raise HealthError(f"{self.name} logits contain NaN or infinity; check the weights and their dtype")
            yield logits

    def _check_states(self, layer: LayerStates, shape: tuple[int, ...]) -> LayerStates:
        if problem := _unhealthy(layer.states, (*shape, self.width), self.zero_states):
            raise HealthError(f"{self.name} {layer.stack} layer {layer.layer}: {problem}")
        return layer

    @abstractmethod
    def weights(self) -> Iterator[WeightMatrix]:
        """Yield every attention, MLP and state-space matrix with its stack, layer and name."""

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Return every attention layer of a network that can be compressed; by default none."""
        return iter(())

    def attentions(self) -> Iterator[AttentionLayer]:
        """Return every attention layer that can be compressed."""
        return self.attention_layers(self.network)

    @abstractmethod
    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the family's own training loss for a batch.

        context: [B, C]; future: [B, H]; NaN where a step is missing.
        The `loss` of a `dated` family also takes `dates` [B, C + H]: seconds since 1970 of every step, and
        the smallest int64 for a step without a date, such as one before the first value of a series.
        """

    @abstractmethod
    def _tokenize(self, windows: Windows) -> Tokens: ...

    @abstractmethod
    def _pass(self, tokens: Tokens) -> Pass:
        """Return the network's stacks and its forward pass over slices of the tokens.

        The forward pass ends with the last state and runs no head. The result contains the query projections
        of every block if `plain_attention` is True, and `logits` if `softmax_head` is True.
        """


class Forecaster(Family):
    """A family of models that forecast.

    Families of other modalities (text, images, tables) do not forecast: only their states and weights are
    measured.
    """

    # The model predicts every quantile directly: no sample path is drawn, and `samples` is unused.
    direct_quantiles: ClassVar[bool] = False
    # Changes of the context that the forecast follows: a scaled context has a scaled forecast.
    equivariant: ClassVar[frozenset[str]] = frozenset({"scale", "shift"})

    @final
    def forecast(
        self, windows: Windows, *, levels: Sequence[float] = QUANTILES, samples: int = 20, seeds: Sequence[int]
    ) -> Forecast:
        """Return quantiles of the horizon, [W, Q, H], in the data's units and with the type of the contexts.

        seeds: one per window, so that samples do not depend on the batch. Values outside the range of float32
        are clipped to its largest number.
        Raises ValueError if the levels are not ascending or lack 0.5, or if there is not one seed per window.
        Raises HealthError if the forecast has a wrong shape or a quantile is not finite, ModelError if the checkpoint
        is an encoder alone.
        """
        self.check_complete()
        if 0.5 not in levels or list(levels) != sorted(set(levels)):
            raise ValueError(f"levels: got {list(levels)}, expected ascending levels that include 0.5")
        if len(seeds) != len(windows):
            raise ValueError(f"seeds: got {len(seeds)}, expected one per window, {len(windows)}")
        values = self._forecast(windows, tuple(levels), samples, list(seeds))
        expected = (len(windows), len(levels), windows.horizon)
        if values.shape != expected:
            raise HealthError(f"{self.name} forecast: got shape {values.shape}, expected {expected}")
        if not np.isfinite(values).all():
            raise HealthError(f"{self.name} forecast contains NaN or infinity; check the weights and the input's scale")
        return Forecast(clip_float32(values, windows.context.dtype), tuple(levels))

    def forecast_graph(self) -> ForecastGraph | None:
        """Return the forecast as a module that exporters can trace; by default None, for a family without one."""
        return None

    @final
    def _run_in_batches(self, run: Callable[..., torch.Tensor], *arrays: np.ndarray) -> np.ndarray:
        """Return the results of all windows in float64, computed by one forward pass per batch without gradients.

        run: function from parts of the arrays, as tensors on the network's device, to the results of these windows.
        """
        import torch

        network, parts = self.network.eval(), []
        device = next(network.parameters()).device
        for start in range(0, len(arrays[0]), self.batch):
            inputs = (torch.from_numpy(np.array(array[start : start + self.batch])).to(device) for array in arrays)
            with torch.inference_mode():
                parts.append(run(*inputs).double().cpu().numpy())
        return np.concatenate(parts)

    @final
    def _forecast_in_parts(
        self,
        windows: Windows,
        predict: Callable[[np.ndarray, int], np.ndarray],
        point: Callable[[np.ndarray], np.ndarray] = lambda forecast: forecast,
    ) -> np.ndarray:
        """Return forecasts [W, ..., H] of the horizon, each part from the context and the points forecast before it.

        predict: function from values [W, step] and the number of steps that are left to a forecast [W, ..., step] of
        the first of them or more. point: function from such a forecast to the points [W, step] that follow the values.
        """
        values, parts, remaining = windows.context.astype(np.float64), [], windows.horizon
        while remaining > 0:
            parts.append(predict(values, remaining))
            values = np.concatenate((values, point(parts[-1])), axis=1)
            remaining -= parts[-1].shape[-1]
        return np.concatenate(parts, axis=-1)[..., : windows.horizon]

    @abstractmethod
    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray: ...


def _select_windows(tokens: Tokens, rows: Mapping[str, np.ndarray]) -> tuple[Tokens, dict[str, Rows]]:
    """Return the windows that contain a wanted row, and the ids of the wanted rows among these windows.

    Raises ValueError for ids that are not ascending or out of range.
    """
    rows_by_stack, windows = {}, [np.array([], dtype=np.int64)]
    for stack, ids in rows.items():
        kinds = tokens.kinds[stack]
        if len(ids) and (ids[0] < 0 or ids[-1] >= kinds.size or (np.diff(ids) <= 0).any()):
            raise ValueError(f"rows of {stack}: expected ascending ids of its {kinds.size} tokens")
        windows.append(np.unique(ids // kinds.shape[1]))
    window_ids = np.unique(np.concatenate(windows))
    for stack, ids in rows.items():
        if len(ids):
            window, position = np.divmod(ids, count := tokens.kinds[stack].shape[1])
            rows_by_stack[stack] = Rows(np.searchsorted(window_ids, window) * count + position, count)
    return tokens if len(window_ids) == len(tokens) else tokens.take(window_ids), rows_by_stack


def _unhealthy(states: np.ndarray, expected: tuple[int, ...], may_be_zero: bool = False) -> str | None:
    """Return a description of what is wrong with a layer's states, or None."""
    if states.shape != expected:
        return f"got shape {states.shape}, expected {expected}"
    if not states.size:
        return None
    # Both are NaN if any state is.
    low, high = states.min(), states.max()
    if not (np.isfinite(low) and np.isfinite(high)):
        return "hidden states contain NaN or infinity; check the weights and the scale"
    if low == high == 0 and not may_be_zero:
        return "hidden states are all zero; the checkpoint or its loading is broken"
    return None


class BlockFamily(Family):
    """Family that names the modules of its blocks; numbers of layers and weight matrices follow from these."""

    # Path of a Linear in a block -> name of its matrix, as in WeightMatrix; blocks that lack a path lack the matrix.
    mlp: ClassVar[Mapping[str, str]] = {}
    # Further parts that add to the residual stream: path, in a block, of the module whose output is added -> kind
    # (attention or mlp) and name. The first module of the path has all weights.
    branches: ClassVar[Mapping[str, tuple[str, str]]] = {}
    # Key of the config whose value is the width of the hidden states.
    width_key: ClassVar[str] = "d_model"
    network: Any

    @abstractmethod
    def setting(self, key: str) -> Any:
        """Return a value of the config that the network was made of."""

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return int(self.setting(self.width_key))

    @property
    @abstractmethod
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of each of the `stacks`, and of further stacks whose matrices are measured, first to last."""

    def mlp_paths(self) -> Mapping[str, str]:
        """Return `mlp`; a family whose MLPs have any number of parts overrides this method."""
        return self.mlp

    @property
    def layers(self) -> Mapping[str, int]:
        """Number of blocks of each stack."""
        return {stack: len(self.blocks[stack]) for stack in self.stacks}

    def weights(self) -> Iterator[WeightMatrix]:
        """Yield q, k, v and o of every attention of a block, then its MLP, block by block.

        `layer` counts blocks from 1, as the states that the blocks return do.
        """
        attentions: dict[tuple[str, int], list[AttentionLayer]] = defaultdict(list)
        for attention in self.attentions():
            attentions[attention.stack, attention.layer].append(attention)
        for stack, blocks in self.blocks.items():
            for layer, block in enumerate(blocks, start=1):
                for attention in attentions[stack, layer]:
                    kind, heads = attention.kind, int(attention.heads)
                    for name in NAMES:
                        yield WeightMatrix.of(attention.linear(name), stack, layer, name, attention=kind, heads=heads)
                modules = dict(block.named_modules())
                for path, name in self.mlp_paths().items():
                    if path in modules:
                        yield WeightMatrix.of(modules[path], stack, layer, name)


class Pretrained(BlockFamily):
    """Family whose network writes its own checkpoints. A subclass states the network's class."""

    network: Any

    def __init__(self, network: Any, *, batch: int = 64) -> None:
        """Wrap a network; batch: windows per forward pass."""
        self.network = network.eval()
        self.batch = batch

    def setting(self, key: str) -> Any:
        """Return a value of the config that the network was made of."""
        return getattr(self.network.config, key)

    @classmethod
    def load_network(cls, network_class: Any, folder: Path, device: str, **changes: Any) -> Any:
        """Return a network of a package's class, whose attention and MLPs are resized as the checkpoint requires.

        changes: entries that replace those of config.json, and `only` of `checkpoint_folder.load_network`.
        """
        resized = with_compression_block(network_class, cls.attention_layers)
        return checkpoint_folder.load_network(resized, folder, device, **changes)

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors, which `from_pretrained` of the network's class reads."""
        self.check_complete()
        self.network.save_pretrained(folder)

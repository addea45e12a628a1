"""The face of a model family, and of one that forecasts: public methods check, private ones work."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np
from jaxtyping import Float32, Float64

from tasks.errors import HealthError
from tasks.feeding import Feed
from tasks.models.attention import AttentionLayer, block_of, set_block
from tasks.models.capture import Pass, Rows, run_captured, run_head, run_kept, run_projected
from tasks.models.scale import saturated
from tasks.models.types import Forecast, LayerStates, Tokens, WeightMatrix
from tasks.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tasks.series.catalog import Modality

QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # Chronos evaluation (Ansari et al. 2024, section 5.4)


class Family(ABC):
    """One loaded model of one family. A subclass holds model code only; nothing concrete is overridden."""

    name: ClassVar[str]
    stacks: ClassVar[tuple[str, ...]]
    final_norm: ClassVar[bool] = True  # a norm ends each stack; without it no state is normed
    modality: ClassVar[Modality] = "series"  # of the data sets that it reads
    lagged: ClassVar[bool] = False  # reads steps before its tokens, as lags
    plain_attention: ClassVar[bool] = False  # self-attention scores are q·k: neither rotated nor normed in between
    idle: ClassVar[frozenset[tuple[str, str, str]]] = frozenset()  # (stack, attention, matrix) that weigh nothing
    softmax_head: ClassVar[bool] = False  # forecasts are drawn from a softmax over ids, rows of the last stack
    zero_states: ClassVar[bool] = False  # a value of 0 has a state of 0: a constant series' may all be zero
    apart: ClassVar[str] = ""  # why processes cannot share its batches in a training, where they cannot
    example: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # config of a small model, for tests of the family
    network: torch.nn.Module  # what trains and what is saved
    batch: int  # windows of one forward pass; changes results by rounding only
    asked_tokens: int | None = None  # of a lagged family: steps that become tokens; None: as the checkpoint says

    # -- making, loading, saving ------------------------------------------------------------------------------------
    @classmethod
    @abstractmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """A model of the family with random weights."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """A model from a folder with config.json and safetensors (hub references are resolved by the registry)."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what `load`, and the family's own package, read."""

    # -- facts --------------------------------------------------------------------------------------------------------
    @property
    @abstractmethod
    def layers(self) -> Mapping[str, int]:
        """Stack -> number n of blocks; states exist for layers 0..n, and for n normed where there is a final norm."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Width d of the hidden states."""

    @abstractmethod
    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Stack -> rows that stand for values in one full window."""

    @property
    def compression(self) -> dict[str, Any] | None:
        """Block `compression` of config.json, which `save` writes: `widths` as `shapes` says them, and how they came.

        None of a model that is not compressed. Setting it changes no weight.
        """
        return block_of(self.network)

    @compression.setter
    def compression(self, block: Mapping[str, Any] | None) -> None:
        set_block(self.network, block)

    @final
    def under(self, context: int, history: int) -> tuple[Self, int]:
        """This model under a condition, and the steps that its windows' contexts shall have.

        A lagged family makes tokens of all `context` steps where there is `history` before them; others see no history.
        """
        if not (history and self.lagged):
            return self, context
        model = copy.copy(self)
        model.asked_tokens = context
        return model, context + history

    def id_values(self) -> Float64[np.ndarray, " id"] | None:
        """What each id stands for in the scaled series' units, NaN of special ids; None without a vocabulary of values.

        A family of quantised single values says so; nothing here to override for others.
        """
        return None

    # -- work ---------------------------------------------------------------------------------------------------------
    @final
    def tokenize(self, windows: Windows) -> Tokens:
        """Tokens of the windows, the future teacher-forced where a stack reads it.

        Raises HealthError when the kinds do not cover every window.
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
        """Every layer of every stack from one forward pass, stack by stack, layer 0 first, the normed state last.

        A family without a final norm yields no normed state: its last state is that of the last block.
        rows: stack -> ascending ids (window * T + position) of the tokens that are wanted. Then states are [N, d] of
        these alone, a stack without any is left out, and windows without any are not run.
        Raises HealthError when a state is not finite, all zero, or has not the rows that the tokens say.
        """
        if rows is not None:
            yield from self.fed_states(tokens, rows)
            return
        for layer in run_captured(self._pass(tokens), len(tokens), self.batch):
            yield self._checked(layer, tokens.kinds[layer.stack].shape)

    @final
    def fed_states(self, tokens: Tokens, rows: Mapping[str, np.ndarray]) -> Feed[LayerStates, LayerStates]:
        """`hidden_states` of these rows, to be used in a second thread while the last batch runs."""
        tokens, wanted = _wanted(tokens, rows)
        batch = self.batch

        def work(give: Callable[[LayerStates], None]) -> None:
            run_kept(self._pass(tokens), len(tokens), batch, wanted, give)

        def checked(layers: Iterable[LayerStates]) -> Iterator[LayerStates]:
            return (self._checked(layer, wanted[layer.stack].ids.shape) for layer in layers)

        return Feed(work, checked)

    @final
    def attention_inputs(self, tokens: Tokens) -> Iterator[LayerStates]:
        """What the projections of every block's self-attention are given, from one forward pass, stack by stack.

        `layer` counts blocks from 1, as in `weights`. Nothing where `plain_attention` is False, since no W_Q^T W_K
        makes the scores there. Raises HealthError when a state is not finite or has not the rows that the tokens say.
        """
        if self.plain_attention:
            for layer in run_projected(self._pass(tokens), len(tokens), self.batch):
                if problem := _unhealthy(layer.states, (*tokens.kinds[layer.stack].shape, self.width)):
                    raise HealthError(f"{self.name} {layer.stack} block {layer.layer}: {problem}")
                yield layer

    @final
    def forecast_logits(self, tokens: Tokens) -> Iterator[Float32[np.ndarray, "window token id"]]:
        """Logits as the model emits them, over all ids, of every row of the last stack; a batch of windows at a time.

        Row t says what comes after the token there. Nothing where `softmax_head` is False. Raises HealthError when a
        logit is NaN or +inf, or rows are not those of the tokens.
        """
        one_pass = self._pass(tokens)
        for start in range(0, len(tokens), self.batch) if self.softmax_head else ():
            part = slice(start, start + self.batch)
            logits, expected = run_head(one_pass, part), tokens.kinds[self.stacks[-1]][part].shape
            if logits.shape[:2] != expected:
                raise HealthError(f"{self.name} logits: got rows {logits.shape[:2]}, expected {expected}")
            if np.isnan(logits).any() or np.isposinf(logits).any():
                raise HealthError(f"{self.name} logits hold NaN or infinity; check the weights and their dtype")
            yield logits

    def _checked(self, layer: LayerStates, shape: tuple[int, ...]) -> LayerStates:
        if problem := _unhealthy(layer.states, (*shape, self.width), self.zero_states):
            raise HealthError(f"{self.name} {layer.stack} layer {layer.layer}: {problem}")
        return layer

    @abstractmethod
    def weights(self) -> Iterator[WeightMatrix]:
        """Every attention and MLP matrix, named."""

    def attentions(self) -> Iterator[AttentionLayer]:
        """Every attention layer that can be compressed; none where a family does not say how.

        Nothing here to override for a family whose weights are not compressed.
        """
        return iter(())

    @abstractmethod
    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """The family's own training loss of a batch, context [B, C] and future [B, H], NaN where missing."""

    @abstractmethod
    def _tokenize(self, windows: Windows) -> Tokens: ...

    @abstractmethod
    def _pass(self, tokens: Tokens) -> Pass:
        """The network's stacks, and its forward pass over slices of the tokens: as far as the last state, no head.

        With the query projections of every block where `plain_attention` is True, and `logits` where `softmax_head` is.
        """


class Forecaster(Family):
    """A family of models that forecast; those of other modalities (text, images, tables) are looked into alone."""

    direct: ClassVar[bool] = False  # forecasts every quantile in one go: no sample path is drawn, `samples` is unused

    @final
    def forecast(
        self, windows: Windows, *, levels: Sequence[float] = QUANTILES, samples: int = 20, seeds: Sequence[int]
    ) -> Forecast:
        """Quantiles of the horizon, [W, Q, H]. seeds: one a window, so that samples do not depend on the batch.

        What passes the largest number of float32 is that number. Raises ValueError for levels or seeds that do not fit,
        HealthError where a quantile is not finite.
        """
        if 0.5 not in levels or list(levels) != sorted(set(levels)):
            raise ValueError(f"levels: got {list(levels)}, expected ascending levels that hold 0.5")
        if len(seeds) != len(windows):
            raise ValueError(f"seeds: got {len(seeds)}, expected one a window, {len(windows)}")
        values = self._forecast(windows, tuple(levels), samples, list(seeds))
        expected = (len(windows), len(levels), windows.horizon)
        if values.shape != expected:
            raise HealthError(f"{self.name} forecast: got shape {values.shape}, expected {expected}")
        if not np.isfinite(values).all():
            raise HealthError(f"{self.name} forecast holds NaN or infinity; check the weights and the input's scale")
        return Forecast(saturated(values), tuple(levels))

    @abstractmethod
    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray: ...


def _wanted(tokens: Tokens, rows: Mapping[str, np.ndarray]) -> tuple[Tokens, dict[str, Rows]]:
    """The windows that hold a wanted row, and the ids of these rows among them. ValueError for ids that cannot be."""
    found, windows = {}, [np.array([], dtype=np.int64)]
    for stack, ids in rows.items():
        kinds = tokens.kinds[stack]
        if len(ids) and (ids[0] < 0 or ids[-1] >= kinds.size or (np.diff(ids) <= 0).any()):
            raise ValueError(f"rows of {stack}: expected ascending ids of its {kinds.size} tokens")
        windows.append(np.unique(ids // kinds.shape[1]))
    run = np.unique(np.concatenate(windows))
    for stack, ids in rows.items():
        if len(ids):
            window, position = np.divmod(ids, count := tokens.kinds[stack].shape[1])
            found[stack] = Rows(np.searchsorted(run, window) * count + position, count)
    return tokens if len(run) == len(tokens) else tokens.take(run), found


def _unhealthy(states: np.ndarray, expected: tuple[int, ...], may_be_zero: bool = False) -> str | None:
    """What is wrong with a layer's states, or None."""
    if states.shape != expected:
        return f"got shape {states.shape}, expected {expected}"
    if not states.size:
        return None
    low, high = states.min(), states.max()  # NaN where there is any
    if not (np.isfinite(low) and np.isfinite(high)):
        return "hidden states hold NaN or infinity; check the weights and the scale"
    if low == high == 0 and not may_be_zero:
        return "hidden states are all zero; the checkpoint or its loading is broken"
    return None

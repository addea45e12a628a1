"""The face of a model family: public methods check, private ones work."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np

from tasks.errors import HealthError
from tasks.models.types import Forecast, LayerStates, Tokens, WeightMatrix
from tasks.series.types import Windows

if TYPE_CHECKING:
    import torch

QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # Chronos evaluation (Ansari et al. 2024, section 5.4)


class Family(ABC):
    """One loaded model of one family. A subclass holds model code only; nothing concrete is overridden."""

    name: ClassVar[str]
    stacks: ClassVar[tuple[str, ...]]
    final_norm: ClassVar[bool] = True  # a norm ends each stack; without it no state is normed
    lagged: ClassVar[bool] = False  # reads steps before its tokens, as lags
    direct: ClassVar[bool] = False  # forecasts every quantile in one go: no sample path is drawn, `samples` is unused
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
    def hidden_states(self, tokens: Tokens) -> Iterator[LayerStates]:
        """Every layer of every stack from one forward pass, stack by stack, layer 0 first, the normed state last.

        A family without a final norm yields no normed state: its last state is that of the last block.
        Raises HealthError when a state is not finite, all zero, or has not the rows that the tokens say.
        """
        for layer in self._hidden_states(tokens):
            expected = (*tokens.kinds[layer.stack].shape, self.width)
            where = f"{self.name} {layer.stack} layer {layer.layer}"
            if layer.states.shape != expected:
                raise HealthError(f"{where}: got shape {layer.states.shape}, expected {expected}")
            if not np.isfinite(layer.states).all():
                raise HealthError(f"{where}: hidden states hold NaN or infinity; check the weights and the scale")
            if len(tokens) and not layer.states.any():
                raise HealthError(f"{where}: hidden states are all zero; the checkpoint or its loading is broken")
            yield layer

    @final
    def forecast(
        self, windows: Windows, *, levels: Sequence[float] = QUANTILES, samples: int = 20, seeds: Sequence[int]
    ) -> Forecast:
        """Quantiles of the horizon, [W, Q, H]. seeds: one a window, so that samples do not depend on the batch."""
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
        return Forecast(values.astype(np.float32), tuple(levels))

    @abstractmethod
    def weights(self) -> Iterator[WeightMatrix]:
        """Every attention and MLP matrix, named."""

    @abstractmethod
    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """The family's own training loss of a batch, context [B, C] and future [B, H], NaN where missing."""

    @abstractmethod
    def _tokenize(self, windows: Windows) -> Tokens: ...

    @abstractmethod
    def _hidden_states(self, tokens: Tokens) -> Iterator[LayerStates]: ...

    @abstractmethod
    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray: ...

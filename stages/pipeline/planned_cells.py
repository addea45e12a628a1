"""Cells that a params file requests, with tokens, windows and series of each, before anything is run or downloaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

import numpy as np

from tsfmscope.stages.config import WITHOUT_TOKENS, Measure, Model
from tsfmscope.stages.config.params import COMPRESSED, Params
from tsfmscope.stages.pipeline import planning
from tsfmscope.stages.pipeline.load_series import load_data_set
from tsfmscope.stages.pipeline.planning import Cell
from tsfmscope.stages.pipeline.training_jobs import checkpoint_path
from tsfmscope.tasks import cost, lens
from tsfmscope.tasks.cost import ModelSize
from tsfmscope.tasks.errors import DataError, ModelError
from tsfmscope.tasks.models import registry
from tsfmscope.tasks.models.common.batches import VALUED
from tsfmscope.tasks.models.types import TokenKind, Tokens, tokens_to_table
from tsfmscope.tasks.rehearsal.weightless import layout_of, weightless_model
from tsfmscope.tasks.series.types import Series, Windows
from tsfmscope.tasks.series.windows import last_windows, spread_windows

if TYPE_CHECKING:
    from tsfmscope.tasks.entries.parts import WindowOptions
    from tsfmscope.tasks.models.base import Family


@dataclass(frozen=True)
class PlannedCell:
    """Work that one cell needs.

    tokens: tokens of a window by stack. valued: tokens of all its windows that stand for values, by stack. windows:
    number of windows, of which the tokens need `needed`; every series gives at least one. series: number of series.
    token_bytes: size of a window in the token dump. forecasts, validated: series whose last window, or the one before,
    is forecast. layers: number of layers whose geometry is measured, by stack. is_limited: whether
    `datasets.max_series` limits the number of series; it does not for the sources kernelsynth and signals.
    """

    cell: Cell
    size: ModelSize
    tokens: Mapping[str, int]
    valued: Mapping[str, int]
    windows: int
    needed: int
    series: int
    token_bytes: float
    horizon: int
    forecasts: int = 0
    validated: int = 0
    layers: Mapping[str, int] = field(default_factory=dict)
    is_limited: bool = True

    def windows_of(self, max_series: int) -> int:
        """Return the number of windows if `datasets.max_series` is `max_series`."""
        if not self.is_limited or max_series >= self.series:
            return self.windows
        return min(self.windows, max(self.needed, max_series))

    def forecasts_of(self, max_series: int) -> list[int]:
        """Return the numbers of forecasts of last windows and of the windows before them, without zeros."""
        counts = [count for count in (self.forecasts, self.validated) if count]
        return [min(count, max_series) for count in counts] if self.is_limited else counts


@dataclass(frozen=True)
class Plan:
    """Planned cells, and what could not be planned: model or data set -> reason."""

    cells: Sequence[PlannedCell]
    unknown: Mapping[str, str]


def plan_cells(params: Params) -> Plan:
    """Return the cells that the studies request, with the work of each.

    Networks are made without weights, and data sets are read without the network.
    """
    return _Planner(params).plan()


class _Tokenized(NamedTuple):
    """Tokens of a cell.

    windows: number of windows. tokens: tokens of a window by stack. valued: tokens of all windows that stand for
    values. bytes: size of a window in the token dump.
    """

    windows: int
    tokens: Mapping[str, int]
    valued: Mapping[str, int]
    bytes: float


class _Planner:
    def __init__(self, params: Params) -> None:
        self.params = params
        self.unknown: dict[str, str] = {}
        self._models: dict[str, tuple[Family, ModelSize] | None] = {}
        self._series: dict[str, list[Series]] = {}
        self._windows: dict[tuple[object, ...], tuple[Windows, np.ndarray]] = {}
        self._forecasts: dict[tuple[object, ...], int] = {}

    def plan(self) -> Plan:
        params = self.params
        kinds = {
            name: {"modality": registry.family_class(model.family).modality} for name, model in params.models.items()
        }
        tokenized = planning.requested_cells(params, set(get_args(Measure)) - WITHOUT_TOKENS, kinds)
        measured = planning.requested_cells(params, ["isotropy"], kinds)
        forecast = planning.requested_cells(params, ["isotropy", "forecasts"], kinds)
        validated = planning.requested_cells(params, ["validation"], kinds)
        planned = []
        for cell in sorted({*tokenized, *forecast, *validated}):
            found = self._plan_cell(
                cell, measured.get(cell, ()), cell in tokenized, cell in forecast, cell in validated
            )
            if found is not None:
                planned.append(found)
        return Plan(planned, self.unknown)

    def _plan_cell(
        self, cell: Cell, studies: Sequence[str], is_tokenized: bool, is_forecast: bool, is_validated: bool
    ) -> PlannedCell | None:
        """Return the work of a cell; None if its model or its series are not known."""
        known, series = self._model(cell.model), self._read_series(cell.dataset)
        if known is None or not series:
            return None
        model, size = known
        found = self._tokenize(cell, model, series)
        if found is None:
            return None
        n_forecasts = self._count_forecasts(cell, model, series) if model.modality == "series" else 0
        return PlannedCell(
            cell=cell,
            size=size,
            tokens=found.tokens,
            valued=found.valued if is_tokenized else {},
            windows=found.windows if is_tokenized else 0,
            needed=-(-self.params.tokens.rows // self._rows_per_window(cell, model)),
            series=len(series),
            token_bytes=found.bytes,
            horizon=self.params.datasets.sets[cell.dataset].horizon,
            forecasts=n_forecasts if is_forecast else 0,
            validated=min(n_forecasts, self.params.forecasts.validation_series) if is_validated else 0,
            layers=self._layers(size, studies),
            is_limited=self.params.datasets.sets[cell.dataset].source not in ("kernelsynth", "signals"),
        )

    def _layers(self, size: ModelSize, studies: Sequence[str]) -> dict[str, int]:
        """Return the number of layers by stack that some studies ask for."""
        asked = {self.params.studies[study].layers for study in studies}
        first, counts = next(iter(size.stacks)), {}
        for name, stack in size.stacks.items():
            few = int("last" in asked) + int("first" in asked and name == first)
            counts[name] = stack.states if "all" in asked else few
        return counts

    def _model(self, name: str) -> tuple[Family, ModelSize] | None:
        if name not in self._models:
            model = self.params.models[name]
            if model.ref.startswith(COMPRESSED):
                self._models[name] = self._model(str(model.base_model))
                return self._models[name]
            try:
                made = self._make(model)
                self._models[name] = made, cost.model_size(made)
            except (ModelError, ValueError) as error:
                self.unknown[name], self._models[name] = str(error), None
        return self._models[name]

    def _make(self, model: Model) -> Family:
        """Return a model of the right shapes: loaded where its folder is here, else without its weights."""
        if (path := checkpoint_path(model.ref)) is not None:
            recipe = self.params.checkpoints.recipes[path.partition("/")[0]]
            folder = Path(self.params.checkpoints.committed or "", path)
            if (folder / "config.json").is_file():
                return registry.load(model.family, folder, options=model.options)
            return registry.family_class(model.family).new(recipe.config, seed=0)
        if (layout := layout_of(model.ref)) is not None:
            return weightless_model(layout, model.options)
        return registry.load(model.family, registry.resolve(model.ref).folder, options=model.options)

    def _read_series(self, name: str) -> list[Series]:
        if name not in self._series:
            params, dataset = self.params, self.params.datasets.sets[name]
            try:
                if dataset.source == "kernelsynth":
                    one = Series(name, name, np.zeros(params.kernelsynth.length, np.float32), "", "")
                    self._series[name] = [one] * params.kernelsynth.series
                else:
                    most = params.datasets.max_series
                    loaded = load_data_set(name, dataset, params, max_series=most, seed=params.seed, offline=True)
                    self._series[name] = list(loaded.series)
            except DataError as error:
                self._series[name] = []
                self.unknown[name] = str(error)
        return self._series[name]

    def _tokenize(self, cell: Cell, model: Family, series: Sequence[Series]) -> _Tokenized | None:
        """Return the tokens of a cell; None if no series gives a window.

        Windows are those of `lens.tokenize`. Where they are as many as wanted, only the fullest one is tokenised, and
        the tokens of the others are counted by the observed share of their contexts.
        """
        params = self.params
        condition = params.conditions[cell.condition]
        options = planning.window_options(params, cell, params.tokens.min_context)
        model, steps = model.with_condition(condition.context, options.history)
        count = max(len(series), -(-params.tokens.rows // self._rows_per_window(cell, model)))
        while True:
            windows, observed = self._spread(cell.dataset, steps, condition.context, options, count, series)
            if not len(windows):
                return None
            tokens = model.tokenize(windows)
            is_all = len(windows) == len(observed)
            valued = lens.count_valued(tokens) if is_all else dict(_count_valued(tokens, observed))
            # A stack none of whose tokens stand for values never has enough.
            enough = all(n >= params.tokens.rows or not n for n in valued.values())
            if len(observed) < count or enough:
                shape = {stack: kinds.shape[1] for stack, kinds in tokens.kinds.items()}
                return _Tokenized(len(observed), shape, valued, tokens_to_table(tokens).nbytes / len(windows))
            count *= 2

    def _rows_per_window(self, cell: Cell, model: Family) -> int:
        """Return the tokens that a full window gives to the stack with the fewest."""
        condition, horizon = self.params.conditions[cell.condition], self.params.datasets.sets[cell.dataset].horizon
        model, steps = model.with_condition(condition.context, condition.history)
        return min([n for n in model.rows_per_window(steps, horizon).values() if n > 0], default=1)

    def _spread(
        self, dataset: str, steps: int, context: int, options: WindowOptions, count: int, series: Sequence[Series]
    ) -> tuple[Windows, np.ndarray]:
        """Return the windows, and the observed share of each context, relative to the fullest one.

        If there are as many windows as wanted, only the fullest one is returned.
        """
        key = (dataset, steps, context, options, count)
        if key not in self._windows:
            windows, _ = spread_windows(
                series,
                context=steps,
                horizon=options.horizon,
                count=count,
                min_context=options.min_context,
                held_out=options.held_out,
                seed=options.seed,
            )
            observed = windows.count_observed(context)
            fullest = int(observed.argmax()) if len(observed) else 0
            kept = windows if len(windows) < count else windows.take(slice(fullest, fullest + 1))
            self._windows[key] = kept, observed / max(1, observed.max(initial=0))
        return self._windows[key]

    def _count_forecasts(self, cell: Cell, model: Family, series: Sequence[Series]) -> int:
        options = planning.window_options(self.params, cell, self.params.forecasts.min_context)
        _, steps = model.with_condition(self.params.conditions[cell.condition].context, options.history)
        key = (cell.dataset, steps, options)
        if key not in self._forecasts:
            windows, _ = last_windows(
                series,
                context=steps,
                horizon=options.horizon,
                min_context=options.min_context,
                held_out=options.held_out,
            )
            self._forecasts[key] = len(windows)
        return self._forecasts[key]


def _count_valued(sample: Tokens, observed: np.ndarray) -> Iterator[tuple[str, int]]:
    """Yield each stack with the tokens of all windows that stand for values.

    sample: tokens of the fullest window. observed: observed share of the context of every window.
    """
    for stack, kinds in sample.kinds.items():
        of_context = int((kinds == TokenKind.OBSERVATION).sum())
        other = int(np.isin(kinds, VALUED).sum()) - of_context
        yield stack, int(np.ceil(of_context * observed).sum()) + other * len(observed)

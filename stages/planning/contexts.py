"""Observed steps of context: how much of each context length the series of a data set fill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stages.config.params import Params
from stages.planning.load_series import load_data_set
from tsfmscope.defaults import HELD_OUT
from tsfmscope.errors import DataError
from tsfmscope.series.catalog import modality
from tsfmscope.series.synthetic.signals import draw_signal
from tsfmscope.series.types import Series
from tsfmscope.series.windows import last_windows


@dataclass(frozen=True)
class Observed:
    """Observed steps of context over the windows of one cell.

    context: requested steps. minimum, median: observed steps over the windows. longest: steps that the
    longest series has before its horizon. No series fills a context longer than `longest`: every window is
    padded.
    """

    context: int
    minimum: int
    median: float
    longest: int

    @property
    def is_filled(self) -> bool:
        """Whether at least one series has as many steps before its horizon as the context."""
        return self.longest >= self.context

    @property
    def columns(self) -> dict[str, float]:
        """Columns of a result row with the observed steps of context."""
        return {"n_context_min": self.minimum, "n_context_median": self.median}

    def __str__(self) -> str:
        line = f"observed steps of context: minimum {self.minimum}, median {self.median:g} of {self.context}"
        if self.is_filled:
            return line
        padding = f"the longest has {self.longest} steps before its horizon, the rest is padding"
        return f"{line}; no series fills context {self.context}: {padding}"


class PlannedContext(NamedTuple):
    """One context length on one data set. observed: None if no series gives a window."""

    dataset: str
    context: int
    observed: Observed | None


def longest_context(series: Sequence[Series], horizon: int) -> int:
    """Return the steps, observed or missing, that the longest series has before its horizon.

    Returns 0 if there is no series.
    """
    return max([len(item.values) - horizon for item in series], default=0)


def planned_contexts(params: Params) -> tuple[list[PlannedContext], list[str]]:
    """Return the contexts that the studies ask for on time series, and the data sets that could not be read.

    Data sets are read without the network. The windows are those that are forecast: the last one of every
    series.
    """
    planned: list[PlannedContext] = []
    absent: list[str] = []
    for name, contexts in _contexts_by_dataset(params).items():
        try:
            series = _local_series(name, params)
        except DataError:
            absent.append(name)
            continue
        planned += [
            PlannedContext(name, context, _count_observed(name, context, series, params)) for context in contexts
        ]
    return planned, absent


def _contexts_by_dataset(params: Params) -> dict[str, list[int]]:
    """Return data set -> ascending contexts of the conditions that a study pairs it with; series only."""
    by_dataset: dict[str, set[int]] = {}
    for study in params.studies:
        conditions = [params.conditions[name] for name in params.expand(study, "conditions")]
        contexts = {condition.context for condition in conditions if condition.modality == "series"}
        for name in params.expand(study, "datasets"):
            if modality(params.datasets.sets[name].source) == "series":
                by_dataset.setdefault(name, set()).update(contexts)
    return {name: sorted(contexts) for name, contexts in by_dataset.items()}


def _local_series(name: str, params: Params) -> list[Series]:
    """Return the usable series of a data set.

    A synthetic data set gives a single series, since all of its series have the same length. Raises DataError
    if the files are not on this machine or contain no usable series.
    """
    dataset = params.datasets.sets[name]
    if dataset.source == "kernelsynth":
        return [Series(name, name, np.zeros(params.kernelsynth.length, np.float32), "", "")]
    if dataset.source == "signals":
        return draw_signal(name, "constant", params.seed)
    series = load_data_set(
        name, dataset, params, max_series=params.datasets.max_series, seed=params.seed, offline=True
    ).series
    if not series:
        raise DataError(f"data set {name}: expected a usable series, found none")
    return series


def _count_observed(name: str, context: int, series: Sequence[Series], params: Params) -> Observed | None:
    dataset = params.datasets.sets[name]
    windows, _ = last_windows(
        series,
        context=context,
        horizon=dataset.horizon,
        min_context=min(context, params.forecasts.min_context),
        held_out=HELD_OUT if dataset.source == "bundled" else None,
    )
    if not len(windows):
        return None
    observed = windows.count_observed(context)
    longest = longest_context(series, dataset.horizon)
    return Observed(context, int(observed.min()), float(np.median(observed)), longest)


def context_lines(contexts: Sequence[PlannedContext], absent: Sequence[str]) -> Iterator[str]:
    """Yield sentences on the contexts that no series fills, then one on the data that could not be read."""
    for context in sorted({item.context for item in contexts}):
        short = [
            item for item in contexts if item.context == context and not (item.observed and item.observed.is_filled)
        ]
        if short:
            yield f"context {context}: no series fills it in {', '.join(item.dataset for item in short)}"
    if absent:
        yield f"not on this machine, so their contexts are unknown: {', '.join(absent)}"

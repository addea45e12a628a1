"""Observed steps of context: how much of each context length the series of a data set fill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stages.config.params import Params
from tsfmscope.defaults import HELD_OUT
from tsfmscope.errors import DataError
from tsfmscope.series.catalog import modality
from tsfmscope.series.data_sets import load_data_set
from tsfmscope.series.synthetic.signals import draw_signal
from tsfmscope.series.types import Series
from tsfmscope.series.windows import Observed, last_windows, longest_context


class PlannedContext(NamedTuple):
    """One context length on one data set. observed: None if no series gives a window."""

    dataset: str
    context: int
    observed: Observed | None


def planned_contexts(params: Params) -> tuple[list[PlannedContext], list[str]]:
    """Return the contexts that the studies ask for on time series, and the data sets that could not be read.

    Data sets are read without the network. The windows are those that are forecast: the last one of every
    series.
    """
    planned: list[PlannedContext] = []
    absent: list[str] = []
    by_dataset: dict[str, set[int]] = {}
    for study in params.studies:
        conditions = [params.conditions[name] for name in params.expand(study, "conditions")]
        contexts = {condition.context for condition in conditions if condition.modality == "series"}
        for name in params.expand(study, "datasets"):
            if modality(params.datasets.sets[name].source) == "series":
                by_dataset.setdefault(name, set()).update(contexts)
    for name, contexts in by_dataset.items():
        try:
            series = _local_series(name, params)
        except DataError:
            absent.append(name)
            continue
        counts = {context: _count_observed(name, context, series, params) for context in sorted(contexts)}
        planned += [PlannedContext(name, context, observed) for context, observed in counts.items()]
    return planned, absent


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
        name,
        dataset,
        root=params.data_root,
        max_series=params.datasets.max_series,
        seed=params.seed,
        min_length=params.datasets.min_length,
        offline=True,
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

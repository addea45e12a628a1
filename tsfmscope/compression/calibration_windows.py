"""Calibration windows of a compression: cut from series outside the held-out share, or from synthetic series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.compression.options import Calibration
from tsfmscope.errors import DataError
from tsfmscope.models.types import Tokens
from tsfmscope.series.synthetic.priors import draw_priors
from tsfmscope.series.tables import table_series
from tsfmscope.series.types import Series, digests
from tsfmscope.series.windows import MIN_CONTEXT, last_windows, spread_windows

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.models.base import Family
    from tsfmscope.series.types import Windows

# Number that separates the synthetic series from other series of the same seed.
STREAM = 27
# Share of the synthetic series that are shorter than context and horizon, as many series of users are.
SHORTER = 0.5


def calibration_tokens(model: Family, tables: Mapping[str, pa.Table], options: Calibration) -> list[Tokens]:
    """Return the tokens of `equal_windows`, one item per data set."""
    model, _ = model.with_condition(options.context, 0)
    return [model.tokenize(windows) for windows in equal_windows(model, tables, options)]


def equal_windows(model: Family, tables: Mapping[str, pa.Table], options: Calibration) -> list[Windows]:
    """Return `calibration_windows` with the same number, and so the same weight, for every data set.

    The windows of a data set that has fewer than the others are repeated.
    """
    parts = calibration_windows(model, tables, options)
    count = max(map(len, parts))
    return [windows.take(np.resize(np.arange(len(windows)), count).tolist()) for windows in parts]


def calibration_windows(model: Family, tables: Mapping[str, pa.Table], options: Calibration) -> list[Windows]:
    """Return calibration windows, one item per data set that has any, outside the held-out share.

    Series are tried in a seeded random order, until the number of series that yield a window equals the
    number of windows. tables: series by data set.
    DataError, with the reasons why series were skipped, if no series yields a window.
    """
    _, steps = model.with_condition(options.context, 0)
    spread = partial(spread_windows, context=steps, horizon=options.horizon, min_context=MIN_CONTEXT)
    batches, skip_reasons = [], Counter[str]()
    for dataset in options.datasets:
        series = table_series(tables[dataset])
        usable: dict[int, Series] = {}
        for index in np.random.default_rng(options.seed).permutation(len(series)):
            values = series[index].values
            past = replace(series[index], values=values[: int(len(values) * (1 - options.held_out))])
            if skips := spread([past], count=1)[1]:
                skip_reasons.update(skip.reason for skip in skips)
                continue
            if np.nanmin(past.values) == np.nanmax(past.values):
                skip_reasons["constant"] += 1
                continue
            usable[index] = past
            if len(usable) == options.windows:
                break
        if usable:
            batches.append(spread([usable[index] for index in sorted(usable)], count=options.windows)[0])
    batches += [
        synthetic_windows(options.windows, steps, options.horizon, seed=(options.seed, number))
        for number in range(options.synthetic)
    ]
    if not batches:
        reasons = ", ".join(f"{reason} ({count} series)" for reason, count in skip_reasons.most_common())
        raise DataError(
            f"calibration: data sets {list(options.datasets)} give no window before the last {options.held_out:.0%} of "
            f"their series: {reasons or 'they contain no series'}; name other data, a shorter horizon or synthetic "
            "series"
        )
    return batches


def timed_windows(model: Family, tables: Mapping[str, pa.Table], options: Calibration, count: int) -> Windows:
    """Return up to `count` windows, to time forecasts, of the first data set that has any."""
    return calibration_windows(model, tables, options.model_copy(update={"windows": count}))[0]


def calibration_series(tables: Mapping[str, pa.Table], calibration: Calibration | None) -> list[str]:
    """Return the digests of all series of the data sets that calibrate, sorted; none without calibration."""
    names = calibration.datasets if calibration else ()
    return sorted(frozenset[str]().union(*(digests(table_series(tables[name])) for name in names)))


def synthetic_windows(count: int, context: int, horizon: int, *, seed: Sequence[int]) -> Windows:
    """Return the last windows of `count` random series of `draw_priors`; a share of SHORTER has shorter contexts.

    A few series are left out where too many steps are missing.
    """
    rng = np.random.default_rng([*seed, STREAM])
    values = draw_priors(rng, count, context + horizon)
    lengths = rng.integers(MIN_CONTEXT + horizon, context + horizon + 1, count)
    lengths[rng.random(count) >= SHORTER] = context + horizon
    rows = zip(values, lengths, strict=True)
    series = [Series("synthetic", f"synthetic-{n}", row[-length:]) for n, (row, length) in enumerate(rows)]
    return last_windows(series, context=context, horizon=horizon, min_context=MIN_CONTEXT)[0]

"""Calibration windows of a compression: cut from a seeded sample of series, outside the held-out share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.models.types import Tokens
from tsfmscope.tasks.series.tables import table_series
from tsfmscope.tasks.series.windows import MIN_CONTEXT, spread_windows

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.tasks.models.base import Family
    from tsfmscope.tasks.series.types import Series, Windows


def calibration_tokens(model: Family, tables: Mapping[str, pa.Table], **options: Any) -> list[Tokens]:
    """Return the tokens of `calibration_windows`, which describes the options, one item per data set."""
    model, _ = model.with_condition(options["context"], 0)
    return [model.tokenize(windows) for windows in calibration_windows(model, tables, **options)]


def calibration_windows(
    model: Family,
    tables: Mapping[str, pa.Table],
    *,
    datasets: Sequence[str],
    windows: int,
    context: int,
    horizon: int,
    held_out: float,
    seed: int,
) -> list[Windows]:
    """Return calibration windows, one item per data set that has any, outside the `held_out` share.

    Series are tried in a seeded random order, until the number of series that yield a window equals the
    number of windows. tables: series by data set. windows: largest number of windows per data set.
    DataError, with the reasons why series were skipped, if no series yields a window.
    """
    _, steps = model.with_condition(context, 0)
    spread = partial(spread_windows, context=steps, horizon=horizon, min_context=MIN_CONTEXT)
    batches, skip_reasons = [], Counter[str]()
    for dataset in datasets:
        series = table_series(tables[dataset])
        usable: dict[int, Series] = {}
        for index in np.random.default_rng(seed).permutation(len(series)):
            past = _before(series[index], held_out)
            if skips := spread([past], count=1)[1]:
                skip_reasons.update(skip.reason for skip in skips)
                continue
            usable[index] = past
            if len(usable) == windows:
                break
        if usable:
            batches.append(spread([usable[index] for index in sorted(usable)], count=windows)[0])
    if not batches:
        reasons = ", ".join(f"{reason} ({count} series)" for reason, count in skip_reasons.most_common())
        raise DataError(
            f"calibration: data sets {list(datasets)} give no window before the last {held_out:.0%} of their "
            f"series: {reasons or 'they contain no series'}; name other data sets, or a shorter horizon"
        )
    return batches


def _before(series: Series, held_out: float) -> Series:
    return replace(series, values=series.values[: int(len(series.values) * (1 - held_out))])

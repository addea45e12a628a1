"""Function `certify` of the public Python API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from stages.config.defaults import params_here
from tsfmscope.cli.certifying import CertifyOptions, CertifyResult, ModelPair, certify_pair
from tsfmscope.cli.inspection import InspectRequest, device_context
from tsfmscope.cli.provenance import Calibration, calibration_of
from tsfmscope.functions.model import CompressedModel, Model, as_model
from tsfmscope.functions.user_data import Data, check_counts, list_items, usable_series
from tsfmscope.statistics.noninferiority import MARGIN, WORST


def certify(
    base: Model | str | Path,
    small: Model | str | Path,
    data: Sequence[Data],
    *,
    margin: float = MARGIN,
    worst: float = WORST,
    context: int | None = None,
    horizon: int | Sequence[int] | None = None,
    max_series: int | None = None,
    seed: int | None = None,
    columns: Mapping[str, Any] | None = None,
) -> CertifyResult:
    """Test that a small model is as good as its base, as `tsfmscope certify` does.

    Args:
        base: a model that `load` returned, or its name or folder.
        small: the small model, likewise, or one that `compress` returned.
        data: a list of data sets, each as in `inspect`; every file of a folder is a data set. One data set gives a
            certificate for series like its own; several give a general one, whose unit is the source: data sets that
            share a series with the same values are one source.
        margin: largest mean ratio of WQL, small model over base, above 1.
        worst: largest ratio of one data set at one horizon or, for one data set, of a group of series; above 1.
        context: as in `inspect`.
        horizon: steps to forecast, one number or several; None: that of each data set.
        max_series: as in `inspect`.
        seed: seed of the forecast samples and of the bootstrap.
        columns: columns of the tables, as in `inspect`.

    Returns:
        `tasks` has one row per data set and horizon, `left_out` the others with their reasons, such as data that
        calibrated the small model. `units` has the ratio of each source or series. `certificate` has the
        `conditions` of docs/compression.md and the `outcome`: certified, not certified or too few tasks.

    Raises:
        ValueError: an argument is out of range.
        ParamsError: a model does not forecast, both are the same, or no data set can be scored.
        HealthError: a forecast is not finite.
    """
    if isinstance(data, str | Path) or not isinstance(data, Sequence) or not len(data):
        raise ValueError(f"data: got {type(data).__name__}, expected a list of data sets")
    check_counts(context=context, max_series=max_series)
    horizons = () if horizon is None else tuple(horizon) if isinstance(horizon, Sequence) else (horizon,)
    for steps in horizons:
        check_counts(context=None, horizon=steps)
    base, small = as_model(base), as_model(small)
    if not isinstance(small, CompressedModel) and base.source == small.source:
        raise ValueError(f"small: got {small.name}, which is the base")
    params = params_here()
    series_seed = params.seed if seed is None else seed
    limit = params.datasets.max_series if max_series is None else max_series
    readers = {
        name: partial(usable_series, params, item, limit, series_seed, columns)
        for name, item in list_items(data)
    }  # fmt: skip
    request = InspectRequest(base.name, "data", context=context, max_series=max_series, seed=seed, device=base.device)
    with device_context(base.device):
        if isinstance(small, CompressedModel):
            seen = Calibration(frozenset(small.calibration_series))
        else:
            seen = calibration_of(small.source.folder)
        pair = ModelPair(base.family, small.family, base.source, seen)
        return certify_pair(params, request, pair, readers, CertifyOptions(horizons, margin, worst))

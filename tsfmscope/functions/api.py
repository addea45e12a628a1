"""Functions of the public Python API that need a model: inspect, states, embed, results."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd

from stages.config.defaults import params_here
from store.saved_results import connect
from tsfmscope.cli.inspection import (
    InspectRequest,
    LoadedCase,
    build_case,
    count_left_out,
    device_context,
    floor_notes,
    hidden_states,
    measure_case,
    reading_notes,
    tokenize_case,
)
from tsfmscope.defaults import CONTEXT, Pool
from tsfmscope.errors import DataError
from tsfmscope.functions.layer_report import LayerReport
from tsfmscope.functions.measures import check_share
from tsfmscope.functions.model import Model, as_model
from tsfmscope.functions.user_data import (
    Data,
    check_at_least,
    check_context,
    check_counts,
    last_contexts,
    log_left_out,
    usable_series,
)
from tsfmscope.models.types import TokenKind
from tsfmscope.series.catalog import modality
from tsfmscope.series.types import count_reasons

if TYPE_CHECKING:
    import duckdb

logger = logging.getLogger("tsfmscope")

POOLS: tuple[str, ...] = get_args(Pool)


class States(dict[tuple[str, int | str], np.ndarray]):
    """Hidden states [token, width] by stack and layer. skipped: reason -> number of series that gave no window."""

    skipped: Mapping[str, int] = MappingProxyType({})


def inspect(
    model: Model | str | Path,
    data: Data,
    *,
    context: int | None = None,
    horizon: int | None = None,
    noise: float = 0.0,
    rows: int | None = None,
    max_series: int | None = None,
    share: float = 0.8,
    epsilon: float = 0.01,
    seed: int | None = None,
    columns: Mapping[str, Any] | None = None,
) -> LayerReport:
    """Measure isotropy, effective dimension and numerical rank of every layer.

    The numbers are those of `tsfmscope inspect MODEL DATA`. What is None is as in params.yaml of this folder, else as
    in the params file of the package. Futures of a bundled data set lie in the last 20 % of its series, on which no
    model of the package is trained.

    Args:
        model: a model that `load` returned, or its name or folder.
        data: one or several series. A DataFrame has one row per time, and either one series per numeric
            column, or a column of ids and one of values. A Series or an array [step] is one series, an array
            [series, step] is several, and so is a list or dict of arrays [step]; tensors are arrays. A text or path
            is a CSV or Parquet file or a folder of them; a text may also be the name of a data set
            (docs/own_data.md). Missing values are NaN or masked.
        context: steps of context that the model sees, 16 to 32,768; None: 500, unless params.yaml has others.
        horizon: steps after the context, at least 1; decoders see them. None: the data set's, or 24.
        noise: standard deviation of Gaussian noise on the context, in standard deviations of the series.
        rows: largest number of tokens per layer, a seeded sample; None: 1,024, unless params.yaml has others.
        max_series: largest number of series, a seeded sample; None: 32, unless params.yaml has others.
        share: share of the variance in the effective dimension, in (0, 1].
        epsilon: relative tolerance of the numerical rank, in [0, 1].
        seed: seed of samples and clusters.
        columns: columns of a table: {"time": NAME, "id": NAME, "value": NAME, "time_format": "%d/%m/%Y",
            "tz": "Europe/Berlin"}, each of them optional; NAME may be a list of names (docs/own_data.md).

    Returns:
        A report. Its `layers` is a DataFrame with one row per layer and the columns of `inspect --json`.

    Raises:
        DataError: the data contain no series, or no series is long enough.
        ValueError: another argument is out of range.
        HealthError: hidden states are not finite.
    """
    check_counts(context=context, horizon=horizon, rows=rows, max_series=max_series)
    check_share(share)
    request = InspectRequest(
        "model", "data", context=context, horizon=horizon, noise=noise, rows=rows, max_series=max_series, seed=seed,
        share=share, epsilon=epsilon,
    )  # fmt: skip
    case = _build_case(as_model(model), data, request, columns)
    with device_context(case.device):
        result = measure_case(case, request)
    log_left_out(result.skipped)
    return LayerReport.from_result(result)


def states(
    model: Model | str | Path,
    data: Data,
    *,
    context: int | None = None,
    horizon: int | None = None,
    rows: int | None = None,
    kinds: Sequence[str] = ("observation", "future"),
    max_series: int | None = None,
    seed: int | None = None,
    columns: Mapping[str, Any] | None = None,
) -> States:
    """Return the hidden states of every layer of every stack.

    Args:
        model: a model that `load` returned, or its name or folder.
        data: series, as in `inspect`.
        context: as in `inspect`.
        horizon: as in `inspect`.
        max_series: as in `inspect`.
        rows: largest number of tokens per stack, a seeded sample; the same tokens in every layer. None: as in
            `inspect`.
        kinds: kinds of tokens that are returned: names of `TokenKind` in lower case.
        seed: seed of the samples.
        columns: columns of a table, as in `inspect`.

    Returns:
        (stack, layer) -> [token, width], float32. Layer 0 is the embedding, layer n the output of the last
        block. "normed" is the output of the final norm, for families that have one. Series without a window, such as
        constant ones, are counted by reason in the warnings and in the attribute `skipped`.

    Raises:
        DataError: the data contain no series, or no series is long enough.
        ValueError: a kind is unknown, no token has it, or another argument is out of range.
        HealthError: hidden states are not finite.
    """
    check_counts(context=context, horizon=horizon, rows=rows, max_series=max_series)
    request = InspectRequest(
        "model", "data", context=context, horizon=horizon, rows=rows, max_series=max_series, seed=seed
    )
    case = _build_case(as_model(model), data, request, columns)
    with device_context(case.device):
        tokenized = tokenize_case(case)
        layers = list(hidden_states(case, tokenized.tokens, kinds).layers)
    result = States({(layer.stack, "normed" if layer.normed else layer.layer): layer.states for layer in layers})
    result.skipped = count_left_out(case.series, tokenized.skipped)
    log_left_out(result.skipped)
    return result


def embed(
    model: Model | str | Path,
    data: Data,
    *,
    layer: int | str = "last",
    stack: str | None = None,
    pool: str = "mean",
    context: int = CONTEXT,
    max_series: int | None = None,
    seed: int = 0,
    columns: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Return one vector per series: the pooled hidden states of its last `context` steps.

    Args:
        model: a model that `load` returned, or its name or folder.
        data: series, as in `inspect`.
        layer: number of a layer (0: the embedding), or "last": the last state, after the final norm if the
            family has one.
        stack: name of a stack; None: the first, which reads the context.
        pool: mean, last or max, over the tokens of observed values.
        context: steps at the end of each series, 1 to 32,768.
        max_series: largest number of series, a seeded sample; None: all.
        seed: seed of the sample.
        columns: columns of a table, as in `inspect`.

    Returns:
        One row per series, with its id as index and one column per dimension, float32. Short and constant series have
        one too. Series that have none (nothing observed, infinite) are counted by reason in the warnings and in
        `attrs["skipped"]`.

    Raises:
        ValueError: the stack, layer or pool is unknown, or another argument is out of range.
        DataError: the data contain no series, or none is usable.
    """
    check_context(1, context)
    check_at_least(1, max_series=max_series)
    model = as_model(model)
    stack = model.family.stacks[0] if stack is None else stack
    if stack not in model.layers:
        raise ValueError(f"stack: got {stack!r}, expected one of {', '.join(model.layers)}")
    if pool not in POOLS:
        raise ValueError(f"pool: got {pool!r}, expected one of {', '.join(POOLS)}")
    if layer != "last" and not (isinstance(layer, int) and 0 <= layer <= model.layers[stack]):
        raise ValueError(f"layer: got {layer!r}, expected 'last' or 0 to {model.layers[stack]}")
    named = usable_series(params_here(), data, max_series, seed, columns, takes_any=True)
    loaded = named.loaded
    # Steps before the first value of the longest series would be padding in every context.
    longest = max(len(item.values) for item in loaded.series)
    windows = last_contexts(loaded.series, min(context, longest))
    tokens = model.family.tokenize(windows)
    observed = tokens.kinds[stack] == TokenKind.OBSERVATION
    rows = np.flatnonzero(observed)
    if not len(rows):
        raise ValueError(f"stack: got {stack!r}, none of whose tokens is an observed value; name another stack")
    number = model.layers[stack] if layer == "last" else layer
    for state in model.family.hidden_states(tokens, {stack: rows}):
        # The normed state comes last and replaces the output of the last block.
        if state.layer == number and (layer == "last" or not state.normed):
            values = state.states.copy()
    # [W + 1]: rows of the window i are values[bounds[i] : bounds[i + 1]].
    bounds = np.concatenate(([0], observed.sum(axis=1).cumsum()))
    kept = np.flatnonzero(np.diff(bounds))
    vectors = [_pool(values[bounds[i] : bounds[i + 1]], pool) for i in kept]
    skipped = count_reasons(loaded.skipped)
    if len(kept) < len(tokens):
        reason = f"no token stands for an observed value of the last {context} steps"
        skipped[reason] = len(tokens) - len(kept)
    log_left_out(skipped)
    near = model.family.count_near_floor(windows.context)
    for note in (
        *reading_notes(model.name, model.family.max_context, context),
        *floor_notes(model.family, model.name, named.name, near, len(windows)),
    ):
        logger.warning(note)
    frame = pd.DataFrame(np.stack(vectors), index=[tokens.series[i] for i in kept])
    frame.attrs["skipped"] = skipped
    return frame


def results(path: str | Path = "data/results.duckdb") -> duckdb.DuckDBPyConnection:
    """Open the results of the pipeline, read-only.

    Args:
        path: DuckDB file, or a folder that `tsfmscope save-results` wrote.

    Returns:
        A DuckDB connection: `results().sql("select …").df()` is a DataFrame. No statement can write a file or
        read another one. docs/tables.md lists the tables and views.

    Raises:
        QueryError: there are no results at the path, or another version wrote them.
        DamagedFile: a file of the folder is not as it was written.
    """
    return connect(path)


def _build_case(model: Model, data: Data, request: InspectRequest, columns: Mapping[str, Any] | None) -> LoadedCase:
    """Return the model and the series under the condition of the request, as the command line does.

    The request's names of model and data are not read. Raises DataError if there is no usable series, or if the model
    reads other data.
    """
    params = params_here()
    seed = params.seed if request.seed is None else request.seed
    max_series = params.datasets.max_series if request.max_series is None else request.max_series
    series = usable_series(params, data, max_series, seed, columns)
    kind = modality(series.dataset.source)
    if model.family.modality != kind:
        raise DataError(f"{series.name}: {kind} data, but model {model.name} reads {model.family.modality}")
    return build_case(params, replace(request, device=model.device), model.family, model.source, series)


def _pool(vectors: np.ndarray, pool: str) -> np.ndarray:
    pooled: np.ndarray = vectors[-1] if pool == "last" else getattr(vectors, pool)(axis=0)
    return pooled

"""Functions of the public Python API that need a model: inspect, states, embed, compress, results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tsfmscope.layer_report import LayerReport
from tsfmscope.model import CompressedModel, Model, as_model, load_source
from tsfmscope.stages.config.compression import Method
from tsfmscope.store.query import connect
from tsfmscope.tasks import lens
from tsfmscope.tasks.compression.compress import compress_model, sizes
from tsfmscope.tasks.defaults import CONTEXT, HELD_OUT, HORIZON, ROWS
from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.models.base import QUANTILES, Family, Forecaster
from tsfmscope.tasks.models.types import TokenKind, Tokens
from tsfmscope.tasks.series.files.parquet import Loaded
from tsfmscope.tasks.series.tables import series_table
from tsfmscope.tasks.series.types import Series
from tsfmscope.user_data import Data, counted, last_contexts, usable_series

if TYPE_CHECKING:
    import duckdb

# Largest number of series that are measured, a seeded sample of more.
MAX_SERIES = 100
POOLS = ("mean", "last", "max")


def inspect(
    model: Model | str,
    data: Data,
    *,
    context: int = CONTEXT,
    horizon: int = HORIZON,
    noise: float = 0.0,
    rows: int = ROWS,
    max_series: int = MAX_SERIES,
    share: float = 0.8,
    epsilon: float = 0.01,
    seed: int = 0,
) -> LayerReport:
    """Measure isotropy, effective dimension and numerical rank of every layer.

    Args:
        model: a model of `load`, or its name.
        data: series. A DataFrame has one row per time, and either one series per numeric column, or a column
            of ids and one of values. A Series or an array [step] is one series, an array [series, step] are
            several. A text is a CSV or Parquet file, a folder of them, or a data set of docs/own_data.md.
            Missing values are NaN.
        context: steps of context that the model sees.
        horizon: steps after the context; decoders see them.
        noise: standard deviation of Gaussian noise on the context, in standard deviations of the series.
        rows: largest number of tokens per layer, a seeded sample.
        max_series: largest number of series, a seeded sample.
        share: share of the variance, the ε of the effective dimension d(ε).
        epsilon: relative tolerance of the numerical rank.
        seed: seed of samples and clusters.

    Raises:
        DataError: the data are no series, or no series is long enough.
        HealthError: hidden states are not finite.
    """
    model = as_model(model)
    name, loaded = usable_series(data, max_series, seed)
    tokens, skipped = _tokens(model, name, loaded, context, horizon, rows, seed, noise)
    layers = lens.hidden_states(model.family, tokens, rows=rows, seed=seed, device=model.device)
    found = []
    for layer in layers.layers:
        types = tokens.types.get(layer.stack)
        row = lens.measure_layer(
            layer.states,
            None if types is None else types.reshape(-1)[layers.rows[layer.stack]],
            share=share,
            epsilon=epsilon,
            seed=seed,
        )
        found.append({"stack": layer.stack, "layer": layer.layer, "normed": layer.normed} | row)
    return LayerReport.of(model.name, name, context, noise, found, tokens, skipped)


def states(
    model: Model | str,
    data: Data,
    *,
    context: int = CONTEXT,
    horizon: int = HORIZON,
    rows: int = ROWS,
    kinds: Sequence[str] = ("observation", "future"),
    max_series: int = MAX_SERIES,
    seed: int = 0,
) -> dict[tuple[str, int | str], np.ndarray]:
    """Return the hidden states of every layer of every stack.

    Args:
        model: a model of `load`, or its name.
        data: series, as in `inspect`.
        context: steps of context.
        horizon: steps after the context; decoders see them.
        rows: largest number of tokens per stack, a seeded sample; the same tokens in every layer.
        kinds: kinds of tokens (names of TokenKind in lower case).
        max_series: largest number of series, a seeded sample.
        seed: seed of the samples.

    Returns:
        (stack, layer) -> [token, width], float32. Layer 0 is the embedding, layer n the output of the last
        block, and "normed" stands for the output of the final norm, where the family has one.

    Raises:
        DataError: the data are no series, or no series is long enough.
        ValueError: a kind is unknown, or no token has it.
        HealthError: hidden states are not finite.
    """
    model = as_model(model)
    name, loaded = usable_series(data, max_series, seed)
    tokens, _ = _tokens(model, name, loaded, context, horizon, rows, seed)
    kept = lens.hidden_states(model.family, tokens, rows=rows, seed=seed, kinds=kinds, device=model.device)
    # The arrays of a layer are reused for the next batch of jobs, so they are copied.
    return {(one.stack, "normed" if one.normed else one.layer): one.states.copy() for one in kept.layers}


def embed(
    model: Model | str,
    data: Data,
    *,
    layer: int | str = "last",
    stack: str | None = None,
    pool: str = "mean",
    context: int = CONTEXT,
    max_series: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Return one vector per series: the pooled hidden states of its last `context` steps.

    Args:
        model: a model of `load`, or its name.
        data: series, as in `inspect`.
        layer: number of a layer (0: the embedding), or "last": the last state, after the final norm if there
            is one.
        stack: name of a stack; None: the first, which reads the context.
        pool: mean, last or max, over the tokens that stand for observed values.
        context: steps at the end of each series.
        max_series: largest number of series, a seeded sample; None: all.
        seed: seed of the sample.

    Returns:
        One row per series, with its id as index and one column per dimension.

    Raises:
        ValueError: an unknown stack, layer or pool.
        DataError: the data are no series, or none is usable.
    """
    model = as_model(model)
    stack = model.family.stacks[0] if stack is None else stack
    if stack not in model.layers:
        raise ValueError(f"stack: got {stack!r}, expected one of {', '.join(model.layers)}")
    if pool not in POOLS:
        raise ValueError(f"pool: got {pool!r}, expected one of {', '.join(POOLS)}")
    if layer != "last" and not (isinstance(layer, int) and 0 <= layer <= model.layers[stack]):
        raise ValueError(f"layer: got {layer!r}, expected 'last' or 0 to {model.layers[stack]}")
    _, loaded = usable_series(data, max_series, seed)
    tokens = model.family.tokenize(last_contexts(loaded.series, context))
    observed = tokens.kinds[stack] == TokenKind.OBSERVATION
    wanted = {stack: np.flatnonzero(observed)}
    if not len(wanted[stack]):
        raise ValueError(f"stack: no token of {stack!r} stands for an observed value; name another stack")
    for one in model.family.hidden_states(tokens, wanted):
        # The normed state comes last and replaces the last block's.
        if one.layer == (model.layers[stack] if layer == "last" else layer) and (layer == "last" or not one.normed):
            chosen = one.states.copy()
    window = wanted[stack] // observed.shape[1]
    vectors = {tokens.series[i]: _pooled(chosen[window == i], pool) for i in range(len(tokens))}
    return pd.DataFrame.from_dict({name: one for name, one in vectors.items() if one is not None}, orient="index")


def compress(
    model: Model | str,
    data: Data,
    *,
    keep: float = 0.25,
    method: str = "activation-aware-2step",
    windows: int = 32,
    context: int = CONTEXT,
    horizon: int = HORIZON,
    max_series: int = MAX_SERIES,
    seed: int = 0,
) -> CompressedModel:
    """Compress a model's attention, calibrated on the first 80 % of every series.

    Args:
        model: a model of `load`, or its name; it stays as it is.
        data: series, as in `inspect`.
        keep: share of the attention parameters that is kept, in (0, 1).
        method: a method of docs/compression.md.
        windows: number of calibration windows.
        context: steps of context.
        horizon: steps of the forecasts that are compared, in the last 20 % of every series.
        max_series: largest number of series, a seeded sample.
        seed: seed of windows and forecast samples.

    Returns:
        The compressed model. Its `costs` compare parameters, attention parameters, bytes, and for families
        that forecast the weighted quantile loss (wql) and the mean absolute scaled error (mase) of the last
        window of every series, before and after.

    Raises:
        ValueError: an unknown method, or a share that no ranks can keep.
        DataError: no series has a window before its last fifth.
        ModelError: the family cannot be compressed, or the model already is.
    """
    model = as_model(model)
    name, loaded = usable_series(data, max_series, seed)
    smaller = load_source(model.source.stored(), model.device)
    asked = Method.model_validate({"method": method, "ranks": {"budget": keep}}).plain()
    calibration = {
        "datasets": [name], "windows": windows, "context": context, "horizon": horizon, "held_out": HELD_OUT,
        "seed": seed,
    }  # fmt: skip
    before = _costs(smaller.family, loaded.series, context, horizon, seed)
    tables = {name: series_table(loaded.series)}
    parts = compress_model(smaller.family, asked, base_model=model.name, tables=tables, calibration=calibration)
    after = _costs(smaller.family, loaded.series, context, horizon, seed)
    costs = pd.DataFrame(
        {"quantity": list(before), "before": list(before.values()), "after": [after[one] for one in before]}
    )
    costs["ratio"] = costs["after"] / costs["before"]
    label = f"{model.name}@{method}-{keep:g}"
    return CompressedModel(label, smaller.family, smaller.source, model.device, costs, pd.DataFrame(parts))


def results(path: str | Path = "data/results.duckdb") -> duckdb.DuckDBPyConnection:
    """Open the results of a study, read-only.

    Returns a DuckDB connection: `results().sql("select …").df()` is a DataFrame. No statement can write or
    read another file. Raises QueryError if there is no such file.
    """
    return connect(path)


def _tokens(
    model: Model, name: str, loaded: Loaded, context: int, horizon: int, rows: int, seed: int, noise: float = 0.0
) -> tuple[Tokens, dict[str, int]]:
    """Return the tokens, and reason -> number of series that gave no window. DataError if none did."""
    sample = lens.tokenize(
        model.family, loaded.series, context=context, horizon=horizon, rows=rows, seed=seed, noise=noise
    )
    skipped = Counter(one.reason for one in [*loaded.skipped, *sample.skipped])
    if sample.tokens is None:
        raise DataError(
            f"{name}: no window of {context} steps of context and a horizon of {horizon}: {counted(skipped)}; "
            "shorten the horizon, or give longer series"
        )
    return sample.tokens, dict(skipped)


def _pooled(vectors: np.ndarray, pool: str) -> np.ndarray | None:
    if not len(vectors):
        return None
    pooled: np.ndarray = vectors[-1] if pool == "last" else getattr(vectors, pool)(axis=0)
    return pooled


def _costs(model: Family, series: Sequence[Series], context: int, horizon: int, seed: int) -> dict[str, float]:
    parameters = model.network.parameters()
    found: dict[str, float] = {**sizes(model), "bytes": sum(one.numel() * one.element_size() for one in parameters)}
    if not isinstance(model, Forecaster):
        return found
    scored = lens.score_forecasts(
        model, series, context=context, horizon=horizon, levels=QUANTILES, samples=20,
        seed_of=lambda name: lens.window_seed(str(seed), name), seed=seed, held_out=HELD_OUT,
    )  # fmt: skip
    rows = list(scored.rows.values())
    target = sum(row["target_abs"] for row in rows)
    if target:
        found["wql"] = sum(row["quantile_loss"] for row in rows) / (len(QUANTILES) * target)
    if mase := [row["mase"] for row in rows if row["mase"] is not None]:
        found["mase"] = sum(mase) / len(mase)
    return found

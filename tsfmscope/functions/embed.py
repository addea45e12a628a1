"""`embed`: one vector per series, pooled from hidden states."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd

from tsfmscope import layer_states
from tsfmscope.defaults import CONTEXT, MAX_CONTEXT, Pool
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.functions.arguments import Bounds, MaxSeries, Seed, checked
from tsfmscope.functions.load import Model, as_model, encoder_notes, floor_notes, reading_notes
from tsfmscope.functions.probe import Labels, best_layer
from tsfmscope.models.types import TokenKind
from tsfmscope.series.data_sets import Data, log_left_out, usable_series
from tsfmscope.series.files.options import reading_of
from tsfmscope.series.types import count_reasons
from tsfmscope.series.windows import last_contexts

logger = logging.getLogger("tsfmscope")


@checked
def embed(
    model: Model | str | Path,
    data: Data,
    *,
    layer: int | Literal["last", "best"] = "last",
    labels: Labels | None = None,
    stack: str | None = None,
    pool: Pool = "mean",
    context: Annotated[int, Bounds(1, MAX_CONTEXT)] = CONTEXT,
    max_series: MaxSeries = None,
    seed: Seed = 0,
    **reading: Any,
) -> pd.DataFrame:
    """Return one vector per series: the pooled hidden states of its last `context` steps.

    Args:
        model: model, as in `inspect`.
        data: series, as in `inspect`.
        layer: number of a layer (0: the embedding); "last": the last state, after the final norm if the family has
            one; "best": the one whose vectors predict the labels best, on series that did not fit the prediction.
        labels: label of each series for layer best: a CSV or Parquet file with ids and labels; in Python also a Series
            with ids as index, or a dict from id to label.
        stack: name of a stack; None: the first, which reads the context.
        pool: mean, last or max, over the tokens of observed values.
        context: steps at the end of each series, 1 to 32,768.
        max_series: largest number of series, a seeded sample; None: all.
        seed: seed of the sample.
        reading: as in `inspect`.

    Returns:
        One row per series, with its id as index and one column per dimension, float32. Short and constant series have
        one too. Series that have none (nothing observed, infinite) are counted by reason in the warnings and in
        `attrs["skipped"]`; `attrs["layer"]` is the number of the layer.

    Raises:
        ArgumentError: the stack or layer is unknown, or another argument is out of range. It is a ValueError.
        DataError: the data contain no series, or none is usable.
    """
    model = as_model(model)
    stack = model.choose_stack(stack)
    if (layer == "best") != (labels is not None):
        given = "none" if labels is None else "some"
        raise ArgumentError(f"labels: got {given} with layer {layer!r}, expected them with layer 'best' alone")
    if isinstance(layer, int) and not 0 <= layer <= model.layers[stack]:
        raise ArgumentError(f"layer: got {layer!r}, expected 'last', 'best' or 0 to {model.layers[stack]}")
    named = usable_series(data, max_series=max_series, seed=seed, reading=reading_of(reading), takes_any=True)
    loaded = named.loaded
    # Steps before the first value of the longest series would be padding in every context.
    longest = max(len(item.values) for item in loaded.series)
    windows = last_contexts(loaded.series, min(context, longest))
    tokens = model.family.tokenize(windows)
    observed = tokens.kinds[stack] == TokenKind.OBSERVATION
    if np.isnan(windows.context).all():
        steps = windows.context.shape[1]
        raise DataError(f"{named.name}: no series has a value in its last {steps} steps, expected at least one")
    if not observed.any():
        raise ArgumentError(f"stack: got {stack!r}, none of whose tokens is an observed value; name another stack")
    kept = np.flatnonzero(observed.any(axis=1))
    ids = [tokens.series[index] for index in kept]
    layers = [
        pooled._replace(vectors=pooled.vectors[kept])
        for pooled in layer_states.pool_states(model.family, tokens, stack, pool)
    ]
    # The normed state comes last.
    chosen = layers[-1] if isinstance(layer, str) else next(pooled for pooled in layers if pooled.layer == layer)
    if labels is not None:
        chosen, sentence = best_layer(layers, ids, labels, seed=seed)
        logger.warning(sentence)
    skipped = count_reasons(loaded.skipped)
    if len(kept) < len(tokens):
        reason = f"no token stands for an observed value of the last {context} steps"
        skipped[reason] = len(tokens) - len(kept)
    log_left_out(skipped)
    near = model.family.count_near_floor(windows.context)
    for note in (
        *encoder_notes(model.family, model.name),
        *reading_notes(model.name, model.family.max_context, context),
        *floor_notes(model.family, model.name, named.name, near, len(windows)),
    ):
        logger.warning(note)
    frame = pd.DataFrame(chosen.vectors, index=ids)
    frame.attrs |= {"skipped": skipped, "layer": chosen.layer}
    return frame

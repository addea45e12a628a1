"""`states`: hidden states of every layer of one model on some series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tsfmscope import layer_states
from tsfmscope.functions.arguments import Context, Count, Horizon, MaxSeries, Seed, checked
from tsfmscope.functions.load import Model, as_model, make_case
from tsfmscope.series.data_sets import Data, log_left_out, usable_series
from tsfmscope.series.files.options import reading_of


class States(dict[tuple[str, int | str], np.ndarray]):
    """Hidden states [token, width] by stack and layer. skipped: reason -> number of series that gave no window."""

    skipped: Mapping[str, int] = MappingProxyType({})


@checked
def states(
    model: Model | str | Path,
    data: Data,
    *,
    context: Context = None,
    horizon: Horizon = None,
    rows: Count = 1024,
    kinds: Sequence[str] = ("observation", "future"),
    max_series: MaxSeries = 32,
    seed: Seed = 0,
    **reading: Any,
) -> States:
    """Return the hidden states of every layer of every stack.

    Args:
        model: model, as in `inspect`.
        data: series, as in `inspect`.
        context: as in `inspect`.
        horizon: as in `inspect`.
        rows: largest number of tokens per stack, a seeded sample; the same tokens in every layer.
        kinds: kinds of tokens that are returned: names of `TokenKind` in lower case.
        max_series: as in `inspect`.
        seed: seed of the samples.
        reading: as in `inspect`.

    Returns:
        (stack, layer) -> [token, width], float32. Layer 0 is the embedding, layer n the output of the last
        block. "normed" is the output of the final norm, for families that have one. Series without a window, such as
        constant ones, are counted by reason in the warnings and in the attribute `skipped`.

    Raises:
        DataError: the data contain no series, or no series is long enough.
        ArgumentError: a name is unknown, another argument is out of range, or the model reads other data. It is a
            ValueError.
        ValueError: a kind is unknown, or no token has it.
        HealthError: hidden states are not finite.
    """
    model = as_model(model)
    series = usable_series(data, max_series=max_series, seed=seed, reading=reading_of(reading))
    tokens, without_window, _, _ = make_case(model, series, context=context, horizon=horizon, seed=seed).tokenize(rows)
    kept = layer_states.hidden_states(model.family, tokens, rows=rows, seed=seed, kinds=kinds, device=model.device)
    result = States({(layer.stack, "normed" if layer.normed else layer.layer): layer.states for layer in kept.layers})
    result.skipped = series.count_left_out(without_window)
    log_left_out(result.skipped)
    return result

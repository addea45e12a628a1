"""Tokens, hidden states and measures of the layers of one model on some series, with plain arguments.

Jobs, commands and the Python API call these functions. None of them uses jobs, files or Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int64, Integer

from tsfmscope.defaults import Pool
from tsfmscope.geometry.heads import log_partition
from tsfmscope.geometry.measures import LIST_COLUMNS, SHARE, measure_states, subsample
from tsfmscope.geometry.options import IsotropyOptions
from tsfmscope.geometry.parallel import one_thread_if_small
from tsfmscope.geometry.spectrum import effective_dimension
from tsfmscope.models.common.capture import KINDS, VALUED, in_batches, kept_rows, pass_windows
from tsfmscope.models.types import LayerStates, TokenKind, Tokens
from tsfmscope.ranks.spectrum import input_row, numerical_rank
from tsfmscope.ranks.tall import TallQR
from tsfmscope.series.synthetic.signals import with_noise
from tsfmscope.series.types import Series, Skip
from tsfmscope.series.windows import MIN_CONTEXT, spread_windows

if TYPE_CHECKING:
    from tsfmscope.models.base import Family

# Takes a number that is done, and the number of all.
Watch = Callable[[int, int], None]
# Kinds of tokens whose own input is known and that forecast the next step.
FORECASTING = (TokenKind.START, TokenKind.FUTURE)


class TokenSample(NamedTuple):
    """Tokens of some windows; None where no series gives a window.

    observed: number of observed steps that the model reads of each context. near_floor: number of contexts whose
    deviation is near the family's `deviation_floor`. skipped: series that gave no window, with the reason.
    """

    tokens: Tokens | None
    observed: Int64[np.ndarray, " window"]
    near_floor: int
    skipped: list[Skip]


def tokenize(
    model: Family, series: Sequence[Series], *, context: int, horizon: int, rows: int, seed: int,
    min_context: int = MIN_CONTEXT, held_out: float | None = None, noise: float = 0.0, history: int = 0,
) -> TokenSample:  # fmt: skip
    """Tokenise windows of some series until every stack has `rows` tokens that stand for values.

    A stack gets fewer where the series do not suffice. Every series gives a window, if it can.

    Args:
        model: the model.
        series: series of one data set, of one frequency.
        context: steps of context that become tokens.
        horizon: steps after the context; stacks that read the future see them.
        rows: number of tokens in each stack.
        seed: seed of windows and noise.
        min_context: smallest number of observed steps in a context.
        held_out: share at the end of a series in which the futures must lie; None: the whole series.
        noise: standard deviation of Gaussian noise on the context, in standard deviations of the series.
        history: steps before the context that a lagged family reads.
    """
    model, steps = model.with_condition(context, history)
    rows_per_window = {stack: n for stack, n in model.rows_per_window(steps, horizon).items() if n > 0}
    count = max(len(series), -(-rows // min(rows_per_window.values(), default=1)))
    while True:
        windows, skipped = spread_windows(
            series, context=steps, horizon=horizon, count=count, min_context=min_context, held_out=held_out, seed=seed
        )
        if not len(windows):
            return TokenSample(None, np.zeros(0, np.int64), 0, skipped)
        tokens = model.tokenize(with_noise(windows, series, noise=noise, seed=seed))
        valued = count_valued(tokens)
        if len(windows) < count or all(valued[stack] >= rows for stack in rows_per_window):
            observed = windows.count_observed(min(context, model.max_context or context))
            return TokenSample(tokens, observed, model.count_near_floor(windows.context), skipped)
        # Missing steps leave windows with fewer rows than a full one has.
        count *= 2


def count_valued(tokens: Tokens) -> dict[str, int]:
    """Count the tokens of each stack that stand for values."""
    return {stack: int(np.isin(kinds, VALUED).sum()) for stack, kinds in tokens.kinds.items()}


class KeptStates(NamedTuple):
    """Hidden states of some tokens.

    rows: stack -> ascending ids (window * T + position) of the tokens. batch: windows of a forward pass.
    layers: states [N, d] of these tokens, layer by layer; the forward pass runs when it is consumed.
    """

    rows: Mapping[str, np.ndarray]
    batch: int
    layers: Iterator[LayerStates]


def hidden_states(
    model: Family, tokens: Tokens, *, rows: int, seed: int, kinds: Sequence[str] = KINDS, batch: int | None = None,
    device: str = "cpu",
) -> KeptStates:  # fmt: skip
    """Select at most `rows` tokens of every stack, the same in all its layers, and return their hidden states.

    kinds: names of TokenKind. seed: seed of the sample, which is drawn without replacement. batch: windows of
    a forward pass; None takes `pass_windows` of the device. Raises ValueError for an unknown kind, or if no
    stack has a token of these kinds; HealthError, while the layers are consumed, for states that are not
    finite.
    """
    batch = pass_windows(tokens, device) if batch is None else batch
    selected = kept_rows(tokens, list(kinds), rows, seed)
    with in_batches(model, batch):
        return KeptStates(selected, batch, model.hidden_states(tokens, selected))


class PooledLayer(NamedTuple):
    """One vector per window [W, d], pooled over the tokens of observed values of one layer.

    factor: of the states of all these tokens; None unless it was asked for.
    """

    layer: int
    normed: bool
    vectors: Float[np.ndarray, "window width"]
    factor: TallQR | None


def pool_states(
    model: Family,
    tokens: Tokens,
    stack: str,
    pool: Pool,
    *,
    factors: bool = False,
    watch: Watch = lambda n_done, total: None,
) -> list[PooledLayer]:
    """Return the pooled states of every layer of a stack; vectors of windows without an observed value are NaN.

    No more states are kept than those of `model.batch` windows. factors: also computes the factor of all states, from
    which rank and directions of a layer follow. watch: called with the number of windows that are done, and of all.
    """
    layers: list[PooledLayer] = []
    observed = tokens.kinds[stack] == TokenKind.OBSERVATION
    for start in range(0, len(tokens), model.batch):
        part = observed[start : start + model.batch]
        rows, kept = np.flatnonzero(part), np.flatnonzero(part.any(axis=1))
        if not len(rows):
            continue
        # First row of each window that has one.
        bounds = np.concatenate(([0], part[kept].sum(axis=1).cumsum()))
        chunk = tokens.take(range(start, start + len(part)))
        for index, state in enumerate(model.hidden_states(chunk, {stack: rows})):
            if index == len(layers):
                vectors = np.full((len(tokens), state.states.shape[1]), np.nan, state.states.dtype)
                layers.append(
                    PooledLayer(state.layer, state.normed, vectors, TallQR(vectors.shape[1]) if factors else None)
                )
            pooled = [
                states[-1] if pool == "last" else getattr(states, pool)(axis=0)
                for states in np.split(state.states, bounds[1:-1])
            ]
            layers[index].vectors[start + kept] = pooled
            if (factor := layers[index].factor) is not None:
                factor.add(state.states)
        watch(min(start + model.batch, len(tokens)), len(tokens))
    return layers


def measure_layer(
    states: Float[np.ndarray, "token width"], types: Integer[np.ndarray, " token"] | None = None,
    options: IsotropyOptions | None = None, *, share: float = SHARE, epsilon: float = 0.01, dtype: str = "float32",
    rows: int | None = None, seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Compute isotropy, effective dimension and numerical rank of one layer's states.

    Args:
        states: hidden states.
        types: id of each token, for families with a vocabulary; None: every token is its own type.
        options: options of isotropy.
        share: share of the variance in the effective dimension.
        epsilon: relative tolerance of the numerical rank.
        dtype: coarsest type that the states were computed in; it sets the rounding error of singular values.
        rows: largest number of tokens for isotropy and dimension, a seeded sample; None: all.
        seed: seed of samples, clusters and permutations.

    Returns:
        The columns of `measure_states`, and `width`, `share`, `effective_dimension`, `dimension_share` (of the
        width), `effective_dimension_sd` (None for another share than SHARE), `epsilon`, `numerical_rank` and
        `below_noise_floor`: whether epsilon is below the rounding error, so that the rank is meaningless.
        `effective_dimension` is None for constant states.

    Raises:
        ValueError: a wrong shape, NaN, infinity, or an argument out of range.
    """
    sample, sample_types = (states, types) if rows is None else subsample(states, types, rows, seed=seed)
    with one_thread_if_small(states):
        row = measure_states(sample, sample_types, options, seed=seed)
        spectrum = input_row(states, dtype=dtype, tokens="valued")
    variances = row["eigenvalues"]
    dimension = effective_dimension(variances, share) if any(variances) else None
    return row | {
        "width": spectrum["n_columns"], "share": share, "effective_dimension": dimension,
        "dimension_share": None if dimension is None else dimension / len(variances),
        "effective_dimension_sd": row["effective_dimension_sd"] if share == SHARE else None, "epsilon": epsilon,
        "numerical_rank": numerical_rank(spectrum["singular_values"], epsilon),
        "below_noise_floor": epsilon < spectrum["floor"],
    }  # fmt: skip


def measure_layers(
    layers: Iterable[LayerStates], tokens: Tokens, token_ids: Mapping[str, np.ndarray], **arguments: Any
) -> Iterator[dict[str, Any]]:
    """Yield one row per layer: the columns of `measure_layer`, without lists, after those that name the layer.

    layers: states [N, d] of the tokens token_ids[stack], as `hidden_states` returns both. arguments: keyword
    arguments of `measure_layer` other than the types. The rows also have `n_series`.
    """
    for layer in layers:
        ids = token_ids[layer.stack]
        windows = np.unique(ids // tokens.kinds[layer.stack].shape[1])
        # A stack without a vocabulary has no types.
        types = tokens.types.get(layer.stack)
        row = measure_layer(layer.states, None if types is None else types.reshape(-1)[ids], **arguments)
        place = {"stack": layer.stack, "layer": layer.layer, "normed": layer.normed}
        n_series = len({tokens.series[window] for window in windows})
        columns = {name: value for name, value in row.items() if name not in LIST_COLUMNS}
        yield {**place, "n_series": n_series, **columns}


def log_partition_values(
    model: Family, tokens: Tokens, *, batch: int | None = None, device: str = "cpu"
) -> tuple[Float[np.ndarray, " position"], int]:
    """Return log Z of a softmax head at its forecast positions, and the size of its vocabulary.

    Positions of the kinds FORECASTING count, whose own input is known; Z does not depend on the target. batch
    and device: as in `hidden_states`. Source: Shelim et al. 2025, section 2.
    """
    batch = pass_windows(tokens, device) if batch is None else batch
    values, n_ids = [], 0
    with in_batches(model, batch):
        for logits in model.forecast_logits(tokens):
            values.append(log_partition(logits))
            n_ids = logits.shape[-1]
    return np.concatenate(values)[np.isin(tokens.kinds[model.output_stack], FORECASTING)], n_ids

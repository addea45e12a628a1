"""Entries of stage spectra that need a model: its weight matrices, and its states of a few windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.tasks.entries.state_spectra import angle_rows, identity
from tsfmscope.tasks.job import Job, Result, current_context
from tsfmscope.tasks.models.common.batches import VALUED, in_batches, pass_windows, sample_windows, window_tokens
from tsfmscope.tasks.models.types import TokenKind, Tokens, WeightMatrix, tokens_from_table
from tsfmscope.tasks.ranks.plane import leading_plane
from tsfmscope.tasks.ranks.spectrum_columns import input_row, weight_row

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.tasks.models.base import Family

# Stack, layer, attention, what.
Place = tuple[str, int, str | None, str]
# Heads are groups of rows of q, k and v, and of columns of o.
SIDES = ("rows", "columns")
IDLE = "attention here is over one token, so that its scores weigh nothing"
# Tokens of one window (Yu et al. 2026, Fig. 3b and 13).
ANGLE_TOKENS = 64
# Rows of W_Q (Yu et al. 2026, Fig. 9 right and 12), spread over all heads as evenly as possible.
ANGLE_ROWS = 256
# Points of a plot (Yu et al. 2026, Fig. 2b and 2c).
PLANE_TOKENS = 1000
ALL_BUT_PADDING = [kind for kind in TokenKind if kind is not TokenKind.PADDING]
TOKENS: Mapping[str, Sequence[TokenKind]] = {"valued": VALUED, "with_special": ALL_BUT_PADDING}


def weight_spectra(job: Job, data: object, model: Family) -> Result:
    """Return rows of `spectra`: one per attention and MLP matrix, and one per head of q, k, v and o.

    job.spec: identity (its data set and condition are null), and optionally `step`, of a snapshot of
    training, and `weights_dtype`, the dtype that the model's weights were rounded to. Rows of matrices in
    `model.inert_projections` have a `reason`.
    """
    rows, counts, dtype = [], head_counts(model), job.spec.get("weights_dtype")
    for one in model.weights():
        where = {name: getattr(one, name) for name in ("attention", "stack", "layer", "heads")}
        what, _, expert = one.name.partition(".")
        where |= {"matrix": what, "expert": expert or None, "step": job.spec.get("step")}
        idle = (one.stack, one.attention, what) in model.inert_projections
        for head, matrix in _parts(one, counts):
            row = identity(job) | where | {"head": head} | weight_row(matrix, dtype=dtype or str(one.matrix.dtype))
            rows.append(row | ({"reason": IDLE} if idle else {}))
    return Result(rows)


def head_counts(model: Family) -> dict[Place, int]:
    """Return the number of heads of q, k, v and o of each attention.

    With grouped attention, k and v have fewer heads than `heads`: the rows of k over the rows of one query
    head. ValueError where that is not a whole number.
    """
    found: dict[Place, int] = {}
    widths = {(one.stack, one.layer, one.attention): _width(one) for one in model.weights() if one.name == "q"}
    for one in model.weights():
        where, rows = (one.stack, one.layer, one.attention), len(one.matrix)
        if one.heads and one.name in ("q", "o"):
            found[*where, one.name] = one.heads
        elif one.heads and one.name == "k":
            width = widths[where]
            if rows % width or not rows:
                raise ValueError(f"{_name(one)}: got {rows} rows, expected heads of {width} rows")
            found[*where, "k"] = found[*where, "v"] = rows // width
    return found


def split_heads(one: WeightMatrix, count: int) -> list[np.ndarray]:
    """Return the heads of a matrix: parts [d_h, in] of q, k or v, and [out, d_h] of o.

    ValueError where `count` does not divide the rows (or the columns of o).
    """
    axis = 1 if one.name == "o" else 0
    if one.matrix.shape[axis] % count:
        raise ValueError(f"{_name(one)}: got {one.matrix.shape[axis]} {SIDES[axis]}, expected a multiple of {count}")
    return np.split(one.matrix, count, axis=axis)


def constant_spectra(job: Job, data: pa.Table, model: Family) -> Result:
    """Return rows of `spectra` for every layer, on a data set of constant series.

    Each layer has one row for valued tokens, and one for all tokens but padding. Source: Yu et al. 2026, Fig.
    5c. With relative positions alone, identical tokens stay identical. Growth is then due to EOS and other
    special tokens, which the pair of rows shows.

    data: a token dump. job.spec: identity, and optionally `windows` (number of first windows that are used, 1
    by default) and `weights_dtype`. In a stack without such a token the row is about no states, and `reason`
    says so.
    """
    tokens = tokens_from_table(data)
    tokens = tokens.take(np.arange(min(len(tokens), job.spec.get("windows", 1))))
    rows, dtype = [], job.spec.get("weights_dtype", "float32")
    with in_batches(model, _batch(job, tokens)):
        for layer in model.hidden_states(tokens):
            where = {"stack": layer.stack, "layer": layer.layer, "normed": layer.normed}
            for name, kinds in TOKENS.items():
                states = layer.states[np.isin(tokens.kinds[layer.stack], kinds)]
                rows.append(identity(job) | where | input_row(states, dtype=dtype, tokens=name, what="constant"))
    return Result(rows, tokens=len(tokens) * window_tokens(tokens))


def token_angles(job: Job, data: pa.Table, model: Family) -> Result:
    """Return rows of `angles` between the first embedded tokens of one window that stand for values.

    The window is the first of those with the most such tokens. Source: Yu et al. 2026, Fig. 3b and 13. States
    are layer 0 of the first stack. data: a token dump. job.spec: identity, and optionally `tokens`, their
    largest number (ANGLE_TOKENS by default). ValueError where no token stands for a value.
    """
    tokens, stack = tokens_from_table(data), model.stacks[0]
    valued = np.isin(tokens.kinds[stack], VALUED)
    if not valued.any():
        raise ValueError(f"tokens of {stack}: none stands for a value")
    window = int(valued.sum(axis=1).argmax())
    one = tokens.take([window])
    kept = np.flatnonzero(valued[window])[: job.spec.get("tokens", ANGLE_TOKENS)]
    where = {"what": "tokens", "matrix": None, "stack": stack, "layer": 0}
    rows = angle_rows(embedded(model, one, stack, kept))
    return Result([identity(job) | where | row for row in rows], tokens=window_tokens(one))


def row_angles(job: Job, data: object, model: Family) -> Result:
    """Return rows of `angles` between rows of W_Q in the first block of the first stack, head after head.

    Source: Yu et al. 2026, Fig. 9 (right) and 12. job.spec: identity, and optionally `rows`, their largest
    number (ANGLE_ROWS by default). Every head gives the same number of rows, at least one, evenly spaced in
    it.
    """
    query = next(one for one in model.weights() if one.name == "q" and one.stack == model.stacks[0])
    heads = query.heads or 1
    width = len(query.matrix) // heads
    each = min(width, max(1, job.spec.get("rows", ANGLE_ROWS) // heads))
    inside = np.arange(each) * width // each
    kept = (np.arange(heads)[:, None] * width + inside).reshape(-1)
    where = {"what": "rows", "matrix": "q", "stack": query.stack, "layer": query.layer}
    rows = angle_rows(query.matrix[kept], np.repeat(np.arange(heads), each))
    return Result([identity(job) | where | row for row in rows])


def token_plane(job: Job, data: pa.Table, model: Family) -> Result:
    """Return rows of `planes`: embedded tokens on their two leading right singular vectors.

    Source: Yu et al. 2026, Fig. 2b and 2c. States are layer 0 of the first stack. With a vocabulary: one
    token of each id in the sampled windows, or as many as `tokens` asks for, evenly spaced by id. Without: a
    seeded sample of the tokens.

    data: a token dump. job.spec: identity, and optionally `rows` (tokens of the sampled windows, 8192 by
    default) and `tokens` (largest number of points, PLANE_TOKENS by default).
    """
    stack = model.stacks[0]
    tokens = sample_windows(tokens_from_table(data), job.spec.get("rows", 8192), job.spec_seed)
    types, values = tokens.types.get(stack), model.id_values()
    kept = plane_tokens(tokens, stack, job.spec.get("tokens", PLANE_TOKENS), job.spec_seed)
    plane = leading_plane(embedded(model, tokens, stack, kept))
    rows = []
    for number, (token, (x, y)) in enumerate(zip(kept.tolist(), plane.tolist(), strict=True)):
        kind = None if types is None else int(types.reshape(-1)[token])
        value = None if values is None or kind is None or np.isnan(values[kind]) else float(values[kind])
        point = {"stack": stack, "token": number, "type": kind, "value": value, "x": x, "y": y}
        rows.append(identity(job) | point)
    return Result(rows, tokens=len(tokens) * window_tokens(tokens))


def plane_tokens(tokens: Tokens, stack: str, count: int, seed: int) -> np.ndarray:
    """Return ascending ids (window * T + position) of the tokens in a plot; see `token_plane`."""
    valued = np.flatnonzero(np.isin(tokens.kinds[stack], VALUED))
    if stack in tokens.types:
        _, first = np.unique(tokens.types[stack].reshape(-1)[valued], return_index=True)
        valued = valued[first]
        chosen = np.unique(np.linspace(0, len(valued) - 1, min(count, len(valued))).round().astype(int))
    else:
        chosen = np.random.default_rng([seed, 6]).permutation(len(valued))[:count]
    return np.sort(valued[chosen])


def embedded(model: Family, tokens: Tokens, stack: str, kept: np.ndarray) -> np.ndarray:
    """Return layer 0 of these tokens, [N, d]."""
    with in_batches(model, current_context().batch(pass_windows(tokens, current_context().device))):
        return next(model.hidden_states(tokens, {stack: kept})).states


def _parts(one: WeightMatrix, counts: Mapping[Place, int]) -> Iterator[tuple[int | None, np.ndarray]]:
    """Yield the whole matrix, as head None, and then its heads."""
    yield None, one.matrix
    if count := counts.get((one.stack, one.layer, one.attention, one.name)):
        yield from enumerate(split_heads(one, count))


def _width(query: WeightMatrix) -> int:
    """Return the number of rows of one query head."""
    return len(split_heads(query, query.heads or 1)[0])


def _name(one: WeightMatrix) -> str:
    return f"{one.stack} block {one.layer} {one.name}"


def _batch(job: Job, tokens: Tokens) -> int:
    return current_context().batch(job.spec.get("batch") or pass_windows(tokens, current_context().device))

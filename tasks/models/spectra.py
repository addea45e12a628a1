"""The sweep's entries of stage spectra that need a model: its matrices, and what it makes of a few windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tasks.models.embed import VALUED, drawn, in_batches, pass_windows, window_tokens
from tasks.models.types import TokenKind, Tokens, WeightMatrix, tokens_from_table
from tasks.ranks.entry import angle_rows, identity, input_row, weight_row
from tasks.ranks.plane import leading_plane
from tasks.sweep.jobs import Job, Result, place

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.models.base import Family

Place = tuple[str, int, str | None, str]  # stack, layer, attention, what
SIDES = ("rows", "columns")  # heads are groups of rows of q, k and v, and of columns of o
IDLE = "attention here is over one token, so that its scores weigh nothing"
ANGLE_TOKENS = 64  # tokens of one window (rank_structure.md Fig. 3b, 13)
ANGLE_ROWS = 256  # rows of W_Q (Fig. 9 right, 12), as evenly from all heads as they go
PLANE_TOKENS = 1000  # points of a picture (Fig. 2b, 2c)
ALL_BUT_PADDING = [kind for kind in TokenKind if kind is not TokenKind.PADDING]
TOKENS: Mapping[str, Sequence[TokenKind]] = {"valued": VALUED, "with_special": ALL_BUT_PADDING}


def weight_spectra(job: Job, data: object, model: Family) -> Result:
    """Rows of `spectra`: each attention and MLP matrix, and each head of q, k, v and o.

    job.spec: identity (of the data set and condition: null) and optionally `step`, of a snapshot of training, and
    `weights_dtype`, which the model's weights were rounded to. Those of
    `model.idle` say so in `reason`.
    """
    rows, counts, dtype = [], head_counts(model), job.spec.get("weights_dtype")
    for one in model.weights():
        where = {name: getattr(one, name) for name in ("attention", "stack", "layer", "heads")}
        what, _, expert = one.what.partition(".")
        where |= {"matrix": what, "expert": expert or None, "step": job.spec.get("step")}
        idle = (one.stack, one.attention, what) in model.idle
        for head, matrix in _parts(one, counts):
            row = identity(job) | where | {"head": head} | weight_row(matrix, dtype=dtype or str(one.matrix.dtype))
            rows.append(row | ({"reason": IDLE} if idle else {}))
    return Result(rows)


def head_counts(model: Family) -> dict[Place, int]:
    """How many heads q, k, v and o of each attention are made of.

    With grouped attention k and v have fewer than `heads`: as many as k's rows hold a query head's.
    ValueError where they do not hold a whole number.
    """
    found: dict[Place, int] = {}
    widths = {(one.stack, one.layer, one.attention): _width(one) for one in model.weights() if one.what == "q"}
    for one in model.weights():
        where, rows = (one.stack, one.layer, one.attention), len(one.matrix)
        if one.heads and one.what in ("q", "o"):
            found[*where, one.what] = one.heads
        elif one.heads and one.what == "k":
            width = widths[where]
            if rows % width or not rows:
                raise ValueError(f"{_name(one)}: got {rows} rows, expected heads of {width} rows")
            found[*where, "k"] = found[*where, "v"] = rows // width
    return found


def split_heads(one: WeightMatrix, count: int) -> list[np.ndarray]:
    """Parts [d_h, in] of q, k or v, and [out, d_h] of o. ValueError where they are not of one size."""
    axis = 1 if one.what == "o" else 0
    if one.matrix.shape[axis] % count:
        raise ValueError(f"{_name(one)}: got {one.matrix.shape[axis]} {SIDES[axis]}, expected a multiple of {count}")
    return np.split(one.matrix, count, axis=axis)


def constant_spectra(job: Job, data: pa.Table, model: Family) -> Result:
    """Rows of `spectra` of every layer, on a data set of constant series: of valued tokens, and of all but padding.

    Source: rank_structure.md Fig. 5c. With relative positions alone, identical tokens stay identical: what grows is due
    to EOS and its like, so both are there. data: a token dump. job.spec: identity and optionally `windows` (the first
    so many, one by default) and `weights_dtype`. A stack without such a token has a row of no rows, and `reason` says
    so.
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
    """Rows of `angles` of the first embedded tokens that stand for values, of the first window that has most of them.

    Source: rank_structure.md Fig. 3b, 13. Layer 0 of the first stack. data: a token dump. job.spec: identity and
    optionally `tokens` (at most; ANGLE_TOKENS by default). No token: ValueError.
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
    """Rows of `angles` of rows of W_Q in the first block of the first stack, head after head.

    Source: rank_structure.md Fig. 9 (right), 12. job.spec: identity and optionally `rows` (at most, the same number of
    each head, evenly spaced in it; ANGLE_ROWS by default, and at least one a head).
    """
    query = next(one for one in model.weights() if one.what == "q" and one.stack == model.stacks[0])
    heads = query.heads or 1
    width = len(query.matrix) // heads
    each = min(width, max(1, job.spec.get("rows", ANGLE_ROWS) // heads))
    inside = np.arange(each) * width // each
    kept = (np.arange(heads)[:, None] * width + inside).reshape(-1)
    where = {"what": "rows", "matrix": "q", "stack": query.stack, "layer": query.layer}
    rows = angle_rows(query.matrix[kept], np.repeat(np.arange(heads), each))
    return Result([identity(job) | where | row for row in rows])


def token_plane(job: Job, data: pa.Table, model: Family) -> Result:
    """Rows of `planes`: embedded tokens of a corpus on their two leading right singular vectors.

    Source: rank_structure.md Fig. 2b, 2c. Layer 0 of the first stack. With a vocabulary: one token of each id that the
    drawn windows hold, or as many as are asked for, evenly spaced by id. Without: a seeded sample of the tokens.
    data: a token dump. job.spec: identity, and optionally `rows` (tokens of the `drawn` windows, 8192 by default) and
    `tokens` (points at most, PLANE_TOKENS by default).
    """
    stack = model.stacks[0]
    tokens = drawn(tokens_from_table(data), job.spec.get("rows", 8192), job.spec_seed)
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
    """Ascending ids (window * T + position) of the tokens that a picture shows: see `token_plane`."""
    valued = np.flatnonzero(np.isin(tokens.kinds[stack], VALUED))
    if stack in tokens.types:
        _, first = np.unique(tokens.types[stack].reshape(-1)[valued], return_index=True)
        valued = valued[first]
        chosen = np.unique(np.linspace(0, len(valued) - 1, min(count, len(valued))).round().astype(int))
    else:
        chosen = np.random.default_rng([seed, 6]).permutation(len(valued))[:count]
    return np.sort(valued[chosen])


def embedded(model: Family, tokens: Tokens, stack: str, kept: np.ndarray) -> np.ndarray:
    """Layer 0 of these tokens, [N, d]."""
    with in_batches(model, place().batch(pass_windows(tokens, place().device))):
        return next(model.hidden_states(tokens, {stack: kept})).states


def _parts(one: WeightMatrix, counts: Mapping[Place, int]) -> Iterator[tuple[int | None, np.ndarray]]:
    """The whole matrix, as head None, and its heads."""
    yield None, one.matrix
    if count := counts.get((one.stack, one.layer, one.attention, one.what)):
        yield from enumerate(split_heads(one, count))


def _width(query: WeightMatrix) -> int:
    """Rows of one query head."""
    return len(split_heads(query, query.heads or 1)[0])


def _name(one: WeightMatrix) -> str:
    return f"{one.stack} block {one.layer} {one.what}"


def _batch(job: Job, tokens: Tokens) -> int:
    return place().batch(job.spec.get("batch") or pass_windows(tokens, place().device))

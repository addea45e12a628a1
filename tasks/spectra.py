"""Entries of stage spectra that need a model: its weight matrices, and its states of a few windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tasks.job import Job, Result, current_context
from tasks.parts import CellIdentity, Identity, ModelSource
from tasks.state_spectra import angle_rows
from tsfmscope.errors import ModelError
from tsfmscope.models.common.capture import VALUED, in_batches, pass_windows, sample_windows, window_tokens
from tsfmscope.models.types import TokenKind, Tokens, head_counts, split_heads, tokens_from_table
from tsfmscope.ranks.spectrum import input_row, leading_plane, weight_row

if TYPE_CHECKING:
    import pyarrow as pa

    from tsfmscope.models.base import Family

IDLE = "attention here is over one token, so that its scores weigh nothing"
ALL_BUT_PADDING = [kind for kind in TokenKind if kind is not TokenKind.PADDING]
TOKENS: Mapping[str, Sequence[TokenKind]] = {"valued": VALUED, "with_special": ALL_BUT_PADDING}


class WeightsSpec(Identity, ModelSource):
    """Spec of `weight_spectra`.

    step: training step of a snapshot, or None for the finished model. weights_dtype: dtype that the weights
    were rounded to, where it is not float32.
    """

    step: int | None
    weights_dtype: str | None = None


class ConstantSpec(CellIdentity, ModelSource):
    """Spec of `constant_spectra`.

    weights_dtype: dtype in which the model multiplies, where it is not float32. windows: number of first
    windows that are used.
    """

    weights_dtype: str | None = None
    windows: int = 1


class TokenAnglesSpec(CellIdentity, ModelSource):
    """Spec of `token_angles`. tokens: largest number of tokens."""

    tokens: int


class RowAnglesSpec(Identity, ModelSource):
    """Spec of `row_angles`. rows: largest number of rows."""

    rows: int


class PlaneSpec(CellIdentity, ModelSource):
    """Spec of `token_plane`.

    tokens: largest number of points. seed: the pipeline's seed, on which the sample depends. rows: tokens of
    the sampled windows.
    """

    tokens: int
    seed: int
    rows: int = 8192


def weight_spectra(job: Job, data: object, model: Family) -> Result:
    """Return rows of `spectra`: one per attention and MLP matrix, and one per head of q, k, v and o.

    Rows of matrices in `model.inert_projections` have a `reason`.
    """
    spec = WeightsSpec.from_job(job)
    rows, counts = [], head_counts(model)
    for weight in model.weights():
        location = {name: getattr(weight, name) for name in ("attention", "stack", "layer", "heads")}
        matrix_name, _, expert = weight.name.partition(".")
        location |= {"matrix": matrix_name, "expert": expert or None, "step": spec.step}
        is_inert = (weight.stack, weight.attention, matrix_name) in model.inert_projections
        parts: list[tuple[int | None, np.ndarray]] = [(None, weight.matrix)]
        if count := counts.get((weight.stack, weight.layer, weight.attention, weight.name)):
            parts += enumerate(split_heads(weight, count))
        for head, matrix in parts:
            row = {**spec.part(Identity), **location, "head": head}
            row |= weight_row(matrix, dtype=spec.weights_dtype or str(weight.matrix.dtype))
            if is_inert:
                row["reason"] = IDLE
            rows.append(row)
    return Result(rows)


def constant_spectra(job: Job, data: pa.Table, model: Family) -> Result:
    """Return rows of `spectra` for every layer, on a data set of constant series.

    Each layer has one row for valued tokens, and one for all tokens but padding. Source: Yu et al. 2026, Fig.
    5c. With relative positions alone, identical tokens stay identical. Growth is then due to EOS and other
    special tokens, which the pair of rows shows.

    data: a token dump. In a stack without such a token the row is about no states, and `reason` says so.
    """
    spec = ConstantSpec.from_job(job)
    tokens = tokens_from_table(data)
    tokens = tokens.take(np.arange(min(len(tokens), spec.windows)))
    rows, dtype = [], spec.weights_dtype or "float32"
    with in_batches(model, _batch(tokens)):
        for layer in model.hidden_states(tokens):
            location = {"stack": layer.stack, "layer": layer.layer, "normed": layer.normed}
            for name, kinds in TOKENS.items():
                states = layer.states[np.isin(tokens.kinds[layer.stack], kinds)]
                rows.append(
                    spec.part(Identity) | location | input_row(states, dtype=dtype, tokens=name, what="constant")
                )
    return Result(rows, tokens=len(tokens) * window_tokens(tokens))


def token_angles(job: Job, data: pa.Table, model: Family) -> Result:
    """Return rows of `angles` between the first embedded tokens of one window that stand for values.

    The window is the first of those with the most such tokens. Source: Yu et al. 2026, Fig. 3b and 13. States
    are layer 0 of the first stack. data: a token dump. ValueError where no token stands for a value.
    """
    spec = TokenAnglesSpec.from_job(job)
    tokens, stack = tokens_from_table(data), model.stacks[0]
    valued = np.isin(tokens.kinds[stack], VALUED)
    if not valued.any():
        raise ValueError(f"tokens of {stack}: none stands for a value")
    window = int(valued.sum(axis=1).argmax())
    sample = tokens.take([window])
    token_ids = np.flatnonzero(valued[window])[: spec.tokens]
    location = {"what": "tokens", "matrix": None, "stack": stack, "layer": 0}
    rows = angle_rows(embed_tokens(model, sample, stack, token_ids))
    return Result([spec.part(Identity) | location | row for row in rows], tokens=window_tokens(sample))


def row_angles(job: Job, data: object, model: Family) -> Result:
    """Return rows of `angles` between rows of W_Q in the first block of the first stack, head after head.

    Source: Yu et al. 2026, Fig. 9 (right) and 12. Every head gives the same number of rows, at least one,
    evenly spaced in it. ModelError for a family without attention.
    """
    spec = RowAnglesSpec.from_job(job)
    queries = (weight for weight in model.weights() if weight.name == "q" and weight.stack == model.stacks[0])
    if (query := next(queries, None)) is None:
        raise ModelError(
            f"family {model.name}: expected a query projection in stack {model.stacks[0]}, found none; leave "
            "row_angles out of the measures of its studies"
        )
    heads = query.heads or 1
    width = len(query.matrix) // heads
    rows_per_head = min(width, max(1, spec.rows // heads))
    inside = np.arange(rows_per_head) * width // rows_per_head
    row_ids = (np.arange(heads)[:, None] * width + inside).reshape(-1)
    location = {"what": "rows", "matrix": "q", "stack": query.stack, "layer": query.layer}
    rows = angle_rows(query.matrix[row_ids], np.repeat(np.arange(heads), rows_per_head))
    return Result([spec.part(Identity) | location | row for row in rows])


def token_plane(job: Job, data: pa.Table, model: Family) -> Result:
    """Return rows of `planes`: embedded tokens on their two leading right singular vectors.

    Source: Yu et al. 2026, Fig. 2b and 2c. States are layer 0 of the first stack. With a vocabulary: one
    token of each id in the sampled windows, or as many as `tokens` asks for, evenly spaced by id. Without: a
    seeded sample of the tokens.

    data: a token dump.
    """
    spec = PlaneSpec.from_job(job)
    stack = model.stacks[0]
    tokens = sample_windows(tokens_from_table(data), spec.rows, job.spec_seed)
    types, values = tokens.types.get(stack), model.id_values()
    token_ids = plane_tokens(tokens, stack, spec.tokens, job.spec_seed)
    plane = leading_plane(embed_tokens(model, tokens, stack, token_ids))
    rows = []
    for number, (token, (x, y)) in enumerate(zip(token_ids.tolist(), plane.tolist(), strict=True)):
        kind = None if types is None else int(types.reshape(-1)[token])
        value = None if values is None or kind is None or np.isnan(values[kind]) else float(values[kind])
        point = {"stack": stack, "token": number, "type": kind, "value": value, "x": x, "y": y}
        rows.append(spec.part(Identity) | point)
    return Result(rows, tokens=len(tokens) * window_tokens(tokens))


def plane_tokens(tokens: Tokens, stack: str, count: int, seed: int) -> np.ndarray:
    """Return ascending ids (window * T + position) of the tokens in a plot; see `token_plane`."""
    valued = np.flatnonzero(np.isin(tokens.kinds[stack], VALUED))
    if stack in tokens.types:
        _, first = np.unique(tokens.types[stack].reshape(-1)[valued], return_index=True)
        valued = valued[first]
        order = np.unique(np.linspace(0, len(valued) - 1, min(count, len(valued))).round().astype(int))
    else:
        order = np.random.default_rng([seed, 6]).permutation(len(valued))[:count]
    return np.sort(valued[order])


def embed_tokens(model: Family, tokens: Tokens, stack: str, token_ids: np.ndarray) -> np.ndarray:
    """Return layer 0 of these tokens, [N, d]."""
    with in_batches(model, _batch(tokens)):
        return next(model.hidden_states(tokens, {stack: token_ids})).states


def _batch(tokens: Tokens) -> int:
    return current_context().batch(pass_windows(tokens, current_context().device))

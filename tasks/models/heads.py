"""The sweep's entries of stage heads: a token dump in; alignment of heads, log Z of a softmax head, Lemma 1 out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from tasks.geometry.alignment import head_alignments
from tasks.geometry.head import log_partition, partition_spread
from tasks.geometry.jacobian import LARGEST, jacobian_bounds
from tasks.models.embed import KINDS, VALUED, drawn, in_batches, kept_rows, pass_windows
from tasks.models.tokenize import IDENTITY
from tasks.models.types import TokenKind, Tokens, tokens_from_table
from tasks.sweep.jobs import Job, Result, place

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.models.base import Family

FORECASTING = (TokenKind.START, TokenKind.FUTURE)  # rows that read nothing missing: each forecasts the next step
SINGLE = "one token a window: attention over it weighs nothing, so W_Q and W_K are not trained"


class Projections(NamedTuple):
    """W_Q and W_K of one self-attention, [h d_h, d], head after head; biases are no part of them."""

    query: np.ndarray
    key: np.ndarray
    heads: int


class Instance(NamedTuple):
    """Tokens of one window that Lemma 1 is checked on."""

    window: int
    positions: np.ndarray


def align(job: Job, data: pa.Table, model: Family) -> Result:
    """An `alignment` row a self-attention head: overlap with the leading directions of what its projections are given.

    data: a token dump. job.spec: identity, `rows` (tokens a stack at most, a seeded sample of those that stand for
    values in the `drawn` windows) and `batch` (as in `embed`). A measure that the input has too few directions for is
    None, and `reason` says so.
    """
    tokens = drawn(tokens_from_table(data), job.spec["rows"], job.spec_seed)
    kept = kept_rows(tokens, KINDS, job.spec["rows"], job.spec_seed)
    weights, rows = projections(model), []
    with in_batches(model, place().batch(job.spec["batch"] or pass_windows(tokens, place().device))):
        for layer in model.attention_inputs(tokens):
            single = tokens.kinds[layer.stack].shape[1] == 1
            states = layer.states.reshape(-1, model.width)[kept[layer.stack][: 0 if single else None]]
            query, key, heads = weights[layer.stack, layer.layer]
            where = {"stack": layer.stack, "layer": layer.layer, "heads": heads, "n_tokens": len(states)}
            for one in head_alignments(query, key, heads, states):
                reason = SINGLE if single else _misaligned(one)
                rows.append(_identity(job) | where | one | {"reason": reason})
    return Result(rows, tokens=_worked(tokens))


def partition(job: Job, data: pa.Table, model: Family) -> Result:
    """The `partition` row of a softmax head: log Z over the positions of FORECASTING, teacher-forced.

    data: a token dump. job.spec: identity, `rows` (for the `drawn` windows) and `batch`. A position whose own input is
    missing (PADDING) is left out; one whose target is missing stays, since Z reads no target.
    """
    tokens = drawn(tokens_from_table(data), job.spec["rows"], job.spec_seed)
    found, ids = [], 0
    with in_batches(model, place().batch(job.spec["batch"] or pass_windows(tokens, place().device))):
        for logits in model.forecast_logits(tokens):
            found.append(log_partition(logits))
            ids = logits.shape[-1]
    log_z = np.concatenate(found)[np.isin(tokens.kinds[model.stacks[-1]], FORECASTING)]
    spread = vars(partition_spread(log_z))
    row = {"n_positions": spread.pop("n"), "n_ids": ids} | {f"log_z_{name}": value for name, value in spread.items()}
    reason = f"{len(log_z)} forecast positions; a spread needs 2" if row["log_z_sd"] is None else None
    return Result([_identity(job) | row | {"reason": reason}], tokens=_worked(tokens))


def lemma(job: Job, data: pa.Table, model: Family) -> Result:
    """A `jacobian` row a self-attention head and instance: ‖J‖₂ and Lemma 1's right sides, Λ = W_Qᵀ W_K unscaled.

    data: a token dump. job.spec: identity, `tokens` (sizes of instances; smaller where the width or the windows allow
    no more), `windows` (instances a head and size, each from a window of its own) and `layers`: all, or ends (the first
    and last block).
    """
    tokens = tokens_from_table(data)
    spec, rng = job.spec, np.random.default_rng([job.spec_seed, 3])
    sizes = sorted({min(size, LARGEST // model.width) for size in spec["tokens"]})
    instances = {stack: _instances(kinds, sizes, spec["windows"], rng) for stack, kinds in tokens.kinds.items()}
    chosen = sorted({one.window for some in instances.values() for one in some})
    some, weights, rows = tokens.take(chosen), projections(model), []
    for layer in model.attention_inputs(some):
        if spec["layers"] == "ends" and layer.layer not in (1, model.layers[layer.stack]):
            continue
        query, key, heads = weights[layer.stack, layer.layer]
        for head, (one_query, one_key) in enumerate(zip(np.split(query, heads), np.split(key, heads), strict=True)):
            where = {"stack": layer.stack, "layer": layer.layer, "head": head, "heads": heads}
            for number, one in enumerate(instances[layer.stack]):
                states = layer.states[chosen.index(one.window), one.positions]
                row = {"instance": number, "n_tokens": len(states), **_bounds(states, one_query, one_key)}
                rows.append(_identity(job) | where | row)
    return Result(rows, tokens=_worked(some))


def projections(model: Family) -> dict[tuple[str, int], Projections]:
    """(stack, layer) -> W_Q and W_K of its self-attention, in float64."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for one in model.weights():
        if one.attention == "self" and one.what in ("q", "k"):
            found.setdefault((one.stack, one.layer), {})[one.what] = one
    return {
        where: Projections(pair["q"].matrix.astype(np.float64), pair["k"].matrix.astype(np.float64), pair["q"].heads)
        for where, pair in found.items()
    }


def _instances(kinds: np.ndarray, sizes: list[int], windows: int, rng: np.random.Generator) -> list[Instance]:
    """Seeded tokens that stand for values, in order; of each size, or as many as the fullest window has."""
    valued = np.isin(kinds, VALUED)
    counts, found = valued.sum(axis=1), []
    for size in sorted({min(size, int(counts.max(initial=0))) for size in sizes}):
        enough = np.flatnonzero(counts >= size)
        for window in np.sort(rng.choice(enough, min(windows, len(enough)), replace=False)).tolist():
            positions = rng.choice(np.flatnonzero(valued[window]), size, replace=False)
            found.append(Instance(window, np.sort(positions)))
    return found


def _bounds(states: Float[np.ndarray, "token width"], query: np.ndarray, key: np.ndarray) -> dict[str, Any]:
    if len(states) < 2:
        nothing = dict.fromkeys(("norm", "printed", "appendix", "safe"))
        return nothing | {"reason": f"{len(states)} tokens an instance; attention weighs 2 or more"}
    return vars(jacobian_bounds(states, query.T @ key)) | {"reason": None}


def _misaligned(row: dict[str, Any]) -> str | None:
    """Why an overlap of the row is None."""
    if row["m"] == 0:
        return "W_Q^T W_K is 0"
    short = [name for name, side in (("centred", "query"), ("uncentred", "query_uncentred")) if row[side] is None]
    return f"{' and '.join(short)}: fewer than m = {row['m']} directions above rounding" if short else None


def _identity(job: Job) -> dict[str, Any]:
    return {name: job.spec[name] for name in IDENTITY}


def _worked(tokens: Tokens) -> int:
    return sum(kinds.size for kinds in tokens.kinds.values())

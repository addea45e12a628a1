"""How far a compressed model is from its base: overlap of next tokens, perplexities, and the last hidden states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from tasks.models.embed import VALUED, in_batches, pass_windows
from tasks.models.registry import load_for_job
from tasks.models.tokenize import IDENTITY
from tasks.models.types import TokenKind, Tokens
from tasks.series.noise import with_noise
from tasks.series.tables import table_series
from tasks.series.windows import last_windows
from tasks.sweep.jobs import Job, Result, place

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.models.base import Family

CERTAIN = 1e-9  # log perplexity, nats: below it the base is certain of every token and a ratio to it says nothing
NO_HEAD = "no softmax over ids: next tokens and perplexity are not defined"


class Pair(NamedTuple):
    """A compressed model and the one that it was made from."""

    compressed: Family
    base: Family


class Copied(NamedTuple):
    """Next tokens of both models on windows that the decoder is fed: sums over `n` positions."""

    n: int
    overlap: float
    nats: float
    base_nats: float


def load_pair(job: Job) -> Pair:
    """Both models of a job: its own, and that of spec["base"]."""
    return Pair(load_for_job(job), load_for_job(replace(job, spec={**job.spec, **job.spec["base"]})))


def measure(job: Job, data: pa.Table, models: Pair) -> Result:
    """The `fidelity` row of a compressed model on the last windows of a data set.

    data: the series. job.spec: identity, history, horizon, min_context, held_out, seed (of the noise) and `fidelity`:
    windows (at most, of as many series) and top. Overlap and perplexity are those of science.md section 5: the decoder
    is fed the context's ids shifted right, labels are the ids; null in a family without a softmax over ids. The states
    are the last ones of the last stack, of tokens that stand for values, the future teacher-forced.
    """
    spec, block = job.spec, job.spec["fidelity"]
    base, context = models.base.under(spec["context"], spec.get("history", 0))
    compressed, _ = models.compressed.under(spec["context"], spec.get("history", 0))
    series = table_series(data)[: block["windows"]]
    windows, skipped = last_windows(
        series,
        context=context,
        horizon=spec["horizon"],
        min_context=spec["min_context"],
        held_out=spec["held_out"],
    )
    row = {name: spec[name] for name in IDENTITY} | {"n_windows": len(windows), "top": block["top"]}
    if not len(windows):
        return Result(
            [row | {"n_positions": 0, "reason": f"no window: {skipped[0].reason if skipped else 'no series'}"}]
        )
    tokens = base.tokenize(with_noise(windows, series, noise=spec["noise"], seed=spec["seed"]))
    pair = Pair(compressed, base)
    with ExitStack() as batches:
        for model in pair:
            batches.enter_context(in_batches(model, place().batch(pass_windows(tokens, place().device))))
        row |= {"state_error": state_error(compressed, last_states(base, tokens), tokens)} | _next_tokens(
            pair, tokens, block["top"]
        )
    return Result([row], tokens=sum(kinds.size for kinds in tokens.kinds.values()))


def top_overlap(
    logits: Float[np.ndarray, "position id"], others: Float[np.ndarray, "position id"], top: int
) -> Float[np.ndarray, " position"]:
    """Jaccard overlap |A ∩ B| / |A ∪ B| of the `top` largest logits' ids, row by row (rank_structure.md Table 2).

    ValueError where there are fewer ids than `top`.
    """
    if logits.shape != others.shape or logits.shape[-1] < top:
        raise ValueError(f"top_overlap: got {logits.shape} and {others.shape}, expected one shape of {top} ids or more")
    first, second = (np.argpartition(-one, top - 1, axis=-1)[:, :top] for one in (logits, others))
    common = (first[:, :, None] == second[:, None, :]).sum(axis=(1, 2))
    overlap: np.ndarray = common / (2 * top - common)
    return overlap


def surprise(
    logits: Float[np.ndarray, "position id"], labels: Int[np.ndarray, " position"]
) -> Float[np.ndarray, " position"]:
    """−log p(label) in nats, row by row; their mean is the logarithm of the perplexity."""
    high = logits.astype(np.float64)
    high -= high.max(axis=-1, keepdims=True)
    found: np.ndarray = np.log(np.exp(high).sum(axis=-1)) - np.take_along_axis(high, labels[:, None], axis=-1)[:, 0]
    return found


def copying(tokens: Tokens) -> tuple[Tokens, Bool[np.ndarray, "window token"]]:
    """Tokens whose decoder is fed the encoder's ids shifted right, and which of its labels, the ids, are no padding."""
    ids, mask = tokens.arrays["ids"], tokens.arrays["mask"].astype(bool)
    shifted = np.concatenate((tokens.arrays["decoder_ids"][:, :1], ids[:, :-1]), axis=1)
    kinds = np.where(mask, TokenKind.FUTURE, TokenKind.PADDING).astype(np.int8)
    arrays = {**tokens.arrays, "decoder_ids": shifted}
    return replace(tokens, arrays=arrays, kinds={**tokens.kinds, "decoder": kinds}, types={}), mask


def _next_tokens(models: Pair, tokens: Tokens, top: int) -> dict[str, Any]:
    """Columns of the row on next tokens."""
    if not (models.base.softmax_head and {"ids", "mask", "decoder_ids"} <= set(tokens.arrays)):
        return {"n_positions": 0, "reason": NO_HEAD}
    found = [Copied(*map(sum, zip(*_copied(models, tokens, top), strict=True)))][0]
    nats, base_nats = found.nats / found.n, found.base_nats / found.n
    row = {"n_positions": found.n, "overlap": found.overlap / found.n, "log_ppl": nats, "base_log_ppl": base_nats}
    certain = base_nats < CERTAIN
    reason = f"the base's log perplexity is {base_nats:.1e}: no ratio" if certain else None
    return row | {"lppl": None if certain else nats / base_nats, "reason": reason}


def _copied(models: Pair, tokens: Tokens, top: int) -> Iterator[Copied]:
    """A batch of windows at a time."""
    fed, mask = copying(tokens)
    labels, start = fed.arrays["ids"].astype(np.int64), 0
    for logits, others in zip(*(model.forecast_logits(fed) for model in models), strict=True):
        part = mask[start : start + len(logits)]
        kept, start = labels[start : start + len(logits)][part], start + len(logits)
        ours, theirs = logits[part], others[part]
        overlap = top_overlap(ours, theirs, top)
        yield Copied(len(kept), overlap.sum(), surprise(ours, kept).sum(), surprise(theirs, kept).sum())


def state_error(model: Family, wanted: Float[np.ndarray, "row width"], tokens: Tokens) -> float:
    """‖X' − X‖_F / ‖X‖_F, X' the `last_states` of a model and X those that are `wanted`, of its base."""
    return float(np.linalg.norm(last_states(model, tokens) - wanted) / np.linalg.norm(wanted))


def last_states(model: Family, tokens: Tokens) -> Float[np.ndarray, "row width"]:
    """The last states of the last stack that holds tokens of values, of these tokens."""
    valued = {stack: np.flatnonzero(np.isin(kinds, VALUED)) for stack, kinds in tokens.kinds.items()}
    stack = [name for name in model.stacks if len(valued[name])][-1]
    *_, last = model.hidden_states(tokens, {stack: valued[stack]})
    states: np.ndarray = last.states.astype(np.float64)
    return states

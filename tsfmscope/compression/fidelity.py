"""Fidelity of a compressed model to its base: next-token overlap, perplexities, last hidden states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from tsfmscope.models.common.capture import VALUED, in_batches
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.series.synthetic.signals import with_noise
from tsfmscope.series.windows import last_windows

if TYPE_CHECKING:
    from tsfmscope.models.base import Family
    from tsfmscope.series.types import Series

# Log perplexity in nats below which the base is certain of every token, so that a ratio to it is
# rounding.
CERTAIN = 1e-9
NO_HEAD = "no softmax over ids: next tokens and perplexity are not defined"


def measure(
    compressed: Family, base: Family, series: Sequence[Series], *, context: int, noise: float, horizon: int,
    min_context: int, held_out: float | None, history: int, seed: int, top: int, batch_of: Callable[[Tokens], int],
) -> tuple[dict[str, Any], int | None]:  # fmt: skip
    """Measure the fidelity on the last window of every series; return columns of `fidelity` and a token count.

    Overlap and perplexity are defined in docs/science.md, Compression: the decoder input is the context's ids shifted
    right, and the labels are the ids. They are null for a family without a softmax over ids. The state error
    compares the last states of the last stack, for tokens that stand for values, with a teacher-forced
    future. Without a usable window, there are the reason, no measures, and None instead of the token count.
    The parameters of windows are those of `scores.score_forecasts`.

    Args:
        compressed: the compressed model.
        base: its base model.
        series: series of one data set.
        top: number of most likely next tokens whose overlap is measured.
        batch_of: returns the windows of a forward pass for some tokens.
    """
    base, steps = base.with_condition(context, history)
    compressed, _ = compressed.with_condition(context, history)
    windows, skipped = last_windows(series, context=steps, horizon=horizon, min_context=min_context, held_out=held_out)
    row: dict[str, Any] = {"n_windows": len(windows), "top": top}
    if not len(windows):
        return row | {"n_positions": 0, "reason": f"no window: {skipped[0].reason if skipped else 'no series'}"}, None
    tokens = base.tokenize(with_noise(windows, series, noise=noise, seed=seed))
    with ExitStack() as batches:
        for model in (compressed, base):
            batches.enter_context(in_batches(model, batch_of(tokens)))
        row |= {"state_error": state_error(compressed, last_states(base, tokens), tokens)}
        row |= _next_tokens(compressed, base, tokens, top)
    return row, sum(kinds.size for kinds in tokens.kinds.values())


def top_overlap(
    logits: Float[np.ndarray, "position id"], others: Float[np.ndarray, "position id"], top: int
) -> Float[np.ndarray, " position"]:
    """Return, per position, the Jaccard overlap |A∩B| / |A∪B| of the ids of the `top` largest logits.

    Source: Yu et al. 2026, Table 2. ValueError if the shapes differ, or if there are fewer ids than `top`.
    """
    if logits.shape != others.shape or logits.shape[-1] < top:
        raise ValueError(f"top_overlap: got {logits.shape} and {others.shape}, expected one shape of {top} ids or more")
    first, second = (np.argpartition(-array, top - 1, axis=-1)[:, :top] for array in (logits, others))
    common = (first[:, :, None] == second[:, None, :]).sum(axis=(1, 2))
    overlap: np.ndarray = common / (2 * top - common)
    return overlap


def surprisal(
    logits: Float[np.ndarray, "position id"], labels: Int[np.ndarray, " position"]
) -> Float[np.ndarray, " position"]:
    """Return −log p(label) in nats, one number per position; the mean is the logarithm of the perplexity."""
    high = logits.astype(np.float64)
    high -= high.max(axis=-1, keepdims=True)
    losses: np.ndarray = np.log(np.exp(high).sum(axis=-1)) - np.take_along_axis(high, labels[:, None], axis=-1)[:, 0]
    return losses


def shift_into_decoder(tokens: Tokens) -> tuple[Tokens, Bool[np.ndarray, "window token"]]:
    """Return tokens with the encoder's ids, shifted right, as decoder input, and the mask of their labels.

    The labels are the encoder's ids; the mask leaves out padding.
    """
    ids, mask = tokens.arrays["ids"], tokens.arrays["mask"].astype(bool)
    decoder_ids = np.concatenate((tokens.arrays["decoder_ids"][:, :1], ids[:, :-1]), axis=1)
    kinds = np.where(mask, TokenKind.FUTURE, TokenKind.PADDING).astype(np.int8)
    arrays = {**tokens.arrays, "decoder_ids": decoder_ids}
    return replace(tokens, arrays=arrays, kinds={**tokens.kinds, "decoder": kinds}, types={}), mask


def _next_tokens(compressed: Family, base: Family, tokens: Tokens, top: int) -> dict[str, Any]:
    """Return the columns on next tokens; without a softmax over ids, no positions and the reason."""
    if not (base.softmax_head and {"ids", "mask", "decoder_ids"} <= set(tokens.arrays)):
        return {"n_positions": 0, "reason": NO_HEAD}
    shifted, mask = shift_into_decoder(tokens)
    labels, start = shifted.arrays["ids"].astype(np.int64), 0
    # Of every batch, the sums over its positions of the overlap and of −log p of the label under each model.
    sums: list[tuple[float, float, float]] = []
    for logits, others in zip(compressed.forecast_logits(shifted), base.forecast_logits(shifted), strict=True):
        part = mask[start : start + len(logits)]
        part_labels, start = labels[start : start + len(logits)][part], start + len(logits)
        overlap = top_overlap(logits[part], others[part], top).sum()
        nats, base_nats = (surprisal(values[part], part_labels).sum() for values in (logits, others))
        sums.append((overlap, nats, base_nats))
    n_positions = int(mask.sum())
    overlap, nats, base_nats = (sum(column) / n_positions for column in zip(*sums, strict=True))
    row = {"n_positions": n_positions, "overlap": overlap, "log_ppl": nats, "base_log_ppl": base_nats}
    certain = base_nats < CERTAIN
    reason = f"the base's log perplexity is {base_nats:.1e}: no ratio" if certain else None
    return row | {"lppl": None if certain else nats / base_nats, "reason": reason}


def state_error(model: Family, base_states: Float[np.ndarray, "row width"], tokens: Tokens) -> float:
    """Return ‖X' − X‖_F / ‖X‖_F, with the last states X' of the model and X of its base."""
    return float(np.linalg.norm(last_states(model, tokens) - base_states) / np.linalg.norm(base_states))


def window_errors(
    model: Family, base_states: Float[np.ndarray, "row width"], tokens: Tokens
) -> Float[np.ndarray, " window"]:
    """Return `state_error` of every window by itself.

    NaN for a window without tokens that stand for values, and for one whose base states are all 0.
    """
    stack = _last_valued(model, tokens)
    window = np.nonzero(np.isin(tokens.kinds[stack], VALUED))[0]
    difference, size = (
        np.bincount(window, np.square(states).sum(axis=1), minlength=len(tokens))
        for states in (last_states(model, tokens) - base_states, base_states)
    )
    errors: np.ndarray = np.sqrt(np.divide(difference, size, out=np.full(len(tokens), np.nan), where=size > 0))
    return errors


def last_states(model: Family, tokens: Tokens) -> Float[np.ndarray, "row width"]:
    """Return the last states of the last stack with tokens that stand for values, one row per such token."""
    stack = _last_valued(model, tokens)
    *_, last = model.hidden_states(tokens, {stack: np.flatnonzero(np.isin(tokens.kinds[stack], VALUED))})
    states: np.ndarray = last.states.astype(np.float64)
    return states


def _last_valued(model: Family, tokens: Tokens) -> str:
    """Return the name of the last stack with tokens that stand for values."""
    return [name for name in model.stacks if np.isin(tokens.kinds[name], VALUED).any()][-1]

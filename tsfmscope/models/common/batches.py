"""Batches of windows: how many run in one forward pass, and which windows and tokens are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.models.types import TokenKind, Tokens

if TYPE_CHECKING:
    from tsfmscope.models.base import Family

# Kinds of tokens that stand for values.
KINDS = ("observation", "future")
VALUED = [TokenKind[name.upper()] for name in KINDS]
# Tokens of one forward pass where `batch` is None. They are constants, not timed during the run, so
# that reruns give the same bytes.
PASS_TOKENS = {
    # Measured by bench/embedding.py: results/embedding.md has the rates from one window to all.
    "cpu": 4096,
    # Not measured, because no GPU was available: `python -m bench.embedding --device cuda` prints
    # the rates.
    "cuda": 32_768,
}


def pass_windows(tokens: Tokens, device: str) -> int:
    """Return the number of windows of one forward pass on a device ("cpu", "cuda:0").

    It is PASS_TOKENS divided by the tokens of a window, and at least 1.
    """
    return max(1, PASS_TOKENS[device.partition(":")[0]] // window_tokens(tokens))


def window_tokens(tokens: Tokens) -> int:
    """Return the number of tokens of one window, summed over all stacks."""
    return sum(kinds.shape[1] for kinds in tokens.kinds.values())


@contextmanager
def in_batches(model: Family, batch: int) -> Iterator[None]:
    """Set the model's windows per forward pass while the context is open."""
    usual, model.batch = model.batch, batch
    try:
        yield
    finally:
        model.batch = usual


def kept_rows(tokens: Tokens, kinds: tuple[str, ...] | list[str], rows: int, seed: int) -> Mapping[str, np.ndarray]:
    """Return, for each stack, the ascending ids (window * T + position) of at most `rows` kept tokens.

    kinds: names of TokenKind. Raises ValueError for an unknown kind, or if no stack has a token of these
    kinds.
    """
    names = [kind.name.lower() for kind in TokenKind]
    if unknown := sorted(set(kinds) - set(names)):
        raise ValueError(f"kinds: got {unknown}, expected some of {names}")
    kind_codes = [TokenKind[kind.upper()] for kind in kinds]
    ids_by_stack = {}
    for index, (stack, values) in enumerate(tokens.kinds.items()):
        ids = np.flatnonzero(np.isin(values, kind_codes))
        if len(ids) > rows:
            ids = np.sort(np.random.default_rng([seed, index]).choice(ids, rows, replace=False))
        ids_by_stack[stack] = ids
    if not any(map(len, ids_by_stack.values())):
        raise ValueError(f"kinds: no stack has a token of {list(kinds)}; name other kinds")
    return ids_by_stack


def run_windows(tokens: Tokens, rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the windows that contain a kept token and are therefore run, ascending."""
    return np.unique(np.concatenate([ids // tokens.kinds[stack].shape[1] for stack, ids in rows.items()]))


def sample_windows(tokens: Tokens, rows: int, seed: int) -> Tokens:
    """Return the fewest randomly chosen windows that have `rows` value tokens in every stack.

    Value tokens are those that stand for values. Stacks with one token per window do not count. All windows
    are returned if they have fewer such tokens, and at least one is returned. The result keeps the original
    order of the windows.
    """
    order, needed = np.random.default_rng([seed, 4]).permutation(len(tokens)), 1
    for kinds in tokens.kinds.values():
        if kinds.shape[1] > 1:
            reached = np.cumsum(np.isin(kinds, VALUED).sum(axis=1)[order])
            needed = max(needed, int(np.searchsorted(reached, rows)) + 1)
    return tokens.take(np.sort(order[:needed]))

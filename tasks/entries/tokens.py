"""Entry of stage tokens: it turns series into windows of one cell and tokenises them."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from jaxtyping import Int64

from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.job import IDENTITY, Job, Result
from tsfmscope.tasks.models.types import TokenKind, Tokens, tokens_to_table
from tsfmscope.tasks.series.synthetic.noise import with_noise
from tsfmscope.tasks.series.tables import table_series
from tsfmscope.tasks.series.windows import spread_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsfmscope.tasks.models.base import Family
    from tsfmscope.tasks.series.types import Series, Skip

# A token dump without windows.
NOTHING = pa.table({"series": pa.array([], pa.string()), "origin": pa.array([], pa.int64())})


def tokenize(job: Job, data: pa.Table, model: Family) -> Result:
    """Return a token dump of a model, data set and condition, and its row of `dumps`.

    data: the series. job.spec: identity, horizon, min_context, held_out, seed (of windows and noise) and
    `rows`. Every stack gets at least `rows` rows, as far as the series suffice, and every series gives a
    window.

    Series that give no window, and windows of a stack in which no token stands for a value, are counted by
    reason in the dump's metadata as "skipped" (JSON). Where nothing is left, the dump has no rows and
    n_windows is 0. The row's n_context_min and n_context_median count observed steps of context, without
    `history`. DataError where there are no series.
    """
    series = table_series(data)
    if not series:
        raise DataError(f"data set {job.spec['dataset']}: expected at least one series, got none")
    tokens, observed, skipped = _tokens(job, series, model)
    reasons = Counter(skip.reason for skip in skipped)
    if tokens is not None:
        unvalued = [stack for stack, n in _valued(tokens).items() if not n]
        reasons |= {f"no token of stack {stack} stands for a value": len(tokens) for stack in unvalued}
        tokens = None if len(unvalued) == len(tokens.kinds) else tokens
    table = NOTHING if tokens is None else tokens_to_table(tokens)
    counted = {"skipped": json.dumps(reasons, sort_keys=True)}
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **counted})
    row = {name: job.spec[name] for name in IDENTITY}
    row |= {"kind": "tokens", "width": None, "dtype": None, "n_windows": len(table), "batch": None}
    if len(table):
        row |= {"n_context_min": int(observed.min()), "n_context_median": float(np.median(observed))}
    return Result([row], dump=[table], tokens=sum(kinds.size for kinds in tokens.kinds.values()) if tokens else 0)


def _tokens(
    job: Job, series: Sequence[Series], model: Family
) -> tuple[Tokens | None, Int64[np.ndarray, " window"], list[Skip]]:
    """Return tokens, the number of observed steps of each context, and the skipped series.

    Every stack that can have any valued rows has the requested ones. The tokens are None where no series
    gives a window.
    """
    spec = job.spec
    model, context = model.under(spec["context"], spec.get("history", 0))
    rows = {stack: n for stack, n in model.rows_per_window(context, spec["horizon"]).items() if n > 0}
    count = max(len(series), -(-spec["rows"] // min(rows.values(), default=1)))
    while True:
        windows, skipped = spread_windows(
            series,
            context=context,
            horizon=spec["horizon"],
            count=count,
            min_context=spec["min_context"],
            held_out=spec["held_out"],
            seed=spec["seed"],
        )
        if not len(windows):
            return None, np.zeros(0, np.int64), skipped
        tokens = model.tokenize(with_noise(windows, series, noise=spec["noise"], seed=spec["seed"]))
        valued = _valued(tokens)
        if len(windows) < count or all(valued[stack] >= spec["rows"] for stack in rows):
            return tokens, windows.observed(spec["context"]), skipped
        # Missing steps leave windows with fewer rows than a full one has.
        count *= 2


def _valued(tokens: Tokens) -> dict[str, int]:
    """Return stack -> number of its tokens that stand for values."""
    valued = (TokenKind.OBSERVATION, TokenKind.FUTURE)
    return {stack: int(np.isin(kinds, valued).sum()) for stack, kinds in tokens.kinds.items()}

"""Entry of stage tokens: it turns series into windows of one cell and tokenises them."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tsfmscope.tasks import lens
from tsfmscope.tasks.errors import DataError
from tsfmscope.tasks.job import IDENTITY, Job, Result
from tsfmscope.tasks.models.types import tokens_to_table
from tsfmscope.tasks.series.tables import table_series

if TYPE_CHECKING:
    from tsfmscope.tasks.models.base import Family

# Entries of the spec that say which windows are tokenised; see `lens.tokenize`.
WINDOWS = ("context", "horizon", "rows", "min_context", "held_out", "noise", "seed")
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
    asked = {name: job.spec[name] for name in WINDOWS} | {"history": job.spec.get("history", 0)}
    tokens, observed, skipped = lens.tokenize(model, series, **asked)
    reasons = Counter(skip.reason for skip in skipped)
    if tokens is not None:
        unvalued = [stack for stack, n in lens.count_valued(tokens).items() if not n]
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

"""Entry of stage tokens: it turns series into windows of one cell and tokenises them."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pydantic import Field

from tasks.job import Job, Result
from tasks.parts import CellIdentity, ModelSource, WindowOptions
from tsfmscope import layer_states
from tsfmscope.defaults import ROWS
from tsfmscope.errors import DataError
from tsfmscope.models.types import tokens_to_table
from tsfmscope.series.tables import table_series
from tsfmscope.strict import Strict

if TYPE_CHECKING:
    from tsfmscope.models.base import Family

# A token dump without windows.
NOTHING = pa.table({"series": pa.array([], pa.string()), "origin": pa.array([], pa.int64())})


class TokenOptions(Strict):
    """Options of `tokenize`, apart from those of its windows."""

    rows: int = Field(ROWS, ge=1, description="smallest number of tokens in every layer of every stack")


class TokensSpec(CellIdentity, WindowOptions, ModelSource, TokenOptions):
    """Spec of `tokenize`. format: file format of the dump."""

    format: str


def tokenize(job: Job, data: pa.Table, model: Family) -> Result:
    """Return a token dump of a model, data set and condition, and its row of `dumps`.

    data: the series, each of which gives a window.

    Series that give no window, and windows of a stack in which no token stands for a value, are counted by
    reason in the dump's metadata as "skipped" (JSON). Where nothing is left, the dump has no rows and
    n_windows is 0. The row's n_context_min and n_context_median count the observed steps of context
    that the model reads, without `history`. DataError where there are no series.
    """
    spec = TokensSpec.from_job(job)
    series = table_series(data)
    if not series:
        raise DataError(f"data set {spec.dataset}: expected at least one series, got none")
    tokens, observed, _, skipped = layer_states.tokenize(
        model, series, context=spec.context, rows=spec.rows, noise=spec.noise, **spec.part(WindowOptions)
    )
    reasons = Counter(skip.reason for skip in skipped)
    if tokens is not None:
        unvalued = [stack for stack, n in layer_states.count_valued(tokens).items() if not n]
        reasons |= {f"no token of stack {stack} stands for a value": len(tokens) for stack in unvalued}
        tokens = None if len(unvalued) == len(tokens.kinds) else tokens
    table = NOTHING if tokens is None else tokens_to_table(tokens)
    counted = {"skipped": json.dumps(reasons, sort_keys=True)}
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **counted})
    row = spec.part(CellIdentity)
    row |= {"kind": "tokens", "width": None, "dtype": None, "n_windows": len(table), "batch": None}
    if len(table):
        row |= {"n_context_min": int(observed.min()), "n_context_median": float(np.median(observed))}
    return Result([row], dump=[table], tokens=sum(kinds.size for kinds in tokens.kinds.values()) if tokens else 0)

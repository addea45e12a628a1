"""The sweep's entry of stage tokens: series in, windows of one cell out, tokenised."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from tasks.errors import DataError
from tasks.models.types import TokenKind, Tokens, tokens_to_table
from tasks.series.noise import with_noise
from tasks.series.tables import table_series
from tasks.series.windows import spread_windows
from tasks.sweep.jobs import Job, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from tasks.models.base import Family
    from tasks.series.types import Series, Skip

IDENTITY = ("model", "base_model", "rank", "dataset", "condition", "context", "noise")


def tokenize(job: Job, data: pa.Table, model: Family) -> Result:
    """A token dump of a model, data set and condition, and its row of `dumps`.

    data: the series. job.spec: identity, horizon, min_context, held_out, seed (of the noise) and `rows`, which every
    stack shall have at least, as far as the series go; every series gives a window. Series that give none are counted
    by reason in the dump's metadata under "skipped" (JSON). DataError where no series gives any.
    """
    tokens, skipped = _tokens(job, table_series(data), model)
    table = tokens_to_table(tokens)
    reasons = json.dumps(Counter(skip.reason for skip in skipped), sort_keys=True)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), "skipped": reasons})
    row = {name: job.spec[name] for name in IDENTITY}
    row |= {"kind": "tokens", "width": None, "dtype": None, "n_windows": len(tokens), "batch": None}
    return Result([row], dump=[table], tokens=sum(kinds.size for kinds in tokens.kinds.values()))


def _tokens(job: Job, series: Sequence[Series], model: Family) -> tuple[Tokens, list[Skip]]:
    spec = job.spec
    model, context = model.under(spec["context"], spec.get("history", 0))
    rows = min(model.rows_per_window(context, spec["horizon"]).values())
    if rows < 1:
        raise DataError(f"{model.name}: a horizon of {spec['horizon']} leaves a stack without rows; take a longer one")
    count = max(len(series), -(-spec["rows"] // rows))
    while True:
        windows, skipped = spread_windows(
            series,
            context=context,
            horizon=spec["horizon"],
            count=count,
            min_context=spec["min_context"],
            held_out=spec["held_out"],
        )
        if not len(windows):
            reasons = Counter(skip.reason for skip in skipped)
            raise DataError(f"data set {spec['dataset']}: none of {len(series)} series gives a window: {dict(reasons)}")
        tokens = model.tokenize(with_noise(windows, series, noise=spec["noise"], seed=spec["seed"]))
        if len(windows) < count or _fewest(tokens) >= spec["rows"]:
            return tokens, skipped
        count *= 2  # missing steps leave windows with fewer rows than a full one has


def _fewest(tokens: Tokens) -> int:
    valued = (TokenKind.OBSERVATION, TokenKind.FUTURE)
    return min(int(np.isin(kinds, valued).sum()) for kinds in tokens.kinds.values())

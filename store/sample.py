"""A seeded sample of the embedding dumps, small enough for the catalogue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from store import dumps
from store.schema import arrow_schema

TOKENS_PER_MODEL = 1_000
GROUPS_PER_MODEL = 64  # layers read for a model, whatever the number of its dumps


def embeddings(found: Sequence[Path], *, seed: int, tokens: int = TOKENS_PER_MODEL) -> pa.Table:
    """Rows of `embeddings_sample` from dump files named .../model/dataset/condition.arrow.

    A model's tokens come, in equal shares, from its dumps' last states; fewer where it has fewer.
    """
    models: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(found):
        models[path.parent.parent.name].append(path)
    tables = [_of_model(paths, seed, tokens) for _, paths in sorted(models.items())]
    return pa.concat_tables([arrow_schema("embeddings_sample").empty_table(), *tables])


def _of_model(paths: list[Path], seed: int, tokens: int) -> pa.Table:
    generator = np.random.default_rng(seed)
    groups = []
    for path in paths:
        found = dict(dumps.batches(path))
        last = dumps.last_layers(found)
        groups += [(path, batch) for place, batch in found.items() if place in last]
    if len(groups) > GROUPS_PER_MODEL:
        chosen = np.sort(generator.choice(len(groups), GROUPS_PER_MODEL, replace=False))
        groups = [groups[n] for n in chosen]
    shares = _shares([len(batch) for _, batch in groups], tokens)
    tables = []
    for (path, batch), share in zip(groups, shares, strict=True):
        places = np.sort(generator.choice(len(batch), share, replace=False))
        tables.append(_conform(batch.take(pa.array(places)), path))
    return pa.concat_tables([arrow_schema("embeddings_sample").empty_table(), *tables])


def _shares(rows: list[int], tokens: int) -> list[int]:
    """How many tokens to take of each group: equal shares, what small groups lack taken from larger ones."""
    shares = [0] * len(rows)
    left = tokens
    for place, n in enumerate(sorted(range(len(rows)), key=lambda n: rows[n])):
        shares[n] = min(rows[n], left // (len(rows) - place))
        left -= shares[n]
    return shares


def _conform(rows: pa.RecordBatch, path: Path) -> pa.Table:
    names = {"model": path.parent.parent.name, "dataset": path.parent.name, "condition": path.stem}
    schema = arrow_schema("embeddings_sample")
    columns = [
        pa.array([names[f.name]] * len(rows), f.type) if f.name in names else rows[f.name].cast(f.type) for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)

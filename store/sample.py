"""A seeded sample of the embedding dumps, small enough for the catalogue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from store import dumps
from store.schema import arrow_schema

TOKENS_PER_MODEL = 1_000
GROUPS_PER_MODEL = 64  # row groups read for a model, whatever the number of its dumps


def embeddings(found: Sequence[Path], *, seed: int, tokens: int = TOKENS_PER_MODEL) -> pa.Table:
    """Rows of `embeddings_sample` from dump files named .../model/dataset/condition.parquet.

    A model's tokens come, in equal shares, from its dumps' last states; fewer where it has fewer.
    """
    models: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(found):
        models[path.parent.parent.name].append(path)
    tables = [_of_model(paths, seed, tokens) for _, paths in sorted(models.items())]
    return pa.concat_tables([arrow_schema("embeddings_sample").empty_table(), *tables])


def _of_model(paths: list[Path], seed: int, tokens: int) -> pa.Table:
    generator = np.random.default_rng(seed)
    groups = [
        (path, n, metadata.row_group(n).num_rows)
        for path, metadata in ((path, pq.read_metadata(path)) for path in paths)
        for n, place in enumerate(dumps.layers(metadata))
        if place in dumps.last_layers(metadata) and metadata.row_group(n).num_rows
    ]
    if len(groups) > GROUPS_PER_MODEL:
        chosen = np.sort(generator.choice(len(groups), GROUPS_PER_MODEL, replace=False))
        groups = [groups[n] for n in chosen]
    shares = _shares([rows for _, _, rows in groups], tokens)
    tables = []
    for (path, group, rows), share in zip(groups, shares, strict=True):
        places = np.sort(generator.choice(rows, share, replace=False))
        with pq.ParquetFile(path) as file:
            tables.append(_conform(file.read_row_group(group).take(pa.array(places)), path))
    return pa.concat_tables([arrow_schema("embeddings_sample").empty_table(), *tables])


def _shares(rows: list[int], tokens: int) -> list[int]:
    """How many tokens to take of each group: equal shares, what small groups lack taken from larger ones."""
    shares = [0] * len(rows)
    left = tokens
    for place, n in enumerate(sorted(range(len(rows)), key=lambda n: rows[n])):
        shares[n] = min(rows[n], left // (len(rows) - place))
        left -= shares[n]
    return shares


def _conform(rows: pa.Table, path: Path) -> pa.Table:
    names = {"model": path.parent.parent.name, "dataset": path.parent.name, "condition": path.stem}
    schema = arrow_schema("embeddings_sample")
    columns = [
        pa.array([names[f.name]] * len(rows), f.type) if f.name in names else rows[f.name].cast(f.type) for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)

"""Seeded sample of the embedding dumps, small enough for the catalogue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from store import dumps
from store.schema import arrow_schema

TOKENS_PER_MODEL = 1_000
# Maximum number of record batches (layers) read for a model, whatever the number of its dumps.
GROUPS_PER_MODEL = 64


def embeddings(files: Sequence[Path], *, seed: int, tokens: int = TOKENS_PER_MODEL) -> pa.Table:
    """Sample rows of `embeddings_sample` from dump files named .../model/dataset/condition.arrow.

    tokens: number of tokens per model. They come in equal shares from the last states of the model's dumps,
    from at most GROUPS_PER_MODEL record batches; if these have fewer tokens, all of them are taken.
    """
    models: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(files, key=str):
        models[path.parts[-3]].append(path)
    tables = [_of_model(paths, seed, tokens) for _, paths in sorted(models.items())]
    return pa.concat_tables([arrow_schema("embeddings_sample").empty_table(), *tables])


def _of_model(paths: list[Path], seed: int, tokens: int) -> pa.Table:
    generator, schema = np.random.default_rng(seed), arrow_schema("embeddings_sample")
    groups: list[tuple[Path, dumps.LayerKey, int]] = []
    for path in paths:
        layers = dumps.layer_rows(path)
        last = dumps.last_layers(layers)
        groups += [(path, layer, rows) for layer, rows in layers.items() if layer in last]
    if len(groups) > GROUPS_PER_MODEL:
        chosen = np.sort(generator.choice(len(groups), GROUPS_PER_MODEL, replace=False))
        groups = [groups[n] for n in chosen]
    shares = _shares([rows for _, _, rows in groups], tokens)
    tables = []
    for (path, layer, rows), share in zip(groups, shares, strict=True):
        indices = np.sort(generator.choice(rows, share, replace=False))
        sampled = dumps.layer_batch(path, layer).take(pa.array(indices))
        names = {"model": path.parts[-3], "dataset": path.parts[-2], "condition": path.stem}
        columns = [
            pa.array([names[f.name]] * share, f.type) if f.name in names else sampled[f.name].cast(f.type)
            for f in schema
        ]
        tables.append(pa.Table.from_arrays(columns, schema=schema))
    return pa.concat_tables([schema.empty_table(), *tables])


def _shares(rows: list[int], tokens: int) -> list[int]:
    """Return the number of tokens to take from each group: equal shares.

    Larger groups make up for small ones.
    """
    shares = [0] * len(rows)
    left = tokens
    for index, n in enumerate(sorted(range(len(rows)), key=lambda n: rows[n])):
        shares[n] = min(rows[n], left // (len(rows) - index))
        left -= shares[n]
    return shares

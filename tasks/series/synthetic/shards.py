"""Corpus for pretraining in independent shards: KernelSynth, TSMixup, or a mixture of both.

A shard contains the series of a range of indices. Series i is TSMixup with probability `tsmixup` (published
pretraining: 0.9), else KernelSynth; both depend on the corpus' seed and on i alone. TSMixup mixes real series
and a pool of KernelSynth series, which are drawn again whenever one is picked. So a worker reads only the
real series, and its memory holds only these and one block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tsfmscope.tasks.job import Job, Result
from tsfmscope.tasks.series.files.bundled import load_bundled
from tsfmscope.tasks.series.files.parquet import load_parquet
from tsfmscope.tasks.series.synthetic.kernelsynth import Drawn, as_series, draw_at
from tsfmscope.tasks.series.synthetic.random_streams import Streams, series_seeds
from tsfmscope.tasks.series.synthetic.tsmixup import MixtureLaw
from tsfmscope.tasks.series.tables import series_table
from tsfmscope.tasks.series.types import Series

# Number of series drawn together: a row group or batch of the file.
BLOCK = 1_000
# File in a corpus' folder with everything that determines its series.
CORPUS_FILE = "corpus.json"
# Prefix of the name of a real data set that statsmodels includes; other names are Parquet files.
REAL_PREFIX = "bundled:"
# gluonts requires a start; KernelSynth of the Chronos release writes this one too.
START = datetime(2000, 1, 1)


def load_real(job: Job) -> list[Series]:
    """Load the real series of the mixtures from spec["real"]: Parquet files, or names after "bundled:"."""
    found: list[Series] = []
    for name in job.spec["real"]:
        if name.startswith(REAL_PREFIX):
            found += load_bundled(name.removeprefix(REAL_PREFIX))
        else:
            found += load_parquet(Path(name)).series
    return found


def write_shard(job: Job, data: None, real: Sequence[Series]) -> Result:
    """Generate series spec["first"] .. first + count - 1 of the corpus.

    They are written as Parquet (table series), or as Arrow for gluonts.

    Raises:
        DataError: a composition's draw does not fit float32, named by its expression (none of the bank's does
            that), or a file of real series cannot be read.
        ValueError: no series of the pool or of the real ones has the shortest length that TSMixup draws.
    """
    spec = job.spec
    tables = (_for_gluonts(rows) if spec["format"] == "arrow" else series_table(rows) for rows in _blocks(spec, real))
    row = dict.fromkeys(("model", "base_model", "rank", "condition", "context", "noise", "width", "dtype", "batch"))
    row |= {"dataset": spec["dataset"], "kind": "series", "n_windows": spec["count"]}
    return Result([row], dump=tables)


def _blocks(spec: Mapping[str, Any], real: Sequence[Series]) -> Iterator[list[Series]]:
    law = None
    if spec["tsmixup"]:
        law = MixtureLaw([*[spec["length"]] * spec["pool"], *(len(one.values) for one in real)])
    for first in range(spec["first"], spec["first"] + spec["count"], BLOCK):
        indices = range(first, min(first + BLOCK, spec["first"] + spec["count"]))
        # The name in the third argument gives seeds that no other stream uses, so a seed serves as
        # the random number and no generator is needed.
        chances = series_seeds(spec["seed"], indices, "tsmixup or kernelsynth")
        mixed = [index for index, one in zip(indices, chances, strict=True) if one < spec["tsmixup"] * 2**63]
        plain = sorted(set(indices) - set(mixed))
        rows = {index: as_series("kernelsynth", "synthetic", index, one) for index, one in _drawn(plain, spec).items()}
        rows |= _mixtures(mixed, spec, law, real) if law else {}
        yield [rows[index] for index in indices]


def _drawn(indices: Sequence[int], spec: Mapping[str, Any]) -> dict[int, Drawn]:
    found = draw_at(indices, spec["seed"], spec["length"], spec["max_kernels"])
    return dict(zip(indices, found, strict=True))


def _mixtures(
    indices: Sequence[int], spec: Mapping[str, Any], law: MixtureLaw, real: Sequence[Series]
) -> dict[int, Series]:
    streams, seeds = Streams(), series_seeds(spec["seed"], indices, "tsmixup")
    mixtures = [law.draw(streams.values(seed)) for seed in seeds]
    picked = sorted({int(place) for one in mixtures for place in one.picked if place < spec["pool"]})
    pool = {
        place: as_series("kernelsynth", "", place, one)
        for place, one in zip(
            picked, draw_at(picked, _pool_seed(spec), spec["length"], spec["max_kernels"]), strict=True
        )
    }
    found = {}
    for index, seed, mixture in zip(indices, seeds, mixtures, strict=True):
        parts = [pool[p] if p < spec["pool"] else real[p - spec["pool"]] for p in mixture.picked.tolist()]
        text = " + ".join(
            f"{weight:.4f} {part.dataset}/{part.series}[{start}:{start + mixture.length}]"
            for weight, part, start in zip(mixture.weights, parts, mixture.starts, strict=True)
        )
        values = mixture.of([part.values for part in parts])
        found[index] = Series("tsmixup", f"tsmixup-{index:06d}", values, "mixed", seed=seed, provenance=text)
    return found


def _pool_seed(spec: Mapping[str, Any]) -> int:
    """Return a seed other than that of the corpus' own KernelSynth series.

    So no KernelSynth series occurs in the corpus both on its own and as part of a mixture.
    """
    return series_seeds(spec["seed"], [0], "pool of tsmixup")[0]


def _for_gluonts(rows: Sequence[Series]) -> pa.Table:
    """Build a table for gluonts' FileDataset and the Chronos training script.

    They read start and target; kernel, seed and provenance identify the draw.
    """
    table = series_table(rows)
    starts = pa.array(np.full(len(rows), np.datetime64(START, "s")))
    columns = {"item_id": table["series"], "start": starts, "target": table["values"]}
    return pa.table({**columns, **{name: table[name] for name in ("kernel", "seed", "provenance")}})

"""Entry of the command `corpus`: one shard of a corpus for pretraining."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tasks.job import IDENTITY, Job, Result
from tasks.spec import Spec
from tsfmscope.series.synthetic import shards
from tsfmscope.series.synthetic.shards import CorpusOptions, shard_tables
from tsfmscope.series.types import Series


@dataclass(frozen=True, kw_only=True)
class ShardSpec(Spec):
    """Spec of `write_shard`: the series first .. first + count - 1 of a corpus.

    shard: number of the shard. length, max_kernels, tsmixup, pool, source: as in `CorpusOptions`. real: Parquet
    files of series for TSMixup, or names after "bundled:". format: "arrow" is for gluonts.
    """

    dataset: str
    shard: int
    first: int
    count: int
    seed: int
    length: int
    max_kernels: int
    tsmixup: float
    pool: int
    real: tuple[str, ...]
    format: Literal["parquet", "arrow"]
    source: shards.Source = "kernelsynth"


def load_real(job: Job) -> list[Series]:
    """Load the real series of a corpus' mixtures."""
    return shards.load_real(ShardSpec.from_job(job).real)


def write_shard(job: Job, data: None, real: Sequence[Series]) -> Result:
    """Generate the series of one shard, as Parquet (table series) or as Arrow for gluonts.

    Raises what `shard_tables` raises.
    """
    spec = ShardSpec.from_job(job)
    options = CorpusOptions(spec.seed, spec.length, spec.max_kernels, spec.tsmixup, spec.pool, spec.source)
    indices = range(spec.first, spec.first + spec.count)
    row = dict.fromkeys((*IDENTITY, "width", "dtype", "batch"))
    row |= {"dataset": spec.dataset, "kind": "series", "n_windows": spec.count}
    return Result([row], dump=shard_tables(options, indices, real, for_gluonts=spec.format == "arrow"))

"""Entry of the command `corpus`: one shard of a corpus for pretraining."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tasks.job import IDENTITY, Job, Result
from tasks.parts import Spec
from tsfmscope.series.synthetic import shards
from tsfmscope.series.synthetic.shards import CorpusOptions, shard_tables
from tsfmscope.series.types import Series


class ShardSpec(Spec, CorpusOptions):
    """Spec of `write_shard`: the series first .. first + count - 1 of a corpus.

    shard: number of the shard. real: Parquet files of series for TSMixup, or names after "bundled:". format: "arrow"
    is for gluonts.
    """

    dataset: str
    shard: int
    first: int
    count: int
    real: tuple[str, ...]
    format: Literal["parquet", "arrow"]


def load_real(job: Job) -> list[Series]:
    """Load the real series of a corpus' mixtures."""
    return shards.load_real(ShardSpec.from_job(job).real)


def write_shard(job: Job, data: None, real: Sequence[Series]) -> Result:
    """Generate the series of one shard, as Parquet (table series) or as Arrow for gluonts.

    Raises what `shard_tables` raises.
    """
    spec = ShardSpec.from_job(job)
    indices = range(spec.first, spec.first + spec.count)
    row = dict.fromkeys((*IDENTITY, "width", "dtype", "batch"))
    row |= {"dataset": spec.dataset, "kind": "series", "n_windows": spec.count}
    return Result([row], dump=shard_tables(spec, indices, real, for_gluonts=spec.format == "arrow"))

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tsfmscope.store.dumps import write_job_dump
from tsfmscope.tasks.entries.corpus import load_real, write_shard
from tsfmscope.tasks.job import Job, Task
from tsfmscope.tasks.series.files.bundled import load_bundled
from tsfmscope.tasks.series.synthetic import shards
from tsfmscope.tasks.series.synthetic.kernels import parse_kernel
from tsfmscope.tasks.series.synthetic.kernelsynth import draw, draw_at
from tsfmscope.tasks.series.synthetic.tsmixup import scale_by_mean
from tsfmscope.tasks.series.tables import table_series
from tsfmscope.tasks.series.types import Series

TASK = Task("shard", 1, "tsfmscope.tasks.entries.corpus:write_shard")


def _job(**changes: Any) -> Job:
    spec = {"dataset": "corpus", "shard": 0, "first": 0, "count": 30, "seed": 3, "length": 256, "max_kernels": 5}
    spec |= {"tsmixup": 0.0, "pool": 50, "real": [], "format": "parquet"}
    return Job(TASK, spec | changes)


def _series(**changes: Any) -> list[Series]:
    job = _job(**changes)
    result = write_shard(job, None, load_real(job))
    assert result.dump is not None
    return [one for table in result.dump for one in table_series(table)]


def test_a_row_is_drawn_again_alone_from_its_expression_and_seed() -> None:
    for index, one in enumerate(_series()):
        assert one.series == f"kernelsynth-{index:06d}"
        again = draw(parse_kernel(str(one.kernel)), int(one.seed or 0), 256)
        assert np.abs(again - one.values).max() <= 1e-6 * np.abs(one.values).max()


@pytest.mark.parametrize("share", [0.0, 0.6])
def test_shards_cut_elsewhere_hold_the_same_series(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _series(tsmixup=share)
    monkeypatch.setattr(shards, "BLOCK", 7)
    cut = _series(tsmixup=share, count=11) + _series(tsmixup=share, first=11, count=19)
    for one, other in zip(whole, cut, strict=True):
        assert (one.series, one.kernel, one.seed, one.provenance) == (
            other.series,
            other.kernel,
            other.seed,
            other.provenance,
        )
        assert np.abs(one.values - other.values).max() <= 1e-6 * np.abs(one.values).max()


def test_a_mixture_is_the_sum_that_its_provenance_tells() -> None:
    job = _job(tsmixup=1.0, real=["bundled:co2", "bundled:sunspots"], pool=3, count=60)
    pool = {one.series: one.values for name in ("co2", "sunspots") for one in load_bundled(name)}
    drawn = draw_at(range(3), shards.pool_seed(3), 256, 5)
    pool |= {f"kernelsynth-{i:06d}": one.values for i, one in enumerate(drawn)}
    mixed = [one for table in write_shard(job, None, load_real(job)).dump or () for one in table_series(table)]
    used = set()
    for one in mixed:
        parts = re.findall(r"([\d.]+) [\w]+/([\w-]+)\[(\d+):(\d+)\]", one.provenance)
        assert 1 <= len(parts) <= 3
        assert sum(float(weight) for weight, *_ in parts) == pytest.approx(1, abs=2e-4)
        expected = sum(float(w) * scale_by_mean(pool[name][int(a) : int(b)]) for w, name, a, b in parts)
        np.testing.assert_allclose(one.values, expected, atol=5e-4 * np.nanmax(np.abs(expected)))
        used |= {name for _, name, *_ in parts}
    assert used == set(pool)
    assert {one.kernel for one in mixed} == {None}


def test_the_share_of_mixtures_is_the_one_asked_for_and_the_rest_is_what_it_was() -> None:
    plain = _series(count=400, length=64, pool=0)
    half = _series(count=400, length=128, tsmixup=0.5, pool=20)
    mixed = sum(one.dataset == "tsmixup" for one in half)
    assert abs(mixed - 200) < 4 * 10
    assert {one.dataset for one in plain} == {"kernelsynth"}
    assert [a.seed == b.seed for a, b in zip(plain, half, strict=True)] == [b.dataset == "kernelsynth" for b in half]


def test_mixing_without_a_long_enough_series_says_so() -> None:
    with pytest.raises(ValueError, match="expected a series of at least 128 steps, got at most 64"):
        _series(tsmixup=0.5, length=64)


@pytest.mark.filterwarnings("ignore:Period with BDay freq:FutureWarning")
def test_gluonts_reads_an_arrow_shard_as_the_chronos_training_script_does(tmp_path: Path) -> None:
    from gluonts.dataset.common import FileDataset

    job = _job(format="arrow", count=12, tsmixup=0.5, length=128)
    facts = write_job_dump(tmp_path, job, write_shard(job, None, []).dump or ())
    # scripts/training/train.py of chronos-forecasting: FileDataset(path=Path(data_path), freq="h"), then the targets
    entries = list(FileDataset(path=tmp_path / facts["path"], freq="h"))
    assert len(entries) == 12
    for entry, one in zip(entries, _series(count=12, tsmixup=0.5, length=128), strict=True):
        assert str(entry["start"]) == "2000-01-01 00:00"
        assert entry["item_id"] == one.series
        np.testing.assert_array_equal(entry["target"], one.values)
    table = pa.ipc.open_file(pa.memory_map(str(tmp_path / facts["path"]))).read_all()
    assert table.column_names == ["item_id", "start", "target", "kernel", "seed", "provenance"]

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from store.dumps import write_job_dump
from tasks.corpus import load_real, write_shard
from tasks.job import Job, Task
from tsfmscope.series.files.sources import load_bundled
from tsfmscope.series.synthetic import shards
from tsfmscope.series.synthetic.kernels import parse_kernel, series_seeds
from tsfmscope.series.synthetic.kernelsynth import draw, draw_at
from tsfmscope.series.synthetic.priors import draw_from_seed
from tsfmscope.series.synthetic.shards import MixtureLaw, scale_by_mean, tsmixup
from tsfmscope.series.tables import table_series
from tsfmscope.series.types import Series

TASK = Task("shard", 1, "tasks.corpus:write_shard")
SOURCES = pytest.mark.parametrize("source", ["kernelsynth", "priors"])


def _job(**changes: Any) -> Job:
    spec = {"dataset": "corpus", "shard": 0, "first": 0, "count": 30, "seed": 3, "length": 256, "max_kernels": 5}
    spec |= {"tsmixup": 0.0, "pool": 50, "real": [], "format": "parquet"}
    return Job(TASK, spec | changes)


def _series(**changes: Any) -> list[Series]:
    job = _job(**changes)
    result = write_shard(job, None, load_real(job))
    assert result.dump is not None
    return [one for table in result.dump for one in table_series(table)]


def _assert_close(values: np.ndarray, others: np.ndarray) -> None:
    np.testing.assert_allclose(values, others, rtol=0, atol=1e-6 * np.nanmax(np.abs(values)))


def _draw_pool(source: str, count: int) -> list[np.ndarray]:
    """Values of the first series of the pool of `_job`."""
    seed = series_seeds(3, [0], "pool of tsmixup")[0]
    if source == "priors":
        return [draw_from_seed(own, 256) for own in series_seeds(seed, range(count), "priors")]
    return [one.values for one in draw_at(range(count), seed, 256, 5)]


@SOURCES
def test_a_row_is_drawn_again_alone_from_its_expression_and_seed(source: str) -> None:
    rows = _series(source=source)
    for index, one in enumerate(rows):
        assert (one.dataset, one.series) == (source, f"{source}-{index:06d}")
        seed = int(one.seed or 0)
        again = draw_from_seed(seed, 256) if source == "priors" else draw(parse_kernel(str(one.kernel)), seed, 256)
        _assert_close(one.values, again)
    assert len({one.seed for one in rows}) == len(rows)
    assert all((one.kernel is None) == (source == "priors") for one in rows)


def test_priors_do_not_depend_on_the_number_of_kernels() -> None:
    rows, others = _series(source="priors"), _series(source="priors", max_kernels=1)
    assert all(np.array_equal(a.values, b.values, equal_nan=True) for a, b in zip(rows, others, strict=True))


@SOURCES
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_shards_cut_elsewhere_hold_the_same_series(source: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"source": source, "tsmixup": share}
    whole = _series(**options)
    monkeypatch.setattr(shards, "BLOCK", 7)
    cut = _series(**options, count=11) + _series(**options, first=11, count=19)
    for one, other in zip(whole, cut, strict=True):
        assert (one.series, one.kernel, one.seed, one.provenance) == (
            other.series,
            other.kernel,
            other.seed,
            other.provenance,
        )
        _assert_close(one.values, other.values)


@SOURCES
@pytest.mark.parametrize(("real", "drawn"), [(["co2", "sunspots"], 3), ([], 20)])
def test_a_mixture_is_the_sum_that_its_provenance_tells(source: str, real: list[str], drawn: int) -> None:
    job = _job(source=source, tsmixup=1.0, real=[f"bundled:{name}" for name in real], pool=drawn, count=60)
    pool = {one.series: one.values for name in real for one in load_bundled(name)}
    pool |= {f"{source}-{i:06d}": values for i, values in enumerate(_draw_pool(source, drawn))}
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
    # A gap in the pool is one in the mixtures.
    has_gaps = any(np.isnan(values).any() for values in pool.values())
    assert has_gaps == any(np.isnan(one.values).any() for one in mixed)
    assert has_gaps or source == "kernelsynth"


@SOURCES
def test_the_share_of_mixtures_is_the_one_asked_for_and_the_rest_is_what_it_was(source: str) -> None:
    plain = _series(source=source, count=400, length=64, pool=0)
    half = _series(source=source, count=400, length=128, tsmixup=0.5, pool=20)
    mixed = sum(one.dataset == "tsmixup" for one in half)
    assert abs(mixed - 200) < 4 * 10
    assert {one.dataset for one in plain} == {source}
    assert [a.seed == b.seed for a, b in zip(plain, half, strict=True)] == [b.dataset == source for b in half]


def test_mixing_without_a_long_enough_series_says_so() -> None:
    with pytest.raises(ValueError, match="expected a series of at least 128 steps, got at most 64"):
        _series(tsmixup=0.5, length=64)


@SOURCES
@pytest.mark.filterwarnings("ignore:Period with BDay freq:FutureWarning")
def test_gluonts_reads_an_arrow_shard_as_the_chronos_training_script_does(source: str, tmp_path: Path) -> None:
    from gluonts.dataset.common import FileDataset

    options = {"source": source, "count": 12, "tsmixup": 0.5, "length": 128}
    job = _job(format="arrow", **options)
    facts = write_job_dump(tmp_path, job, write_shard(job, None, []).dump or ())
    # scripts/training/train.py of chronos-forecasting: FileDataset(path=Path(data_path), freq="h"), then the targets
    entries = list(FileDataset(path=tmp_path / facts["path"], freq="h"))
    assert len(entries) == 12
    for entry, one in zip(entries, _series(**options), strict=True):
        assert str(entry["start"]) == "2000-01-01 00:00"
        assert entry["item_id"] == one.series
        np.testing.assert_array_equal(entry["target"], one.values)
    table = pa.ipc.open_file(pa.memory_map(str(tmp_path / facts["path"]))).read_all()
    assert table.column_names == ["item_id", "start", "target", "kernel", "seed", "provenance"]


def test_a_mixture_of_one_series_is_a_scaled_window_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MOST_SERIES", 1)
    line = np.arange(1.0, 401.0)
    rng, law = np.random.default_rng(0), MixtureLaw([400])
    for mixed in (law.draw(rng).of([line]) for _ in range(20)):
        start = next(s for s in range(400) if np.allclose(mixed, scale_by_mean(line[s : s + len(mixed)]), rtol=1e-5))
        assert start + len(mixed) <= 400


def test_weights_are_convex_and_symmetric_dirichlet() -> None:
    # Windows of +1 and of -1 stay +-1 when scaled, so a mixture's level tells its weights.
    rng = np.random.default_rng(1)
    levels = np.array([m[0] for m in islice(tsmixup([np.ones(128), -np.ones(128)], rng), 4000)])
    assert np.abs(levels).max() <= 1 + 1e-6
    # E[level^2] of k windows of random sign: sum E w^2 = k (a + 1) / (k (k a + 1)), a = 1.5
    expected = np.mean([2.5 / (1.5 * k + 1) for k in (1, 2, 3)])
    assert np.mean(levels**2) == pytest.approx(expected, abs=4 * np.std(levels**2) / np.sqrt(4000))


def test_lengths_are_uniform_up_to_the_longest_series_and_windows_fit() -> None:
    series = [np.full(128, 1.0), np.full(300, 2.0)]
    lengths = np.array([len(m) for m in islice(tsmixup(series, np.random.default_rng(2)), 3000)])
    assert (lengths.min(), lengths.max()) == (128, 300)
    assert lengths.mean() == pytest.approx((128 + 300) / 2, abs=4 * 173 / np.sqrt(12 * 3000))


def test_missing_steps_stay_missing_and_do_not_enter_the_scale() -> None:
    np.testing.assert_array_equal(scale_by_mean(np.array([1.0, np.nan, -3.0])), [0.5, np.nan, -1.5])
    values = np.ones(130)
    values[64] = np.nan
    assert np.isnan(next(tsmixup([values], np.random.default_rng(0)))).sum() == 1


@pytest.mark.parametrize("values", [np.zeros(4), np.full(4, np.nan)])
def test_a_window_without_a_scale_is_left_as_it_is(values: np.ndarray) -> None:
    np.testing.assert_array_equal(scale_by_mean(values), values)


@pytest.mark.parametrize(("series", "longest"), [([np.ones(127)], 127), ([], 0)])
def test_what_cannot_be_mixed_is_refused_at_the_call(series: list, longest: int) -> None:
    with pytest.raises(ValueError, match=f"expected a series of at least 128 steps, got at most {longest}"):
        tsmixup(series, np.random.default_rng(0))

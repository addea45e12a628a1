from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from stages.commands.corpora import _check_same_spec, make, plan
from stages.config.params import ParamsError
from tasks.sweep.cluster import Resources
from tsfmscope.cli.app import app

ROOT = Path(__file__).resolve().parents[3]
LAW: dict[str, Any] = {
    "seed": 1, "length": 64, "max_kernels": 5, "tsmixup": 0.0, "pool": 0, "real": [], "shard": 100,
    "format": "parquet",
}  # fmt: skip


def _run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tsfmscope", "corpus", str(folder), "--length", "64", "--shard", "100", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


def _hashes(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((folder / "dumps" / "corpus").iterdir())
    }


def test_shards_are_cut_by_index_and_more_series_keep_the_whole_ones() -> None:
    few, more = (list(plan(LAW, series)) for series in (250, 1000))
    assert [one.job.spec["first"] for one in few] == [0, 100, 200]
    assert [one.job.spec["count"] for one in few] == [100, 100, 50]
    assert [one.job.key for one in few][:2] == [one.job.key for one in more][:2]
    assert few[2].job.key != more[2].job.key


def test_every_source_can_be_planned_and_the_default_has_the_keys_of_before_the_option() -> None:
    keys = {
        source: [one.job.key for one in plan({**LAW, "source": source}, 250)] for source in ("kernelsynth", "priors")
    }
    assert keys["kernelsynth"] == [one.job.key for one in plan(LAW, 250)]
    assert not set(keys["kernelsynth"]) & set(keys["priors"])


@pytest.mark.parametrize(
    ("former", "changes", "series", "message"),
    [
        ({}, {"seed": 2}, 500, "contains a corpus with seed 1, requested 2; name another folder"),
        ({}, {"format": "arrow"}, 500, "contains a corpus with format 'parquet', requested 'arrow'"),
        ({}, {}, 499, "contains a corpus of 500 series, requested 499; request at least as many"),
        ({}, {"source": "priors"}, 500, "contains a corpus with source 'kernelsynth', requested 'priors'; name"),
        ({"source": "priors"}, {"source": "kernelsynth"}, 500, "with source 'priors', requested 'kernelsynth'"),
    ],
)
def test_a_folder_with_another_corpus_is_left_as_it_is(
    tmp_path: Path, former: dict, changes: dict, series: int, message: str
) -> None:
    spec = {**LAW, **former, "series": 500}
    (tmp_path / "corpus.json").write_text(json.dumps(spec))
    with pytest.raises(ParamsError, match=message):
        make(tmp_path, {**LAW, **changes}, series, Resources())
    assert json.loads((tmp_path / "corpus.json").read_text()) == spec
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.json"]


@pytest.mark.parametrize("former", [{}, {"source": "priors"}])
def test_the_same_request_leaves_the_file_as_it_is_which_keys_of_trainings_contain(
    tmp_path: Path, former: dict
) -> None:
    path = tmp_path / "corpus.json"
    path.write_text(json.dumps({**LAW, **former, "series": 500}, indent=2) + "\n")
    before = path.read_bytes()
    requested = former or {"source": "kernelsynth"}
    _check_same_spec(path, {**LAW, **requested, "series": 500})
    assert path.read_bytes() == before


def test_real_series_that_cannot_be_read_are_named_and_the_folder_stays_free(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    for name, words in (("nope.parquet", "no such file"), ("mine.csv", "mine.csv")):
        law = LAW | {"real": [str(tmp_path / name)]}
        with pytest.raises(ParamsError, match=f"--real .*{name}: .*{words}"):
            make(tmp_path / "corpus", law, 10, Resources())
    assert not (tmp_path / "corpus").exists()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("source", ["priors", "kernelsynth"])
def test_the_files_are_the_same_whatever_the_workers_and_whatever_was_there(tmp_path: Path, source: str) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    first = _run(one, "--source", source, "--series", "950", "--actors", "1")
    assert first.returncode == 0, first.stderr
    assert "10 jobs, 10 done, 0 failed" in first.stdout
    shutil.copytree(one, two)
    for shard in (2, 5, 9):
        (two / "dumps" / "corpus" / f"{shard:06d}.parquet").unlink()
    second = _run(two, "--source", source, "--series", "950", "--actors", "2")
    assert "7 from before" in second.stdout and "0 failed" in second.stdout, second.stdout
    assert _hashes(one) == _hashes(two)
    rows = [row for name in sorted(_hashes(one)) for row in pq.read_table(one / "dumps" / "corpus" / name).to_pylist()]
    assert [row["series"] for row in rows] == [f"{source}-{index:06d}" for index in range(950)]


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tsfmscope", "corpus", str(tmp_path), "--series", "12000", "--shard", "300"]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 200
        while len(list((tmp_path / "dumps").rglob("corpus/0*.parquet"))) < 4:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGKILL)
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert found.returncode == 0, found.stderr
    assert "40 jobs" in found.stdout and "0 failed" in found.stdout
    assert len(_hashes(tmp_path)) == 40


@pytest.mark.parametrize("option", ["--series", "--shard", "--pool"])
def test_a_number_of_series_without_a_bound_is_refused_before_anything_is_written(tmp_path: Path, option: str) -> None:
    done = CliRunner().invoke(app, ["corpus", str(tmp_path / "corpus"), option, str(10**20)])
    assert done.exit_code == 2
    assert "1000000000" in done.output
    assert not (tmp_path / "corpus").exists()

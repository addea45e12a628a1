"""A sweep of jobs through the engine into a shared folder, its driver killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from stages.config.params import ParamsError, load
from store import files
from store.stage_outputs import read_rows

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COUNT, SLEEP = 40, "0.1"


def start(shared: Path, folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": f"{HERE}{os.pathsep}{ROOT}", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, str(HERE / "shared_store_toy.py"), str(shared), str(folder), str(COUNT), SLEEP]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sweep_whose_driver_is_killed_goes_on_from_what_the_shared_folder_has(tmp_path: Path) -> None:
    """Workers write dumps there themselves; of the killed run, what its parts hold is not done again."""
    log, shared = tmp_path / "log", tmp_path / "shared"
    folder = shared / "toy"
    with start(shared, tmp_path) as first:
        deadline = time.monotonic() + 120
        while not any(folder.glob("dumps/[!.]*.parquet")):
            assert time.monotonic() < deadline and first.poll() is None, first.communicate()
            time.sleep(0.05)
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
    before = log.read_text().split()
    assert len(before) < COUNT
    with start(shared, tmp_path) as second:
        said, errors = second.communicate()
    assert second.returncode == 0, errors
    done, reused = (int(word) for word in said.splitlines()[-1].split()[1::2])
    assert done + reused == COUNT
    assert reused > 0, "what was stored before the kill is not done again"
    rows = read_rows(tmp_path / "data" / "toy", "dumps")
    assert sorted(rows["condition"].to_pylist()) == [f"c{n:03d}" for n in range(COUNT)]
    assert len(set(rows["job_key"].to_pylist())) == COUNT
    for path, size, fingerprint in zip(
        *(rows[c].to_pylist()[:5] for c in ("path", "bytes", "fingerprint")), strict=True
    ):
        assert ((folder / path).stat().st_size, files.fingerprint(folder / path)) == (size, fingerprint)
    held = [p.name for p in (tmp_path / "data" / "toy").rglob("*") if p.is_file()]
    assert held == ["manifest.json"]


@pytest.mark.parametrize("store", ["s3://bucket/prefix", "file:///shared/folder", "shared/folder", "~/folder", "", "/"])
def test_a_store_that_is_no_absolute_path_is_refused_with_its_key(tmp_path: Path, store: str) -> None:
    block = yaml.safe_load((ROOT / "params" / "smoke.yaml").read_text())
    block.setdefault("resources", {})["store"] = store
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(block))
    with pytest.raises(
        ParamsError, match=rf"params.yaml: resources\.store: .*expected the absolute path of a folder .*{store}"
    ):
        load(tmp_path / "params.yaml")


def test_a_store_may_be_an_absolute_path(tmp_path: Path) -> None:
    block = yaml.safe_load((ROOT / "params" / "smoke.yaml").read_text())
    block.setdefault("resources", {})["store"] = "/shared/a b"
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(block))
    assert load(tmp_path / "params.yaml").resources.store == "/shared/a b"

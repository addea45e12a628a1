"""A sweep of jobs through the engine onto a store elsewhere, its driver killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.store.s3 import s3  # noqa: F401  the fixture
from tsfmscope.stages.config.params import ParamsError, load
from tsfmscope.store.objects import Remote
from tsfmscope.store.stage_outputs import read_rows

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COUNT, SLEEP = 40, "0.1"


def start(uri: str, folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": f"{HERE}{os.pathsep}{ROOT}", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, str(HERE / "remote_toy.py"), uri, str(folder), str(COUNT), SLEEP]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sweep_whose_driver_is_killed_goes_on_from_what_the_object_store_has(s3: str, tmp_path: Path) -> None:  # noqa: F811
    """Workers write dumps to the URI themselves; of the killed run, what its parts hold is not done again."""
    log, at = tmp_path / "log", Remote.parse(f"{s3}/sweep/toy")
    with start(f"{s3}/sweep", tmp_path) as first:
        deadline = time.monotonic() + 120
        while not any("/rows/dumps/" in one.key for one in at.list()):
            assert time.monotonic() < deadline and first.poll() is None, first.communicate()
            time.sleep(0.05)
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
    stored = sum("/rows/dumps/" in one.key for one in at.list())
    assert stored
    before = log.read_text().split()
    assert len(before) < COUNT
    with start(f"{s3}/sweep", tmp_path) as second:
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
        assert ((at / path).head().size, (at / path).fingerprint()) == (size, fingerprint)
    held = [p.name for p in (tmp_path / "data" / "toy").rglob("*") if p.is_file()]
    assert held == ["manifest.json"], "no dump went through this machine's disk"


@pytest.mark.parametrize(
    "uri", ["s3://bucket", "s3://bucket/", "/shared/folder", "gs://b/p", "file://host/x", "s3:///x"]
)
def test_a_store_that_is_no_uri_of_one_is_refused_with_its_key(tmp_path: Path, uri: str) -> None:
    block = yaml.safe_load((ROOT / "params" / "smoke.yaml").read_text())
    block.setdefault("resources", {})["store"] = uri
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(block))
    with pytest.raises(ParamsError, match=r"params.yaml: resources\.store: .*expected s3://BUCKET/PREFIX"):
        load(tmp_path / "params.yaml")


@pytest.mark.parametrize("uri", ["s3://bucket/a/b-c", "file:///shared/a%20b"])
def test_a_store_may_be_a_prefix_or_a_folder(tmp_path: Path, uri: str) -> None:
    block = yaml.safe_load((ROOT / "params" / "smoke.yaml").read_text())
    block.setdefault("resources", {})["store"] = uri
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(block))
    assert load(tmp_path / "params.yaml").resources.store == uri

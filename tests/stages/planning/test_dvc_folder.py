"""Real DVC in a small repository: an unreadable table of running stages, damaged files, and a cache of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stages.commands.doctor import check_tools
from stages.planning.dvc_folder import delete_unreadable_rwlock, protect_site_cache

ROOT = Path(__file__).parents[3]
PREPARE = [sys.executable, "-m", "stages.planning.dvc_folder"]
DVC_YAML = "stages:\n  copy:\n    cmd: cp source copy\n    deps: [source]\n    outs: [copy]\n"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def dvc(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "dvc", *arguments)


@pytest.fixture(scope="module")
def initialized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with our settings and one stage; tests have copies."""
    folder = tmp_path_factory.mktemp("repository")
    with contextlib.chdir(folder):
        assert dvc("init", "--no-scm").returncode == 0
    shutil.copy2(ROOT / ".dvc" / "config", folder / ".dvc" / "config")
    (folder / ".dvc" / "config.local").write_text("[core]\n    no_scm = true\n")
    (folder / "dvc.yaml").write_text(DVC_YAML)
    (folder / "source").write_text("text")
    return folder


@pytest.fixture
def repository(initialized: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(initialized, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_SITE_CACHE_DIR", raising=False)
    return tmp_path


def problems() -> dict[str, str]:
    return {check.name: f"{check.value}; {check.fix}" for check in check_tools() if check.state == "missing"}


@pytest.mark.parametrize("text", ["", '{"write": {"/a', "[]"], ids=["empty", "cut off", "list"])
def test_a_table_that_a_killed_dvc_left_is_deleted_unless_another_dvc_is_at_work(
    repository: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rwlock = repository / ".dvc" / "tmp" / "rwlock"
    rwlock.write_text(text)
    assert "rwlock is unreadable" in problems()["dvc"]
    with (repository / ".dvc" / "tmp" / "rwlock.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        delete_unreadable_rwlock()
        assert rwlock.read_text() == text
    delete_unreadable_rwlock()
    assert not rwlock.exists() and problems() == {}
    delete_unreadable_rwlock()
    assert capsys.readouterr().err == "deleted .dvc/tmp/rwlock, which a killed dvc had left unreadable\n"


def test_a_run_continues_after_dvc_was_killed_while_it_wrote_its_table(repository: Path) -> None:
    rwlock = repository / ".dvc" / "tmp" / "rwlock"
    rwlock.write_text("")
    failed = dvc("repro")
    assert failed.returncode and "rwlock" in failed.stderr
    assert run(*PREPARE).returncode == 0
    assert dvc("repro").returncode == 0
    assert (repository / "copy").read_text() == "text"
    before = rwlock.read_text()
    assert run(*PREPARE).stderr == ""
    assert rwlock.read_text() == before


def test_a_run_continues_after_that_where_locks_are_hard_links(repository: Path) -> None:
    """DVC deletes such a lock after use, and takes any file in its place as a `dvc` at work."""
    (repository / ".dvc" / "config.local").write_text("[core]\n    no_scm = true\n    hardlink_lock = true\n")
    (repository / ".dvc" / "tmp" / "rwlock").write_text("")
    (repository / "source").write_text("other text")
    delete_unreadable_rwlock()
    done = dvc("repro")
    assert (done.returncode, (repository / "copy").read_text()) == (0, "other text"), done.stderr


def test_make_repro_prepares_dvc_s_files_first() -> None:
    command = ["make", "--no-print-directory", "-n", "repro"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    assert lines[-3:-1] == ["python -m stages.planning.dvc_folder", "dvc repro"]


@pytest.mark.parametrize("name", ["dvc.lock", "dvc.yaml"])
def test_doctor_names_a_file_with_marks_of_a_merge_conflict_or_without_its_end(repository: Path, name: str) -> None:
    text = "schema: '2.0'\n<<<<<<< HEAD\nstages: {}\n=======\nstages: {a: {}}\n>>>>>>> other\n"
    (repository / name).write_text(text)
    found = problems()
    assert list(found) == [name]
    assert "line 2 is a marker of a merge conflict; `git checkout --ours" in found[name]
    (repository / name).write_text("schema: '2.0'\nstages: {a: {cmd: '")
    assert "not YAML" in problems()[name]


def test_other_users_cannot_write_what_dvc_unpickles(repository: Path) -> None:
    """DVC makes its own folders writable for everyone, so they must lie in one that nobody else can enter."""
    (repository / ".dvc").chmod(0o755)
    assert dvc("repro").returncode == 0
    cache = repository / ".dvc_site_cache"
    assert list(cache.rglob("*.db"))
    protect_site_cache()
    assert cache.stat().st_mode & 0o777 == 0o700
    assert dvc("repro").returncode == 0
    assert cache.stat().st_mode & 0o777 == 0o700
    # A group that works in one checkout keeps its access.
    (repository / ".dvc").chmod(0o775)
    protect_site_cache()
    assert cache.stat().st_mode & 0o777 == 0o770


STAGE = """
from pathlib import Path
from store.stage_store import StageStore

timing = {"seconds": 1.0, "load_seconds": 0.0, "actor": "a", "node": "n", "device": "cpu", "started": 1e9}
row = {"model": "m", "step": 0, "loss": 1.0, "learning_rate": 0.1}
record = {"key": "k", "task": "t", "spec": "{}", "table": "training", "rows": [row], "error": None, "timing": timing}
with StageStore(Path("data/s"), tables=["training"], companion=Path("data/timings/s"), stage="s") as out:
    out.append([record] if out.missing("k") else [])
    print(out.finish("k"))
"""


@pytest.mark.parametrize("link", ["data", pytest.param("data/s", marks=pytest.mark.slow)])
def test_results_may_lie_on_another_disk(repository: Path, tmp_path_factory: pytest.TempPathFactory, link: str) -> None:
    disk = tmp_path_factory.mktemp("disk")
    (repository / link).parent.mkdir(exist_ok=True)
    (repository / link).symlink_to(disk)
    if link != "data":
        (repository / ".dvc" / "config.local").unlink()
        assert run("git", "init", "--quiet").returncode == 0
    (repository / "stage.py").write_text(STAGE)
    out = "{data/s: {persist: true}}"
    (repository / "dvc.yaml").write_text(f"stages: {{s: {{cmd: {sys.executable} stage.py, outs: [{out}]}}}}")
    assert "'done': 1" in dvc("repro").stdout
    assert "up to date" in dvc("repro").stdout
    # A second run finds the stored row.
    assert "'reused': 1" in dvc("repro", "--force").stdout
    rows = sorted(disk.rglob("training/*.parquet"))
    content = rows[0].read_bytes()
    rows[0].unlink()
    assert dvc("checkout").returncode == 0
    assert rows[0].read_bytes() == content
    assert (repository / link).is_symlink()

"""Commands that cannot write where they are told to: one line, the documented code, before any work is done."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tsfmscope.errors import ArgumentError
from tsfmscope.output_folder import PROBE, check_new, check_writable

ROOT = Path(__file__).resolve().parents[2]
BOLT = f"chronos-bolt:{ROOT / 'tsfmscope' / 'checkpoints' / 'chronos-bolt-mini'}"
COMMANDS = {
    "compress": ("tsfmscope", "compress", BOLT, "{}", "--data", "nile", "--context", "64"),
    "export": (
        "tsfmscope",
        "export",
        str(ROOT / "tsfmscope" / "checkpoints" / "chronos-bolt-mini"),
        "{}",
        "--family",
        "chronos-bolt",
    ),
    "corpus": ("tsfmscope", "corpus", "{}", "--series", "2", "--length", "64"),
}


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    module, *arguments = command
    line = [sys.executable, "-m", module, *arguments]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with params.yaml and a file where a folder would have to be."""
    (tmp_path / "params.yaml").write_text((ROOT / "params" / "smoke.yaml").read_text())
    (tmp_path / "file").touch()
    return tmp_path


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few blocks."""
    where = tmp_path / "small"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(where)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a file system")
    yield where
    subprocess.run(["umount", str(where)], check=True)


def test_a_folder_is_new_or_empty_and_can_be_written(tmp_path: Path) -> None:
    check_new(tmp_path / "a" / "b")
    assert (tmp_path / "a").is_dir() and not (tmp_path / "a" / "b").exists()
    check_new(tmp_path / "a")
    (tmp_path / "a" / "b").touch()
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises(ArgumentError, match="is there already, and not empty; name a new folder"):
            check_new(folder)
    check_writable(tmp_path / "a")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for folder in (tmp_path / "a" / "b" / "c", Path("/proc/1/x"), loop / "a", tmp_path / ("x" * 300)):
        with pytest.raises(ArgumentError, match=r"cannot be written .*; name another folder"):
            check_new(folder)


def test_a_full_file_system_is_found_before_any_work(mounted: Path) -> None:
    check_new(mounted / "a")
    (mounted / "full").write_bytes(PROBE * 4)
    with pytest.raises(ArgumentError, match="cannot be written \\(No space left on device\\)"):
        check_new(mounted / "a")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_under_a_file_is_one_line_and_code_2(here: Path, command: str) -> None:
    done = run(here, *(part.format("file/made") for part in COMMANDS[command]))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "file/made: cannot be written (" in done.stderr
    assert {path.name for path in here.iterdir()} == {"params.yaml", "file"}


@pytest.mark.slow
def test_a_picture_for_which_there_is_no_room_is_one_line(here: Path, mounted: Path) -> None:
    (mounted / "full").write_bytes(PROBE * 4)
    done = run(here, "tsfmscope", "inspect", BOLT, "nile", "--out", str(mounted / "a.html"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("command", [("tsfmscope", "--version"), ("tsfmscope", "tables", "runs")])
def test_output_that_nobody_can_take_is_one_line(here: Path, command: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        line = [sys.executable, "-m", *command]
        done = subprocess.run(line, cwd=here, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1

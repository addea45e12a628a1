"""Files of users that are pipes, devices or links to nowhere, and output folders that cannot be written.

Both are one error at once, before any work.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.small_disk import mount_small_disk
from tsfmscope.compression.onnx_forecaster import OnnxForecaster, open_session
from tsfmscope.errors import ArgumentError, DataError, ModelError, TsfmscopeError
from tsfmscope.files import PROBE, check_new, check_regular, check_writable, open_regular, read_bytes, read_text
from tsfmscope.models import registry
from tsfmscope.models.common.checkpoint_folder import LARGEST_TEXT
from tsfmscope.models.lag_llama import read_lightning
from tsfmscope.series.files.sources import load_parquet
from tsfmscope.series.files.user_files import load_own
from tsfmscope.series.other_modalities import documents, images

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).resolve().parents[2]
BOLT = f"chronos-bolt:{ROOT / 'tsfmscope' / 'checkpoints' / 'chronos-bolt-mini'}"
COMMANDS = {
    "compress": ("tsfmscope", "compress", BOLT, "{}", "--data", "nile", "--context", "64", "--method", "joint"),
    "export": ("tsfmscope", "export", BOLT, "{}"),
    "corpus": ("tsfmscope", "corpus", "{}", "--series", "2", "--length", "64"),
}


def loop(path: Path) -> None:
    path.symlink_to(path)


def zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


ODD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "pipe": (os.mkfifo, "expected a regular file, got a named pipe"),
    "device": (zero, "expected a regular file, got a device"),
    "loop": (loop, "Too many levels of symbolic links"),
    "folder": (Path.mkdir, "expected a regular file, got a folder"),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("read", [check_regular, open_regular, lambda path: read_bytes(path, 9)])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str, read: Callable[[Path], Any]) -> None:
    make, expected = ODD[kind]
    make(tmp_path / "odd")
    with pytest.raises(OSError, match=expected):
        read(tmp_path / "odd")


def test_a_regular_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "link"
    (tmp_path / "file").write_text("grün")
    path.symlink_to("file")
    assert (check_regular(path), read_text(path, 5)) == (5, "grün")
    with pytest.raises(OSError, match="expected at most 4 bytes, got 5"):
        read_text(path, 4)


@pytest.mark.parametrize("kind", ["pipe", "device", "loop"])
@pytest.mark.parametrize(("name", "read"), [
    ("a.parquet", load_parquet),
    ("a.parquet", lambda path: load_own(path, name="mine")),
    ("a.csv", lambda path: load_own(path, name="mine")),
    ("a.csv.gz", lambda path: load_own(path, name="mine")),
    ("a.txt", lambda path: list(documents("text", path))),
    ("a.npz", lambda path: list(images("images", path))),
])  # fmt: skip
def test_a_file_of_data_that_is_none_is_an_error_that_names_it(
    tmp_path: Path, kind: str, name: str, read: Callable[[Path], Any]
) -> None:
    ODD[kind][0](tmp_path / name)
    with pytest.raises(DataError, match=f"{name}.*{ODD[kind][1]}"):
        read(tmp_path / name)


@pytest.mark.parametrize("kind", ["pipe", "device", "loop"])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "generation_config.json", "tokenizer.json"])
def test_a_file_of_a_checkpoint_that_is_none_is_an_error_that_names_it(tmp_path: Path, kind: str, name: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "tsfmscope" / "checkpoints" / "chronos-bolt-mini", folder)
    (folder / name).unlink(missing_ok=True)
    ODD[kind][0](folder / name)
    for read in (registry.fingerprint, registry.family_class("chronos-bolt").load):
        # The fingerprint covers what families read, of which a name that leads nowhere is not there.
        skipped = name == "generation_config.json" or (kind == "loop" and name != "model.safetensors")
        if read is registry.fingerprint and skipped:
            continue
        with pytest.raises(ModelError, match=f"{name}: {ODD[kind][1]}"):
            read(folder)


def test_a_pickled_checkpoint_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lag-llama.ckpt")
    with pytest.raises(ModelError, match="got a named pipe"):
        read_lightning(tmp_path / "lag-llama.ckpt")


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data"])
def test_an_onnx_model_that_is_no_file_is_an_error_that_names_it(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    (tmp_path / "onnx.json").write_text(json.dumps({"family": "x", "context": 8, "horizon": 2, "levels": [0.5]}))
    (tmp_path / name).unlink(missing_ok=True)
    ODD[kind][0](tmp_path / name)
    for read in (lambda: open_session(tmp_path / "model.onnx"), lambda: OnnxForecaster.load(tmp_path)):
        with pytest.raises(ModelError, match=f"{name}: {ODD[kind][1]}; run `tsfmscope export --onnx` again") as caught:
            read()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ODD)
def test_checksums_that_are_no_file_are_an_error_that_names_them(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "tsfmscope" / "checkpoints" / "moirai-mini", folder)
    (folder / "checksums.sha256").unlink()
    ODD[kind][0](folder / "checksums.sha256")
    with pytest.raises(ModelError, match=f"checksums.sha256: {ODD[kind][1]}"):
        registry.resolve(str(folder))


def test_a_tokenizer_too_large_to_be_one_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "tsfmscope" / "checkpoints" / "chronos-bolt-mini", folder)
    (folder / "tokenizer.json").touch()
    os.truncate(folder / "tokenizer.json", LARGEST_TEXT + 1)
    with pytest.raises(TsfmscopeError, match=r"tokenizer\.json: expected at most"):
        registry.family_class("chronos-bolt").load(folder)


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
    with mount_small_disk(tmp_path / "small", 16 * 2**10) as folder:
        yield folder


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

"""`tsfmscope export` writes both kinds of folder in a fresh process, and refuses in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tsfmscope.compression.export import save
from tsfmscope.errors import ArgumentError
from tsfmscope.functions.export import export
from tsfmscope.functions.load import load
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.common.attention import Widths, shapes
from tsfmscope.models.registry import facts
from tsfmscope.series.types import Windows

ROOT = Path(__file__).parents[3]
SHAPE = {"d_model": 16, "d_ff": 24, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
SHAPE |= {"context_length": 32, "prediction_length": 8, "input_patch_size": 8, "input_patch_stride": 8}


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, model = tmp_path_factory.mktemp("model") / "bolt", ChronosBolt.new(SHAPE, seed=0)
    for layer in model.attentions():
        layer.write(layer.read().slice_heads(Widths(3, 2)))
    model.compression = {"widths": shapes(model.attentions())}
    save(model, folder)
    return folder


def test_the_command_writes_a_dense_folder_in_a_process_of_its_own(compressed: Path, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "tsfmscope", "export", str(compressed), "out", "--dense", "--family", "chronos-bolt",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "as any chronos-bolt checkpoint" in done.stdout
    ChronosBolt.new(SHAPE, seed=0).save(tmp_path / "original")
    assert (tmp_path / "out" / "config.json").read_text() == (tmp_path / "original" / "config.json").read_text()
    assert facts(tmp_path / "out")["parameters"] == facts(tmp_path / "original")["parameters"]
    values = np.random.default_rng(0).normal(size=(3, 40)).cumsum(axis=1).astype(np.float32)
    windows = Windows(values[:, :32], values[:, 32:], ["a", "b", "c"], np.full(3, 32), "walks", "D", 1)
    dense, narrow = (
        ChronosBolt.load(one).forecast(windows, seeds=[0] * 3).values for one in (tmp_path / "out", compressed)
    )
    assert np.ptp(narrow) > 1e-3
    np.testing.assert_allclose(dense, narrow, rtol=0, atol=1e-5 * np.abs(narrow).max())


def test_without_dense_it_is_as_narrow_and_says_how_to_load_it(compressed: Path, tmp_path: Path) -> None:
    exported = export(load(compressed, family="chronos-bolt"), tmp_path / "out", dense=False)
    assert exported.is_compressed and "tsfmscope.compression.export.pipeline(" in exported.loader
    assert (tmp_path / "out" / "config.json").read_text() == (compressed / "config.json").read_text()
    ours, theirs = (load_file(one / "compressed.safetensors") for one in (tmp_path / "out", compressed))
    assert ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_a_model_that_was_never_compressed_stays_what_it_is(tmp_path: Path) -> None:
    ChronosBolt.new(SHAPE, seed=0).save(tmp_path / "in")
    exported = export(load(tmp_path / "in", family="chronos-bolt"), tmp_path / "out", dense=True)
    assert not exported.was_compressed and not exported.is_compressed
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (tmp_path / "in" / "model.safetensors").read_bytes()


def test_a_model_that_runs_in_bfloat16_is_written_as_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ChronosBolt.new(SHAPE, seed=0).save(tmp_path / "in")
    model = load(tmp_path / "in", family="chronos-bolt", precision="bfloat16")
    export(model, tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (tmp_path / "in" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("name", "family", "wrong"), [
    ("chronos-t5-minni", None, "did you mean chronos-t5-"),
    ("nothing/of/the/kind", None, "expected a bundled model, a folder"),
    (".", None, "names no known family; pass one with --family"),
    (".", "chronos-9", "unknown family 'chronos-9'"),
    ("chronos-t5-mini", "moirai", "is of family chronos-t5; leave the family out"),
])  # fmt: skip
def test_a_name_that_cannot_be_used_is_named(tmp_path: Path, name: str, family: str | None, wrong: str) -> None:
    with pytest.raises(ArgumentError, match=wrong):
        export(load(name, family=family), tmp_path / "out", dense=True)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_files_is_left_alone(compressed: Path) -> None:
    with pytest.raises(ArgumentError, match="not empty; name a new folder"):
        export("chronos-t5-mini", compressed, dense=True)

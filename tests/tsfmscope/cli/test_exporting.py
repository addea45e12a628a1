"""`tsfmscope export` writes both kinds of folder in a fresh process, and refuses in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner, Result

from tsfmscope.cli.app import app
from tsfmscope.compression.export import save
from tsfmscope.functions.export import export
from tsfmscope.functions.load import load
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.common.attention import Widths, shapes
from tsfmscope.models.registry import facts
from tsfmscope.series.types import Windows

ROOT = Path(__file__).parents[3]
SHAPE = {"d_model": 16, "d_ff": 24, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}

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


def test_a_checkpoint_of_a_family_without_a_package_is_loaded_with_this_one(tmp_path: Path) -> None:
    exported = export("lag-llama-mini", tmp_path / "out")
    assert exported.loader == f"as any lag-llama checkpoint, with tsfmscope.load({str(tmp_path / 'out')!r})"


def test_a_model_that_runs_in_bfloat16_is_written_as_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ChronosBolt.new(SHAPE, seed=0).save(tmp_path / "in")
    model = load(tmp_path / "in", family="chronos-bolt", precision="bfloat16")
    export(model, tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (tmp_path / "in" / "model.safetensors").read_bytes()


SHAPE |= {"context_length": 32, "prediction_length": 8, "input_patch_size": 8, "input_patch_stride": 8}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="tsfmscope", catch_exceptions=False)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ChronosBolt.new(SHAPE, seed=0).save(tmp_path / "bolt")
    (tmp_path / "checkpoints").symlink_to(ROOT / "tsfmscope" / "checkpoints")


def test_the_folder_has_the_model_and_its_description_and_the_output_the_facts(tmp_path: Path) -> None:
    done = run("export", "bolt", "out", "--onnx", "--family", "chronos-bolt", "--context", "16", "--json")
    assert done.exit_code == 0, done.stderr
    printed, written = json.loads(done.stdout), json.loads((tmp_path / "out" / "onnx.json").read_text())
    assert (printed["context"], printed["horizon"], printed["opset"]) == (16, 8, written["opset"])
    assert printed["difference"] <= 1e-4 and printed["torch_seconds"] > 0 and printed["onnxruntime_seconds"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bolt", "checkpoints", "out"]
    assert written["base_model"] == "bolt" and str(tmp_path) not in (tmp_path / "out" / "onnx.json").read_text()


def test_an_int8_model_is_certified_or_not_against_its_base(tmp_path: Path) -> None:
    # Of the checkpoints, PatchTST's is exported fastest: a third of the time of chronos-bolt-mini.
    done = run("export", "patchtst-mini", "int8", "--onnx", "--context", "64", "--horizon", "12", "--bits", "8")
    assert done.exit_code == 0, done.stderr
    assert " in float32 and " in done.stdout and done.stdout.rstrip().endswith(" in int8")
    data = ("--data", "nile", "--data", "co2", "--data", "sunspots", "--context", "64", "--horizon", "12")
    judged = run("certify", "patchtst-mini", "int8", *data, "--json")
    assert judged.exit_code == 3, judged.stderr
    ratios = [row["ratio"] for row in json.loads(judged.stdout)["tasks"]]
    assert len(ratios) == 3 and all(0.8 < ratio < 1.25 and ratio != 1 for ratio in ratios)
    longer = run("certify", "patchtst-mini", "int8", "--data", "nile", "--context", "64", "--horizon", "13")
    assert longer.exit_code == 1 and "horizon: got 13, expected at most 12" in longer.stderr


@pytest.mark.parametrize(("arguments", "code", "words"), [
    (("bolt", "out", "--bits", "5"), 2, "bits: got 5, expected one of 4, 8, 32"),
    (("chronos-t5-mini", "out"), 1, "family chronos-t5: expected one whose forecast is one forward pass"),
    (("bolt", "out", "--context", "33"), 2, "export bolt with onnx: context: got 33, expected 1 to 32"),
    (("bolt", "out", "--dense"), 2, "dense and onnx: got both, expected one"),
    (("bolt", "bolt"), 2, "bolt: is there already, and not empty; name a new folder"),
])  # fmt: skip
def test_what_cannot_be_exported_is_one_line_and_nothing_is_written(
    arguments: tuple[str, ...], code: int, words: str, tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    done = run("export", *arguments, "--onnx")
    assert done.exit_code == code and words in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_steps_without_onnx_are_refused() -> None:
    done = run("export", "bolt", "out", "--context", "16")
    assert done.exit_code == 2 and "context and horizon: got without onnx" in done.stderr
    done = run("export", "bolt", "out", "--bits", "8")
    assert done.exit_code == 2 and "bits: got without onnx" in done.stderr


@pytest.mark.parametrize("module", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_names_the_extra(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    done = run("export", "bolt", "out", "--onnx")
    assert done.exit_code == 1 and "pip install 'tsfmscope[onnx]'" in done.stderr, done.stderr
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".export-*"))

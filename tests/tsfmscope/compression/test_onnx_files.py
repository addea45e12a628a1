"""Weights above protobuf's 2 GiB are in a data file, which moves with the model and is missed if it is gone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tsfmscope.compression import onnx_export
from tsfmscope.compression.onnx_export import TOLERANCE, OnnxModel, pack_weights, quantise_onnx, write_onnx
from tsfmscope.compression.onnx_forecaster import DESCRIPTION, MODEL, OnnxForecaster, open_session, run_session
from tsfmscope.errors import ModelError
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.common import int8
from tsfmscope.models.common.scale import mean_and_deviation
from tsfmscope.series.types import Windows

DATA = f"{MODEL}.data"
SHAPE = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
SHAPE |= {"context_length": 32, "prediction_length": 8, "input_patch_size": 8, "input_patch_stride": 8}
# 2.3 GiB in float32.
LARGE = SHAPE | {"d_model": 1024, "d_ff": 56_000, "num_layers": 2, "num_decoder_layers": 2, "initializer_factor": 0.05}
LARGEST_PROTOBUF = 2**31
# What the commands do to the float32 model at last.
STEPS: dict[str, Callable[[Path], None]] = {
    "float32": lambda path: None,
    "int8": quantise_onnx,
    "int8 weights": pack_weights,
}


def make(shape: dict[str, float]) -> ChronosBolt:
    """Return a model whose weights are rounded to eight bits."""
    model = ChronosBolt.new(shape, seed=0)
    int8.round_weights(model.network)
    return model


def export(model: ChronosBolt, folder: Path) -> OnnxModel:
    return write_onnx(model, folder, context=None, horizon=None, origin={})


def walks() -> Windows:
    values = np.random.default_rng(5).normal(size=(6, 32)).cumsum(axis=1).astype(np.float32)
    return Windows(values, np.zeros((6, 8), np.float32), list("abcdef"), np.full(6, 32), "walks", "D", 1)


def forecast(folder: Path) -> np.ndarray:
    return run_session(open_session(folder / MODEL), walks().context, "D")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[OnnxModel, Path, OnnxModel, Path]:
    """One model, exported as one file and with a data file."""
    model, folder = make(SHAPE), tmp_path_factory.mktemp("exported")
    whole = export(model, folder / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_export, "LARGEST_FILE", 0)
        return whole, folder / "whole", export(model, folder / "parts"), folder / "parts"


@pytest.fixture
def folders(exported: tuple[OnnxModel, Path, OnnxModel, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Copies of the two exports, in another place."""
    return Path(shutil.copytree(exported[1], tmp_path / "whole")), Path(
        shutil.copytree(exported[3], tmp_path / "parts")
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_export_with_a_data_file_states_the_size_of_both(exported: tuple[OnnxModel, Path, OnnxModel, Path]) -> None:
    whole, _, parts, folder = exported
    sizes = {name: (folder / name).stat().st_size for name in (MODEL, DATA)}
    assert names(folder) == [MODEL, DATA, DESCRIPTION]
    assert json.loads((folder / DESCRIPTION).read_text())["files"] == sizes
    assert parts.bytes == sum(sizes.values()) and abs(parts.bytes / whole.bytes - 1) < 0.1
    assert parts.difference == whole.difference


@pytest.mark.parametrize("step", STEPS)
def test_a_data_file_changes_no_forecast_and_is_named_without_its_folder(
    step: str, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = folders
    STEPS[step](whole / MODEL)
    monkeypatch.setattr(onnx_export, "LARGEST_FILE", 0)
    STEPS[step](parts / MODEL)
    assert names(whole) == [MODEL, DESCRIPTION] and names(parts) == [MODEL, DATA, DESCRIPTION]
    moved = parts.rename(parts.parent / "moved")
    np.testing.assert_array_equal(forecast(moved), forecast(whole))
    # Each tensor lies behind the one before, and the file ends with the last.
    weights = [one for one in onnx.load(moved / MODEL, load_external_data=False).graph.initializer if one.external_data]
    places = [{entry.key: entry.value for entry in weight.external_data} for weight in weights]
    assert {place["location"] for place in places} == {DATA}
    ends = [0, *(int(place["offset"]) + int(place["length"]) for place in places)]
    assert all(int(place["offset"]) >= end for place, end in zip(places, ends, strict=False))
    assert ends[-1] == (moved / DATA).stat().st_size
    assert any(weight.data_type == TensorProto.INT8 for weight in weights) == (step != "float32")
    onnx.checker.check_model(str(moved / MODEL))


@pytest.mark.parametrize("step", ["int8", "int8 weights"])
def test_a_model_that_fits_after_rounding_is_one_file_again(
    step: str, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = folders
    monkeypatch.setattr(onnx_export, "LARGEST_FILE", (parts / DATA).stat().st_size - 1)
    for folder in folders:
        STEPS[step](folder / MODEL)
        assert names(folder) == [MODEL, DESCRIPTION]
    np.testing.assert_array_equal(forecast(parts), forecast(whole))


def test_a_data_file_that_is_missing_or_cut_is_named(folders: tuple[Path, Path]) -> None:
    data = folders[1] / DATA
    size = data.stat().st_size
    os.truncate(data, size - 4)
    with pytest.raises(ModelError, match=rf"{DATA}: expected the {size:,} bytes that .* found {size - 4:,}; copy all"):
        OnnxForecaster.load(data.parent)
    data.unlink()
    with pytest.raises(ModelError, match=rf"{DATA}: expected the {size:,} bytes that .* found no file; copy all"):
        OnnxForecaster.load(data.parent)


def test_a_description_without_files_is_loaded(folders: tuple[Path, Path]) -> None:
    path = folders[0] / DESCRIPTION
    description = json.loads(path.read_text())
    assert list(description.pop("files")) == [MODEL]
    path.write_text(json.dumps(description))
    assert OnnxForecaster.load(path.parent).horizon == 8


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_model_above_two_gibibytes_forecasts_as_torch_does_and_keeps_weights_of_eight_bits(tmp_path: Path) -> None:
    """It takes 7 GB of memory, 4 GB of disk and minutes."""
    model = make(LARGE)
    made = export(model, tmp_path)
    assert made.bytes > LARGEST_PROTOBUF and made.difference <= TOLERANCE
    assert names(tmp_path) == [MODEL, DATA, DESCRIPTION]
    own = model.forecast(walks(), levels=made.levels, seeds=[0] * 6).values
    del model
    quantiles = run_session(OnnxForecaster.load(tmp_path).session, walks().context, "D")
    scale = mean_and_deviation(walks().context)[1][:, None, None]
    assert np.abs((quantiles - own) / scale).max() <= TOLERANCE
    pack_weights(tmp_path / MODEL)
    assert names(tmp_path) == [MODEL, DESCRIPTION]
    assert (tmp_path / MODEL).stat().st_size < 0.3 * made.bytes
    np.testing.assert_array_equal(forecast(tmp_path), quantiles)

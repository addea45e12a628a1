"""ONNX models have the forecasts of the models that they were made from, in onnxruntime itself."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.tsfmscope.compression.conftest import TOYS
from tsfmscope.compression import onnx_export
from tsfmscope.compression.bits import round_network
from tsfmscope.compression.onnx_export import (
    TOLERANCE,
    OnnxModel,
    pack_weights,
    quantise_onnx,
    use_low_bit_products,
    write_onnx,
)
from tsfmscope.compression.onnx_forecaster import DESCRIPTION, MODEL, OnnxForecaster, open_session, run_session
from tsfmscope.compression.rounding import round_plainly
from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.models.base import Forecaster
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.common.attention import Widths, shapes
from tsfmscope.models.common.low_bits import find_grid
from tsfmscope.models.common.scale import mean_and_deviation
from tsfmscope.models.patchtst import PatchTST
from tsfmscope.models.registry import family_class, family_of_folder
from tsfmscope.models.timesfm_patches import frequency
from tsfmscope.series.types import Windows

CHECKPOINTS = Path(__file__).parents[3] / "tsfmscope" / "checkpoints"
# Every family of docs/compression.md, as a checkpoint and as a small model. The context is no multiple of a patch.
MODELS = (
    *("chronos-bolt-mini", "chronos-2-mini", "moirai-2-mini", "timesfm-mini", "timesfm-2.5-mini", "patchtst-mini"),
    *("patchtst-fm-mini", "ttm-mini", "toto-2-mini", "flowstate-mini"),
)  # fmt: skip
ONE_LAYER = {"num_layers": 1, "num_decoder_layers": 1, "num_hidden_layers": 1, "initializer_factor": 0.05}
ONE_LAYER |= {"encoder_num_layers": 1}
SMALL = {
    family: {key: ONE_LAYER.get(key, value) for key, value in family_class(family).example.items()}
    for family in (
        "chronos-2",
        "moirai-2",
        "timesfm",
        "timesfm-2.5",
        "patchtst",
        "patchtst-fm",
        "ttm",
        "toto-2",
        "flowstate",
    )  # chronos-bolt: with narrow heads, below
}
# A layer over time and one over series.
SMALL["toto-2"]["num_layers"] = 2
CONTEXT = 70
ORIGIN: dict[str, str | None] = {"base_model": "a-model", "license": None}
BOLT = {"d_model": 16, "d_ff": 24, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}

DATA = f"{MODEL}.data"
SHAPE = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}


BOLT |= {"context_length": 32, "prediction_length": 8, "input_patch_size": 8, "input_patch_stride": 8}
# Wide enough for weights to take most of the file. Patches as in the checkpoints.
WIDE = BOLT | {"d_model": 64, "d_ff": 128, "d_kv": 16, "context_length": 128, "prediction_length": 16}
WIDE |= {"input_patch_size": 16, "input_patch_stride": 16}
PATCHES = {"d_model": 16, "ffn_dim": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
PATCHES |= {"context_length": 32, "prediction_length": 8, "patch_length": 8, "patch_stride": 4}


def load(name: str) -> Forecaster:
    folder = CHECKPOINTS / name
    model = registry.load(str(family_of_folder(folder)), folder, options={})
    assert isinstance(model, Forecaster)
    return model


def series(context: int, horizon: int, freq: str = "D") -> Windows:
    """Other series than those that the export is checked with: gaps, short ones, large and small ones."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(9, context)).cumsum(axis=1).astype(np.float32)
    values[1, : context // 2] = np.nan
    values[2, rng.random(context) < 0.4] = np.nan
    values[3, -5:] = np.nan
    values[4, : context - 2] = np.nan
    values[5], values[6] = values[5] * 1e5 + 3e5, values[6] * 1e-4
    values[7] = np.abs(values[7])
    values[8] = 7.0
    count = len(values)
    future = np.zeros((count, horizon), np.float32)
    return Windows(values, future, [str(row) for row in range(count)], np.full(count, context), "walks", freq, 1)


def quantiles_of(session: Any, windows: Windows) -> np.ndarray:
    return run_session(session, windows.context, windows.freq)


def difference(model: Forecaster, quantiles: np.ndarray, windows: Windows, levels: tuple[float, ...]) -> float:
    own = model.forecast(windows, levels=levels, seeds=[0] * len(windows)).values
    assert quantiles.shape == own.shape and quantiles.dtype == np.float32
    scale = mean_and_deviation(windows.context)[1][:, None, None]
    return float(np.abs((quantiles.astype(np.float64) - own) / scale).max())


@pytest.mark.parametrize("name", MODELS)
def test_the_graph_of_a_family_has_the_forecasts_of_the_family(name: str) -> None:
    model = load(name)
    graph = model.forecast_graph()
    assert graph is not None
    for context, horizon in ((CONTEXT, 12), (graph.context, graph.horizon)):
        for freq in ("D", "W", "Q") if graph.reads_frequency else ("D",):
            windows = series(context, horizon, freq)
            inputs = [torch.from_numpy(windows.context)]
            if graph.reads_frequency:
                inputs.append(torch.full((len(windows),), frequency(freq)))
            with torch.inference_mode():
                quantiles = graph.make(context, horizon)(*inputs).numpy()
            assert difference(model, quantiles, windows, graph.levels) < 1e-5


def small(family: str) -> Forecaster:
    """A model of one layer with random weights: exporting takes a tenth of a checkpoint's time."""
    model = registry.family_class(family).new(SMALL[family], seed=0)
    assert isinstance(model, Forecaster)
    return model


# Families whose export takes a second or two; the others are slow tests.
QUICK = ("patchtst", "chronos-2")


@pytest.mark.parametrize("make", [
    *(
        pytest.param(partial(small, family), id=family, marks=[] if family in QUICK else [pytest.mark.slow])
        for family in SMALL
    ),
    *(pytest.param(partial(load, name), id=name, marks=[pytest.mark.slow, pytest.mark.long]) for name in MODELS),
])  # fmt: skip
def test_onnxruntime_forecasts_as_the_model_does(make: Callable[[], Forecaster], tmp_path: Path) -> None:
    model = make()
    graph = model.forecast_graph()
    assert graph is not None
    context = min(CONTEXT, graph.context - 2)
    exported = write_onnx(model, tmp_path, context=context, horizon=12, origin=ORIGIN)
    # The sinh of a scaled forecast multiplies the rounding of Toto.
    largest = TOLERANCE if model.name == "toto-2" else 1e-5
    assert exported.difference < largest and exported.torch_seconds > 0 and exported.onnxruntime_seconds > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [MODEL, DESCRIPTION]
    assert exported.bytes == (tmp_path / MODEL).stat().st_size
    session = open_session(tmp_path / MODEL)
    for freq in ("D", "W", "Q") if "frequency" in {one.name for one in session.get_inputs()} else ("D",):
        for rows in (slice(None), slice(1), slice(2, 5)):
            windows = series(context, 12, freq).take(rows)
            assert difference(model, quantiles_of(session, windows), windows, exported.levels) < largest
    check_description(tmp_path, session)


def check_description(folder: Path, session: Any) -> None:
    """onnx.json has the names, types and shapes that onnxruntime reports, and the opset of the file."""
    description = json.loads((folder / DESCRIPTION).read_text())
    types = {"float32": "tensor(float)", "int64": "tensor(int64)"}
    pairs = (description["inputs"], session.get_inputs()), (description["outputs"], session.get_outputs())
    for mine, theirs in pairs:
        assert [(one["name"], types[one["type"]], one["shape"]) for one in mine] == [
            (one.name, one.type, one.shape) for one in theirs
        ]
    assert description["opset"] == {one.domain: one.version for one in onnx.load(folder / MODEL).opset_import}[""]
    assert description["outputs"][0]["shape"] == ["batch", len(description["levels"]), description["horizon"]]
    assert description["base_model"] == "a-model" and description["check"]["tolerance"] == TOLERANCE


def test_int8_is_smaller_near_and_leaves_the_first_products_in_float32(tmp_path: Path) -> None:
    model = ChronosBolt.new(WIDE, seed=0)
    handlers = logging.getLogger().handlers.copy()
    exported = write_onnx(model, tmp_path, context=CONTEXT, horizon=12, origin=ORIGIN, bits=8)
    assert logging.getLogger().handlers == handlers
    assert sorted(path.name for path in tmp_path.iterdir()) == [MODEL, DESCRIPTION]
    assert exported.bytes == (tmp_path / MODEL).stat().st_size < 0.6 * exported.float_bytes
    assert TOLERANCE < exported.mean_difference < 0.1 and exported.mean_difference < exported.difference < 1
    description = json.loads((tmp_path / DESCRIPTION).read_text())
    assert description["bits"] == 8 and description["check"]["tolerance"] is None
    nodes = onnx.load(tmp_path / MODEL).graph.node
    weights = {one.name: one.dims for one in onnx.load(tmp_path / MODEL).graph.initializer}
    floats = [node for node in nodes if node.op_type == "MatMul" and node.input[1] in weights]
    # The residual block of the patches: its hidden layer and its skip connection read patches and their mask.
    assert [weights[node.input[1]][0] for node in floats] == [2 * 16, 2 * 16]
    # All others: 1 of that block, 6 of the encoder's layer, 10 of the decoder's, and 3 of the residual block after it.
    assert sum(node.op_type == "MatMulInteger" for node in nodes) == 1 + 6 + 10 + 3

    onnx_model, windows = OnnxForecaster.load(tmp_path), series(CONTEXT + 30, 5)
    levels = (0.1, 0.5, 0.9)
    found = onnx_model.forecast(windows, levels=levels, samples=1, seeds=[0] * len(windows))
    whole = run_session(onnx_model.session, windows.context[:, -CONTEXT:], "D")
    rows = [exported.levels.index(level) for level in levels]
    np.testing.assert_array_equal(found.values, whole[:, rows, :5])
    short = series(20, 5)
    padded = np.pad(short.context, ((0, 0), (CONTEXT - 20, 0)), constant_values=np.nan)
    np.testing.assert_array_equal(
        onnx_model.forecast(short, levels=levels, samples=1, seeds=[0] * len(short)).values,
        run_session(onnx_model.session, padded, "D")[:, rows, :5],
    )
    with pytest.raises(ModelError, match=r"horizon: got 13, expected at most 12, .* longer --horizon"):
        onnx_model.forecast(series(CONTEXT, 13), levels=levels, samples=1, seeds=[0] * 9)
    with pytest.raises(ModelError, match=r"levels: got \[0.05\], expected some of"):
        onnx_model.forecast(short, levels=(0.05, 0.5), samples=1, seeds=[0] * 9)


def test_four_bits_are_smaller_near_and_float32_in_between(tmp_path: Path) -> None:
    model = ChronosBolt.new(WIDE, seed=0)
    exported = write_onnx(model, tmp_path, context=CONTEXT, horizon=12, origin=ORIGIN, bits=4)
    assert exported.bytes == (tmp_path / MODEL).stat().st_size < 0.4 * exported.float_bytes
    assert TOLERANCE < exported.mean_difference < 0.2 and exported.mean_difference < exported.difference < 1
    description = json.loads((tmp_path / DESCRIPTION).read_text())
    assert description["bits"] == 4 and description["check"]["tolerance"] is None
    nodes = onnx.load(tmp_path / MODEL).graph.node
    assert sum(node.op_type == "MatMulNBits" for node in nodes) == 1 + 6 + 10 + 3  # as with eight bits
    quantiles = OnnxForecaster.load(tmp_path).forecast(series(CONTEXT, 12), levels=(0.5,), samples=1, seeds=[0] * 9)
    assert np.isfinite(quantiles.values).all()


def test_a_model_of_four_bits_keeps_its_forecasts_in_onnxruntimes_own_products(tmp_path: Path) -> None:
    model = ChronosBolt.new(WIDE, seed=0)
    round_network(model.network, 4)
    model.compression = {"method": "whole-model", "widths": shapes(model.attentions())}
    exported = write_onnx(model, tmp_path, context=CONTEXT, horizon=12, origin=ORIGIN, bits=4)
    assert exported.difference <= TOLERANCE and exported.bytes < 0.3 * exported.float_bytes
    assert any(node.op_type == "MatMulNBits" for node in onnx.load(tmp_path / MODEL).graph.node)


def test_flowstate_is_exported_in_four_bits(tmp_path: Path) -> None:
    """In int8, onnxruntime cannot compute it."""
    model = family_class("flowstate").new_example(seed=0)
    exported = write_onnx(model, tmp_path, context=60, horizon=12, origin=ORIGIN, bits=4)
    assert TOLERANCE < exported.difference < 5 and exported.bytes < exported.float_bytes


@pytest.mark.parametrize("text", ["{", "[]", '{"family": "chronos-bolt"}'])
def test_a_broken_description_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / DESCRIPTION).write_text(text)
    with pytest.raises(ModelError, match=r"onnx.json: expected the keys family, context, .* run `tsfmscope export"):
        OnnxForecaster.load(tmp_path)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> tuple[ChronosBolt, Path, OnnxModel]:
    """A model with narrow heads, the folder of its ONNX model, and what `write_onnx` returned."""
    model, folder = ChronosBolt.new(BOLT, seed=0), tmp_path_factory.mktemp("narrow")
    for layer in model.attentions():
        layer.write(layer.read().slice_heads(Widths(3, 2)))
    model.compression = {"method": "joint", "widths": shapes(model.attentions())}
    return model, folder, write_onnx(model, folder, context=None, horizon=None, origin=ORIGIN)


def test_an_int8_model_that_onnxruntime_cannot_compute_is_one_line(tmp_path: Path) -> None:
    """The products of FlowState's recurrence have no zero point that onnxruntime accepts."""
    model = family_class("flowstate").new_example(seed=0)
    with pytest.raises(ModelError, match=r"onnxruntime cannot compute the forecast .* export without --bits"):
        write_onnx(model, tmp_path, context=None, horizon=None, origin=ORIGIN, bits=8)


def test_a_model_with_narrow_heads_and_factors_is_exported(narrow: tuple[ChronosBolt, Path, OnnxModel]) -> None:
    model, folder, exported = narrow
    assert (exported.context, exported.horizon) == (32, 8)
    windows = series(32, 8)
    assert difference(model, quantiles_of(open_session(folder / MODEL), windows), windows, exported.levels) < 1e-5
    assert json.loads((folder / DESCRIPTION).read_text())["compression"]["method"] == "joint"


@pytest.mark.parametrize(
    "changes", [{"loss": "mse"}, {"distribution_output": "normal"}, {"use_cls_token": True, "pooling_type": "mean"}]
)
def test_every_head_of_patchtst_has_a_graph(changes: dict[str, object]) -> None:
    model, windows = PatchTST.new(PATCHES | changes, seed=0), series(20, 8)
    graph = model.forecast_graph()
    with torch.inference_mode():
        quantiles = graph.make(20, 8)(torch.from_numpy(windows.context)).numpy()
    assert difference(model, quantiles, windows, graph.levels) < 1e-5


@pytest.mark.parametrize(("family", "changes"), [
    ("ttm", {"use_decoder": False, "prediction_filter_length": 8, "context_length": 51}),
    ("toto-2", {"num_groups": 1, "use_xpos": False, "qk_norm": True, "variate_layer_first": True}),
    ("flowstate", {"scale_factor": 1.3, "mlp_type": "gated", "out_gating": False, "decoder_type": "hlegs"}),
])  # fmt: skip
def test_other_configs_have_a_graph(family: str, changes: dict[str, object]) -> None:
    model = family_class(family).new({**family_class(family).example, **changes}, seed=0)
    assert isinstance(model, Forecaster)
    graph = model.forecast_graph()
    assert graph is not None
    for horizon in (1, 5, min(graph.horizon, 30)):
        windows = series(29, horizon)
        with torch.inference_mode():
            quantiles = graph.make(29, horizon)(torch.from_numpy(windows.context)).numpy()
        assert difference(model, quantiles, windows, graph.levels) < 1e-5


@pytest.mark.parametrize(
    ("family", "changes"), [("ttm", {"resolution_prefix_tuning": True}), ("flowstate", {"base_season": 8.0})]
)
def test_a_forecast_that_depends_on_the_frequency_is_refused(
    family: str, changes: dict[str, object], tmp_path: Path
) -> None:
    model = family_class(family).new({**family_class(family).example, **changes}, seed=0)
    (name,) = changes
    with pytest.raises(ModelError, match=rf"family {family}: expected a forecast of the context alone, found .*{name}"):
        write_onnx(model, tmp_path, context=None, horizon=None, origin=ORIGIN)


def test_students_quantiles_are_those_of_scipy() -> None:
    from scipy import special

    from tsfmscope.models.graphs import student_coefficients, student_quantiles

    levels, df = np.array([0.01, 0.1, 0.5, 0.75, 0.99]), np.append(2 + np.logspace(-9, 6, 400), 1e300)
    quantiles = student_quantiles(torch.from_numpy(df)[None, None], torch.from_numpy(student_coefficients(levels)))[0]
    np.testing.assert_allclose(quantiles, special.stdtrit(df, levels[:, None]), rtol=0, atol=1e-11)


def test_a_wrong_graph_is_refused(
    narrow: tuple[ChronosBolt, Path, OnnxModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph is that of another model, so that it need not be exported, which takes 10 s."""

    def write_other(graph: object, context: int, horizon: int, path: Path, family: str) -> int:
        shutil.copy(narrow[1] / MODEL, path)
        return narrow[2].opset

    monkeypatch.setattr(onnx_export, "_trace", write_other)
    with pytest.raises(ModelError, match=r"differ from the model's own by .* standard deviation or the forecast's"):
        write_onnx(ChronosBolt.new(BOLT, seed=1), tmp_path, context=None, horizon=None, origin=ORIGIN)


def test_a_file_that_onnxruntime_cannot_run_is_named(tmp_path: Path) -> None:
    (tmp_path / MODEL).write_bytes(b"no model")
    with pytest.raises(ModelError, match=r"model.onnx: onnxruntime .* cannot run it .*; install a newer one"):
        open_session(tmp_path / MODEL)


@pytest.mark.parametrize(("name", "steps"), [("context", {"context": 33}), ("horizon", {"horizon": 9})])
def test_more_steps_than_one_pass_has_are_refused(name: str, steps: dict[str, int], tmp_path: Path) -> None:
    asked: dict[str, int | None] = {"context": None, "horizon": None} | steps
    with pytest.raises(ValueError, match=f"{name}: got .*, expected 1 to "):
        write_onnx(ChronosBolt.new(BOLT, seed=0), tmp_path, **asked, origin=ORIGIN)
    assert not list(tmp_path.iterdir())


SHAPE |= {"context_length": 32, "prediction_length": 8, "input_patch_size": 8, "input_patch_stride": 8}
# 2.3 GiB in float32.
LARGE = SHAPE | {"d_model": 1024, "d_ff": 56_000, "num_layers": 2, "num_decoder_layers": 2, "initializer_factor": 0.05}
LARGEST_PROTOBUF = 2**31
# What the commands do to the float32 model at last.
STEPS: dict[str, Callable[[Path], None]] = {
    "float32": lambda path: None,
    "int8": quantise_onnx,
    "int8 weights": pack_weights,
    "own products": use_low_bit_products,
}


def make_rounded(shape: dict[str, float]) -> ChronosBolt:
    """Return a model whose weights are rounded to eight bits."""
    model = ChronosBolt.new(shape, seed=0)
    round_network(model.network, 8)
    return model


def export_model(model: ChronosBolt, folder: Path) -> OnnxModel:
    return write_onnx(model, folder, context=None, horizon=None, origin={})


def walks() -> Windows:
    values = np.random.default_rng(5).normal(size=(6, 32)).cumsum(axis=1).astype(np.float32)
    return Windows(values, np.zeros((6, 8), np.float32), list("abcdef"), np.full(6, 32), "walks", "D", 1)


def forecast(folder: Path) -> np.ndarray:
    return run_session(open_session(folder / MODEL), walks().context, "D")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[OnnxModel, Path, OnnxModel, Path]:
    """One model, exported as one file and with a data file."""
    model, folder = make_rounded(SHAPE), tmp_path_factory.mktemp("exported")
    whole = export_model(model, folder / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_export, "LARGEST_FILE", 0)
        return whole, folder / "whole", export_model(model, folder / "parts"), folder / "parts"


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
    kinds = {weight.data_type for weight in weights}
    assert bool(kinds & {TensorProto.INT8, TensorProto.UINT8}) == (step != "float32")
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
    model = make_rounded(LARGE)
    made = export_model(model, tmp_path)
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


def write_chain(path: Path, *weights: np.ndarray) -> None:
    """Write a graph that multiplies its input by the weights, one after another."""
    names = ["x", *(f"y{index}" for index in range(len(weights)))]
    nodes = [
        helper.make_node("MatMul", [names[index], f"w{index}"], [names[index + 1]], name=f"product-{index}")
        for index in range(len(weights))
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])
        for name, width in ((names[0], len(weights[0])), (names[-1], weights[-1].shape[1]))
    ]
    arrays = [numpy_helper.from_array(array, f"w{index}") for index, array in enumerate(weights)]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**31), st.floats(-6, 6), st.integers(1, 40))
def test_errors_are_within_the_steps_of_weights_and_activations(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: float, count: int
) -> None:
    rng, path = np.random.default_rng(seed), tmp_path_factory.mktemp("int8") / "model.onnx"
    first, second = rng.normal(size=(6, 24)).astype(np.float32), rng.normal(size=(24, 5)).astype(np.float32)
    x = (10**size * rng.normal(size=(count, 6))).astype(np.float32)
    write_chain(path, first, second)
    quantise_onnx(path)
    assert [part.name for part in path.parent.iterdir()] == ["model.onnx"]
    graph = onnx.load(path).graph
    assert [node.name for node in graph.node if node.op_type == "MatMul"] == ["product-0"]
    (found,) = open_session(path).run(None, {"x": x})
    hidden = x.astype(np.float64) @ first
    # Half a step of each activation and weight, and the product of both; the steps of 7 bits are max / 63 at most.
    step = (max(0.0, hidden.max()) - min(0.0, hidden.min())) / 255
    steps = np.abs(second).max(axis=0) / 63
    bound = step * np.abs(second).sum(axis=0) + np.abs(hidden).sum(axis=1)[:, None] * steps + 24 * step * steps
    assert (np.abs(found - hidden @ second) <= bound + 1e-5 * np.abs(hidden).max()).all()


@pytest.mark.parametrize("quantise", [quantise_onnx, use_low_bit_products])
def test_a_graph_without_a_later_product_is_refused_and_stays(quantise: Callable[[Path], None], tmp_path: Path) -> None:
    write_chain(tmp_path / "model.onnx", np.ones((4, 3), np.float32))
    before = (tmp_path / "model.onnx").read_bytes()
    with pytest.raises(ModelError, match=r"model\.onnx: expected products behind the first ones, found none"):
        quantise(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == before


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**31), size=st.floats(-30, 30), rows=st.integers(1, 9), columns=st.integers(1, 150),
    bits=st.sampled_from([2, 3, 4, 5, 6, 7, 8]), group=st.sampled_from([0, 32, 64]), is_rounded=st.booleans(),
)  # fmt: skip
def test_own_products_are_those_of_the_numbers(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: float, rows: int, columns: int, bits: int, group: int,
    is_rounded: bool,
) -> None:  # fmt: skip
    """Up to four bits with float32 activations; more bits with eight bits of each group of activations."""
    rng, path = np.random.default_rng(seed), tmp_path_factory.mktemp("own") / "model.onnx"
    weight = 10**size * rng.normal(size=(rows, columns)) * (rng.random((rows, 1)) < 0.9)
    if is_rounded:
        weight = round_plainly(weight, bits, group, np.ones(columns))
    first = rng.normal(size=(6, columns)).astype(np.float32)
    x = rng.normal(size=(4, 6)).astype(np.float32)
    write_chain(path, first, np.ascontiguousarray(weight.T.astype(np.float32)))
    use_low_bit_products(path)
    (node,) = [node for node in onnx.load(path).graph.node if node.op_type == "MatMulNBits"]
    found_bits = next(attribute.i for attribute in node.attribute if attribute.name == "bits")
    expected = weight
    if not is_rounded or columns < 16:
        expected = round_plainly(weight.astype(np.float32).astype(np.float64), 4, 32, np.ones(columns))
    assert is_rounded or found_bits == 4
    (found,) = open_session(path).run(None, {"x": x})
    hidden = x.astype(np.float64) @ first
    # The scale of a row of zeros is at most 1.
    sizes = np.where(expected.any(axis=1), np.abs(expected).max(axis=1), 1.0)
    largest = np.abs(hidden).sum(axis=1)[:, None] * sizes
    steps = (
        1e-6 if found_bits == 4 else np.abs(hidden).max() / np.abs(hidden).sum(axis=1)[:, None] * columns / 127 + 1e-5
    )
    assert (np.abs(found - hidden @ expected.T) <= steps * largest).all()


def rounded(*shape: int, axis: int = 0, bits: int = 8, group: int = 0) -> np.ndarray:
    """Random weights that few bits give exactly, with one scale per group of a row of a dimension."""
    weight = np.moveaxis(np.random.default_rng(0).normal(size=shape), axis, 0)
    rows = weight.reshape(len(weight), -1)
    nearest = round_plainly(rows, bits, group, np.ones(rows.shape[1])).astype(np.float32)
    return np.ascontiguousarray(np.moveaxis(nearest.reshape(weight.shape), 0, axis))


def write_product(path: Path, weight: np.ndarray, node: Any) -> None:
    """Write a graph of one product of `x` and a weight."""
    shape = ["batch", *[None] * (2 if node.op_type == "Conv" else 1)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([node], "graph", values[:1], values[1:], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


def run_graph(path: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    answer: np.ndarray = session.run(None, {"x": x})[0]
    return answer


@pytest.mark.parametrize(("weight", "node"), [
    (rounded(64, 48), helper.make_node("MatMul", ["x", "w"], ["y"])),
    (rounded(64, 48, axis=1), helper.make_node("MatMul", ["x", "w"], ["y"])),
    (rounded(24, 64, 3), helper.make_node("Conv", ["x", "w"], ["y"])),
    *((rounded(96, 64, axis=1, bits=bits, group=group), helper.make_node("MatMul", ["x", "w"], ["y"]))
      for bits in (2, 3, 4, 5, 6, 7) for group in (0, 32)),
    (rounded(96, 64, bits=3, group=64), helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)),
], ids=lambda value: None)  # fmt: skip
def test_the_output_stays_the_same_and_the_file_has_the_bits(weight: np.ndarray, node: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write_product(path, weight, node)
    shape = {"MatMul": (5, len(weight)), "Conv": (5, 64, 7), "Gemm": (5, 64)}[node.op_type]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    before, size = run_graph(path, x), path.stat().st_size
    pack_weights(path)
    onnx.checker.check_model(path)
    found = find_grid(
        weight.T if node.op_type == "MatMul" and weight.shape[0] == 96 else weight.reshape(len(weight), -1)
    )
    if found is not None:
        # The nodes that unpack take 2 kB.
        assert path.stat().st_size < (found.bits + 2) / 32 * size + 2000
    assert np.array_equal(run_graph(path, x), before)
    # Nothing is left to store.
    again = path.read_bytes()
    pack_weights(path)
    assert path.read_bytes() == again


@pytest.mark.parametrize("weight", [
    np.random.default_rng(2).normal(size=(64, 48)).astype(np.float32),
    np.full((64, 48), np.nan, np.float32),
    rounded(64, 48).astype(np.float64),
    np.arange(64, dtype=np.float32),
], ids=["not rounded", "NaN", "float64", "vector"])  # fmt: skip
def test_other_weights_stay_as_they_are(weight: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write_product(path, weight, helper.make_node("MatMul", ["x", "w"], ["y"]))
    before = onnx.load(path)
    pack_weights(path)
    assert onnx.load(path) == before


def test_a_model_of_eight_bits_is_exported_with_weights_of_eight_bits(tmp_path: Path) -> None:
    # With one layer of each kind, exporting takes half the time.
    model = ChronosBolt.new(TOYS["chronos-bolt"] | {"num_layers": 1, "num_decoder_layers": 1}, seed=0)
    round_network(model.network, 8)
    model.compression = {"widths": {}}
    exported = write_onnx(model, tmp_path, context=None, horizon=None, origin={})
    assert exported.difference <= TOLERANCE and exported.bits == 32 and exported.bytes < exported.float_bytes
    stored = onnx.load(tmp_path / "model.onnx").graph.initializer
    assert sum(math.prod(tensor.dims) for tensor in stored if tensor.data_type == TensorProto.UINT8) > 5_000

"""ONNX models have the forecasts of the models that they were made from, in onnxruntime itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from tsfmscope.compression import onnx_export
from tsfmscope.compression.onnx_export import TOLERANCE, OnnxModel, write_onnx
from tsfmscope.compression.onnx_forecaster import DESCRIPTION, MODEL, OnnxForecaster, open_session, run_session
from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.models.base import Forecaster
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.common.attention import Widths, shapes
from tsfmscope.models.common.scale import mean_and_deviation
from tsfmscope.models.patchtst import PatchTST
from tsfmscope.models.registry import family_class, family_of_folder
from tsfmscope.models.timesfm_patches import frequency
from tsfmscope.series.types import Windows

CHECKPOINTS = Path(__file__).parents[3] / "tsfmscope" / "checkpoints"
# Every family of docs/compression.md, as a checkpoint and as a small model. The context is no multiple of a patch.
MODELS = (
    *("chronos-bolt-mini", "chronos-2-mini", "moirai-2-mini", "timesfm-mini", "timesfm-2.5-mini", "patchtst-mini"),
    "patchtst-fm-mini",
)  # fmt: skip
ONE_LAYER = {"num_layers": 1, "num_decoder_layers": 1, "num_hidden_layers": 1, "initializer_factor": 0.05}
SMALL = {
    family: {key: ONE_LAYER.get(key, value) for key, value in family_class(family).example.items()}
    for family in (
        "chronos-2",
        "moirai-2",
        "timesfm",
        "timesfm-2.5",
        "patchtst",
        "patchtst-fm",
    )  # chronos-bolt: with narrow heads, below
}
CONTEXT = 70
ORIGIN: dict[str, str | None] = {"base_model": "a-model", "license": None}
BOLT = {"d_model": 16, "d_ff": 24, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
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


@pytest.mark.parametrize("make", [
    *(pytest.param(partial(small, family), id=family) for family in SMALL),
    *(pytest.param(partial(load, name), id=name, marks=[pytest.mark.slow, pytest.mark.long]) for name in MODELS),
])  # fmt: skip
def test_onnxruntime_forecasts_as_the_model_does(make: Callable[[], Forecaster], tmp_path: Path) -> None:
    model = make()
    graph = model.forecast_graph()
    assert graph is not None
    context = min(CONTEXT, graph.context - 2)
    exported = write_onnx(model, tmp_path, context=context, horizon=12, origin=ORIGIN)
    assert exported.difference < 1e-5 and exported.torch_seconds > 0 and exported.onnxruntime_seconds > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [MODEL, DESCRIPTION]
    assert exported.bytes == (tmp_path / MODEL).stat().st_size
    session = open_session(tmp_path / MODEL)
    for freq in ("D", "W", "Q") if "frequency" in {one.name for one in session.get_inputs()} else ("D",):
        for rows in (slice(None), slice(1), slice(2, 5)):
            windows = series(context, 12, freq).take(rows)
            assert difference(model, quantiles_of(session, windows), windows, exported.levels) < 1e-5
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
    exported = write_onnx(model, tmp_path, context=CONTEXT, horizon=12, origin=ORIGIN, bits=8)
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
    with pytest.raises(ModelError, match=r"differ from the model's own by .* standard deviations"):
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

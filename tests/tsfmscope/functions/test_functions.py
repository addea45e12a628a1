"""The public Python API: its names and signatures, and each function on small models."""

from __future__ import annotations

import inspect as python_inspect
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from transformers.pytorch_utils import Conv1D

import tsfmscope as ts
from tests.tsfmscope.models.families import FORECASTERS
from tsfmscope.compression.compress import compress_model
from tsfmscope.compression.export import save
from tsfmscope.compression.options import Method, Ranks
from tsfmscope.errors import ArgumentError, DataError, ModelError, QueryError
from tsfmscope.functions.load import Model
from tsfmscope.functions.push import read_facts
from tsfmscope.models.common.checkpoint_folder import SUMS, verify_sums
from tsfmscope.series.data_sets import DRAWN

CHECKPOINTS = Path(__file__).parents[3] / "tsfmscope" / "checkpoints"
SIGNATURES = {
    "ablate": "model, data, *, parts, ways, windows, context, horizon, max_series, seed, reading",
    "certify": "base, small, data, *, margin, worst, context, horizon, max_series, seed, reading",
    "compare": "a, b, data, *, context, rows, max_series, seed, reading",
    "compress": (
        "model, data, *, to, certified, faster, budget_seconds, method, windows, calibrate_on, heal, bits, context, "
        "horizon, max_series, seed, reading"
    ),
    "doctor": "",
    "effective_dimension": "x, share",
    "embed": "model, data, *, layer, labels, stack, pool, context, max_series, seed, reading",
    "export": "model, folder, *, dense, onnx, context, horizon, bits",
    "fast": "pipeline",
    "fev_model": "model, *, context, samples, seed",
    "forecast": "model, data, *, horizon, context, max_series, seed, reading",
    "inspect": "model, data, *, context, horizon, noise, rows, max_series, share, epsilon, seed, reading",
    "isotropy": "x, types, *, seed",
    "load": "name, *, family, device, precision",
    "numerical_rank": "x, epsilon",
    "probe": "model, data, *, labels, stack, pool, context, max_series, share, epsilon, seed, reading",
    "push": "folder, name, *, public",
    "results": "path",
    "score": "data, *, models, hub, contexts, horizon, windows, all, isotropy, device, seed, reading",
    "singular_values": "x",
    "states": "model, data, *, context, horizon, rows, kinds, max_series, seed, reading",
    "states_of": "module, run, at",
    "verify": "model, *, family, context, horizon",
    "weights": "module, *, epsilon",
}
CLASSES = {"Family", "Forecaster", "TokenKind", "Tokens"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng, steps = np.random.default_rng(0), np.arange(300)
    index = pd.date_range("2024-01-01", periods=300, freq="h")
    return pd.DataFrame({"a": np.sin(steps / 4) + rng.normal(size=300) / 9, "b": rng.normal(size=300).cumsum()}, index)


@pytest.fixture(scope="module")
def model() -> Model:
    return ts.load("chronos-bolt-mini")


def _signature(name: str) -> str:
    names, keyword_only = [], False
    for parameter in python_inspect.signature(getattr(ts, name)).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            names.append("*")
            keyword_only = True
        names.append(parameter.name)
    return ", ".join(names)


def test_names_and_signatures() -> None:
    assert set(ts.__all__) == set(SIGNATURES) | CLASSES
    assert {name: _signature(name) for name in SIGNATURES} == SIGNATURES
    assert set(ts.__all__) <= set(dir(ts))
    assert all(python_inspect.isclass(getattr(ts, name)) for name in CLASSES)
    with pytest.raises(AttributeError, match="has no attribute 'lod'; it has Family"):
        ts.lod  # noqa: B018


def test_every_function_documents_what_it_raises_or_cannot_fail() -> None:
    for name in SIGNATURES:
        text = python_inspect.getdoc(getattr(ts, name)) or ""
        assert "Raises" in text or name == "doctor", name


def test_the_import_loads_no_large_package() -> None:
    """`import tsfmscope` takes below 0.2 s on a machine without other work, because it loads none of these."""
    large = {"torch", "ray", "pandas", "numpy", "pydantic", "duckdb", "transformers", "typer", "yaml"}
    code = f"import sys, tsfmscope; print(sorted({large} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_inspect_measures_every_layer(model: Model, frame: pd.DataFrame, tmp_path: Path) -> None:
    report = ts.inspect(model, frame, context=64, rows=200)
    states = ts.states(model, frame, context=64, rows=200)
    assert list(report.layers["stack"].unique()) == ["encoder", "decoder"]
    assert len(report.layers) == len(states) == sum(n + 2 for n in model.layers.values())
    for row in report.layers.to_dict("records"):
        of_layer = states[row["stack"], "normed" if row["normed"] else row["layer"]]
        assert of_layer.shape == (row["n_tokens"], model.width)
        assert row["numerical_rank"] == ts.numerical_rank(of_layer)
        assert row["zeta"] == pytest.approx(ts.isotropy(of_layer)["zeta"])
        if not pd.isna(row["effective_dimension"]):
            assert row["effective_dimension"] == ts.effective_dimension(of_layer)
    assert "chronos-bolt-mini on data, context 64" in repr(report)
    assert "<table" in report._repr_html_()
    for suffix in ("html", "png", "svg", "pdf", "csv", "parquet"):
        assert report.save(tmp_path / "new" / f"look.{suffix}").stat().st_size > 500
    assert report.plot("dimensions").to_dict()["layer"]
    with pytest.raises(ValueError, match=r"look\.gif: expected a name that ends in \.html"):
        report.save(tmp_path / "look.gif")
    with pytest.raises(ValueError, match="measure: got 'cosine', expected one of isotropy, dimensions"):
        report.plot("cosine")


def _kinds_of_data(frame: pd.DataFrame, folder: Path) -> Iterator[pd.DataFrame | pd.Series | np.ndarray | str | Path]:
    path = folder / "mine.csv"
    frame.to_csv(path, index_label="time")
    yield from (frame, frame["a"], frame["a"].to_numpy(), frame.to_numpy().T, path, str(path), "nile")


def test_series_come_from_frames_arrays_files_and_names(model: Model, frame: pd.DataFrame, tmp_path: Path) -> None:
    counts = [len(ts.embed(model, data, context=64)) for data in _kinds_of_data(frame, tmp_path)]
    assert counts == [2, 1, 1, 2, 2, 2, 1]


def test_the_columns_of_a_table_can_be_named(model: Model, frame: pd.DataFrame) -> None:
    table = frame.reset_index(names="day").melt("day", var_name="shop", value_name="sold").assign(price=1.0)
    vectors = ts.embed(model, table, context=64, time="day", id="shop", value="sold")
    assert list(vectors.index) == [*frame.columns]
    with pytest.raises(ValueError, match=r"ids: no argument has this name; did you mean id?"):
        ts.embed(model, table, ids="shop")
    with pytest.raises(ValueError, match="id: expected a file, got the data set 'nile'"):
        ts.embed(model, "nile", id="shop")


@pytest.mark.parametrize(("data", "message"), [
    ("english", "english: text data, but model chronos-bolt-mini reads series"),
    (np.ones(100) * 1j, "data: expected .* numbers .* complex128"),
    (np.ma.masked_array(np.ones(100) * 1j), "data: expected .* numbers .* complex128"),
    ([np.zeros((2, 3)), np.zeros(4)], "data: expected .* numbers"),
    (np.zeros((2, 3, 4)), r"data: got an array \(2, 3, 4\) of float64, expected"),
    (np.array(["a", "b"]), "expected .* numbers"),
    (np.full(100, np.nan), "data: no usable series: 1 "),
    (np.zeros(0), "data: no usable series"),
    ("~no-such-user/x", "got '~no-such-user/x', which is no file, no folder and no data set"),
    ("x" * 5000, "which is no file, no folder and no data set"),
    ("no-such-thing", "got 'no-such-thing', which is no file, no folder and no data set"),
    (pd.DataFrame({"a": ["x"] * 50}), "expected a column of numbers"),
])  # fmt: skip
def test_data_that_are_no_series_are_named(model: Model, data: pd.DataFrame, message: str) -> None:
    with pytest.raises((DataError, ArgumentError), match=message):
        ts.inspect(model, data)


def test_a_series_too_short_for_the_horizon_is_named(model: Model) -> None:
    with pytest.raises(DataError, match="no window of 64 steps of context and a horizon of 500"):
        ts.states(model, np.random.default_rng(0).normal(size=100), context=64, horizon=500)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"context": 8}, "context: got 8, expected at least 16"),
    ({"context": 2**40}, r"context: got 1099511627776, expected at least .* and at most 32768"),
    ({"horizon": 0}, "horizon: got 0, expected at least 1"),
    ({"horizon": 1.5}, "horizon: got 1.5, expected a whole number"),
    ({"rows": 0}, "rows: got 0, expected at least 1$"),
    ({"max_series": 0}, "max_series: got 0"),
    ({"share": 2.0}, "share: got 2.0, expected above 0 and at most 1"),
    ({"epsilon": -1.0}, "epsilon: got -1.0"),
    ({"epsilon": math.inf}, "epsilon: got inf, expected"),
    ({"share": None}, "share: got None, expected a number"),
])  # fmt: skip
def test_inspect_names_an_argument_out_of_range(model: Model, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ts.inspect(model, "nile", **{"context": 64, "rows": 50} | arguments)


def test_a_rank_below_the_rounding_error_of_bfloat16_is_marked() -> None:
    """The same tolerance is above the rounding error of float32."""
    how: dict[str, Any] = {"context": 64, "rows": 200, "epsilon": 1e-4}
    for precision, expected in (("float32", False), ("bfloat16", True)):
        layers = ts.inspect(ts.load("chronos-bolt-mini", precision=precision), "nile", **how).layers
        assert layers[layers["stack"] == "encoder"]["below_noise_floor"].eq(expected).all(), precision


def test_a_named_data_set_is_sampled_as_asked_and_a_synthetic_one_is_drawn(model: Model) -> None:
    assert (
        len(ts.embed(model, "macrodata", context=64)) > len(ts.embed(model, "macrodata", context=64, max_series=2)) == 2
    )
    assert len(ts.embed(model, "linear-2", context=64)) == DRAWN


def test_a_report_of_one_token_shows_missing_values(model: Model, frame: pd.DataFrame) -> None:
    report = ts.inspect(model, frame, context=64, rows=1)
    assert report.layers["zeta"].isna().all() and "–" in report._repr_html_()


@pytest.mark.parametrize("family", [name for name in FORECASTERS if (CHECKPOINTS / f"{name}-mini").is_dir()])
def test_embed_gives_one_finite_vector_per_series(family: str, frame: pd.DataFrame) -> None:
    short = np.r_[np.full(292, np.nan), np.arange(8.0)]
    vectors = ts.embed(f"{family}-mini", frame.assign(closed=0.0, same=3.0, short=short), context=96)
    assert list(vectors.index) == ["a", "b", "closed", "same", "short"] and not vectors.attrs["skipped"]
    assert np.isfinite(vectors.to_numpy()).all()
    assert not np.allclose(vectors.loc["a"], vectors.loc["b"])


def test_embed_pools_the_states_of_the_last_steps(model: Model, frame: pd.DataFrame) -> None:
    mean, last, largest = (ts.embed(model, frame, pool=pool, layer=1, context=64) for pool in ("mean", "last", "max"))
    assert (largest.to_numpy() >= mean.to_numpy()).all()
    assert not np.allclose(last, mean)
    # Only the last steps count.
    longer = pd.concat([frame.iloc[:50] * 9, frame])
    longer.index = pd.date_range("2024-01-01", periods=len(longer), freq="h")
    np.testing.assert_allclose(ts.embed(model, longer, layer=1, context=64), mean, rtol=1e-5)
    for wrong, message in (
        ({"pool": "sum"}, "pool: got 'sum'"),
        ({"layer": 9}, "layer: got 9"),
        ({"stack": "x"}, "stack: got 'x', expected one of encoder, decoder"),
        ({"stack": "decoder"}, "stack: got 'decoder', none of whose tokens"),
        ({"context": 0}, "context: got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            ts.embed(model, frame, **{"context": 64} | wrong)  # type: ignore[arg-type]


def test_compress_returns_a_smaller_model_and_its_costs(model: Model, frame: pd.DataFrame, tmp_path: Path) -> None:
    before = {name: weight.clone() for name, weight in model.family.network.state_dict().items()}
    small = ts.compress(model, frame, context=64, horizon=8, windows=8, calibrate_on="data")
    costs = small.costs.set_index("quantity")
    assert costs.loc["attention_parameters", "ratio"] == 1 and costs.loc["wql", "before"] > 0
    assert 0.179 < costs.loc["file_bytes", "ratio"] <= 0.18
    for name, weight in model.family.network.state_dict().items():
        assert torch.equal(weight, before[name])
    again = ts.load(str(small.save(tmp_path / "out")))
    np.testing.assert_allclose(ts.embed(again, frame, context=64), ts.embed(small, frame, context=64), atol=1e-5)
    with pytest.raises(ArgumentError, match="is there already, and not empty"):
        small.save(tmp_path / "out")
    with pytest.raises(ModelError, match="already compressed; compress the original"):
        ts.compress(small, frame, context=64)
    for wrong, message in (
        ({"to": 0}, "to: got 0"),
        ({"method": "pca"}, "method: got 'pca', expected one of svd"),
        ({"windows": 0}, "windows: got 0"),
        ({"bits": 4}, "bits: got 4, expected one of 8, 32"),
        ({"to": float("nan")}, "to: got nan, expected above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            ts.compress(model, frame, context=64, **wrong)  # type: ignore[arg-type]


def test_a_saved_compressed_model_has_its_record_and_names_its_base(frame: pd.DataFrame, tmp_path: Path) -> None:
    how: dict[str, Any] = {"to": 0.5, "method": "activation-aware", "windows": 4, "calibrate_on": "data"}
    small = ts.compress("patchtst-mini", frame, context=64, horizon=8, **how)
    folder = small.save(tmp_path / "out")
    record = json.loads((folder / "recipe.json").read_text())
    recipe = record["recipe"]
    assert (recipe["base_model"], recipe["license"]) == ("patchtst-mini", "apache-2.0")
    assert recipe["method"]["method"] == "activation-aware" and recipe["calibration"]["windows"] == 4
    assert (record["row"]["base_model"], record["row"]["attention_ratio"] <= 0.5) == ("patchtst-mini", True)
    assert len(record["parts"]) == len(small.parts) > 0 and len(record["calibration_series"]) == len(frame.columns)
    verify_sums(folder)
    assert "recipe.json" in (folder / SUMS).read_text()
    again = ts.load(folder)
    assert again.calibration == small.calibration and again.family.compression == small.family.compression
    facts = read_facts(folder)
    assert (facts.base_model, facts.license) == ("patchtst-mini", "apache-2.0")
    (folder / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"config\.json"):
        verify_sums(folder)


def test_certify_takes_names_frames_and_files_and_several_horizons(frame: pd.DataFrame) -> None:
    frame.to_csv("mine.csv", index_label="time")
    names = ("chronos-bolt-mini", "timesfm-mini")
    found = ts.certify(*names, ["nile", frame, "mine.csv"], context=64, horizon=[6, 12])
    assert [(row["data"], row["horizon"]) for row in found.tasks] == [
        (name, horizon) for name in ("nile", "data[1]", "mine.csv") for horizon in (6, 12)
    ]
    assert found.tasks[2]["ratio"] == found.tasks[4]["ratio"]
    assert found.certificate.outcome in ("not certified", "too few tasks")
    assert (found.certificate.n_units, found.left_out) == (2, [])
    assert [row["source"] for row in found.tasks] == ["nile"] * 2 + ["data[1]"] * 4


def test_certify_takes_a_model_in_memory_and_names_wrong_arguments(model: Model, frame: pd.DataFrame) -> None:
    small = ts.compress(model, frame, to=0.5, method="joint", context=64, horizon=12)
    found = ts.certify(model, small, [frame], context=64, horizon=12)
    costs = small.costs.set_index("quantity")
    assert found.tasks[0]["ratio"] == pytest.approx(costs["ratio"]["wql"])
    assert found.tasks[0]["wql_base"] == pytest.approx(costs["before"]["wql"])
    for options, message in (
        ({"data": []}, "data: got an empty list, expected a data set"),
        ({"context": 8}, "context: got 8, expected at least 16"),
        ({"horizon": 0}, "horizon: got 0, expected at least 1"),
        ({"horizon": 1.5}, "horizon: got 1.5, expected a whole number"),
        ({"margin": 1.0}, "margin: got 1.0, expected above 1"),
        ({"small": "chronos-bolt-mini"}, "small: expected another model than the base"),
    ):
        with pytest.raises(ValueError, match=message):
            ts.certify(**{"base": model, "small": small, "data": [frame]} | options)  # type: ignore[arg-type]


def test_weights_of_any_module() -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    with torch.no_grad():
        network[2].weight[2] = network[2].weight[1]
    rows = ts.weights(network)
    assert list(rows["name"]) == ["0", "2"]
    assert list(rows["numerical_rank"]) == [4, 2]
    expected = np.linalg.svd(network[0].weight.detach().double().numpy(), compute_uv=False)
    np.testing.assert_allclose(rows["singular_values"][0], expected, rtol=1e-6)
    assert rows["stable_rank"][0] == pytest.approx((expected**2).sum() / expected[0] ** 2, rel=1e-6)
    with torch.no_grad():
        network[0].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="0: matrix: got NaN"):
        ts.weights(network)
    with pytest.raises(ValueError, match=r"expected at least one torch\.nn\.Linear"):
        ts.weights(torch.nn.ReLU())
    with pytest.raises(TypeError, match=r"module: got str, expected a torch\.nn\.Module or a model"):
        ts.weights("chronos-bolt-mini")  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [{}, {"kdim": 6, "vdim": 5}], ids=["joined", "apart"])
def test_weights_contain_the_projections_of_attention_and_name_what_they_leave_out(
    sizes: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(8, 2, **sizes)
    network = torch.nn.ModuleDict({"attn": attention, "embed": torch.nn.Embedding(9, 8), "gpt": Conv1D(12, 8)})
    rows = ts.weights(network)
    found = rows.set_index("name")
    assert list(found.index) == ["attn.q", "attn.k", "attn.v", "attn.out_proj", "gpt"]
    assert found["n_columns"].tolist() == [8, sizes.get("kdim", 8), sizes.get("vdim", 8), 8, 8]
    assert found["n_rows"].tolist() == [8, 8, 8, 8, 12]
    keys = attention.k_proj_weight if sizes else attention.in_proj_weight[8:16]
    expected = torch.linalg.svdvals(keys.detach().double()).numpy()
    np.testing.assert_allclose(found["singular_values"]["attn.k"], expected, rtol=1e-6)
    assert rows.attrs["left_out"] == ["embed.weight"]
    assert "weights: 1 parameters that belong to no Linear are left out: embed.weight" in caplog.messages
    # The attention alone has rows too.
    assert list(ts.weights(attention)["name"]) == ["q", "k", "v", "out_proj"]


def test_embed_gives_a_row_to_short_and_constant_series_and_counts_the_others(
    model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    rows = np.full((7, 60), np.nan, np.float32)
    rows[0], rows[1], rows[2, -8:], rows[3, -1] = rng.normal(size=60), 5.0, rng.normal(size=8), 2.0
    rows[5, 3], rows[6, :20] = np.inf, 1.0
    found = ts.embed(model, rows, context=40)
    assert list(found.index) == [f"series-{i}" for i in range(4)]
    reasons = {"all NaN": 1, "infinite": 1, "no token stands for an observed value of the last 40 steps": 1}
    assert found.attrs["skipped"] == reasons
    messages = [line for line in caplog.messages if line.startswith("left out")]
    assert messages == [f"left out: {n} series: {reason}" for reason, n in reasons.items()]
    with pytest.raises(DataError, match="no series has a value in its last 40 steps"):
        ts.embed(model, rows[6], context=40)
    alone = ts.embed(model, rows[2, -8:], context=40)
    np.testing.assert_allclose(found.loc["series-2"], alone.iloc[0], atol=1e-5)


def test_states_and_inspect_count_the_series_without_a_window(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    rows = np.stack([np.random.default_rng(0).normal(size=80), np.full(80, 2.0)])
    found = ts.states(model, rows, context=32, horizon=8, rows=50)
    assert found.skipped == {"constant": 1} == ts.inspect(model, rows, context=32, horizon=8, rows=50).skipped
    assert caplog.messages.count("left out: 1 series: constant") == 2


def test_the_steps_that_a_model_reads_are_reported(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    series, limit = np.random.default_rng(0).normal(size=900), model.family.max_context
    assert limit is not None and limit < 700
    report = ts.inspect(model, series, context=700, horizon=8, rows=50)
    assert report.layers["n_context_min"].max() == report.layers["n_context_median"].max() == limit
    note = f"context 700: chronos-bolt-mini reads the last {limit} steps"
    assert caplog.messages.count(note) == 1
    far, near = ts.embed(model, series, context=700), ts.embed(model, series, context=limit)
    assert caplog.messages.count(note) == 2
    np.testing.assert_array_equal(far, near)
    ts.certify(model, "timesfm-mini", [series], context=700, horizon=8)
    assert f"context 700: chronos-bolt reads the last {limit} steps" in caplog.messages


def test_states_of_any_module() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU())
    batch = torch.randn(2, 5, 4)

    def run() -> None:
        network(batch)
        network(batch[:1])

    states = ts.states_of(network, run, at=["0", "1"])
    assert states["0"].shape == (15, 6)
    np.testing.assert_allclose(states["1"], np.maximum(states["0"], 0))
    with pytest.raises(KeyError, match="no submodule 'blocks'"):
        ts.states_of(network, run, at=["blocks"])
    with pytest.raises(TypeError, match="at: got the text '0', expected a list"):
        ts.states_of(network, run, at="0")
    with pytest.raises(RuntimeError, match="submodules 0 were not called"):
        ts.states_of(network, lambda: None, at=["0"])


def test_measures_reject_what_they_cannot_measure() -> None:
    for measure in (ts.isotropy, ts.effective_dimension, ts.numerical_rank, ts.singular_values):
        for wrong in (np.zeros(3), np.full((4, 3), np.nan)):
            with pytest.raises(ValueError, match=r"expected|NaN"):
                measure(wrong)
    x = np.random.default_rng(0).normal(size=(500, 4)) @ np.diag([9, 3, 1e-4, 0])
    assert ts.numerical_rank(x) == 2
    assert ts.effective_dimension(x) == 1
    assert ts.effective_dimension(x, share=0.99) == 2


@pytest.mark.parametrize("measure", [ts.isotropy, ts.effective_dimension, ts.numerical_rank, ts.singular_values])
def test_measures_take_arrays_and_tensors_of_real_numbers(measure: Callable[..., Any]) -> None:
    x = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float16)
    expected = measure(x.astype(np.float64))
    tensor = torch.tensor(x, requires_grad=True)
    for same in (x, tensor, tensor.double(), pd.DataFrame(x.astype(np.float32))):
        np.testing.assert_equal(measure(same), expected)
    # bfloat16 holds float16 values of this size with 8 bits.
    assert np.shape(measure(tensor.bfloat16())) == np.shape(expected)
    for wrong in (x + 1j, x.astype(object)):
        with pytest.raises(TypeError, match="x: got values of type"):
            measure(wrong)


def test_measures_of_constant_tiny_and_huge_arrays() -> None:
    x = np.random.default_rng(0).normal(size=(200, 8))
    assert ts.isotropy(np.ones((50, 4)))["zeta"] == 1.0
    assert ts.isotropy(np.zeros((50, 4)))["reason"].startswith("0 rows that are not zero")
    assert (ts.numerical_rank(np.ones((50, 4))), ts.numerical_rank(np.zeros((50, 4)))) == (1, 0)
    with pytest.raises(ValueError, match="constant states have none"):
        ts.effective_dimension(np.ones((50, 4)))
    with pytest.raises(ValueError, match="share: got 0"):
        ts.effective_dimension(x, share=0)
    for scale in (1e-200, 1e200):
        assert ts.numerical_rank(x * scale) == 8
        np.testing.assert_allclose(ts.singular_values(x * scale) / scale, ts.singular_values(x), rtol=1e-10)
        for measure in (ts.isotropy, ts.effective_dimension):
            with pytest.raises(ValueError, match=r"largest entry .*; scale them"):
                measure(x * scale)


def test_results_answer_in_sql(tmp_path: Path) -> None:
    from store import catalogue

    catalogue.build(tmp_path / "results.duckdb", {})
    with ts.results(tmp_path / "results.duckdb") as connection:
        assert connection.sql("select 1 as one").df()["one"].tolist() == [1]
    with pytest.raises(QueryError, match="no database at"):
        ts.results(tmp_path / "other.duckdb")


def test_a_wrong_name_is_answered_with_a_near_one() -> None:
    with pytest.raises(ArgumentError, match=r"did you mean .*chronos-bolt-mini"):
        ts.load("chronos-bolt-minio")
    for name in ("x" * 300, "~nosuch/x", "a\0b"):
        with pytest.raises(ArgumentError, match=r"expected a bundled model, a folder"):
            ts.load(name)
        with pytest.raises(ModelError, match="no such folder"):
            ts.load(f"chronos-bolt:{name}")
    with pytest.raises(ArgumentError, match="for a model of the hub write hub:amazon/chronos-bolt-tiny"):
        ts.load("amazon/chronos-bolt-tiny")


def test_a_family_or_its_model_is_no_name_of_a_model(model: Model) -> None:
    for family in ("chronos-bolt", type(model.family)):
        with pytest.raises(ArgumentError, match=r"chronos-bolt:? is a family; expected FAMILY:FOLDER"):
            ts.inspect(family, "nile")
    with pytest.raises(ArgumentError, match=r"model: got a ChronosBolt, expected .*; save it and give the folder"):
        ts.inspect(model.family, "nile")


def test_load_takes_a_folder_and_names_a_wrong_device(model: Model) -> None:
    loaded = ts.load(model.source.folder)
    assert loaded.source.family == "chronos-bolt" and loaded.layers == model.layers
    assert repr(loaded) == "Model('chronos-bolt-mini', family chronos-bolt, layers: encoder 4, decoder 2, width 64)"
    with pytest.raises(ValueError, match="device: got 'gpu', expected a device of this machine"):
        ts.load("chronos-bolt-mini", device="gpu")


def test_a_model_compressed_with_32_bits_is_saved_in_float32(tmp_path: Path) -> None:
    model = ts.load("chronos-bolt-mini").family
    compress_model(model, Method(method="svd", ranks=Ranks(share=0.5), bits=32), base_model="mini", tables={})
    save(model, tmp_path / "small")
    stored = load_file(tmp_path / "small" / "compressed.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float32}
    loaded = ts.load(f"chronos-bolt:{tmp_path / 'small'}").family.network.state_dict()
    assert all(torch.equal(weight, loaded[name]) for name, weight in stored.items())

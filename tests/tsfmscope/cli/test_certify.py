"""`tsfmscope certify`: ratios and coverages are recomputed by hand; outcomes and bad input have their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import tsfmscope as ts
from tsfmscope.cli.app import app
from tsfmscope.functions import certify as certifying
from tsfmscope.models.registry import family_class
from tsfmscope.series.types import Windows

CHECKPOINTS = Path(__file__).parents[3] / "tsfmscope" / "checkpoints"
MODELS = ("chronos-bolt-mini", "patchtst-mini")
HOW = ("--context", "64", "--horizon", "12")
LEVELS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("many").mkdir()
    for seed in range(11):
        write(waves(seed), f"many/set-{seed}.csv", freq=("D", "h", "MS")[seed % 3])
    return tmp_path


def waves(seed: int = 0) -> np.ndarray:
    rng, steps = np.random.default_rng(seed), np.arange(160)
    return (np.sin(steps[:, None] / [3, 5]) + 3 + 0.2 * rng.normal(size=(160, 2))).astype(np.float32)


def write(values: np.ndarray, path: str, freq: str = "D") -> None:
    times = pd.date_range("2000-01-01", periods=len(values), freq=freq)
    pd.DataFrame(values, columns=["a", "b"]).assign(ds=times).to_csv(path, index=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(
        app, ["certify", *arguments], env={"COLUMNS": "200", "NO_COLOR": "1"}, catch_exceptions=False
    )


def document(*arguments: str, code: int) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def scores(name: str, values: np.ndarray) -> tuple[float, float]:
    """WQL and coverage of the two windows of 12 steps in the last fifth of every series, with NaN left out."""
    ends = (len(values), len(values) - 12)
    context = np.concatenate([values[end - 76 : end - 12].T for end in ends])
    future = np.concatenate([values[end - 12 : end].T for end in ends]).astype(np.float64)
    origins = np.repeat([end - 12 for end in ends], 2)
    windows = Windows(context, future.astype(np.float32), ["a", "b"] * 2, origins, "mine", "", 1)
    model = family_class(name.removesuffix("-mini")).load(CHECKPOINTS / name)
    forecast = model.forecast(windows, levels=LEVELS, seeds=[0] * 4).values
    losses = 0.0
    for index, level in enumerate(LEVELS):
        less = future - forecast[:, index]
        losses += float(np.nansum(2 * np.maximum(level * less, (level - 1) * less)))
    is_inside = (forecast[:, 0] <= future) & (future <= forecast[:, -1])
    return losses / len(LEVELS) / float(np.nansum(np.abs(future))), is_inside.sum() / np.isfinite(future).sum()


def test_ratios_and_coverages_are_as_computed_by_hand() -> None:
    values = waves(3)
    values[-5:, 1] = np.nan
    write(values, "gaps.csv")
    (task,) = document(*MODELS, "--data", "gaps.csv", *HOW, code=4)["tasks"]
    (wql_base, coverage_base), (wql_small, coverage_small) = (scores(name, values) for name in MODELS)
    assert task["wql_base"] == pytest.approx(wql_base, rel=1e-5)
    assert task["wql_small"] == pytest.approx(wql_small, rel=1e-5)
    assert task["ratio"] == pytest.approx(wql_small / wql_base, rel=1e-5)
    assert (task["coverage_base"], task["coverage_small"]) == (coverage_base, coverage_small)
    assert (task["dataset"], task["horizon"], task["context"], task["n_series"]) == ("gaps", 12, 64, 2)
    assert task["n_values"] == 43


def test_every_file_of_a_folder_is_a_task_at_every_horizon_and_one_source() -> None:
    data = ("--data", "many", "--data", "many/set-0.csv", "--data", "./many")
    found = document(*MODELS, *data, *HOW, "--horizon", "6", "--horizon", "12", "--max-series", "1", code=4)
    names = sorted(f"many/set-{seed}.csv" for seed in range(11))
    assert [(row["data"], row["horizon"]) for row in found["tasks"]] == [(name, h) for name in names for h in (12, 6)]
    assert found["n_units"] == 11 and {row["n_series"] for row in found["tasks"]} == {1}
    for unit, first, second in zip(found["units"], found["tasks"][::2], found["tasks"][1::2], strict=True):
        assert unit["unit"] == first["data"] == second["data"]
        assert unit["ratio"] == pytest.approx(np.sqrt(first["ratio"] * second["ratio"]))
    assert [part["ratio"] for part in found["parts"]] == [row["ratio"] for row in found["tasks"]]


def change_scores(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Give the small model the losses of the base, times a factor; both models are the same in these tests."""
    forecast, calls = certifying.forecast_windows, iter(range(1000))

    def changed(*arguments: Any, **options: Any) -> Any:
        scored = forecast(*arguments, **options)
        if next(calls) % 2:
            for row in scored.rows.values():
                row["quantile_loss"] *= factor
        return scored

    monkeypatch.setattr(certifying, "forecast_windows", changed)


@pytest.fixture
def copy_of_mini(folder: Path) -> str:
    """A model with the forecasts of chronos-bolt-mini, in another folder."""
    target = folder / "copy"
    target.mkdir()
    for file in (CHECKPOINTS / "chronos-bolt-mini").iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return "chronos-bolt:copy"


@pytest.mark.parametrize(("factor", "outcome", "code", "sentence"), [
    (1.0, "certified", 0, "certified: with 95 % confidence, the WQL of copy is on average below 1.02"),
    (1.03, "not certified", 4, "fails: mean ratio, upper 95 % limit."),
    (1.2, "not certified", 4, "fails: mean ratio, upper 95 % limit; largest ratio."),
    (0.5, "certified", 0, "mean ratio 0.500 over 11 sources."),
])  # fmt: skip
def test_the_outcome_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, copy_of_mini: str, factor: float, outcome: str, code: int, sentence: str
) -> None:
    arguments = ("chronos-bolt-mini", copy_of_mini, "--data", "many", *HOW, "--max-series", "1")
    change_scores(monkeypatch, factor)
    done = run(*arguments, "--out", "plot.png")
    assert done.exit_code == code and sentence in done.stdout
    assert done.stdout.startswith("scope: general; 11 sources, data sets told apart by their values\n")
    n_bad, share = (11, "100.0") if factor == 1.2 else (0, "23.8")
    assert f"{n_bad} of 11 sources with a ratio above 1.1: with 95 % confidence, at most {share} %" in done.stdout
    assert "a certificate for a release needs 30 sources or more" in done.stdout
    assert Path("plot.png").read_bytes().startswith(b"\x89PNG") and "file: plot.png" in done.stdout
    change_scores(monkeypatch, 1.0)
    if factor == 1.0:
        found = document(*arguments, code=0)
        assert (found["outcome"], found["mean_ratio"], found["log_ratio_sd"]) == (outcome, 1.0, 0.0)
        assert [condition["is_met"] for condition in found["conditions"]] == [True] * 5
        assert document(*arguments, code=0) == found


def test_too_few_tasks_are_neither_pass_nor_fail(copy_of_mini: str) -> None:
    done = run("chronos-bolt-mini", copy_of_mini, "--data", "nile", "--data", "co2", "--context", "64")
    assert done.exit_code == 3
    assert "too few tasks: 2 sources, needed 10 or more" in done.stdout and "neither pass nor fail" in done.stdout
    one = document("chronos-bolt-mini", copy_of_mini, "--data", "nile", "--context", "64", code=3)
    assert one["t_limit"] is one["log_ratio_sd"] is one["conditions"][0]["value"] is None


def write_table(path: str, n_series: int) -> None:
    """Write a table with one column per series."""
    columns = np.concatenate([waves(seed) for seed in range(-(-n_series // 2))], axis=1)[:, :n_series]
    frame = pd.DataFrame(columns, columns=[f"shop {number}" for number in range(n_series)])
    frame.assign(ds=pd.date_range("2000-01-01", periods=160, freq="D")).to_csv(path, index=False)


@pytest.mark.parametrize(("factor", "code", "sentence"), [
    (1.0, 0, "on average below 1.02 times that of chronos-bolt-mini on series like those of shops.csv; mean ratio"),
    (1.03, 4, "not certified: copy against chronos-bolt-mini fails: mean ratio, upper 95 % limit."),
])  # fmt: skip
def test_one_table_is_judged_by_its_series(
    monkeypatch: pytest.MonkeyPatch, copy_of_mini: str, factor: float, code: int, sentence: str
) -> None:
    write_table("shops.csv", 12)
    change_scores(monkeypatch, factor)
    arguments = ("chronos-bolt-mini", copy_of_mini, "--data", "shops.csv", *HOW)
    done = run(*arguments, "--out", "plot.png")
    assert done.exit_code == code and sentence in done.stdout
    assert done.stdout.startswith("scope: series like those of shops.csv, and nothing else; 12 series\n")
    assert "0 of 12 series with a ratio above 1.1: with 95 % confidence, at most 22.1 % of all such" in done.stdout
    assert "30 sources" not in done.stdout
    found = document(*arguments, code=code)
    assert [unit["unit"] for unit in found["units"]] == [f"shop {number}" for number in range(12)]
    assert [unit["ratio"] for unit in found["units"]] == pytest.approx([factor] * 12)
    assert [part["name"] for part in found["parts"]] == [f"group {number}" for number in range(1, 6)]
    # Two windows of twelve steps lie in the last fifth of 160 steps.
    assert found["tasks"][0]["n_values"] == 12 * 2 * 12


def test_a_table_of_many_series_is_judged_by_groups_of_them(copy_of_mini: str) -> None:
    write_table("shops.csv", 204)
    found = document("chronos-bolt-mini", copy_of_mini, "--data", "shops.csv", *HOW, "--max-series", "300", code=0)
    assert found["scope"] == "scope: series like those of shops.csv, and nothing else; 50 groups of 204 series"
    assert found["n_units"] == 50 and len(found["parts"]) == 10
    sample = document("chronos-bolt-mini", copy_of_mini, "--data", "shops.csv", *HOW, "--max-series", "20", code=0)
    assert sample["n_units"] == 20 and len(sample["parts"]) == 5
    few = run("chronos-bolt-mini", copy_of_mini, "--data", "shops.csv", *HOW, "--max-series", "9")
    assert few.exit_code == 3 and "too few tasks: 9 series, needed 10 or more" in few.stdout
    assert few.stdout.startswith(
        "scope: series like those of shops.csv, and nothing else; 9 series, a seeded sample of 204 series\n"
    )
    assert "Read 1 more series: max_series is too small." in few.stdout
    write_table("eight.csv", 8)
    few = run("chronos-bolt-mini", copy_of_mini, "--data", "eight.csv", *HOW)
    assert few.exit_code == 3 and "too few tasks: 8 series, needed 10 or more" in few.stdout
    assert "Give 2 more series." in few.stdout


def test_a_series_that_is_repeated_in_a_table_counts_once(copy_of_mini: str) -> None:
    write_table("shops.csv", 9)
    frame = pd.read_csv("shops.csv")
    frame.assign(copy=frame["shop 3"], again=frame["shop 3"].round(12)).to_csv("shops.csv", index=False)
    done = run("chronos-bolt-mini", copy_of_mini, "--data", "shops.csv", *HOW)
    assert done.exit_code == 3 and "too few tasks: 9 series, needed 10 or more" in done.stdout
    assert "left out: 2 series: the values of another series" in done.stdout


def test_copies_of_a_file_are_one_source(copy_of_mini: str) -> None:
    """Copies that are renamed, shuffled, stored in another format, or without a series, and a chain of overlaps."""
    Path("copies").mkdir()
    rows = waves(1)
    write(rows, "copies/a.csv")
    Path("copies/b.csv").write_bytes(Path("copies/a.csv").read_bytes())
    frame = pd.read_csv("copies/a.csv")
    frame.rename(columns={"a": "z", "b": "y"})[["y", "ds", "z"]].to_csv("copies/c.csv", index=False)
    frame.drop(columns="b").to_csv("copies/d.csv", index=False)
    frame.assign(ds=pd.date_range("2010-01-01", periods=160, freq="h")).to_csv("copies/e.csv", index=False)
    frame.assign(ds=pd.to_datetime(frame["ds"])).astype({"a": "float32"}).to_parquet("copies/f.parquet")
    frame.assign(a=waves(7)[:, 0]).to_csv("copies/g.csv", index=False)
    for number in range(8):
        Path(f"copies/h{number}.csv").write_bytes(Path("copies/a.csv").read_bytes())
    write(waves(2), "copies/other.csv")
    arguments = ("chronos-bolt-mini", copy_of_mini, "--data", "copies", *HOW, "--max-series", "1")
    done = run(*arguments)
    assert done.exit_code == 3 and done.stdout.startswith("scope: general; 2 sources")
    for name in ("b.csv", "c.csv", "d.csv", "e.csv", "f.parquet", "g.csv", "h7.csv"):
        assert f"note: copies/{name} has a series of copies/a.csv; they are one source" in done.stdout
    assert "copies/other.csv has" not in done.stdout
    found = document(*arguments, code=3)
    assert [unit["unit"] for unit in found["units"]] == ["copies/a.csv", "copies/other.csv"]
    assert len(found["tasks"]) == 16


@pytest.fixture
def base_without_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The base forecasts the data set nile without a loss."""
    forecast, is_base = certifying.forecast_windows, iter([True, False])

    def without_loss(case: Any, *arguments: Any) -> Any:
        scored = forecast(case, *arguments)
        if case.data.name == "nile" and next(is_base):
            for row in scored.rows.values():
                row["quantile_loss"] = 0.0
        return scored

    monkeypatch.setattr(certifying, "forecast_windows", without_loss)


@pytest.mark.usefixtures("base_without_loss")
def test_a_base_without_loss_fails_where_the_small_model_has_one(copy_of_mini: str) -> None:
    arguments = ("chronos-bolt-mini", copy_of_mini, "--data", "nile", "--data", "many", *HOW, "--max-series", "1")
    found = document(*arguments, "--out", "plot.png", code=4)
    (nile,) = [row for row in found["tasks"] if row["data"] == "nile"]
    assert nile["wql_base"] == 0 and nile["wql_small"] > 0 and nile["ratio"] is None
    assert [condition["is_met"] for condition in found["conditions"][:2]] == [False, False]
    assert found["n_units"] == 12 and found["left_out"] == []


@pytest.mark.usefixtures("base_without_loss")
def test_a_data_set_without_a_loss_of_the_base_is_in_neither_mean_of_compress() -> None:
    compress = ["compress", "chronos-bolt-mini", "small", "--data", "nile", "--data", "many/set-0.csv", *HOW]
    compress += ["--method", "joint", "--json"]
    found = json.loads(CliRunner().invoke(app, compress, catch_exceptions=False).stdout)
    (wql,) = [row for row in found["costs"] if row["quantity"] == "wql"]
    (other,) = [row for row in found["tasks"] if row["data"] != "nile"]
    assert (wql["before"], wql["after"]) == (pytest.approx(other["wql_base"]), pytest.approx(other["wql_small"]))


def test_data_that_calibrated_the_small_model_are_left_out(copy_of_mini: str) -> None:
    """The record holds for the compressed model, its exports, copies of the data, and records of earlier versions."""
    names = [f"many/set-{seed}.csv" for seed in (0, 3)]
    compress = ["compress", "chronos-bolt-mini", "small", *HOW, "--max-series", "1", "--windows", "4"]
    done = CliRunner().invoke(
        app, [*compress, *(item for name in names for item in ("--data", name))], catch_exceptions=False
    )
    assert done.exit_code == 0
    assert "these calibrated or healed the small model: many/set-0.csv, many/set-3.csv" in done.stdout
    Path("many/copy.csv").write_bytes(Path("many/set-3.csv").read_bytes())
    for arguments in (["small", "copied"], ["small", "dense", "--dense"]):
        assert CliRunner().invoke(app, ["export", *arguments], catch_exceptions=False).exit_code == 0
    expected = [(name, "it calibrated or healed the small model") for name in ("many/copy.csv", *names)]
    recipe = json.loads(Path("small/recipe.json").read_text())
    assert len(recipe["calibration_series"]) == 2
    for folder in ("small", "copied", "dense"):
        found = run("chronos-bolt-mini", folder, "--data", "many", *HOW, "--max-series", "1", "--json").stdout
        assert [(row["data"], row["reason"]) for row in json.loads(found)["left_out"]] == expected, folder
    table = run("chronos-bolt-mini", "small", "--data", "many/copy.csv", *HOW).stdout
    assert table.splitlines()[0].endswith("these calibrated or healed the small model: many/copy.csv")
    done = run("chronos-bolt-mini", "small", *(item for name in names for item in ("--data", name)), *HOW)
    assert done.exit_code == 2 and "it calibrated or healed the small model" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_model_that_is_compressed_twice_keeps_both_records() -> None:
    """The record holds for `compress`, for the saved model of `ts.compress`, and for ONNX."""
    one, two = (f"many/set-{seed}.csv" for seed in (0, 3))
    how: dict[str, Any] = {"method": "activation-aware", "context": 64, "horizon": 12, "max_series": 1}
    options = [text for key, value in how.items() for text in (f"--{key.replace('_', '-')}", str(value))]
    for source, target, data in (("chronos-bolt-mini", "first", one), ("first", "second", two)):
        done = CliRunner().invoke(app, ["compress", source, target, "--to", "0.5", "--data", data, *options])
        assert done.exit_code == 0, done.output
    ts.compress("first", two, to=0.3, **how).save("saved")
    export = ["export", "saved", "onnx", "--onnx", "--context", "64", "--horizon", "12"]
    assert CliRunner().invoke(app, export, catch_exceptions=False).exit_code == 0
    for folder in ("second", "saved", "onnx"):
        found = json.loads(
            run("chronos-bolt-mini", folder, "--data", "many", *HOW, "--max-series", "1", "--json").stdout
        )
        assert {row["data"] for row in found["left_out"]} == {one, two}, folder


@pytest.mark.parametrize(("method", "names"), [
    ({"method": "activation-aware"}, {"many/set-0.csv"}),
    ({"method": "joint"}, set()),
    ({"method": "joint", "heal": 50}, {"many/set-0.csv"}),
])  # fmt: skip
def test_a_record_without_digests_names_its_data_sets(
    copy_of_mini: str, method: dict[str, Any], names: set[str]
) -> None:
    recipe = {"recipe": {"method": method, "calibration": {"datasets": ["many/set-0.csv"]}}}
    Path("copy/recipe.json").write_text(json.dumps(recipe))
    (Path("copy") / "checksums.sha256").unlink(missing_ok=True)
    assert CliRunner().invoke(app, ["export", copy_of_mini, "exported"], catch_exceptions=False).exit_code == 0
    for small in (copy_of_mini, "exported"):
        found = run("chronos-bolt-mini", small, "--data", "many", *HOW, "--max-series", "1", "--json").stdout
        assert {row["data"] for row in json.loads(found)["left_out"]} == names


def test_tasks_without_a_ratio_are_left_out_with_their_reason() -> None:
    zeros = waves()
    zeros[-12:] = 0
    write(zeros, "many/zeros.csv")
    write(waves()[:40], "many/short.csv")
    write(np.full((160, 2), 3.0), "many/flat.csv")
    found = document(*MODELS, "--data", "many", *HOW, "--max-series", "1", code=4)
    assert found["n_units"] == 11
    reasons = {Path(row["data"]).stem: row["reason"] for row in found["left_out"]}
    assert reasons["zeros"] == "WQL is undefined: all targets are 0"
    assert reasons["short"].endswith("1 the held-out part is shorter than the horizon of 12")
    assert "no usable series: 2 constant" in reasons["flat"]
    assert "left out: task many/zeros.csv, horizon 12: WQL is undefined" in run(*MODELS, "--data", "many", *HOW).stdout


def test_a_ratio_of_zero_is_left_out(monkeypatch: pytest.MonkeyPatch, copy_of_mini: str) -> None:
    change_scores(monkeypatch, 0.0)
    done = run("chronos-bolt-mini", copy_of_mini, "--data", "nile", "--context", "64")
    assert done.exit_code == 2 and "nile: the ratio of WQL is undefined: base" in " ".join(done.stderr.split())


def test_the_same_seed_gives_sampled_forecasts_the_same_scores() -> None:
    arguments = ("chronos-t5-mini", "chronos-bolt-mini", "--data", "nile", "--context", "64")
    first, second, other = (document(*arguments, "--seed", seed, code=3)["tasks"][0] for seed in ("1", "1", "2"))
    assert first == second
    assert first["wql_base"] != other["wql_base"] and first["wql_small"] == other["wql_small"]


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (("t5-text-nano", MODELS[1], "--data", "nile"), 2, "expected models that forecast; family t5-text does not"),
    ((*MODELS, "--data", "english"), 2, "english: text data, but model chronos-bolt-mini reads series"),
    ((MODELS[1], MODELS[1], "--data", "nile"), 2, "expected another model than the base, got the same checkpoint"),
    ((MODELS[1], str(CHECKPOINTS / MODELS[1]), "--data", "nile"), 2, "got the same checkpoint"),
    ((*MODELS, "--data", "none.csv"), 2, "got 'none.csv', which is no file, no folder and no data set"),
    ((*MODELS, "--data", "nile", "--data", "nille"), 2, "got 'nille', which is no file"),
    ((*MODELS,), 2, "Missing option '--data'"),
    ((MODELS[0],), 2, "Missing argument"),
    ((MODELS[0], "nothing", "--data", "nile"), 2, "nothing: expected a bundled model, a folder"),
    ((*MODELS, "--data", "nile", "--horizon", "0"), 2, "Input should be greater than or equal to 1"),
    ((*MODELS, "--data", "nile", "--horizon", "-3"), 2, "Input should be greater than or equal to 1"),
    ((*MODELS, "--data", "nile", "--margin", "1"), 2, "--margin: got 1.0, expected above 1"),
    ((*MODELS, "--data", "nile", "--margin", "nan"), 2, "--margin: got nan, expected above 1"),
    ((*MODELS, "--data", "nile", "--worst", "0.9"), 2, "--worst: got 0.9, expected above 1"),
    ((*MODELS, "--data", "nile", "--out", "a.gif"), 2, "--out a.gif: expected a name that ends in .png"),
    ((*MODELS, "--data", "nile", "--time", "ds"), 2, "expected a file, got the data set 'nile'"),
    ((*MODELS, "--data", "nile", "--horizon", "90"), 2, "expected at least one task, 1 were left out: nile: no"),
], ids=lambda value: " ".join(value) if isinstance(value, tuple) else None)  # fmt: skip
def test_bad_input_is_one_line(arguments: tuple[str, ...], code: int, message: str) -> None:
    done = run(*arguments)
    assert message in " ".join(done.stderr.split())
    assert done.exit_code == code and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 or "Usage:" in done.stderr

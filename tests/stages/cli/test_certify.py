"""`tsfmscope certify`: ratios and coverages are recomputed by hand; outcomes and bad input have their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from tests.quick_params import QUICK_PARAMS
from tsfmscope.stages.cli import certifying
from tsfmscope.stages.cli.app import app
from tsfmscope.tasks.models.chronos_bolt import ChronosBolt
from tsfmscope.tasks.series.types import Windows

ROOT = Path(__file__).parents[3]
MODELS = ("chronos-bolt-mini", "chronos-bolt-nano")
HOW = ("--context", "64", "--horizon", "12")
LEVELS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "params.yaml").write_text(QUICK_PARAMS)
    (tmp_path / "checkpoints").symlink_to(ROOT / "checkpoints")
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
    """WQL and coverage of the last 12 steps of every series, from the 64 before, with NaN left out."""
    context, future = values[-76:-12].T.copy(), values[-12:].T.copy().astype(np.float64)
    windows = Windows(context, future.astype(np.float32), ["a", "b"], np.full(2, len(values) - 12), "mine", "", 1)
    forecast = ChronosBolt.load(ROOT / "checkpoints" / name).forecast(windows, levels=LEVELS, seeds=[0, 0]).values
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
    (task,) = document(*MODELS, "--data", "gaps.csv", *HOW, code=1)["tasks"]
    (wql_base, coverage_base), (wql_small, coverage_small) = (scores(name, values) for name in MODELS)
    assert task["wql_base"] == pytest.approx(wql_base, rel=1e-5)
    assert task["wql_small"] == pytest.approx(wql_small, rel=1e-5)
    assert task["ratio"] == pytest.approx(wql_small / wql_base, rel=1e-5)
    assert (task["coverage_base"], task["coverage_small"]) == (coverage_base, coverage_small)
    assert (task["dataset"], task["horizon"], task["context"], task["n_series"]) == ("gaps", 12, 64, 2)


def test_every_file_of_a_folder_is_a_task_at_every_horizon_and_counts_once() -> None:
    data = ("--data", "many", "--data", "many/set-0.csv", "--data", "./many")
    found = document(*MODELS, *data, *HOW, "--horizon", "6", "--horizon", "12", "--max-series", "1", code=1)
    names = sorted(f"many/set-{seed}.csv" for seed in range(11))
    assert [(row["data"], row["horizon"]) for row in found["tasks"]] == [(name, h) for name in names for h in (12, 6)]
    assert found["n_tasks"] == 22 and {row["n_series"] for row in found["tasks"]} == {1}
    assert "horizons depend on each other" in run(*MODELS, *data, *HOW, "--horizon", "6").stdout


def change_scores(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Give the small model the losses of the base, times a factor; both models are the same in these tests."""
    forecast, calls = certifying.forecast_last_windows, iter(range(1000))

    def changed(*arguments: Any, **options: Any) -> Any:
        scored = forecast(*arguments, **options)
        if next(calls) % 2:
            for row in scored.rows.values():
                row["quantile_loss"] *= factor
        return scored

    monkeypatch.setattr(certifying, "forecast_last_windows", changed)


@pytest.fixture
def copy_of_nano(folder: Path) -> str:
    """A model with the forecasts of chronos-bolt-nano, in another folder."""
    target = folder / "copy"
    target.mkdir()
    for file in (ROOT / "checkpoints" / "chronos-bolt-nano").iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return "chronos-bolt:copy"


@pytest.mark.parametrize(
    ("factor", "outcome", "code", "sentence"),
    [
        (1.0, "certified", 0, "certified: with 95 % confidence, the WQL of chronos-bolt:copy is on average below 1.02"),
        (1.03, "not certified", 1, "fails: mean ratio, upper 95 % limit."),
        (1.2, "not certified", 1, "fails: mean ratio, upper 95 % limit; largest ratio of a task."),
        (0.5, "certified", 0, "mean ratio 0.500 over 11 tasks."),
    ],
)
def test_the_outcome_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, copy_of_nano: str, factor: float, outcome: str, code: int, sentence: str
) -> None:
    arguments = ("chronos-bolt-nano", copy_of_nano, "--data", "many", *HOW, "--max-series", "1")
    change_scores(monkeypatch, factor)
    done = run(*arguments, "--picture", "plot.png")
    assert done.exit_code == code and sentence in done.stdout
    assert Path("plot.png").read_bytes().startswith(b"\x89PNG") and "plot: plot.png" in done.stdout
    change_scores(monkeypatch, 1.0)
    if factor == 1.0:
        found = document(*arguments, code=0)
        assert (found["outcome"], found["mean_ratio"], found["log_ratio_sd"]) == (outcome, 1.0, 0.0)
        assert [condition["is_met"] for condition in found["conditions"]] == [True] * 4
        assert document(*arguments, code=0) == found


def test_too_few_tasks_are_neither_pass_nor_fail(copy_of_nano: str) -> None:
    done = run("chronos-bolt-nano", copy_of_nano, "--data", "nile", "--data", "co2", "--context", "64")
    assert done.exit_code == 3
    assert "too few tasks: 2, needed 10 or more" in done.stdout and "neither pass nor fail" in done.stdout
    one = document("chronos-bolt-nano", copy_of_nano, "--data", "nile", "--context", "64", code=3)
    assert one["t_limit"] is one["log_ratio_sd"] is one["conditions"][0]["value"] is None


def test_tasks_without_a_ratio_are_left_out_with_their_reason() -> None:
    zeros = waves()
    zeros[-12:] = 0
    write(zeros, "many/zeros.csv")
    write(waves()[:40], "many/short.csv")
    write(np.full((160, 2), 3.0), "many/flat.csv")
    found = document(*MODELS, "--data", "many", *HOW, "--max-series", "1", code=1)
    assert found["n_tasks"] == 11
    reasons = {Path(row["data"]).stem: row["reason"] for row in found["left_out"]}
    assert reasons["zeros"] == "WQL is undefined: all targets are 0"
    assert reasons["short"].endswith("1 the held-out part is shorter than the horizon of 12")
    assert "no usable series: 2 constant" in reasons["flat"]
    assert "left out: task many/zeros.csv, horizon 12: WQL is undefined" in run(*MODELS, "--data", "many", *HOW).stdout


@pytest.mark.parametrize("undefined", [0.0, np.inf])
def test_a_ratio_of_zero_or_infinity_is_left_out(
    monkeypatch: pytest.MonkeyPatch, copy_of_nano: str, undefined: float
) -> None:
    change_scores(monkeypatch, undefined)
    done = run("chronos-bolt-nano", copy_of_nano, "--data", "nile", "--context", "64")
    assert done.exit_code == 2 and "nile: the ratio of WQL is undefined: base" in " ".join(done.stderr.split())


def test_the_same_seed_gives_sampled_forecasts_the_same_scores() -> None:
    arguments = ("chronos-t5-nano", "chronos-bolt-nano", "--data", "nile", "--context", "64")
    first, second, other = (document(*arguments, "--seed", seed, code=1)["tasks"][0] for seed in ("1", "1", "2"))
    assert first == second
    assert first["wql_base"] != other["wql_base"] and first["wql_small"] == other["wql_small"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("t5-text-nano", MODELS[1], "--data", "nile"), 2, "expected models that forecast; family t5-text does not"),
        ((*MODELS, "--data", "english"), 2, "english: text data, but the models read series"),
        ((MODELS[1], MODELS[1], "--data", "nile"), 2, "expected another model than the base, got the same checkpoint"),
        ((MODELS[1], f"checkpoints/{MODELS[1]}", "--data", "nile"), 2, "got the same checkpoint"),
        ((*MODELS, "--data", "none.csv"), 2, "got 'none.csv', which is no file, no folder and no data set"),
        ((*MODELS, "--data", "nile", "--data", "nille"), 2, "got 'nille', which is no file"),
        ((*MODELS,), 2, "Missing option '--data'"),
        ((MODELS[0],), 2, "Missing argument"),
        ((MODELS[0], "nothing", "--data", "nile"), 2, "nothing: expected a model of params.yaml, a folder"),
        ((*MODELS, "--data", "nile", "--horizon", "0"), 2, "Input should be greater than or equal to 1"),
        ((*MODELS, "--data", "nile", "--horizon", "-3"), 2, "Input should be greater than or equal to 1"),
        ((*MODELS, "--data", "nile", "--margin", "1"), 2, "--margin: got 1, expected a ratio above 1"),
        ((*MODELS, "--data", "nile", "--margin", "nan"), 2, "--margin: got nan, expected a ratio above 1"),
        ((*MODELS, "--data", "nile", "--worst", "0.9"), 2, "--worst: got 0.9, expected a ratio above 1"),
        ((*MODELS, "--data", "nile", "--picture", "a.pdf"), 2, "--picture a.pdf: expected a name that ends in .png"),
        ((*MODELS, "--data", "nile", "--time", "ds"), 2, "expected a file, got the data set 'nile'"),
        ((*MODELS, "--data", "nile", "--horizon", "90"), 2, "expected at least one task, 1 were left out: nile: no"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], code: int, message: str) -> None:
    done = run(*arguments)
    assert message in " ".join(done.stderr.split())
    assert done.exit_code == code and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 or "Usage:" in done.stderr

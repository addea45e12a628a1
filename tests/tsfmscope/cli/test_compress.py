"""`tsfmscope compress`: what it says of accuracy is recomputed by hand, and the last fifth is never calibrated on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import tsfmscope as ts
from tsfmscope import progress
from tsfmscope.cli.app import app
from tsfmscope.cli.compress import _ratio
from tsfmscope.compression.options import Method
from tsfmscope.compression.truncation import compress as truncate
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.common.low_bits import read_file
from tsfmscope.series.types import Windows

CHECKPOINT = Path(__file__).parents[3] / "tsfmscope" / "checkpoints" / "chronos-bolt-mini"
HOW = ("--data", "mine.csv", "--context", "64", "--horizon", "12", "--windows", "8")
LEVELS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(series())
    return tmp_path


def series(seed: int = 0) -> np.ndarray:
    rng, steps = np.random.default_rng(seed), np.arange(160)
    waves = np.sin(steps[:, None] / [3, 5]) + 3 + 0.2 * rng.normal(size=(160, 2))
    return waves.astype(np.float32)


def write(values: np.ndarray, path: str = "mine.csv") -> None:
    pd.DataFrame(values, columns=["a", "b"]).to_csv(path, index=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compress", *arguments], catch_exceptions=False)


def quantities(*arguments: str) -> dict[str, dict[str, Any]]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return {row["quantity"]: row for row in json.loads(done.stdout)["costs"]}


def naive_wql(model: ChronosBolt, values: np.ndarray) -> float:
    """Return the WQL of the two windows of 12 steps in the last fifth of every series, from the 64 before."""
    origins = (len(values) - 12, len(values) - 24)
    context = np.concatenate([values[origin - 64 : origin].T for origin in origins])
    future = np.concatenate([values[origin : origin + 12].T for origin in origins])
    windows = Windows(context, future, ["a", "b"] * 2, np.repeat(origins, 2), "mine", "", 1)
    found = model.forecast(windows, levels=LEVELS, seeds=[0] * 4).values
    losses = 0.0
    for index, level in enumerate(LEVELS):
        less = future.astype(np.float64) - found[:, index]
        losses += float(2 * np.maximum(level * less, (level - 1) * less).sum())
    return losses / len(LEVELS) / float(np.abs(future).sum())


def test_sizes_and_accuracy_before_and_after_are_as_computed_by_hand() -> None:
    found = quantities("chronos-bolt-mini", "out", *HOW, "--to", "0.5", "--method", "joint")
    dense, narrow = ChronosBolt.load(CHECKPOINT), ChronosBolt.load(CHECKPOINT)
    truncate(narrow, Method.model_validate({"method": "joint", "ranks": {"budget": 0.5}}))
    for name, model in (("before", dense), ("after", narrow)):
        assert found["parameters"][name] == sum(one.numel() for one in model.network.parameters())
        assert found["bytes"][name] == 4 * found["parameters"][name]
        assert found["wql"][name] == pytest.approx(naive_wql(model, series()), rel=1e-5)
        assert found["seconds"][name] > 0
    assert found["attention_parameters"]["ratio"] <= 0.5
    assert found["wql"]["before"] != found["wql"]["after"]
    loaded = ChronosBolt.load(Path("out"))
    assert naive_wql(loaded, series()) == pytest.approx(found["wql"]["after"], rel=1e-5)


def test_calibration_sees_nothing_of_the_last_fifth_and_the_score_nothing_else_of_the_future() -> None:
    # Without synthetic series, which take most of the default method's time.
    how, values = (*HOW, "--calibrate-on", "data"), series()
    first = quantities("chronos-bolt-mini", "first", *how)
    changed = values.copy()
    changed[128:] = 7 - changed[128:]
    write(changed)
    second = quantities("chronos-bolt-mini", "second", *how)
    ours, theirs = (read_file(Path(name, "compressed.safetensors")) for name in ("first", "second"))
    assert ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert first["wql"]["before"] != second["wql"]["before"]
    changed = values.copy()
    changed[:128] = series(seed=1)[:128]
    write(changed)
    quantities("chronos-bolt-mini", "third", *how)
    others = read_file(Path("third", "compressed.safetensors"))
    assert any(ours[name].shape != others[name].shape or not np.array_equal(ours[name], others[name]) for name in ours)


def test_the_series_that_were_scored_are_counted_and_the_others_named_with_why() -> None:
    values = series()
    gone = np.where(np.arange(160) < 128, values[:, 0], np.nan)
    frame = pd.DataFrame(values, columns=["a", "b"]).assign(flat=1.0, gone=gone)
    frame.to_csv("mine.csv", index=False)
    how = (*HOW, "--method", "joint", "--season", "14")  # the fastest method
    said = run("chronos-bolt-mini", "out", *how).stdout
    assert "mase: over the error of repeating the last season, in steps: mine 14" in said
    assert "wql (pooled) and mase (mean): over windows in the last fifth of the series" in said
    lines = [line for line in said.splitlines() if line.startswith("left out")]
    assert lines == ["left out: 1 series: constant", "left out: 1 series: nothing is observed in the future"]
    asked = run("chronos-bolt-mini", "other", *how, "--json")
    (task,) = json.loads(asked.stdout)["tasks"]
    assert task["season"] == 14
    assert task["skipped"] == {"constant": 1, "nothing is observed in the future": 1}


def test_a_model_of_thin_factors_is_named_with_what_to_compress_instead() -> None:
    assert run("chronos-bolt-mini", "small", *HOW, "--method", "svd", "--to", "0.5").exit_code == 0
    done = run("small", "smaller", *HOW, "--method", "joint", "--to", "0.5")
    assert done.exit_code == 1
    assert "small: q, k, v, o of encoder.1.self are thin factors" in done.stderr
    assert "compress the original model, not a compressed one" in " ".join(done.stderr.split())
    done = run("small", "smaller", *HOW)
    assert done.exit_code == 1 and "compress the original to a share of its bytes" in " ".join(done.stderr.split())
    assert not Path("smaller").exists()


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (("chronos-bolt-mini", ".", *HOW), 2, ".: is there already, and not empty"),
    (("chronos-bolt-mini", "out", *HOW, "--horizon", "40"), 1, "no series can be judged on its last 20%"),
    (("chronos-bolt-mini", "out", *HOW, "--to", "2"), 2, "--to: got 2.0, expected above 0 and at most 1"),
    (("chronos-bolt-mini", "out", *HOW, "--to", "0.01"), 2,
        "--to 0.01, method whole-model: got 0.01, expected at least 0.07"),
    *(
        (("chronos-bolt-mini", "out", *HOW, "--to", value), 2, f"--to: got {value}, expected above 0")
        for value in ("0.0", "-1.0", "nan", "1.5")
    ),
    (("chronos-bolt-mini", "out", *HOW, "--bits", "8"), 2, "bits: got 8 with a share of bytes"),
    (("chronos-bolt-mini", "out", *HOW, "--calibrate-on", "nothing"), 2, "--calibrate-on"),
    (("chronos-bolt-mini", "out", "--data", "flat.csv", *HOW[2:], "--calibrate-on", "data"), 1,
        "give no window before the last 20% of their series: constant (1 series)"),
    (("chronos-bolt-mini", "out", "--data", "constant.csv", *HOW[2:]), 1, "no usable series: 1 constant"),
    (("chronos-bolt-mini", "out", "--data", "mine.csv", "--data", "missing.csv"), 2, "missing.csv', which is no file"),
], ids=lambda value: " ".join(value) if isinstance(value, tuple) else None)  # fmt: skip
def test_what_cannot_be_done_is_said_and_leaves_no_folder(arguments: tuple[str, ...], code: int, said: str) -> None:
    pd.DataFrame({"a": np.r_[np.ones(80), np.arange(20)]}).to_csv("flat.csv", index=False)
    pd.DataFrame({"a": np.ones(100)}).to_csv("constant.csv", index=False)
    done = run(*arguments)
    assert said in done.stderr
    assert done.exit_code == code
    assert not Path("out").exists()
    assert not [path for path in Path.cwd().iterdir() if path.name.startswith(".")]


def write_sets() -> None:
    """Write a folder with two data sets of different frequencies, and one whose series are constant."""
    Path("many").mkdir()
    for seed, freq in enumerate(("D", "h")):
        times = pd.date_range("2000-01-01", periods=160, freq=freq)
        frame = pd.DataFrame(series(seed), columns=["a", "b"]).assign(ds=times)
        frame.to_csv(f"many/set-{seed}.csv", index=False)
    frame.assign(a=1.0, b=1.0).to_csv("many/unusable.csv", index=False)


def test_every_data_set_is_judged_as_certify_does_and_no_verdict_is_a_failure() -> None:
    write_sets()
    how = ("--data", "many", *HOW[2:], "--to", "0.3", "--method", "joint")
    done = run("chronos-bolt-mini", "out", *how, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    ratios = [row["ratio"] for row in found["tasks"]]
    assert [row["dataset"] for row in found["tasks"]] == ["set-0", "set-1"]
    costs = {row["quantity"]: row for row in found["costs"]}
    assert costs["wql"]["ratio"] == pytest.approx(np.sqrt(np.prod(ratios))) == pytest.approx(found["mean_ratio"])
    assert found["outcome"] in ("too few tasks", "not certified") and found["calibration"] == {}
    assert [(row["data"], row["reason"]) for row in found["left_out"]] == [
        ("many/unusable.csv", "many/unusable.csv: no usable series: 2 constant")
    ]
    certified = CliRunner().invoke(app, ["certify", "chronos-bolt-mini", "out", *how[:6], "--json"])
    assert json.loads(certified.stdout)["tasks"] == found["tasks"]
    printed = run("chronos-bolt-mini", "other", *how).stdout.splitlines()
    assert printed[-1].startswith(("too few tasks: 2", "not certified: other against chronos-bolt-mini"))
    assert [line.split()[0] for line in printed if line.split() and line.split()[0] in ("set-0", "set-1")]


def test_synthetic_calibration_reads_no_series_of_the_user() -> None:
    how = (*HOW, "--to", "0.3", "--method", "activation-aware", "--calibrate-on")
    first = json.loads(run("chronos-bolt-mini", "first", *how, "synthetic", "--json").stdout)
    assert set(first["calibration"]) == {"synthetic"}
    write(series(seed=1))
    run("chronos-bolt-mini", "second", *how, "synthetic")
    both = json.loads(run("chronos-bolt-mini", "third", *how, "both", "--json").stdout)
    assert both["calibration"] == {"mine": 8} | first["calibration"]
    weights = [read_file(Path(name, "compressed.safetensors")) for name in ("first", "second", "third")]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not all(np.array_equal(weights[0][name], weights[2].get(name)) for name in weights[0])


def test_healing_is_recorded_and_changes_attention_only_where_it_helps() -> None:
    how = (*HOW, "--to", "0.3", "--method", "joint")
    assert run("chronos-bolt-mini", "plain", *how).exit_code == 0
    assert run("chronos-bolt-mini", "healed", *how, "--heal", "12").exit_code == 0
    recipe = json.loads(Path("healed/recipe.json").read_text())
    (_, before), *checks = recipe["healing"]
    assert [step for step, _ in checks] == [2, 4, 6, 8, 10, 12]
    plain, healed = (json.loads(Path(name, "config.json").read_text())["compression"] for name in ("plain", "healed"))
    assert healed.pop("heal") == 12 and healed == plain
    ours, theirs = (read_file(Path(name, "compressed.safetensors")) for name in ("plain", "healed"))
    changed = {name for name in ours if not np.array_equal(ours[name], theirs[name])}
    assert bool(changed) == (min(error for _, error in checks) < before)
    assert all("Attention" in name for name in changed)


def test_eight_bits_are_the_last_step_and_the_model_that_is_judged_is_the_stored_one() -> None:
    how = (*HOW, "--to", "0.5", "--method", "joint")
    done = run("chronos-bolt-mini", "small", *how, "--heal", "2", "--bits", "8", "--json")
    costs = {row["quantity"]: row for row in json.loads(done.stdout)["costs"]}
    assert costs["file_bytes"]["ratio"] < 0.3 < 0.7 < costs["bytes"]["ratio"]
    assert costs["file_bytes"]["after"] == Path("small/compressed.safetensors").stat().st_size
    assert json.loads(Path("small/config.json").read_text())["compression"]["bits"] == 8
    assert costs["wql"]["after"] == pytest.approx(naive_wql(ChronosBolt.load(Path("small")), series()), rel=1e-5)
    wrong = run("chronos-bolt-mini", "wrong", *how, "--bits", "4")
    assert wrong.exit_code == 2 and "bits: got 4, expected one of 8, 32" in wrong.output
    assert not Path("wrong").exists()


def test_an_interrupted_healing_leaves_nothing() -> None:
    def interrupt(step: str, n_done: int, total: int) -> None:
        if step.startswith("healing") and n_done == 2:
            raise KeyboardInterrupt

    token = progress.WATCHER.set(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            ts.compress("chronos-bolt-mini", "mine.csv", to=0.5, method="joint", heal=4, context=64, horizon=12)
    finally:
        progress.WATCHER.reset(token)
    assert not [path for path in Path.cwd().iterdir() if path.name == "out" or path.name.startswith(".")]


@pytest.mark.parametrize(("low", "high", "expected"), [
    (0.78, 0.91, "0.83 (0.78 to 0.91)"),
    (0.78, 1.04, "not distinguishable from 1 (0.78 to 1.04)"),
    (None, None, 0.8284),
])  # fmt: skip
def test_a_ratio_of_seconds_has_its_interval(low: float | None, high: float | None, expected: Any) -> None:
    assert _ratio({"ratio": 0.8284, "ratio_low": low, "ratio_high": high}) == expected

"""`score`: the same windows for all, the choice and its marks, sampling, interruption, and bad input."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

import tsfmscope as ts
from tests.local_hub import LocalHub, Repository, serving
from tsfmscope import progress
from tsfmscope.errors import ArgumentError, DataError
from tsfmscope.functions import score as scoring
from tsfmscope.functions.score import BASELINES, ScoreResult
from tsfmscope.models.bundled_skill import bundled_skill
from tsfmscope.statistics.choice import combine, pooled_log_errors

MODELS = ["chronos-bolt-mini", "ttm-mini"]
CHECKPOINTS = Path(ts.__file__).parent / "checkpoints"


def shops(n_series: int = 5, steps: int = 120, seed: int = 0) -> pd.DataFrame:
    """Daily sales with a week and noise, one column per shop."""
    rng = np.random.default_rng(seed)
    week = 10 * np.sin(2 * np.pi * np.arange(steps) / 7)
    values = {f"shop-{n}": 50 + 5 * n + week + rng.normal(0, 3, steps) for n in range(n_series)}
    return pd.DataFrame(values, pd.date_range("2024-01-01", periods=steps, freq="D"))


@pytest.fixture(scope="module")
def scored() -> ScoreResult:
    return ts.score(shops(), models=MODELS, contexts=[32, 64], horizon=7, isotropy=True)


def test_all_candidates_forecast_the_same_windows(scored: ScoreResult) -> None:
    names = {f"{model}, context {context}" for model in MODELS for context in (32, 64)} | {*BASELINES}
    windows = scored.losses.groupby("candidate")[["series", "origin"]].apply(lambda own: sorted(map(tuple, own.values)))
    assert set(windows.index) == names == set(scored.rows["candidate"])
    expected = sorted((f"shop-{n}", origin) for n in range(5) for origin in (113, 106, 99))
    assert all(own == expected for own in windows)
    assert (scored.n_series, scored.n_windows, scored.season, scored.horizon) == (5, 3, 7, 7)
    # The targets and the loss of seasonal naive are the windows' own.
    assert scored.losses.groupby(["series", "origin"])[["target_abs", "naive_loss"]].nunique().to_numpy().max() == 1


def test_the_order_is_that_of_the_rule_of_choice(scored: ScoreResult) -> None:
    rows, stored = scored.rows, bundled_skill()
    losses = np.array(
        [
            scored.losses[scored.losses["candidate"] == name].pivot(index="series", columns="origin", values="loss")
            for name in rows["candidate"]
        ]
    )
    errors, covariance = pooled_log_errors(losses)
    skill = np.array([stored[name].log_ratio for name in rows["model"]])
    naive = scored.losses[scored.losses["candidate"] == scored.best]["naive_loss"].sum()
    expected = np.exp(combine(errors, covariance, skill, n_windows=3).mean - math.log(naive))
    np.testing.assert_allclose(rows["estimate"], expected, rtol=1e-6)
    assert rows["estimate"].is_monotonic_increasing
    assert scored.best == rows["candidate"].iloc[0]
    np.testing.assert_allclose(rows["ratio"], losses.sum(axis=(1, 2)) / naive, rtol=1e-6)


def test_marks_follow_the_interval_against_the_best(scored: ScoreResult) -> None:
    rows = scored.rows.set_index("candidate")
    assert rows["is_undecided"].equals((rows["over_best_low"] <= 1) | (rows.index == scored.best))
    assert rows.loc[scored.best, ["over_best", "over_best_low", "over_best_high"]].tolist() == [1, 1, 1]
    assert rows["is_point"].to_dict() == {name: name.startswith("ttm") for name in rows.index}
    table = scored.table().set_index("candidate")
    assert table["choice"].iloc[0] == "best"
    assert {name for name in table.index if name.endswith("°")} == {"ttm-mini, context 32°", "ttm-mini, context 64°"}
    assert ((rows["wql_low"] <= rows["wql"]) & (rows["wql"] <= rows["wql_high"])).all()


def test_facts_of_the_candidates(scored: ScoreResult) -> None:
    rows = scored.rows.set_index("candidate")
    assert rows.loc["ttm-mini, context 64", "license"] == "apache-2.0"
    weights = Path(scoring.__file__).parents[1] / "checkpoints" / "ttm-mini"
    assert rows.loc["ttm-mini, context 64", "n_bytes"] == sum(
        file.stat().st_size for file in weights.glob("*.safetensors")
    )
    assert (rows["seconds"] > 0).all()
    assert rows["isoscore"].notna().equals(~rows["is_baseline"])
    assert rows.loc[list(BASELINES), "n_bytes"].tolist() == [0, 0, 0]


def test_sentences_state_season_points_and_the_choice(scored: ScoreResult) -> None:
    *others, choice = scored.sentences()
    text = " ".join(others)
    assert "season 7" in text
    assert "one value at every quantile" in text
    assert "no better than chance" in text
    assert choice.startswith(f"best: {scored.best} (estimate ")
    assert scored.smallest in choice
    undecided = scored.rows["candidate"][scored.rows["is_undecided"]][1:]
    assert all(name in choice for name in undecided[:6])


def test_the_smallest_is_within_two_per_cent(scored: ScoreResult) -> None:
    near = scored.rows[scored.rows["estimate"] <= 1.02 * scored.rows["estimate"].iloc[0]]
    models = near[near["n_bytes"] > 0]
    expected = models.loc[models["n_bytes"].idxmin(), "candidate"] if len(models) else scored.best
    assert scored.smallest == expected


@pytest.mark.parametrize("suffix", scoring.SUFFIXES)
def test_every_file_is_written(scored: ScoreResult, tmp_path: Path, suffix: str) -> None:
    path = scored.save(tmp_path / f"scored{suffix}")
    content = path.read_bytes()
    if suffix == ".html":
        text = content.decode()
        assert all(name in text for name in scored.rows["candidate"])
        assert "<svg" in text
        assert "http://" not in text.replace("http://www.w3.org", "")
    elif suffix == ".csv":
        assert pd.read_csv(path)["candidate"].tolist() == scored.rows["candidate"].tolist()
    else:
        assert len(content) > 1000
    assert [*tmp_path.iterdir()] == [path]


def test_the_document_is_strict_json(scored: ScoreResult) -> None:
    document = json.loads(json.dumps(scored.facts(), allow_nan=False))
    assert document["best"] == scored.best
    assert len(document["candidates"]) == len(scored.rows)
    with pytest.raises(ValueError, match="expected a name that ends in"):
        scored.save("scored.txt")


def test_a_short_series_gives_the_windows_that_it_has() -> None:
    data = {"long": shops()["shop-0"].to_numpy(), "short": shops()["shop-1"].to_numpy()[:34]}
    result = ts.score(data, models=["ttm-mini"], contexts=16, horizon=12)
    own = result.losses[result.losses["candidate"] == "ttm-mini"]
    assert own.groupby("series")["origin"].apply(list).to_dict() == {"long": [108, 96, 84], "short": [22]}
    assert "2 fewer, of series that are short" in next(result.sentences())


def test_a_large_table_is_sampled_and_all_takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "MAX_SERIES", 4)
    monkeypatch.setattr(scoring, "BASELINE_SERIES", 2)
    arguments: dict[str, Any] = {"models": ["ttm-mini"], "horizon": 7, "contexts": 32, "windows": 2}
    result = ts.score(shops(6), **arguments)
    rows = result.rows.set_index("candidate")
    assert rows["n_windows"].to_dict() == {"ttm-mini": 8, **dict.fromkeys(BASELINES, 4)}
    text = " ".join(result.sentences())
    assert "a seeded sample of 6 series (--all takes all)" in text
    assert "auto-ets: 4 of 8 windows" in text
    # The ratio of a baseline is over its own windows.
    own = result.losses[result.losses["candidate"] == "auto-ets"]
    assert rows.loc["auto-ets", "ratio"] == pytest.approx(own["loss"].sum() / own["naive_loss"].sum())
    assert set(own["series"]) < set(result.losses["series"])
    everything = ts.score(shops(6), **arguments, all=True)
    assert everything.rows["n_windows"].tolist() == [12] * 4


def test_a_baseline_stops_at_its_time_limit_and_a_slow_bundled_model_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scoring, "TIME_LIMIT", 1e-9)
    stored = bundled_skill()
    few = {name: stored[name] for name in ("ttm-mini", *BASELINES)}
    monkeypatch.setattr(scoring, "bundled_skill", lambda: few)
    result = ts.score(shops(), horizon=7, contexts=32)
    assert result.rows["n_windows"].to_dict() == {0: 1, 1: 1, 2: 1}
    assert "name it to score it" in result.left_out["ttm-mini"]
    assert "ttm-mini" in set(ts.score(shops(), models=["ttm-mini"], horizon=7, contexts=32).rows["candidate"])


def test_a_baseline_without_a_fit_forecasts_as_seasonal_naive() -> None:
    rng = np.random.default_rng(0)
    # Nothing is sold but in the last weeks of one shop.
    late = np.r_[np.zeros(93), rng.normal(9, 1, 7)]
    result = ts.score({"a": late, "b": rng.normal(9, 1, 100)}, models=["ttm-mini"], contexts=32, horizon=7, windows=1)
    assert "point seasonal naive in 1 windows without a fit: auto-ets: the context is constant" in " ".join(
        result.sentences()
    )


def test_progress_names_the_candidate_and_the_time_left() -> None:
    steps: list[str] = []
    token = progress.WATCHER.set(lambda step, n_done, total: steps.append(step))
    try:
        ts.score(shops(2), models=["ttm-mini"], contexts=32, horizon=7, windows=1)
    finally:
        progress.WATCHER.reset(token)
    assert "ttm-mini, candidate 1 of 4" in steps
    assert re.fullmatch(r"auto-ets, candidate 3 of 4, 0:0\d:\d\d left", steps[-4])


def test_one_window_decides_nothing() -> None:
    result = ts.score(shops(1), models=["ttm-mini"], horizon=7, windows=1)
    assert result.rows["is_undecided"].all()
    assert result.rows["ratio_low"].isna().all()
    assert "cannot tell the best from" in result.describe_choice()
    result.plot()


def test_a_candidate_that_fails_is_left_out_with_its_reason(tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    checkpoint = Path(scoring.__file__).parents[1] / "checkpoints" / "ttm-mini"
    (folder / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    weights = load_file(checkpoint / "model.safetensors")
    save_file({name: np.full_like(values, np.nan) for name, values in weights.items()}, folder / "model.safetensors")
    result = ts.score(shops(), models=["chronos-bolt-mini", str(folder)], contexts=32, horizon=7, windows=1)
    assert [*result.left_out] == ["broken"]
    assert len(result.rows) == 4
    assert any(line.startswith("left out: broken: ") and "NaN" in line for line in result.sentences())


def test_a_folder_with_the_name_of_a_bundled_model_has_no_stored_skill(tmp_path: Path) -> None:
    folder = tmp_path / "ttm-mini"
    folder.symlink_to(Path(scoring.__file__).parents[1] / "checkpoints" / "ttm-mini")
    arguments: dict[str, Any] = {"contexts": 32, "horizon": 7, "windows": 1}
    bundled, own, loaded = (
        ts.score(shops(), models=[model], **arguments).rows.set_index("model").loc["ttm-mini"]
        for model in ("ttm-mini", str(folder), ts.load("ttm-mini"))
    )
    assert bundled["ratio"] == own["ratio"] == loaded["ratio"]
    assert bundled["estimate"] == loaded["estimate"] != own["estimate"]


@pytest.mark.parametrize(("data", "arguments", "error", "line"), [
    (pd.DataFrame(), {}, DataError, "expected a column of numbers"),
    ([5.0], {}, DataError, "no usable series"),
    (np.full(100, np.nan), {}, DataError, "no usable series"),
    (np.sin(np.arange(40.0)), {"horizon": 100}, DataError, "no series has a window: .* shorten the horizon"),
    (np.sin(np.arange(40.0)), {"models": []}, ArgumentError, "models: got an empty list"),
    (np.sin(np.arange(40.0)), {"models": ["vit-nano"]}, ArgumentError, "models: vit-nano reads image"),
    (np.sin(np.arange(40.0)), {"models": ["ttm-min"]}, ArgumentError, "did you mean ttm-mini"),
    (np.sin(np.arange(40.0)), {"models": ["ttm-mini", "ttm-mini"]}, ArgumentError, "got ttm-mini twice; name it once"),
    (np.sin(np.arange(40.0)), {"contexts": []}, ArgumentError, "contexts: got an empty list"),
    (np.sin(np.arange(40.0)), {"contexts": 8}, ArgumentError, "contexts: got 8"),
    (np.sin(np.arange(40.0)), {"windows": 0}, ArgumentError, "windows: got 0"),
])  # fmt: skip
def test_bad_input_is_one_line(data: Any, arguments: dict[str, Any], error: type[Exception], line: str) -> None:
    with pytest.raises(error, match=line) as caught:
        ts.score(data, **({"models": ["ttm-mini"]} | arguments))
    assert "\n" not in str(caught.value)


def test_data_of_another_modality_are_refused() -> None:
    with pytest.raises(ArgumentError, match="expected time series"):
        ts.score("tables", models=["ttm-mini"])


def test_an_interrupt_keeps_the_finished_candidates(tmp_path: Path) -> None:
    shops(40, 400).rename_axis("ds").to_csv(tmp_path / "mine.csv")
    command = [sys.executable, "-m", "tsfmscope", "score", "mine.csv", "--models", "ttm-mini", "--horizon", "7"]
    code = (
        "import os, signal, sys, tsfmscope.functions.score as s\n"
        # A shell starts background jobs with SIGINT ignored, and this test perhaps in one.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def baseline(task, name, *, show):\n"
        "    print('ready', file=sys.stderr, flush=True)\n"
        "    import time; time.sleep(60)\n"
        "s._score_baseline = baseline\n"
        f"sys.argv = {command[2:]!r}\n"
        "from tsfmscope.cli.app import main; main()\n"
    )
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "ready" in line:
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    try:
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "ttm-mini" in out
    assert "interrupted: not finished: seasonal-naive, auto-ets, auto-theta." in out
    assert out.strip().splitlines()[-1].startswith("best: ttm-mini")


def test_models_of_a_hub_are_scored_next_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local server stands for the hub; the files are fetched by huggingface_hub's own code."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with serving(LocalHub()) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        server.repositories["org/bolt"] = Repository.of_folder(CHECKPOINTS / "chronos-bolt-mini")
        result = ts.score(shops(), models=["chronos-bolt-mini"], hub=["org/bolt", "org/none"], contexts=64, horizon=7)
        forecast = ts.forecast("hub:org/bolt", shops(), horizon=7, context=64)
    rows = result.rows.set_index("model")
    assert rows.loc["hub:org/bolt", "wql"] == rows.loc["chronos-bolt-mini", "wql"]
    assert [*result.left_out] == ["hub:org/none"] and "404" in result.left_out["hub:org/none"]
    own = ts.forecast("chronos-bolt-mini", shops(), horizon=7, context=64)
    pd.testing.assert_frame_equal(forecast.frame, own.frame)

"""The ways to run a model: how they are timed and chosen, what is saved, and what is said when one of them fails."""

from __future__ import annotations

import gc
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import tsfmscope as ts
from tsfmscope.cli.app import app
from tsfmscope.cli.compress import _ways_sentences
from tsfmscope.compression import ways
from tsfmscope.compression.ways import Measured, Way, WayError, WayProcess, measure_ways
from tsfmscope.errors import ArgumentError, HealthError, ModelError
from tsfmscope.functions import faster, smallest
from tsfmscope.functions.smallest import search_series
from tsfmscope.models.cards import License
from tsfmscope.series.types import Windows

MODEL = "chronos-bolt-mini"


@pytest.fixture(autouse=True)
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer series, settings and rounds than those of users, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for module, name, value in (
        (smallest, "CALIBRATING", 2),
        (smallest, "WINDOWS", 4),
        (smallest, "SETS", 10),
        (smallest, "SERIES", 4),
        (ways, "BATCHES", (1, 4)),
        (ways, "THREADS", (1,)),
        (ways, "ROUNDS", 6),
    ):
        monkeypatch.setattr(module, name, value)


def keep_ways(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let a comparison have these ways only."""
    make = faster._Writer.ways

    def kept(writer: Any) -> dict[str, Callable[[], Way]]:
        return {name: way for name, way in make(writer).items() if name in names}

    monkeypatch.setattr(faster._Writer, "ways", kept)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compress", *arguments], env={"COLUMNS": "200"})


def walks(count: int = 4) -> Windows:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(count, 88)).cumsum(axis=1).astype(np.float32)
    names = [f"s{n}" for n in range(count)]
    return Windows(values[:, :64], values[:, 64:], names, np.full(count, 64), "walks", "D", 1)


@pytest.fixture
def started() -> Iterator[list[WayProcess]]:
    """Processes that are closed at the end of the test."""
    processes: list[WayProcess] = []
    yield processes
    for process in processes:
        process.close()


class Scripted:
    """Way whose forecasts take known seconds: `base` for one series, times a factor that grows with each call."""

    def __init__(self, name: str, base: float, growth: float = 1.0) -> None:
        self.name, self.base, self.growth, self.calls = name, base, growth, 0
        self.threads = 1

    def set_threads(self, threads: int) -> None:
        self.threads = threads

    def seconds(self, batch: int, repeats: int) -> float:
        self.calls += 1
        return self.base * batch / self.threads * self.growth**self.calls


def test_ratios_are_those_of_the_seconds_in_every_setting_and_a_machine_that_slows_down_changes_none() -> None:
    slow, fast = Scripted("torch", 0.1, 1.01), Scripted("ONNX", 0.02, 1.01)
    done: list[tuple[int, int]] = []
    measured, reasons = measure_ways([slow, fast], (1, 2), lambda *numbers: done.append(numbers))  # type: ignore[list-item]
    assert measured.settings() == [(1, 1), (1, 4), (2, 1), (2, 4)] and reasons == {}
    assert done == [(n, 4) for n in range(4)]
    for setting in measured.settings():
        assert measured.ratio("ONNX", "torch", *setting).ratio == pytest.approx(0.2, rel=0.02)
    mean = measured.mean_ratio("ONNX", "torch")
    assert mean.low <= mean.ratio <= mean.high and mean.ratio == pytest.approx(0.2, rel=0.02)
    assert measured.mean_ratio("torch", "torch") == (1.0, 1.0, 1.0)
    # Processes wait for their certificate with one thread.
    assert slow.threads == fast.threads == 1


def test_short_forecasts_are_repeated_and_long_ones_are_measured_less_often() -> None:
    short, long = Scripted("torch", 1e-4), Scripted("ONNX", 8.0)
    measured, _ = measure_ways([short, long], (1,), lambda *_: None)  # type: ignore[list-item]
    assert {len(rounds) for rounds in measured.seconds.values()} == {6}


class Failing(Scripted):
    """Way whose process ends at the third forecast."""

    failed = closed = False

    def seconds(self, batch: int, repeats: int) -> float:
        if self.calls == 3:
            self.failed = True
            raise WayError("its process ended with status 1")
        return super().seconds(batch, repeats)

    def close(self) -> None:
        self.closed = True


def test_a_way_that_fails_while_it_is_timed_is_left_out_and_the_base_ends_the_comparison() -> None:
    base, bad, good = Scripted("torch", 0.1), Failing("torch int8", 0.1), Scripted("ONNX", 0.02)
    base.failed = good.failed = False  # type: ignore[attr-defined]
    measured, failed = measure_ways([base, bad, good], (1,), lambda *_: None)  # type: ignore[list-item]
    assert failed == {"torch int8": "its process ended with status 1"} and bad.closed
    assert {way for way, *_ in measured.seconds} == {"torch", "ONNX"}
    with pytest.raises(WayError, match="status 1"):
        measure_ways([Failing("torch", 0.1), good], (1,), lambda *_: None)  # type: ignore[list-item]


def table(rows: list[tuple[str, float, float | None, bool, bool]]) -> pd.DataFrame:
    names = ("way", "ratio", "usage", "wql_limit", "passes", "fits")
    return pd.DataFrame(
        [
            dict(zip(names, (way, ratio, None if has_file else "in Python", limit, passes, True), strict=True))
            for way, ratio, limit, passes, has_file in rows
        ]
    )


def seconds(**by_way: float) -> Measured:
    noise = np.random.default_rng(0).uniform(0.9, 1.1, (len(by_way), 11))
    return Measured({(way, 1, 1): mean * noise[index] for index, (way, mean) in enumerate(by_way.items())})


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        # The fastest one.
        ([("a", 1.0, 1.0, True, False), ("b", 0.5, 1.0, True, True), ("c", 0.2, 1.01, True, True)], "c"),
        # The fastest one loses too much; the next one cannot be saved.
        ([("a", 0.3, 1.0, True, False), ("b", 0.5, 1.0, True, True), ("c", 0.2, 1.1, False, True)], "b"),
        # Of two that take as long, the one that loses less.
        ([("a", 1.0, 1.0, True, False), ("b", 0.201, 1.0, True, True), ("c", 0.2, 1.01, True, True)], "b"),
        ([("a", 1.0, 1.0, True, False), ("b", 0.5, 1.1, False, True)], None),
    ],
)  # fmt: skip
def test_the_fastest_way_with_a_file_that_passes_is_chosen_and_of_equals_the_one_with_the_least_loss(
    rows: list[tuple[str, float, float | None, bool, bool]], chosen: str | None
) -> None:
    assert faster._choose(table(rows), seconds(**{way: ratio for way, ratio, *_ in rows})) == chosen


def test_no_search_series_is_so_flat_that_rounding_to_float32_decides_what_a_model_reads() -> None:
    for item in itertools.islice(search_series(None, 0), 40):
        for series in item.loaded.series:
            steps = np.spacing(np.float32(np.nanmax(np.abs(series.values))))
            assert steps < 2e-3 * np.nanstd(series.values), (item.name, series.series)


def test_a_process_forecasts_as_the_model_does_and_ends_when_it_is_closed(started: list[WayProcess]) -> None:
    model = ts.load(MODEL)
    windows, levels = walks(), (0.1, 0.5, 0.9)
    ts.export(model, "onnx", onnx=True, context=64)
    kinds = (Way("torch", "torch", model.source.folder), Way("ONNX", "onnx", Path("onnx")))
    started += [WayProcess(way, windows) for way in kinds]
    expected = model.family.forecast(windows, levels=levels, seeds=[0] * 4).values  # type: ignore[attr-defined]
    torch_way, onnx_way = started
    for process in started:
        found = process.forecast(windows, levels=levels, samples=1, seeds=[0] * 4).values
        np.testing.assert_allclose(found, expected, atol=1e-4)
        assert process.start_seconds > 0 and process.seconds(4, 2) > 0
    # The process of an ONNX model does not load torch.
    assert 0 < onnx_way.peak_bytes < torch_way.peak_bytes / 2
    torch_way.close()
    assert torch_way._process.poll() is not None
    with pytest.raises(ValueError, match="closed"):
        torch_way.seconds(1, 1)


def test_a_process_that_fails_or_is_killed_says_why(started: list[WayProcess]) -> None:
    Path("empty").mkdir()
    with pytest.raises(WayError, match="names no known family"):
        WayProcess(Way("torch", "torch", Path("empty")), walks())
    process = WayProcess(Way("torch", "torch", ts.load(MODEL).source.folder), walks())
    started.append(process)
    with pytest.raises(HealthError, match="torch: ValueError: levels"):
        process.forecast(walks(), levels=(0.9, 0.1), samples=1, seeds=[0] * 4)
    process._process.kill()
    with pytest.raises(WayError, match=r"ended|memory"):
        process.seconds(1, 1)


def test_a_way_that_makes_no_forecast_in_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "START_SECONDS", 0.5)
    with pytest.raises(WayError, match=r"no forecast within 0 s"):
        WayProcess(Way("torch", "torch", ts.load(MODEL).source.folder), walks())


def test_the_onnx_model_is_chosen_and_certified_and_the_saved_folder_forecasts(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_ways(monkeypatch, "torch", "ONNX")
    rng, steps = np.random.default_rng(1), np.arange(300)
    values = 50 + 9 * np.sin(2 * np.pi * steps[:, None] / 7 + np.arange(12)) + 2 * rng.normal(size=(300, 12))
    frame = pd.DataFrame(values, columns=[f"shop {n}" for n in range(12)])
    frame.assign(ds=pd.date_range("2023-01-01", periods=300)).to_csv("shops.csv", index=False)
    done = run(MODEL, "fast", "--faster", "--data", "shops.csv", "--context", "64", "--horizon", "12", "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["ratios_over"], facts["chosen"], facts["outcome"]) == ("torch", "ONNX", "certified")
    of_torch, of_onnx = facts["ways"]
    assert of_torch["ratio"] == 1 and of_onnx["ratio"] < 1 and of_onnx["memory_bytes"] < of_torch["memory_bytes"]
    assert of_onnx["passes"] and of_onnx["wql_ratio"] == pytest.approx(1, abs=1e-4)
    assert {(row["way"], row["batch"]) for row in facts["seconds"]} == {
        (way, batch) for way in ("torch", "ONNX") for batch in (1, 4)
    }
    # From what was measured: median of the ratios of rounds, inside its interval.
    assert all(row["low"] <= row["ratio"] <= row["high"] for row in facts["seconds"])
    assert json.loads(Path("fast/seconds.json").read_text()) == facts["seconds"]
    forecasts = [ts.forecast(model, "shops.csv", horizon=12, context=64).frame for model in (MODEL, "fast")]
    np.testing.assert_allclose(forecasts[1]["mean"], forecasts[0]["mean"], rtol=1e-4)


def test_without_a_faster_way_the_measurements_are_shown_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep_ways(monkeypatch, "torch", "ONNX")
    done = run(MODEL, "fast", "--budget-seconds", "0.001", "--context", "64", "--horizon", "12")
    assert done.exit_code == 1 and not Path("fast").exists()
    assert "ONNX" in done.stdout and "no way that can be saved takes" in done.stderr


def test_a_way_that_cannot_be_measured_has_its_reason_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_ways(monkeypatch, "torch", "ONNX few bits", "ONNX")

    def fail(*_: Any, **__: Any) -> None:
        raise ModelError("no matrix can be rounded")

    monkeypatch.setattr(faster, "compress_and_record", fail)
    result = ts.compress(MODEL, faster=True, context=64, horizon=12)
    assert result.chosen == "ONNX"
    reasons = dict(zip(result.ways["way"], result.ways["reason"], strict=True))
    assert reasons == {"torch": None, "ONNX": None, "ONNX few bits": "no matrix can be rounded"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"faster": True, "to": 0.5}, "faster: got to too"),
        ({"faster": True, "certified": 0.02}, "certified: got faster too"),
        ({"budget_seconds": 0.5, "heal": 10}, "faster: got heal too"),
        ({"budget_seconds": 0.0}, "budget_seconds: got 0"),
        ({"budget_seconds": 1.5}, "budget_seconds: got 1.5"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_line(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason):
        ts.compress(MODEL, **options)


def test_what_the_ways_run_is_removed_with_the_result_and_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_ways(monkeypatch, "torch", "ONNX")
    monkeypatch.setattr(tempfile, "tempdir", str(Path("here").absolute()))
    Path("here").mkdir()

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ways, "measure_ways", stop)
        with pytest.raises(KeyboardInterrupt):
            ts.compress(MODEL, faster=True, context=64, horizon=12)
    assert list(Path("here").iterdir()) == []
    result = ts.compress(MODEL, faster=True, context=64, horizon=12)
    assert len(list(Path("here").iterdir())) == 1
    del result
    gc.collect()
    assert list(Path("here").iterdir()) == []


def test_a_faster_way_without_a_file_is_named_with_its_line_of_python() -> None:
    names = ("way", "ratio", "low", "high", "usage", "close", "reason")
    rows = [
        ("torch", 1.0, 1.0, 1.0, "tsfmscope forecast m", False, None),
        ("torch.compile", 0.3, 0.2, 0.4, "in Python: compile()", False, None),
        ("ONNX", 0.5, 0.4, 0.6, None, False, None),
        ("ONNX int8", 0.5, 0.4, 0.6, None, True, None),
    ]
    table = pd.DataFrame([dict(zip(names, row, strict=True)) for row in rows])
    model = faster.FasterModel("m", "torch", table, pd.DataFrame(), "ONNX", None, License("mit", "card"), Path("files"))
    lines = _ways_sentences(model, Path("out"))
    assert "chosen: ONNX, 0.50 (0.40 to 0.60) of the seconds of torch, geometric mean of all settings" in lines
    assert "not distinguishable from it in seconds: ONNX int8" in lines
    assert "faster, but no file: torch.compile (0.30): in Python: compile()" in lines
    assert lines[-1] == "saved: out; next: tsfmscope forecast out YOURS.csv"


def test_data_that_choose_the_way_are_refused() -> None:
    with pytest.raises(ArgumentError, match="nile is one of the data sets that choose the way"):
        ts.compress(MODEL, "nile", faster=True)


def test_a_model_that_does_not_forecast_is_refused() -> None:
    with pytest.raises(ArgumentError, match="t5-text does not"):
        ts.compress("t5-text-nano", faster=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "base", "written"),
    [("chronos-t5-mini", "package chronos", "shared-cache sampler"), ("moirai-2-mini", "torch", "ONNX")],
)
def test_all_ways_of_a_model_are_measured_or_have_a_reason(model: str, base: str, written: str) -> None:
    result = ts.compress(model, faster=True, context=64, horizon=12)
    assert result.base == base
    found = result.ways.set_index("way")
    assert found["ratio"][written] < 0.9 and result.chosen is not None
    assert found["reason"].isna().sum() >= 4
    for way, reason in found["reason"].dropna().items():
        assert reason, way
    assert result.save("fast").is_dir() and len(ts.forecast("fast", "nile", horizon=12).frame) == 12

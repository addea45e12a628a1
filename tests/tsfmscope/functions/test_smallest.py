"""The search of the smallest size: its order and stop, what it reads and when, its record, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner, Result

import tsfmscope as ts
from tsfmscope import progress
from tsfmscope.cli.app import app
from tsfmscope.errors import ArgumentError, ModelError
from tsfmscope.functions import certify as certifying
from tsfmscope.functions import smallest
from tsfmscope.series import data_sets

MODEL = "chronos-bolt-mini"
HOW = ("--context", "64", "--horizon", "12")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tables; searches with fewer series and sizes than those of users."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "CALIBRATING": 2,
        "WINDOWS": 4,
        "SETS": 10,
        "SMOOTH": 2,
        "SERIES": 4,
        "BYTES": (0.25,),
    }.items():
        monkeypatch.setattr(smallest, name, value)
    for count in (8, 12):
        write(f"shops-{count}.csv", count)
    return tmp_path


def write(path: str, count: int) -> None:
    rng, steps = np.random.default_rng(count), np.arange(300)
    values = 50 + 9 * np.sin(2 * np.pi * steps[:, None] / 7 + np.arange(count)) + 2 * rng.normal(size=(300, count))
    frame = pd.DataFrame(values, columns=[f"shop {n}" for n in range(count)])
    frame.assign(ds=pd.date_range("2023-01-01", periods=300)).to_csv(path, index=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compress", *arguments], env={"COLUMNS": "200"}, catch_exceptions=False)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the tables that are opened, and of the sizes that are compressed, in their order."""
    found: list[str] = []
    read, compress = data_sets.load_own, smallest.compress_and_record

    def reading(path: Path, **options: Any) -> Any:
        found.append(Path(path).name)
        return read(path, **options)

    def compressing(*arguments: Any, **options: Any) -> Any:
        assert options["tables"] == {}
        found.append(f"{options['method'].ranks.rule[1]:g}")
        return compress(*arguments, **options)

    monkeypatch.setattr(data_sets, "load_own", reading)
    monkeypatch.setattr(smallest, "compress_and_record", compressing)
    return found


def test_sizes_fall_until_the_first_failure_and_the_table_is_opened_once_after_it(
    monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    monkeypatch.setattr(smallest, "BYTES", (0.25, 0.2, 0.085, 0.08))
    done = run(MODEL, "small", "--data", "shops-12.csv", "--certified", "0.02", *HOW)
    tried = [event for event in events if not event.endswith(".csv")]
    assert tried == ["0.25", "0.2", "0.085", "0.08"][: len(tried)]
    assert events == [*tried, "shops-12.csv"]
    record = json.loads(Path("small/recipe.json").read_text())
    search = record["search"]
    passes = [rung["passes"] for rung in search["ladder"]]
    assert passes == [True] * (len(passes) - 1) + [False] and len(passes) == len(tried) >= 2
    for rung in search["ladder"]:
        assert rung["passes"] == (rung["upper"] < 1.02 and rung["largest"] <= 1.1 and rung["coverage"] < 0.02)
    shares = [rung["share"] for rung in search["ladder"]]
    assert shares == sorted(shares, reverse=True)
    assert (search["margin"], search["data"], len(search["fingerprint"])) == (1.02, ["shops-12"], 64)
    # The model is the last size that passed.
    chosen = record["recipe"]["method"]
    assert {"bytes": search["ladder"][-2]["requested"]} == chosen["ranks"]
    assert done.exit_code == {"certified": 0, "too few tasks": 3, "not certified": 4}[search["outcome"]]
    lines = done.stdout.splitlines()
    for heading in ("share of the file", "upper limit", "scope: series like those of shops-12.csv, and nothing else"):
        assert any(heading in line for line in lines), heading
    assert lines[-1] == "next: tsfmscope forecast small shops-12.csv"
    assert lines[-2].startswith("chosen on series that are not yours: ") and " kB" in lines[-2]
    # The certificate is that of `certify` with this margin, on the saved model.
    again = CliRunner().invoke(app, ["certify", MODEL, "small", "--data", "shops-12.csv", *HOW, "--json"])
    assert json.loads(again.stdout)["outcome"] == search["outcome"]
    assert json.loads(again.stdout)["fingerprint"] == search["fingerprint"]


def test_the_search_does_not_depend_on_the_table(events: list[str]) -> None:
    how: dict[str, Any] = {"certified": 0.02, "context": 64, "horizon": 12}
    first, second, alone = (ts.compress(MODEL, data, **how) for data in ("shops-12.csv", "shops-8.csv", None))
    ladders = [[rung._replace(seconds=0) for rung in one.ladder] for one in (first, second, alone)]
    assert ladders[0] == ladders[1] == ladders[2]
    assert alone.judged is None and alone.record["search"]["outcome"] == "not tested"
    assert second.judged is not None
    assert second.judged.describe_outcome().endswith("Give 2 more series.")
    weights = [one.family.network.state_dict() for one in (first, second, alone)]
    assert all(bool((weights[0][name] == other[name]).all()) for other in weights[1:] for name in other)


def test_the_ratios_of_a_size_are_those_of_certify_on_the_same_series() -> None:
    small = ts.compress(MODEL, certified=0.05, context=64, horizon=12)
    sets = list(smallest.search_series(12, 0))
    base = ts.load(MODEL)
    d = []
    for data in sets:
        case = smallest.make_case(base, data, context=64, horizon=12, seed=0)
        before, after = (
            certifying.forecast_windows(case, family).accuracy(9)["wql"] for family in (base.family, small.family)
        )
        d.append(np.log(after / before))
    chosen = [rung for rung in small.ladder if rung.passes][-1]
    assert chosen.ratio == pytest.approx(np.exp(np.mean(d)), rel=1e-6)
    n = len(d)
    assert n == 17
    t = np.mean(d) + stats.t.ppf(0.95, n - 1) * np.std(d, ddof=1) / np.sqrt(n)
    bca = stats.bootstrap(
        (np.array(d),), np.mean, confidence_level=0.9, rng=np.random.default_rng(3)
    ).confidence_interval
    assert np.log(chosen.upper) == pytest.approx(max(t, bca.high), abs=0.1 * np.std(d))


def test_smooth_trends_are_among_the_search_series() -> None:
    """Their noise is less than a tenth of their trend, so that a line through nine steps leaves little."""
    sets = list(smallest.search_series(12, 0))[-2:]
    for data in sets:
        assert len(data.loaded.series) == 4
        for series in data.loaded.series:
            values = np.asarray(series.values)
            middle = np.convolve(values, np.ones(9) / 9, mode="valid")
            assert len(values) == 72 and np.std(values) == pytest.approx(1)
            assert np.median(np.abs(values[4:-4] - middle)) < 0.1


def test_a_failure_is_recorded_and_no_other_size_is_tried_on_the_table(
    monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    """The log ratios of the table are raised by 0.05; those of the search are not."""
    judge, wql = certifying.noninferiority.assess, []

    def assess(log_ratios: Any, parts: Any, *others: Any, **options: Any) -> Any:
        wql.append(len(parts))
        return judge(np.array(log_ratios) + 0.05, parts, *others, **options)

    monkeypatch.setattr(certifying.noninferiority, "assess", assess)
    done = run(MODEL, "small", "--data", "shops-12.csv", "--certified", "0.02", *HOW)
    assert done.exit_code == 4 and len(wql) == 1 and events[-1] == "shops-12.csv"
    assert "not certified: chronos-bolt-mini@certified-0.02 against chronos-bolt-mini fails" in done.stdout
    assert "recipe.json says that it is not certified, and no other size was tried on your data" in done.stdout
    assert json.loads(Path("small/recipe.json").read_text())["search"]["outcome"] == "not certified"


def test_what_chose_the_size_is_recorded_as_seen(events: list[str]) -> None:
    done = run(MODEL, "small", "--certified", "0.02", *HOW, "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["search"]["outcome"] == "not tested"
    assert not [event for event in events if event.endswith(".csv")]
    data = [part for name in ("nile", "co2", "shops-12.csv") for part in ("--data", name)]
    found = CliRunner().invoke(app, ["certify", MODEL, "small", *data, *HOW, "--json"])
    assert [row["data"] for row in json.loads(found.stdout)["left_out"]] == ["nile", "co2"]


def test_progress_has_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smallest, "BYTES", (0.25, 0.2))
    steps: list[tuple[str, int, int]] = []
    token = progress.WATCHER.set(lambda *step: steps.append(step))
    try:
        ts.compress(MODEL, certified=0.02, context=64, horizon=12)
    finally:
        progress.WATCHER.reset(token)
    shown = [step for step in steps if step[0].startswith("searching the smallest size")]
    assert [n_done for _, n_done, _ in shown] == list(range(len(shown))) and shown[1][0].endswith(" left")


def test_a_margin_that_even_the_largest_size_exceeds_is_one_line() -> None:
    with pytest.raises(
        ModelError, match=r"even 0.25 of the bytes lose too much on the search series: .* allow a larger loss"
    ):
        ts.compress(MODEL, certified=1e-9, context=64, horizon=12)


@pytest.mark.parametrize(("arguments", "code", "text"), [
    ((MODEL, "out", "--data", "shops-12.csv", "--to", "0.5"), 2, "--certified: got to too"),
    ((MODEL, "out", "--data", "shops-12.csv", "--bits", "8"), 2, "--certified: got bits too"),
    ((MODEL, "out", "--data", "shops-12.csv", "--method", "joint"), 2, "--certified: got method too"),
    ((MODEL, "out", "--data", "shops-12.csv", "--heal", "3"), 2, "--certified: got heal too"),
    ((MODEL, "out", "--data", "missing.csv"), 2, "missing.csv', which is no file"),
    ((MODEL, "out", "--data", "nile"), 2, "nile is one of the data sets that choose the size"),
    (("t5-text-nano", "out"), 2, "expected models that forecast; family t5-text does not"),
    ((MODEL, "out", "--data", "constant.csv"), 2, "no usable series: 12 constant"),
    ((MODEL, "out", "--data", "one.csv"), 2, "no usable series"),
    ((MODEL, "out", "--data", "zeros.csv"), 2, "WQL is undefined: all targets are 0"),
], ids=lambda value: " ".join(value[1:]) if isinstance(value, tuple) else None)  # fmt: skip
def test_bad_input_is_one_line_and_nothing_is_written(arguments: tuple[str, ...], code: int, text: str) -> None:
    pd.DataFrame({f"shop {n}": np.full(300, 3.0) for n in range(12)}).to_csv("constant.csv", index=False)
    pd.DataFrame({"y": [1.0]}).to_csv("one.csv", index=False)
    past = np.random.default_rng(0).random((240, 12))
    pd.DataFrame(np.vstack([past, np.zeros((60, 12))])).add_prefix("shop ").to_csv("zeros.csv", index=False)
    done = run(*arguments, "--certified", "0.02", *HOW)
    assert done.exit_code == code and text in " ".join(done.stderr.split())
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("value", "text"), [(0, "above 0"), (-0.1, "above 0"), (2, "at most 1"), (float("nan"), "above")]
)
def test_a_margin_out_of_range_is_refused(value: float, text: str) -> None:
    with pytest.raises(ArgumentError, match=f"certified: got .*{text}"):
        ts.compress(MODEL, certified=value)


def test_without_a_search_data_are_needed() -> None:
    with pytest.raises(
        ArgumentError, match="data: expected a data set; only a search with certified or faster needs none"
    ):
        ts.compress(MODEL, to=0.5)

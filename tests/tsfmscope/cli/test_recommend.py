"""`tsfmscope recommend`: its order is that of `inspect`'s own last layers; of trust it says what the results say."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from stages.planning.inference import infer
from store import catalogue, files
from tests.quick_params import QUICK_PARAMS
from tests.stages.test_statistics import QUICK, tables
from tests.store.conftest import open_results
from tsfmscope.cli.app import app
from tsfmscope.cli.ranking import Candidate, count_skipped
from tsfmscope.cli.ranking_trust import beats_chance, verdict
from tsfmscope.cli.recommend import VERDICT
from tsfmscope.errors import ModelError

ROOT = Path(__file__).parents[3]
MODELS = ("chronos-bolt-nano", "chronos-t5-nano")
ASKED = ("mine.csv", "--models", ",".join(MODELS), "--contexts", "64,128", "--rows", "400", "--horizon", "16")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "params.yaml").write_text(QUICK_PARAMS)
    (tmp_path / "checkpoints").symlink_to(ROOT / "tsfmscope" / "checkpoints")
    rng = np.random.default_rng(0)
    waves = {f"s{n}": np.sin(np.arange(260) / (3 + n)) + 0.3 * rng.normal(size=260) for n in range(4)}
    pd.DataFrame(waves).to_csv(tmp_path / "mine.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.stderr
    return done


def facts(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("recommend", *arguments, "--json").stdout)
    return found


def test_times_that_are_missing_are_said_once_however_many_models_read_them() -> None:
    dated = pd.read_csv("mine.csv").assign(ds=pd.date_range("2024-01-01", periods=260, freq="h")).drop(index=[50, 51])
    dated.to_csv("mine.csv", index=False)
    done = run("recommend", *ASKED)
    assert done.stderr.splitlines()[2:] == ["s0, s1, s2, 1 more: 8 missing times read as NaN"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`results(known=...)`: five models on eight data sets, whose isotropy knows the error or does not."""

    def make(*, known: bool) -> Path:
        made = tables(["whole"])
        for row, forecast in zip(made["geometry"], made["forecasts"], strict=True):
            row["zeta_adjusted_corrected"] = math.atan(forecast["nmse"]) / 2 if known else row["zeta"]
        folder = tmp_path_factory.mktemp("results")
        with open_results(folder, made) as connection:
            files.write_rows(folder / "inference.parquet", "inference", infer(connection, QUICK))
        path = folder / "whole.duckdb"
        catalogue.build(path, {name: [folder / f"{name}.parquet"] for name in [*made, "inference"]})
        return path

    return make


def test_the_order_is_that_of_look_on_the_last_layer_and_without_results_trust_is_not_known() -> None:
    found = facts(*ASKED)
    assert {(row["model"], row["context"]) for row in found["candidates"]} == {
        (m, c) for m in MODELS for c in (64, 128)
    }
    assert found["trust"] is None and "data/results.duckdb does not exist; `make repro` makes it" in found["verdict"]
    assert {row["n_tokens"] for row in found["candidates"]} == {400}
    for row in (one for one in found["candidates"] if one["context"] == 128):
        arguments = ("mine.csv", "--context", "128", "--rows", "400", "--horizon", "16", "--json")
        layers = json.loads(run("inspect", row["model"], *arguments).stdout)
        stack = "decoder" if row["model"] == "chronos-t5-nano" else "encoder"
        last = [layer for layer in layers if layer["stack"] == stack][-1]
        assert (row["stack"], row["layer"], last["normed"]) == (stack, last["layer"], True)
        for name in ("zeta", "zeta_adjusted", "zeta_adjusted_corrected", "k", "log_isotropy_scaled", "n_tokens"):
            assert row[name] == last[name]
        assert row["score"] == -abs(last["zeta_adjusted_corrected"])
        assert (row["log_partition_spread"] is None) == (row["model"] != "chronos-t5-nano")
    ranked = [row for row in found["candidates"] if row["rank"] is not None]
    values = [(row["score"], row["zeta_adjusted_corrected_sd"]) for row in ranked]
    expected = [1 + sum(a - b > 2 * math.hypot(one, other) for a, other in values) for b, one in values]
    assert [row["rank"] for row in ranked] == expected == sorted(expected)
    assert [row["is_tied"] for row in ranked] == [expected.count(rank) > 1 for rank in expected]
    assert found["advised"] == [
        {name: row[name] for name in ("model", "context")} for row in ranked if row["rank"] == 1
    ]


def test_the_verdict_on_such_choices_stands_below_every_ranking_and_nothing_is_advised() -> None:
    for options in ([], ["--by", "log_partition_spread"]):
        printed = run("recommend", *ASKED, *options).stdout
        assert VERDICT in printed and "no reliable choice" in VERDICT.lower()
        assert "advice" not in printed and "IsoScore" in printed and "d(0.8)/width" in printed
    assert facts(*ASKED)["verdict"].startswith(VERDICT)


def test_series_that_are_left_out_are_counted_with_why() -> None:
    pd.read_csv("mine.csv").assign(flat=1.0).to_csv("mine.csv", index=False)
    lines = [line for line in run("recommend", *ASKED).stdout.splitlines() if line.startswith("left out")]
    assert lines == ["left out: 1 series: constant"]
    assert run("recommend", *ASKED, "--json").stderr.splitlines()[2:] == lines


def test_reasons_that_hold_at_some_contexts_only_say_so() -> None:
    short, long = {"constant": 1}, {"constant": 1, "too few": 2}
    seen = [Candidate(model, at, skipped=long if at == 128 else short) for model in "ab" for at in (64, 128)]
    failed = Candidate("c", 256, error=ModelError("gone"))
    assert count_skipped([*seen, failed]) == {"constant": 1, "too few, at context 128": 2}


def test_the_log_partition_ranks_softmax_heads_alone() -> None:
    found = facts(*ASKED, "--by", "log_partition_spread")["candidates"]
    assert [row["model"] for row in found] == ["chronos-t5-nano"] * 2 + ["chronos-bolt-nano"] * 2
    assert found[0]["log_partition_spread"] < found[1]["log_partition_spread"]
    assert [row["rank"] for row in found] == [1, 2, None, None]
    assert "no softmax head" in found[2]["reason"]


def test_advice_that_does_not_beat_chance_says_so(results: Callable[..., Path]) -> None:
    path = str(results(known=False))
    said = run("recommend", *ASKED, "--results", path).stdout
    assert "does not beat chance" in said and "On 8 data sets" in said
    for rule in ("isotropy", "the largest context", "chance"):
        assert rule in said
    found = facts(*ASKED, "--results", path)["trust"]
    assert found["beats_chance"] is False and found["study"] == "whole"
    assert [row["rule"] for row in found["rules"]] == ["advised", "validation", "largest_context", "chance"]
    assert {row["grouping"] for row in found["rules"]} == {"model_and_context"}


def test_advice_that_beats_chance_says_so_and_of_what(results: Callable[..., Path]) -> None:
    path = str(results(known=True))
    found = facts(*ASKED[:3], "--contexts", "64", *ASKED[5:], "--results", path)
    assert {row["grouping"] for row in found["trust"]["rules"]} == {"model"}
    assert found["trust"]["beats_chance"] is True and "beats chance: NMSE" in found["verdict"]
    lacking = facts(*ASKED, "--results", path, "--study", "none")
    assert (
        lacking["trust"] is None and "has no study none in which the model and context could be" in lacking["verdict"]
    )


@pytest.mark.parametrize(
    ("advice_is", "p_models", "p_bh", "beats", "said"),
    [
        (
            "better",
            0.01,
            0.02,
            True,
            "choosing by isotropy beats chance: NMSE 0.61 of chance's, 95 % interval 0.45 to 0.90, p = 0.01, ",
        ),
        ("better", None, 0.02, True, "choosing by isotropy beats chance"),
        ("better", 0.4, 0.02, False, "better than chance, but the difference may have another cause"),
        ("better", 0.01, 0.06, False, "better than chance, but the difference may have another cause"),
        ("undecided", 0.01, 0.02, False, "does not beat chance"),
        ("worse", 0.01, 0.02, False, "is worse than chance"),
        (None, None, 0.02, False, "does not beat chance"),
    ],
)
def test_one_test_of_many_and_a_taste_for_a_model_are_no_skill(
    advice_is: str | None, p_models: float | None, p_bh: float, beats: bool, said: str
) -> None:
    nats = {"advised_less": -0.5, "advised_less_low": -0.8, "advised_less_high": -0.1}
    tests = {"p": 0.01, "p_bh": p_bh, "n_tests": 53, "p_models": p_models, "alpha": 0.05}
    rows = [{"rule": "chance", "n": 9, "advice_is": advice_is, **tests, **nats}]
    assert beats_chance(rows) is beats
    lost = [*rows, {"rule": "validation", "advice_is": "worse"}]
    assert verdict(lost).endswith("choose better still.") is beats
    assert said in verdict(rows)


def test_a_candidate_that_cannot_be_read_costs_itself_only(folder: Path) -> None:
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text("{}")
    found = facts("mine.csv", "--models", f"{MODELS[0]},chronos-bolt:broken", "--contexts", "64", *ASKED[5:])
    assert [row["rank"] for row in found["candidates"]] == [1, None]
    assert "broken" in found["candidates"][1]["reason"]


def test_results_that_do_not_answer_are_an_error_where_they_were_named_and_else_no_trust(folder: Path) -> None:
    (folder / "data").mkdir()
    with duckdb.connect(str(folder / "data" / "results.duckdb")) as connection:
        connection.execute("create table older as select 1 as x")
    few = ("mine.csv", "--models", MODELS[0], "--contexts", "32,64", "--horizon", "16", "--rows", "100")
    found = facts(*few)
    assert found["trust"] is None and "data/results.duckdb cannot be queried" in found["verdict"]
    assert {row["rank"] for row in found["candidates"]} <= {1, 2, None}
    done = CliRunner().invoke(app, ["recommend", *few, "--results", "data/results.duckdb"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--results data/results.duckdb cannot be queried (Catalog Error" in done.stderr

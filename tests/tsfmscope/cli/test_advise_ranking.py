"""Order, ties and refused contexts of `tsfmscope recommend`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from stages.config.params import ParamsError, load
from stages.planning.contexts import Observed
from tests.quick_params import QUICK_PARAMS
from tsfmscope.cli.app import app
from tsfmscope.cli.ranking import Candidate, Criteria, LastLayer, _row, assign_ranks, select_filled

ROOT = Path(__file__).parents[3]
BOLT, PATCH = "chronos-bolt-nano", "patchtst-nano"
N, WIDTH = 90, 64
QUICK = ("--rows", "300")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "params.yaml").write_text(QUICK_PARAMS)
    (tmp_path / "checkpoints").symlink_to(ROOT / "tsfmscope" / "checkpoints")
    rng = np.random.default_rng(0)
    waves = {f"s{n}": np.sin(np.arange(333) / (3 + n)) + 0.3 * rng.normal(size=333) for n in range(3)}
    pd.DataFrame(waves).to_csv(tmp_path / "short.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def skewed(strength: float) -> np.ndarray:
    """States whose long vectors lean one way and short ones the other: ζ′ lies above its null mean."""
    rng = np.random.default_rng(0)
    scale = rng.normal(size=N)
    lean = strength * (scale - scale.mean())[:, None] * np.ones(WIDTH) / np.sqrt(WIDTH)
    states: np.ndarray = np.exp(0.5 * scale)[:, None] * rng.normal(size=(N, WIDTH)) - lean
    return states


def candidates(by: Any) -> list[dict[str, Any]]:
    """Rows of an isotropic candidate and of two whose anisotropy cancels the floor of ζ′."""
    isotropic = np.random.default_rng(1).normal(size=(N, WIDTH))
    states = {"isotropic": isotropic, "leaning": skewed(2.0), "leaning more": skewed(2.5)}
    observed = Observed(64, 64, 64.0, 300)
    measured = [
        Candidate(name, 64, LastLayer("encoder", 4, values.astype(np.float32), None), observed=observed)
        for name, values in states.items()
    ]
    options = load(ROOT / "params" / "full.yaml").geometry.model_dump(exclude={"rows", "cai"})
    return assign_ranks([_row(each, N, by, 0, options) for each in measured], by)


def test_a_candidate_nearest_its_null_comes_first_though_it_is_third_by_the_printed_cosine() -> None:
    printed = candidates("zeta_adjusted")
    assert abs(printed[2]["zeta_adjusted"]) == max(abs(row["zeta_adjusted"]) for row in printed)
    assert printed[2]["model"] == "isotropic"
    found = candidates(Criteria(["a", "b"]).by)
    assert [(row["rank"], row["is_tied"]) for row in found] == [(1, False), (2, True), (2, True)]
    assert found[0]["model"] == "isotropic"
    assert abs(found[0]["zeta_adjusted_corrected"]) < 1e-3 < found[1]["zeta_adjusted_corrected"]


def test_candidates_tie_within_two_standard_deviations_of_their_difference() -> None:
    def row(name: str, score: float | None, sd: float | None) -> dict[str, Any]:
        return {"model": name, "score": score, "zeta_sd": sd}

    rows = [row("c", -0.5, 0.03), row("none", None, None), row("a", -0.40, 0.03), row("b", -0.45, 0.04)]
    found = [(one["model"], one["rank"], one["is_tied"]) for one in assign_ranks(rows, "zeta")]
    # 0.05 < 2 hypot(0.03, 0.04) = 0.1 twice; a and c differ by 0.1 > 2 hypot(0.03, 0.03) = 0.085
    assert found == [("a", 1, True), ("b", 1, True), ("c", 2, False), ("none", None, False)]
    alike = [row("a", -0.4, None), row("b", -0.4, None), row("c", -0.41, None)]
    assert [(one["rank"], one["is_tied"]) for one in assign_ranks(alike, "zeta")] == [(1, True), (1, True), (3, False)]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["recommend", *arguments], env={"COLUMNS": "250", "NO_COLOR": "1"})


def test_contexts_that_no_series_fills_are_named_and_the_others_ranked() -> None:
    done = run("short.csv", "--models", f"{BOLT},{PATCH}", "--contexts", "100,400,1000", *QUICK)
    assert done.exit_code == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("not ranked")]
    assert line.startswith(
        "not ranked: no series fills context 400, 1000: the longest has 309 steps before its horizon"
    )
    ranked = [line.split() for line in done.stdout.splitlines() if "-nano" in line and line.lstrip()[:1].isdigit()]
    assert {(line[1], line[2]) for line in ranked} == {(BOLT, "100"), (PATCH, "100")}
    facts = json.loads(
        run("short.csv", "--models", f"{BOLT},{PATCH}", "--contexts", "100,400,1000", *QUICK, "--json").stdout
    )
    assert facts["unfilled"] == {"contexts": [400, 1000], "longest": 309}
    assert {row["context"] for row in facts["candidates"]} == {100}
    assert all(row["n_context_min"] <= row["n_context_median"] == 100 for row in facts["candidates"])
    assert all(row["zeta_adjusted_corrected_sd"] > 0 and row["repeats"] == 2 for row in facts["candidates"])


def test_fewer_than_two_candidates_that_a_series_fills_are_refused() -> None:
    done = run("short.csv", "--models", BOLT, "--contexts", "100,400,1000", *QUICK)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "contexts 400, 1000: no series fills them, the longest has 309 steps before its horizon" in done.stderr
    assert "that leaves 1 of 3 candidates" in done.stderr and "--contexts" in done.stderr


def test_a_context_that_just_fits_is_ranked_and_one_step_more_is_not() -> None:
    seen = [Candidate("a", context, longest=309) for context in (64, 128, 309, 310)]
    kept, unfilled, longest = select_filled(seen)
    assert ([one.context for one in kept], unfilled, longest) == ([64, 128, 309], [310], 309)
    assert select_filled(seen[:2]) == (seen[:2], [], 309)
    with pytest.raises(ParamsError, match="that leaves 1 of 2 candidates"):
        select_filled(seen[2:])


def test_contexts_of_which_a_model_reads_the_same_steps_are_ranked_once() -> None:
    rng = np.random.default_rng(0)
    pd.DataFrame({"a": rng.normal(size=900), "b": rng.normal(size=900)}).to_csv("long.csv", index=False)
    # chronos-bolt-nano reads 512 steps, moirai-nano all.
    arguments = ("long.csv", "--models", f"{BOLT},moirai-nano", "--contexts", "600,512,700", "--horizon", "8", *QUICK)
    done = run(*arguments, "--json")
    rows = {(row["model"], row["context"]): row for row in json.loads(done.stdout)["candidates"]}
    assert set(rows) == {(BOLT, 512), *(("moirai-nano", context) for context in (512, 600, 700))}
    assert rows[BOLT, 512]["n_context_median"] == 512 and rows["moirai-nano", 700]["n_context_median"] == 700
    for context in (600, 700):
        assert f"not ranked: {BOLT} at context {context}: it reads the last 512 steps" in done.stderr
    alone = run("long.csv", "--models", BOLT, "--contexts", "600,700", "--horizon", "8", *QUICK)
    assert alone.exit_code == 2 and "expected two or more candidates that read different steps, got 1" in alone.stderr


def test_another_seed_draws_other_tokens_and_clusters_and_the_same_seed_the_same_bytes() -> None:
    arguments = ("short.csv", "--models", f"{BOLT},{PATCH}", "--contexts", "64", "--json", *QUICK)
    zero, again, one = (run(*arguments, "--seed", seed).stdout for seed in ("0", "0", "1"))
    assert zero == again
    values = [[row["zeta_adjusted_corrected"] for row in json.loads(text)["candidates"]] for text in (zero, one)]
    assert not set(values[0]) & set(values[1])

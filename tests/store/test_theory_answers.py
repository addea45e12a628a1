"""Slopes with their intervals and violations, against numpy and scipy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tsfmscope import store
from tsfmscope.store import catalogue, files

POINT = {"kind": "point", "setting": "{}", "fitted": True, "scale": "log-log", "claimed": 1.0, "job_key": "k"}
BOUND = {"kind": "instance", "setting": "{}", "fitted": False, "x": 1.0, "floor": 0.0, "job_key": "k"}


def lines(experiment: str, seeds: int, slope: float, *, spread: float = 0.1, scale: str = "log-log") -> list[dict]:
    """Points of noisy lines, one a seed; points beyond x = 8 are not fitted and lie elsewhere."""
    rng, rows = np.random.default_rng(seeds), []
    for seed in range(seeds):
        own = slope + spread * rng.standard_normal()
        for x in (1.0, 2.0, 4.0, 8.0, 16.0):
            at = np.log(x) if scale == "log-log" else x
            y = float(np.exp(own * at + 0.05 * rng.standard_normal()) if x < 16 else 1e9)
            row = {"experiment": experiment, "seed": seed, "x": x, "y": y, "fitted": x < 16, "scale": scale}
            rows.append(POINT | row)
    return rows


def side(number: int, y: float, bound: float, *, kind: str = "upper", form: str = "printed", **changes: object) -> dict:
    holds = y <= bound * (1 + 1e-9) if kind == "upper" else y >= bound * (1 - 1e-9)
    row = {"experiment": "T", "form": form, "seed": 0, "instance": number, "y": y, "bound": bound, "side": kind}
    return BOUND | row | {"holds": holds, "setting": json.dumps({"n": number})} | changes


@pytest.fixture
def ask(tmp_path: Path) -> Callable[[list[dict], str], list[dict]]:
    def make(rows: list[dict], view: str) -> list[dict]:
        files.write_rows(tmp_path / "theory.parquet", "theory", rows)
        catalogue.build(tmp_path / "r.duckdb", {"theory": [tmp_path / "theory.parquet"]})
        with store.open(tmp_path / "r.duckdb") as opened:
            return opened.sql(f"select * from {view}").to_arrow_table().to_pylist()

    return make


def test_a_slope_is_the_mean_over_seeds_with_scipys_t_interval(ask: Callable) -> None:
    cases = {f"{scale}, {n}": (n, scale) for n in (10, 20, 50) for scale in ("log-log", "log-linear")}
    rows = [row for name, (n, scale) in cases.items() for row in lines(name, n, 0.7, scale=scale)]
    answer = {row["experiment"]: row for row in ask(rows, "theory_slopes")}
    assert set(answer) == set(cases)
    for name, (n, scale) in cases.items():
        slopes = []
        for seed in range(n):
            own = [row for row in rows if (row["experiment"], row["seed"]) == (name, seed) and row["fitted"]]
            x = np.array([row["x"] for row in own])
            slopes.append(stats.linregress(np.log(x) if scale == "log-log" else x, np.log([r["y"] for r in own])).slope)
        low, high = stats.t.interval(0.95, n - 1, np.mean(slopes), stats.sem(slopes))
        found = answer[name]
        assert (found["n_seeds"], found["points_a_seed"], found["verdict"]) == (n, 4, "differs")
        assert found["slope"] == pytest.approx(np.mean(slopes), rel=1e-12)
        assert (found["low"], found["high"]) == (pytest.approx(low, rel=2e-4), pytest.approx(high, rel=2e-4))
        assert (found["least"], found["largest"]) == (pytest.approx(min(slopes)), pytest.approx(max(slopes)))


def test_verdicts_follow_the_interval(ask: Callable) -> None:
    cases = [  # experiment, slope, what is claimed, verdict
        ("J a", 1.0, 1.0, "agrees"),
        ("J b", 1.0, 1.5, "differs"),
        ("J c", 0.5, None, "agrees"),
        ("J d", -0.5, None, "differs"),
        ("Corollary 2 rate, beta 1", -2.0, -1.0, "agrees"),
        ("Corollary 2 rate, beta 2", -0.5, -1.0, "differs"),
    ]
    rows = [row | {"claimed": claimed} for name, slope, claimed, _ in cases for row in lines(name, 12, slope)]
    answer = {row["experiment"]: row["verdict"] for row in ask(rows, "theory_slopes")}
    assert answer == {name: verdict for name, _, _, verdict in cases}


def test_five_seeds_have_no_interval(ask: Callable) -> None:
    (found,) = ask(lines("J", 5, 1.0), "theory_slopes")
    assert (found["low"], found["verdict"]) == (None, "undecided")


def test_violations_are_counted_and_the_worst_is_named(ask: Callable) -> None:
    rows = [side(n, y, 2.0) for n, y in enumerate([1.0, 3.0, 8.0, 2.0])]
    rows += [side(n, y, 2.0, kind="lower", form="repaired") for n, y in enumerate([2.5, 4.0])]
    printed, repaired = ask(rows, "theory_violations")
    assert (printed["n"], printed["violations"], printed["ratio_largest"]) == (4, 2, 4.0)
    assert (printed["worst_seed"], printed["worst_instance"], printed["worst_setting"]) == (0, 2, '{"n": 2}')
    assert (printed["worst_y"], printed["worst_bound"], printed["ratio_median"]) == (8.0, 2.0, 1.25)
    assert (repaired["n"], repaired["violations"], repaired["ratio_largest"]) == (2, 0, 0.8)

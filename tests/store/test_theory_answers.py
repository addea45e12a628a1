"""Slopes with their intervals and violations, against numpy and scipy."""

from __future__ import annotations

import json

import duckdb
import numpy as np
import pytest
from scipy import stats

from tests.store.conftest import open_results

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


# Experiment -> number of seeds and scale.
SLOPES = {f"{scale}, {n}": (n, scale) for n in (10, 20, 50) for scale in ("log-log", "log-linear")}
# Experiment, number of seeds, slope, claimed slope, verdict.
VERDICTS = [
    ("J a", 12, 1.0, 1.0, "agrees"),
    ("J b", 12, 1.0, 1.5, "differs"),
    ("J c", 12, 0.5, None, "agrees"),
    ("J d", 12, -0.5, None, "differs"),
    ("J e", 5, 1.0, 1.0, "undecided"),  # five seeds have no interval
    ("Corollary 2 rate, beta 1", 12, -2.0, -1.0, "agrees"),
    ("Corollary 2 rate, beta 2", 12, -0.5, -1.0, "differs"),
]
POINTS = {name: lines(name, n, 0.7, scale=scale) for name, (n, scale) in SLOPES.items()}
CLAIMS = [row | {"claimed": claimed} for name, n, slope, claimed, _ in VERDICTS for row in lines(name, n, slope)]
SIDES = [side(n, y, 2.0) for n, y in enumerate([1.0, 3.0, 8.0, 2.0])]
SIDES += [side(n, y, 2.0, kind="lower", form="repaired") for n, y in enumerate([2.5, 4.0])]


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory):
    rows = [*(row for own in POINTS.values() for row in own), *CLAIMS, *SIDES]
    with open_results(tmp_path_factory.mktemp("theory"), {"theory": rows}) as opened:
        yield opened


@pytest.fixture(scope="module")
def slopes(connection: duckdb.DuckDBPyConnection) -> dict[str, dict]:
    """Experiment -> row of `theory_slopes`."""
    found = connection.sql("select * from theory_slopes").to_arrow_table().to_pylist()
    assert {row["experiment"] for row in found} == {*SLOPES, *(name for name, *_ in VERDICTS)}
    return {row["experiment"]: row for row in found}


@pytest.mark.parametrize("name", SLOPES)
def test_a_slope_is_the_mean_over_seeds_with_scipys_t_interval(slopes: dict[str, dict], name: str) -> None:
    n, scale = SLOPES[name]
    own = []
    for seed in range(n):
        points = [row for row in POINTS[name] if row["seed"] == seed and row["fitted"]]
        x = np.array([row["x"] for row in points])
        own.append(stats.linregress(np.log(x) if scale == "log-log" else x, np.log([r["y"] for r in points])).slope)
    low, high = stats.t.interval(0.95, n - 1, np.mean(own), stats.sem(own))
    found = slopes[name]
    assert (found["n_seeds"], found["points_a_seed"], found["verdict"]) == (n, 4, "differs")
    assert found["slope"] == pytest.approx(np.mean(own), rel=1e-12)
    assert (found["low"], found["high"]) == (pytest.approx(low, rel=2e-4), pytest.approx(high, rel=2e-4))
    assert (found["least"], found["largest"]) == (pytest.approx(min(own)), pytest.approx(max(own)))


@pytest.mark.parametrize(("name", "seeds", "slope", "claimed", "verdict"), VERDICTS)
def test_verdicts_follow_the_interval(slopes, name: str, seeds: int, slope: float, claimed, verdict: str) -> None:
    assert (slopes[name]["verdict"], slopes[name]["low"] is None) == (verdict, seeds < 10)


def test_violations_are_counted_and_the_worst_is_named(connection: duckdb.DuckDBPyConnection) -> None:
    printed, repaired = connection.sql("select * from theory_violations").to_arrow_table().to_pylist()
    assert (printed["n"], printed["violations"], printed["ratio_largest"]) == (4, 2, 4.0)
    assert (printed["worst_seed"], printed["worst_instance"], printed["worst_setting"]) == (0, 2, '{"n": 2}')
    assert (printed["worst_y"], printed["worst_bound"], printed["ratio_median"]) == (8.0, 2.0, 1.25)
    assert (repaired["n"], repaired["violations"], repaired["ratio_largest"]) == (2, 0, 0.8)

"""Compressed models in Yu et al. 2026 and in our tables: ratios and intervals against scipy's own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import stats

from stages.planning.inference import infer
from store import catalogue, files
from tests.stages.estimates import differences
from tsfmscope.compression.options import requested_size
from tsfmscope.statistics.options import SeededOptions

OPTIONS = SeededOptions(permutations=99, bootstrap=20, alpha=0.05, seed=0)
DATASETS = ("a", "b", "c")
FLOW, FLAT = {"flow": {"first": 5.0, "growth": 0.27}}, {"flat": 16}
WIDE = {"flow": {"first": 8.0, "growth": 0.34}}
Rows = list[dict[str, Any]]
MODELS: Mapping[str, tuple[str, str, str | None, float | None, dict[str, Any] | None]] = {
    # model -> study, family, base, share, schedule
    "t5": ("cut", "chronos-t5", None, None, None),
    "t5@svd": ("cut", "chronos-t5", "t5", 0.5, None),
    "t5@joint": ("cut", "chronos-t5", "t5", 0.5, None),
    "text@svd": ("cut", "t5-text", "text", 0.5, None),
    "dense": ("seven", "chronos-t5", None, None, None),
    "flow": ("seven", "chronos-t5", "dense", 0.075, FLOW),
    "reuse": ("seven", "chronos-t5", "dense", 0.075, FLOW),
    "shared": ("seven", "chronos-t5", "dense", 0.075, FLOW | {"factors": "shared"}),
    "self": ("seven", "chronos-t5", "dense", 0.075, FLOW | {"attention": ["self"]}),
    **{f"moirai-dense-{n}": ("three", "moirai", None, None, None) for n in range(3)},
    **{f"moirai-flow-{n}": ("three", "moirai", f"moirai-dense-{n}", 0.25, WIDE) for n in range(3)},
    **{f"moirai-flat-{n}": ("three", "moirai", f"moirai-dense-{n}", 0.25, FLAT) for n in range(3)},
}
FIGURES = {"cut": "ranks Table 2", "seven": "ranks Fig. 7", "three": "ranks Table 3"}
RATIO = {"t5@svd": 0.25, "t5@joint": 0.237, "text@svd": 0.4}  # mean rank over width
FIDELITY = {("t5@svd", name): (0.9 - 0.02 * n, 1.1 + 0.1 * n) for n, name in enumerate(DATASETS)}
FIDELITY |= {("text@svd", "a"): (0.5, 1.5)}
SECONDS = {"dense": 4.0, "flow": 2.0, "reuse": 1.0}


@pytest.fixture(scope="module")
def losses() -> dict[tuple[str, str], float]:
    """WQL of each model on each data set; MASE with the season of GluonTS is twice that."""
    rng = np.random.default_rng(5)
    return {(model, dataset): float(np.exp(0.1 * rng.normal())) for model in MODELS for dataset in DATASETS}


@pytest.fixture(scope="module")
def answered(losses, rows, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    """Every number that Yu et al. 2026 print, with the result of the made-up run."""
    folder: Path = tmp_path_factory.mktemp("losses")
    tables = made(losses, rows)
    for name, lines in tables.items():
        files.write_rows(folder / name, name, lines)
    with duckdb.connect() as connection:  # without the checks, which take most of the time
        catalogue._fill(connection, {name: [folder / name] for name in tables}, 0)
        catalogue._create_views(connection, catalogue.resources("store") / "sql")
        found = files.to_arrow("inference", infer(connection, OPTIONS))
        connection.register("found", found)
        connection.execute("insert into inference by name select * from found")
        assert differences(connection, found.to_pylist()) == []
        asked = "select * from published_vs_measured where starts_with(figure, 'ranks') and published is not null"
        yield connection.sql(asked).to_arrow_table().to_pylist()


def made(losses: Mapping[tuple[str, str], float], rows: Mapping[str, dict[str, Any]]) -> dict[str, Rows]:
    """Table -> rows of the run."""
    forecasts = [
        rows["forecasts"]
        | {"model": model, "base_model": base, "dataset": dataset, "series": "one", "levels": [0.5]}
        | requested_size(share and {"share": share})
        | {"wql_window": loss, "quantile_loss": loss, "target_abs": 1.0, "mase": 9.0, "mase_gluonts": 2 * loss}
        | {"job_key": f"{model}/{dataset}"}
        for model, (_, _, base, share, _) in MODELS.items()
        if not model.startswith("text")
        for dataset in DATASETS
        for loss in [losses[model, dataset]]
    ]
    fidelity = [
        rows["fidelity"]
        | {"model": model, "base_model": MODELS[model][2], "dataset": dataset, "job_key": f"f/{model}/{dataset}"}
        | {"overlap": overlap, "lppl": lppl}
        for (model, dataset), (overlap, lppl) in FIDELITY.items()
    ]
    checkpoint = rows["checkpoints"] | {"source": "hub"}
    checkpoints = [
        checkpoint
        | {"model": model, "family": family, "source": "compressed" if "@" in model else "hub"}
        | {"heads": json.dumps(heads) if heads else None, "recipe": "r" if heads else None}
        for model, (_, family, _, _, heads) in MODELS.items()
    ]
    compression = [
        rows["compression"] | {"model": model, "base_model": MODELS[model][2], "rank_ratio": ratio}
        | {"method": model.partition("@")[2], "job_key": model}
        for model, ratio in RATIO.items()
    ]  # fmt: skip
    timing = {"load_seconds": 0.0, "actor": "a", "node": "n", "device": "cpu", "started": 0, "stage": "forecasts"}
    asked = [(MODELS[one["model"]][0], "forecasts", one["job_key"]) for one in forecasts]
    asked += [("cut", "compression", one["job_key"]) for one in fidelity]
    return {
        "forecasts": forecasts,
        "fidelity": fidelity,
        "checkpoints": [*checkpoints, checkpoint | {"model": "text", "family": "t5-text", "source": "committed"}],
        "compression": compression,
        "timings": [
            timing | {"key": one["job_key"], "seconds": SECONDS[one["model"]]}
            for one in forecasts
            if one["model"] in SECONDS
        ],
        "study_jobs": [{"study": study, "stage": stage, "job_key": key} for study, stage, key in asked],
        "studies": [rows["studies"] | {"study": study, "figure": figure} for study, figure in FIGURES.items()],
    }


def of(rows: Rows, claim: str) -> dict[str, Any]:
    (found,) = (one for one in rows if one["claim"] == claim)
    return found


def interval(logs: list[float]) -> tuple[float, float, float]:
    """Geometric mean of ratios whose logs these are, with Student's t, by scipy."""
    low, high = stats.t.interval(0.95, len(logs) - 1, loc=np.mean(logs), scale=stats.sem(logs))
    return float(np.exp(np.mean(logs))), float(np.exp(low)), float(np.exp(high))


def three(row: dict[str, Any]) -> tuple[float, float, float]:
    return row["measured"], row["low"], row["high"]


@pytest.mark.parametrize("score", ["WQL", "MASE"])
@pytest.mark.parametrize("benchmark", ["in-domain", "zero-shot"])
def test_a_cut_model_stands_beside_the_printed_size_that_is_nearest(answered, losses, score, benchmark) -> None:
    row = of(answered, f"{score} of chronos-t5 cut to 0.237, {benchmark}")
    logs = [float(np.log(losses["t5@svd", one] / losses["t5", one])) for one in DATASETS]
    assert three(row) == pytest.approx(interval(logs))
    assert (row["model"], row["n"], row["study"]) == ("t5@svd", 3, "cut")
    assert (row["verdict"], row["why"]) == ("not comparable", "other data than the paper's benchmark")


def test_overlap_and_perplexity_have_intervals_over_data_sets(answered) -> None:
    overlap = of(answered, "overlap of chronos-t5 cut to 0.237")
    values = [FIDELITY["t5@svd", one][0] for one in DATASETS]
    low, high = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert three(overlap) == pytest.approx((np.mean(values), low, high))
    assert overlap["why"] == "data that the paper does not name"


def test_one_data_set_gives_no_interval_and_says_so(answered) -> None:
    lppl = of(answered, "LPPL of t5-text cut to 0.393")
    assert three(lppl) == (pytest.approx(1.5), None, None)
    assert lppl["note"] == "no interval: 1 units; a spread needs 2"
    assert lppl["why"] == "a small checkpoint of ours; data that the paper does not name"


def test_a_size_that_no_model_has_was_not_measured(answered) -> None:
    for size in (0.073, 0.151, 0.393, 0.569, 0.755, 0.889):
        row = of(answered, f"WQL of chronos-t5 cut to {size:g}, in-domain")
        assert (row["verdict"], row["measured"], row["model"]) == ("not measured", None, None)
        assert row["why"] == "no model is cut by svd to about this size" and "NAME=paper" in row["run"]


@pytest.mark.parametrize(("line", "model"), [("from scratch", "flow"), ("reused embedding", "reuse")])
@pytest.mark.parametrize("column", ["score a", "score b"])
def test_a_column_whose_head_is_unknown_tells_both_scores(answered, losses, line: str, model: str, column: str) -> None:
    row = of(answered, f"{column} of chronos-t5, flow from 3 by 0.27, {line}")
    mean, low, high = interval([float(np.log(losses[model, one] / losses["dense", one])) for one in DATASETS])
    told = f"{mean:.3g} ({low:.3g} to {high:.3g})"
    assert row["note"] == f"ours: WQL {told}, MASE {told}"
    assert (row["model"], row["measured"], row["verdict"]) == (model, None, "not comparable")
    assert row["why"].endswith("the column's head does not say which score it holds")


def test_time_is_a_clock_without_an_interval_and_space_is_not_measured(answered) -> None:
    time = [one for one in answered if one["claim"] == "time of chronos-t5, flow from 3 by 0.27"]
    assert {one["model"]: one["measured"] for one in time} == {"flow": pytest.approx(0.5), "reuse": pytest.approx(0.25)}
    for one in time:
        assert (one["low"], one["note"]) == (None, "no interval: times of one run, next to other jobs")
        assert (one["verdict"], one["why"]) == ("not comparable", "other hardware")
    space = of(answered, "space of chronos-t5, flow from 3 by 0.27")
    assert (space["verdict"], space["why"]) == ("not measured", "no job measures memory: bench/compression.py does")


@pytest.mark.parametrize(("line", "name"), [("flow", "flow from 8 by 0.34"), ("flat", "flat 16")])
def test_several_seeds_are_one_line_with_an_interval_over_seeds(answered, losses, line: str, name: str) -> None:
    row = of(answered, f"WQL of moirai, {name}")
    logs = [
        float(
            np.mean([np.log(losses[f"moirai-{line}-{n}", one] / losses[f"moirai-dense-{n}", one]) for one in DATASETS])
        )
        for n in range(3)
    ]
    assert three(row) == pytest.approx(interval(logs))
    assert (row["n"], row["model"].endswith(", 3 seeds")) == (3, True)


def test_every_row_has_a_verdict_and_says_why_and_what_to_run(answered) -> None:
    assert {one["verdict"] for one in answered} == {"not comparable", "not measured"}
    assert all(one["why"] and one["run"] for one in answered)
    assert {one["figure"] for one in answered if one["study"] is None} == {"ranks Table 4"}

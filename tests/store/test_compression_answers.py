"""The answers on compressed models against the same numbers from numpy, on rows made by a seed."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.store.conftest import open_results
from tsfmscope.compression.options import requested_size

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "table2_svd_compression.csv"
MODELS = {"t5": None, "t5@half": 0.5, "t5@fifth": 0.2}
DATASETS, SERIES = ["d0", "d1"], ["s0", "s1", "s2"]
SECONDS = {"t5": 4.0, "t5@half": 2.0, "t5@fifth": 1.0}
RUN = {"seconds": 100.0, "jobs": 1, "done": 1, "reused": 0, "failed": 0, "commit": "c", "versions": "{}"}
RUN |= {"stage": "forecasts", "hardware": "h", "cpus": 1, "gpus": 0, "seed": 0, "host": "h"}
RUNS = [{**RUN, "started": started * 10**6} for started in (0, 1000)]  # in microseconds: 0 to 100 s, 1,000 to 1,100 s
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def measured(rows) -> Rows:
    """A base and two models made from it on two data sets; the base alone on a third, one model alone on a fourth."""
    rng = np.random.default_rng(8)
    made: Rows = {name: [] for name in ("forecasts", "geometry", "fidelity", "timings", "study_jobs")}
    for model, share in MODELS.items():
        base = None if share is None else "t5"
        for dataset in [*DATASETS, *(["alone"] if model in ("t5",) else ["baseless"] if model == "t5@half" else [])]:
            which = {
                "model": model, "base_model": base, "dataset": dataset, **requested_size(share and {"share": share}),
            }  # fmt: skip
            key = f"{model}/{dataset}"
            for name in SERIES:
                scores = {
                    "quantile_loss": rng.uniform(1, 2),
                    "target_abs": rng.uniform(9, 11),
                    "mase": rng.uniform(1, 2),
                    "mase_gluonts": rng.uniform(1, 2),
                }
                made["forecasts"].append(rows["forecasts"] | which | scores | {"series": name, "job_key": f"f/{key}"})
            timing = {"load_seconds": 0.0, "actor": "a", "node": "n", "device": "cpu", "started": len(made["timings"])}
            seconds = SECONDS[model] + (7.0 if dataset == "d0" else 0.0)  # the first of each model, which is no measure
            made["timings"].append(timing | {"stage": "forecasts", "key": f"f/{key}", "seconds": seconds})
            made["study_jobs"] += [
                {"study": study, "stage": "forecasts", "job_key": f"f/{key}"} for study in ("s", "t")
            ]
            for layer in range(3):
                state = {"zeta_adjusted": rng.uniform(), "eigenvalues": sorted(rng.uniform(size=6), reverse=True)}
                where = {"layer": layer, "normed": False, "job_key": f"g/{key}/{layer}"}
                made["geometry"].append(rows["geometry"] | which | state | where)
                made["study_jobs"].append({"study": "s", "stage": "geometry", "job_key": where["job_key"]})
            if share is not None:
                found = {"overlap": rng.uniform(), "lppl": rng.uniform(1, 3), "job_key": f"d/{key}"}
                made["fidelity"].append(rows["fidelity"] | which | found)
                made["study_jobs"] += [{"study": s, "stage": "compression", "job_key": f"d/{key}"} for s in ("s", "t")]
    return made


@pytest.fixture(scope="module")
def connection(measured: Rows, rows, tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("compression")
    compressed = [
        rows["compression"]
        | {"model": model, "base_model": "t5", "size_parameter": share, "rank_ratio": share, "job_key": model}
        for model, share in MODELS.items()
        if share is not None
    ]
    kinds = [rows["checkpoints"] | {"model": model, "family": "chronos-t5"} for model in MODELS]
    tables = measured | {"compression": compressed, "checkpoints": kinds, "runs": RUNS}
    with open_results(folder, tables) as opened:
        yield opened


def of(rows: list[dict[str, Any]], **where: Any) -> list[dict[str, Any]]:
    return [row for row in rows if all(row[name] == value for name, value in where.items())]


@pytest.mark.parametrize("model", ["t5@half", "t5@fifth"])
def test_losses_are_geometric_means_of_ratios_over_the_cells_that_both_models_have(
    connection, measured: Rows, model: str
) -> None:
    asked = "select wql_ratio, mase_ratio, time_ratio, n_cells from compression_frontier where model = ?"
    found = connection.execute(asked, [model]).fetchall()

    def wql(which: str, dataset: str) -> float:
        lines = of(measured["forecasts"], model=which, dataset=dataset)
        return sum(row["quantile_loss"] for row in lines) / sum(row["target_abs"] for row in lines)

    def mase(which: str, dataset: str) -> float:
        return float(np.mean([row["mase_gluonts"] for row in of(measured["forecasts"], model=which, dataset=dataset)]))

    means = [
        np.exp(np.mean([np.log(score(model, dataset) / score("t5", dataset)) for dataset in DATASETS]))
        for score in (wql, mase)
    ]
    assert found == [(*map(pytest.approx, means), pytest.approx(SECONDS[model] / 4), 2)]


Clock = tuple[float, float, str]  # start, seconds, device
WARM: tuple[Clock, Clock] = (1.0, 9.0, "cpu"), (2.0, 4.0, "cpu")
# Case -> two forecasts of a compressed model (start, seconds, device) on d0 and d1, and its time ratio.
CLOCKS: dict[str, tuple[Clock, Clock, float | None]] = {
    "one run": ((3.0, 9.0, "cpu"), (4.0, 2.0, "cpu"), 0.5),
    "the base of an earlier run": ((1003.0, 9.0, "cpu"), (1004.0, 8.0, "cpu"), None),
    "one cell alone, cold": ((1003.0, 9.0, "cpu"), (4.0, 2.0, "cpu"), None),
    "a killed run": ((503.0, 9.0, "cpu"), (504.0, 2.0, "cpu"), None),
    "two devices": ((3.0, 9.0, "cpu"), (4.0, 2.0, "cuda:0"), None),
    "cold": ((4.0, 9.0, "cpu"), (3.0, 2.0, "cpu"), None),
}


def test_time_is_that_of_warm_jobs_of_one_run_and_device(rows, tmp_path: Path) -> None:
    where = {"stage": "forecasts", "load_seconds": 0.0, "node": "n"}
    made: Rows = {name: [] for name in ("timings", "forecasts", "study_jobs", "checkpoints", "compression")}
    for actor, (name, (first, second, _)) in enumerate(CLOCKS.items()):
        base, small = f"t5-{actor}", f"t5-{actor}@half"
        made["checkpoints"] += [rows["checkpoints"] | {"model": model} for model in (base, small)]
        made["compression"].append(rows["compression"] | {"model": small, "base_model": base, "job_key": name})
        forecasts = {(base, "d0"): WARM[0], (base, "d1"): WARM[1], (small, "d0"): first, (small, "d1"): second}
        for (model, dataset), (started, seconds, device) in forecasts.items():
            key, cell = f"{model}/{dataset}", {"model": model, "dataset": dataset}
            clock = {"started": int(1e6 * started), "seconds": seconds, "device": device, "actor": str(actor)}
            made["timings"].append(where | clock | {"key": key})
            base_model = base if model == small else None
            made["forecasts"].append(rows["forecasts"] | cell | {"base_model": base_model, "job_key": key})
            made["study_jobs"].append({"study": "s", "stage": "forecasts", "job_key": key})
    with open_results(tmp_path, made | {"runs": RUNS}) as opened:
        found = dict(opened.sql("select base_model, time_ratio from compression_frontier").fetchall())
    assert {name: found[f"t5-{actor}"] for actor, name in enumerate(CLOCKS)} == {
        name: ratio for name, (*_, ratio) in CLOCKS.items()
    }


def test_distances_are_means_over_cells_however_many_studies_ask(connection, measured: Rows) -> None:
    found = connection.sql("select overlap, lppl from compression_frontier where model = 't5@half'").fetchall()
    lines = of(measured["fidelity"], model="t5@half")
    assert found == [tuple(pytest.approx(np.mean([row[name] for row in lines])) for name in ("overlap", "lppl"))]


def test_isotropy_stands_by_base_stack_layer_and_rank_with_the_base_at_full_rank(connection, measured: Rows) -> None:
    rows = connection.sql("select * from isotropy_by_rank").to_arrow_table().to_pylist()
    keys = [
        (row["base_model"], row["model"], row["method"], row["size_parameter"], row["size_rule"], row["rank_ratio"])
        for row in rows
    ]
    assert set(keys) == {
        ("t5", "t5", "none", None, None, 1.0),
        ("t5", "t5@half", "joint", 0.5, "share", 0.5),
        ("t5", "t5@fifth", "joint", 0.2, "share", 0.2),
    }
    assert len(rows) == 3 * 3  # models, layers
    for row in rows:
        lines = of(measured["geometry"], model=row["model"], layer=row["layer"])
        assert row["n_cells"] == len(lines)
        assert row["zeta_adjusted"] == pytest.approx(np.mean([line["zeta_adjusted"] for line in lines]))
        shares = [np.cumsum(line["eigenvalues"]) / np.sum(line["eigenvalues"]) for line in lines]
        assert row["effective_dimension"] == pytest.approx(np.mean([(share < 0.8).sum() + 1 for share in shares]))


def test_a_model_that_is_read_otherwise_is_no_compressed_one(connection, measured: Rows) -> None:
    assert connection.sql("select count(*) from isotropy_by_rank where base_model != 't5'").fetchall() == [(0,)]


def test_table_2_stands_beside_ours(connection) -> None:
    rows = connection.sql("select * from svd_compression").to_arrow_table().to_pylist()
    assert {(row["whose"], row["model"]) for row in rows if row["family"] == "chronos-t5"} == {
        ("published", "in-domain"),
        ("published", "zero-shot"),
        ("measured", "t5@half"),
        ("measured", "t5@fifth"),
    }
    assert len(of(rows, whose="published", family="t5-text")) == 8


def test_the_printed_numbers_are_those_of_the_reference_file(connection) -> None:
    if not REFERENCE.is_file():
        pytest.skip("../shared/reference is not here; it holds the numbers as others copied them from the paper")
    printed = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(REFERENCE.read_text().splitlines())]
    rows = connection.sql("select * from published_compression").to_arrow_table().to_pylist()
    for line in printed:
        for benchmark in ("in-domain", "zero-shot"):
            (found,) = of(rows, benchmark=benchmark, ratio=line["size_ratio"])
            name = f"chronos_{benchmark.replace('-', '_')}"
            expected = (line[f"{name}_wql"], line[f"{name}_mase"], line["chronos_overlap"], None)
            assert tuple(found[k] for k in ("wql_ratio", "mase_ratio", "overlap", "lppl")) == expected
        (found,) = of(rows, family="t5-text", ratio=line["size_ratio"])
        assert (found["overlap"], found["lppl"], found["wql_ratio"]) == (line["t5_overlap"], line["t5_lppl"], None)
    assert len(rows) == 3 * len(printed)

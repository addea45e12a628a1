"""The answers against other ways to the same numbers: scipy's Spearman, numpy's cumulative sums."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import store
from store.schema import TABLES
from tests.store.conftest import open_inferred_results, open_results

MODELS, DATASETS, CONDITIONS = [f"m{n}" for n in range(4)], [f"d{n}" for n in range(6)], ["c1", "c2"]


@pytest.fixture(scope="module")
def units() -> list[dict]:
    """One unit a (model, dataset, condition), with many ties, some without isotropy or without NMSE."""
    generator = np.random.default_rng(5)
    found = []
    for model in MODELS:
        for dataset in DATASETS:
            for condition in CONDITIONS:
                zeta, nmse = generator.integers(-6, 7) / 8, generator.integers(1, 6) / 4
                found.append({"model": model, "dataset": dataset, "condition": condition, "zeta": zeta, "nmse": nmse})
    for n in (0, 7):
        found[n]["zeta"] = None
    found[3]["nmse"] = None
    found[11]["nmse"] = 1e-9
    for unit in found:
        unit["constant"] = 0.25
    return found


@pytest.fixture(scope="module")
def connection(units, rows, tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("answers")
    geometry, forecasts = [], []
    copies = [unit | {"model": "m0@half", "base_model": "m0", "zeta": -0.5} for unit in units if unit["model"] == "m0"]
    for n, unit in enumerate([*units, *copies]):  # a copy is no model of its own: nothing below may count it
        identity = {name: unit.get(name) for name in ("model", "base_model", "dataset", "condition")}
        measures = {"zeta": unit["zeta"], "zeta_adjusted": unit["constant"], "zeta_adjusted_corrected": unit["zeta"]}
        reason = {"reason": None if unit["zeta"] is not None and unit["nmse"] is not None else "made so"}
        geometry.append(rows["geometry"] | identity | measures | reason | {"job_key": f"g{n}"})
        forecasts.append(rows["forecasts"] | identity | reason | {"nmse": unit["nmse"], "job_key": f"f{n}"})
    studies = [{"study": "s", "stage": "geometry", "job_key": f"g{n}"} for n in range(len(geometry))]
    studies += [{"study": "s", "stage": "forecasts", "job_key": f"f{n}"} for n in range(len(geometry))]
    checkpoints = [rows["checkpoints"] | {"model": model} for model in (*MODELS, "m0@half")]
    tables = {"geometry": geometry, "forecasts": forecasts, "study_jobs": studies, "checkpoints": checkpoints}
    with open_inferred_results(folder, tables) as opened:
        yield opened


def block_of(grouping: str, unit: dict) -> str:
    names = {"within_dataset": unit["dataset"], "per_model": unit["model"], "pooled": "all"}
    return names.get(grouping, f"{unit['dataset']} / {unit['condition']}")


def naive(units: list[dict], grouping: str) -> dict[str, tuple[int, float, float]]:
    blocks: dict[str, list[tuple[float, float]]] = {}
    for unit in units:
        if unit["zeta"] is not None and unit["nmse"] is not None:
            point = (-abs(unit["zeta"]), np.log(max(unit["nmse"], 1e-6)))
            blocks.setdefault(block_of(grouping, unit), []).append(point)
    answers = {}
    for block, points in blocks.items():
        x, y = np.array(points).T
        if len(x) >= 3 and len(set(x)) > 1 and len(set(y)) > 1:
            answers[block] = (len(x), stats.spearmanr(x, y).statistic, stats.pearsonr(x, y).statistic)
        else:
            answers[block] = (len(x), np.nan, np.nan)
    return answers


@pytest.mark.parametrize("grouping", ["within_dataset", "per_model", "per_dataset", "pooled"])
def test_blocks_and_their_means_are_scipy_s(connection, units, grouping: str) -> None:
    expected = naive(units, grouping)
    blocks = connection.execute(
        """select block, n, coalesce(spearman, 'nan'::double), coalesce(pearson, 'nan'::double)
        from correlation_blocks where measure = 'zeta' and "grouping" = ?""",
        [grouping],
    ).fetchall()
    assert {block for block, *_ in blocks} == set(expected)
    for block, *answer in blocks:
        assert answer == pytest.approx(expected[block], abs=1e-12, nan_ok=True)
    n, n_blocks, undefined, spearman, pearson = connection.execute(
        """select n, n_blocks, n_blocks_undefined, spearman, pearson
        from correlation where measure = 'zeta' and "grouping" = ?""",
        [grouping],
    ).fetchall()[0]
    table = np.array(list(expected.values()))
    defined = table[~np.isnan(table[:, 1])]
    assert (n, n_blocks, undefined) == (table[:, 0].sum(), len(defined), len(table) - len(defined))
    assert (spearman, pearson) == pytest.approx((defined[:, 1].mean(), defined[:, 2].mean()), abs=1e-12)


def test_with_one_thread_an_answer_is_the_same_to_its_last_digit(connection, tmp_path: Path) -> None:
    built = connection.sql("select path from duckdb_databases() where database_name = 'results'").fetchall()[0][0]
    path = shutil.copy(built, tmp_path / "r.duckdb")  # one file cannot be open with two configurations
    found = set()
    for _ in range(6):
        with store.open(path, threads=1) as alone:
            found.add(repr(alone.sql("select * from correlation order by all").fetchall()))
    assert len(found) == 1


def test_nulls_and_floored_values_are_counted(connection) -> None:
    got = connection.sql("select distinct n_null, n_floored from correlation where measure = 'zeta'").fetchall()
    assert got == [(3, 1)]


def test_a_constant_measure_has_no_correlation(connection) -> None:
    got = connection.sql(
        "select distinct n_blocks, spearman, pearson from correlation where measure = 'zeta_adjusted'"
    ).fetchall()
    assert got == [(0, None, None)]


def test_there_is_a_row_for_every_study_measure_and_grouping(connection) -> None:
    measures = [column.name for column in TABLES["geometry"].columns if column.more_isotropic]
    rows = 4 * len(measures)
    counted = connection.sql('select count(*), count(distinct (measure, "grouping")) from correlation').fetchall()
    assert counted == [(rows, rows)]
    evidence = connection.sql("""select distinct evidence from correlation where "grouping" = 'pooled'""").fetchall()
    assert evidence[0][0].startswith("no evidence")


@pytest.mark.parametrize(
    ("view", "column", "names"), [("model", "n_datasets", MODELS), ("dataset", "n_models", DATASETS)]
)
def test_answers_by_model_and_by_dataset_are_the_blocks(connection, units, view: str, column: str, names: list) -> None:
    got = connection.sql(
        f"select {view}, n, {column}, spearman from correlation_by_{view} where measure = 'zeta' order by {view}"
    ).fetchall()
    assert [name for name, *_ in got] == names
    expected = naive(units, "per_model" if view == "model" else "within_dataset")
    assert [spearman for *_, spearman in got] == pytest.approx([expected[name][1] for name in names])


def effective_dimension(eigenvalues: list[float], share: float) -> int | None:
    values = np.maximum(eigenvalues, 0)
    if not values.sum() > 0:
        return None
    return int(np.argmax(np.cumsum(values) >= share * values.sum() * (1 - 1e-12))) + 1


def test_effective_dimension_is_numpy_s(tmp_path: Path, rows) -> None:
    generator = np.random.default_rng(1)
    spectra = [
        np.sort(generator.exponential(size=d) ** p)[::-1].tolist() for d in (1, 2, 7, 64, 300) for p in (1, 3, 9)
    ]
    spectra += [
        [1.0] * 10,
        [0.1] * 10,
        [4.0, 0.0, 0.0],
        [0.0, 0.0],
        [1.0, 1e-300],
        [3.0, 1.0, -1e-17],
        [1e300, 1e299],
        [],
    ]
    geometry = [rows["geometry"] | {"layer": n, "eigenvalues": s, "job_key": str(n)} for n, s in enumerate(spectra)]
    studies = [{"study": "s", "stage": "geometry", "job_key": row["job_key"]} for row in geometry]
    tables = {"geometry": geometry, "study_jobs": studies, "checkpoints": [rows["checkpoints"]]}
    with open_results(tmp_path, tables) as opened:
        got = opened.sql("select layer, variance_share, effective_dimension, width from effective_dimension").fetchall()
    assert len(got) == 5 * len(spectra)
    for layer, share, dimension, width in got:
        assert dimension == effective_dimension(spectra[layer], share), (spectra[layer][:5], share)
        assert width == len(spectra[layer])


def test_equal_eigenvalues_need_their_share(tmp_path: Path) -> None:
    """By hand: of ten equal ones, 80 % is eight, though 0.8 * 10 * 0.1 is a hair above their sum in floating point."""
    assert [effective_dimension([0.1] * 10, e) for e in (0.5, 0.8, 0.9, 0.95, 0.99)] == [5, 8, 9, 10, 10]

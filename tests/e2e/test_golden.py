"""The smoke run gives the tables that are recorded, and the comparison of two databases finds what differs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pytest
import yaml

from tests import golden
from tests.e2e.checkout import Checkout

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def test_the_smoke_run_gives_the_recorded_tables(smoke: Checkout) -> None:
    different = golden.record_differences(smoke.folder / "data/results.duckdb", "smoke")
    assert different == [], "if the change is meant: python -m tests.golden record data/results.duckdb smoke"


@pytest.mark.parametrize("profile", ["default", "full"])
def test_a_finished_run_gives_the_recorded_tables(profile: str) -> None:
    database = ROOT / "data" / "results.duckdb"
    if not database.is_file():
        pytest.skip("no data/results.duckdb; `make repro` makes it")
    here, datasets = _study(database)
    recorded = json.loads(golden.RECORDS[profile].read_text())["tables"]["datasets"]["rows"]
    if (here, datasets) != (profile, recorded):
        pytest.skip(f"data/results.duckdb has profile {here} and {datasets} data sets, the record {recorded}")
    different = golden.record_differences(database, profile)
    assert different == [], f"if the change is meant: python -m tests.golden record data/results.duckdb {profile}"


def _study(database: Path) -> tuple[str, int]:
    """Return the profile of params.yaml, and the number of data sets in the results."""
    profile = str(yaml.safe_load((ROOT / "params.yaml").read_text())["profile"])
    with duckdb.connect(str(database), read_only=True) as connection:
        ((datasets,),) = connection.sql("select count(*) from datasets").fetchall()
    return profile, int(datasets)


def test_a_changed_value_a_missing_row_and_a_renamed_column_are_found(smoke: Checkout, tmp_path: Path) -> None:
    before, after = smoke.folder / "data/results.duckdb", tmp_path / "after.duckdb"
    shutil.copy(before, after)
    assert list(golden.differences(before, after, {})) == []
    with duckdb.connect(str(after)) as connection:
        connection.execute("update datasets set n_series = n_series + 1 where dataset = 'macrodata'")
        connection.execute("delete from geometry where layer = 0")
        connection.execute("create table planes_2 as select * from planes")
    found = "\n".join(golden.differences(before, after, {}))
    assert "datasets: 1 rows only before, 1 only after" in found
    assert "geometry: " in found and "planes_2: only after" in found
    summary = golden.summarize(after)
    assert any(
        "geometry: " in one for one in golden.summary_differences(golden.summarize(before), summary, numbers=True)
    )


@pytest.mark.parametrize(("nulls", "is_found"), [(21, False), (22, True)])
def test_another_cpu_may_move_a_few_nulls_and_numbers_but_no_row(nulls: int, is_found: bool) -> None:
    recorded = {"rows": 50, "columns": {"sd": {"nulls": 19, "least": 0.0, "most": 1.0, "mean": 0.5}}}
    found = {"rows": 50, "columns": {"sd": {"nulls": nulls, "least": 0.1, "most": 2.0, "mean": 0.7}}}
    assert bool(list(golden.summary_differences({"t": recorded}, {"t": found}, numbers=False))) == is_found
    assert list(golden.summary_differences({"t": recorded}, {"t": {**found, "rows": 51}}, numbers=False))
    assert list(golden.summary_differences({"t": recorded}, {"t": found}, numbers=True))

"""The smoke run gives the tables that are recorded, and the comparison of two databases finds what differs."""

from __future__ import annotations

import csv
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


def test_a_finished_run_gives_the_recorded_tables() -> None:
    database = ROOT / "data" / "results.duckdb"
    if not database.is_file():
        pytest.skip("no data/results.duckdb; `make repro` makes it")
    here, datasets = _study(database)
    recorded = json.loads(golden.RECORDS["default"].read_text())["tables"]["datasets"]["rows"]
    if (here, datasets) != ("default", recorded):
        pytest.skip(f"data/results.duckdb has profile {here} and {datasets} data sets, the record {recorded}")
    different = golden.record_differences(database, "default")
    assert different == [], "if the change is meant: python -m tests.golden record data/results.duckdb default"


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
    assert any("geometry: " in one for one in golden.summary_differences(golden.summarize(before), summary))


COLUMN = {"nulls": 19, "least": 0.0, "most": 1.0, "mean": 0.5, "signed": 0.1, "is_whole": False}


@pytest.mark.parametrize(
    ("column", "changed", "is_found"),
    [
        # No line in the tolerances: 1e-5 of the largest value.
        ("free", {"mean": 0.5 + 5e-6}, False),
        ("free", {"mean": 0.5 + 5e-5}, True),
        ("free", {"signed": -0.1}, True),
        ("free", {"nulls": 20}, True),
        # A line with the tolerance 0.01 and two nulls.
        ("listed", {"mean": 0.505, "nulls": 21}, False),
        ("listed", {"mean": 0.52}, True),
        ("listed", {"nulls": 22}, True),
        # A count.
        ("free", {"is_whole": True, "most": 1.0 + 1e-9}, True),
    ],
)
def test_a_difference_above_the_columns_tolerance_is_named(
    column: str, changed: dict[str, float], is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(golden, "tolerances", lambda: {("t", "listed"): golden.Tolerance(0.01, 2)})
    whole = {"is_whole": changed.get("is_whole", False)}
    old, new = ({"t": {"rows": 50, "columns": {column: COLUMN | whole | change}}} for change in ({}, changed))
    assert bool(list(golden.summary_differences(old, new))) == is_found
    assert list(golden.summary_differences(old, {"t": {**old["t"], "rows": 51}}))


def test_a_table_that_differs_names_the_task_whose_version_must_be_raised(
    smoke: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = smoke.folder / "data/results.duckdb"
    monkeypatch.setitem(golden.RECORDS, "smoke", tmp_path / "record.json")
    summary = golden.summarize(database)
    golden.write_record(summary, "smoke")
    assert golden.record_differences(database, "smoke") == []
    summary["geometry"]["columns"]["zeta"]["mean"] += 0.1
    golden.write_record(summary, "smoke")
    found = golden.record_differences(database, "smoke")
    assert len(found) == 2 and found[1].startswith("geometry: raise version")


def test_every_tolerance_names_a_column_and_is_above_what_was_measured() -> None:
    recorded: dict[str, set[str]] = {}
    for record in golden.RECORDS.values():
        for name, table in json.loads(record.read_text())["tables"].items():
            recorded.setdefault(name, set()).update(table["columns"])
    with golden.TOLERANCES.open() as lines:
        for line in csv.DictReader(lines):
            assert line["column"] in recorded.get(line["table"], set()), line
            assert float(line["measured"]) < float(line["tolerance"]) <= 1, line

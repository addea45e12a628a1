"""The smoke run gives the tables that are recorded, and the comparison of two databases finds what differs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pytest

from tests import golden
from tests.e2e.checkout import Checkout

pytestmark = pytest.mark.slow


def test_the_smoke_run_gives_the_recorded_tables(smoke: Checkout) -> None:
    record = json.loads(golden.RECORD.read_text())
    found = golden.summarize(smoke.folder / "data/results.duckdb")
    # Other vector instructions round otherwise, which can move a cluster: then only shapes are compared.
    numbers = record["capability"] == golden.capability()
    different = list(golden.summary_differences(record["tables"], found, numbers=numbers))
    assert different == [], "if the change is meant: python -m tests.golden record data/results.duckdb"


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

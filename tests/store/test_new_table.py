"""The table that CONTRIBUTING.md declares is written, checked and documented."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import store
from stages import STAGES
from stages.planning.sources import writers
from store import catalogue, files, reference_docs
from store.errors import CheckFailed
from store.schema import TABLES, job_tables, parse_table
from tests.docs.blocks import ROOT, blocks
from tests.store.conftest import valid_row

(MADE_UP,) = (block.text for block in blocks(ROOT / "CONTRIBUTING.md") if block.text.startswith("row: "))
RULES = {
    "made_up_key": "No two rows of made_up have the same model.",
    "made_up_range": "In made_up, score is 0 to 1.",
    "made_up_reason": "A row of made_up has a reason if one of these is null: score.",
}


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    table = parse_table("made_up", yaml.safe_load(MADE_UP))
    monkeypatch.setitem(TABLES, "made_up", table)  # type: ignore[arg-type]


def build(folder: Path, *changes: dict) -> Path:
    files.write_rows(folder / "made_up", "made_up", [valid_row("made_up") | {"job_key": "k"} | row for row in changes])
    catalogue.build(folder / "r.duckdb", {"made_up": [folder / "made_up"]})
    return folder / "r.duckdb"


def test_its_stage_writes_it_and_the_catalogue_reads_it_from_there() -> None:
    assert "made_up" in job_tables("geometry")
    assert writers("made_up") == ["geometry"]


def test_the_catalogue_has_its_rows_and_comments(tmp_path: Path) -> None:
    asked = "select comment from duckdb_{}() where table_name = 'made_up'"
    with store.open(build(tmp_path, {"model": "a"}, {"model": "b", "score": None, "reason": "constant"})) as connection:
        rows = connection.sql("select model, score from made_up order by model").fetchall()
        table = connection.sql(asked.format("tables")).fetchall()
        column = connection.sql(asked.format("columns") + " and column_name = 'score'").fetchall()
    assert rows == [("a", 0.0), ("b", None)]
    assert table == [("A row is one made-up score. Key: model.",)]
    assert column == [("score [share, 0 to 1] (Doe 2026, eq. 1)",)]


def test_its_checks_run(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed) as caught:
        build(tmp_path, {"score": 1.5})
    assert f"check made_up_range must find nothing ({RULES['made_up_range']})" in str(caught.value)


def test_the_documentation_lists_it_and_its_checks() -> None:
    page = reference_docs.tables(list(TABLES.values()))
    assert "## made_up\n\nA row is one made-up score; key: model.\n" in page
    assert "| score | double | share | 0 to 1 | score | Doe 2026, eq. 1 |" in page
    assert all(f"| `{name}` | {rule} |" in page for name, rule in RULES.items())


def test_every_stage_of_the_schema_exists_and_rows_of_studies_have_one_stage() -> None:
    assert {name for table in TABLES.values() for name in table.stages} <= {stage.name for stage in STAGES}
    assert all(len(table.stages) == 1 for table in TABLES.values() if table.by_study)

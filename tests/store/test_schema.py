from __future__ import annotations

import math
import re
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from stages.config.bounded_yaml import load_yaml
from store import schema
from store.schema import MEANINGS, OWN, TABLES, arrow_schema, parse_table, to_arrow
from tasks import job

ROOT = Path(__file__).parents[2]
SCIENCE = ROOT / "docs" / "science.md"
FILES = [*sorted((ROOT / "store" / "tables").glob("*.yaml")), ROOT / "store" / "view_columns.yaml"]


def test_every_file_is_a_table_and_has_no_key_twice() -> None:
    assert {path.stem for path in FILES} == {*TABLES, "shared", "view_columns"}
    assert all(load_yaml(path.read_text("utf-8")) for path in FILES)
    assert all(column.meaning for table in TABLES.values() for column in table.columns)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rows": "one"}, "rows: Extra inputs are not permitted, got 'one'"),
        ({"row": None}, "row: Input should be a valid string, got None"),
        ({"columns": []}, "columns: Tuple should have at least 1 item"),
        ({"columns": None}, "columns: expected a list, got None"),
        ({"columns": ["model", None]}, "expected the fields of a column, or a name of shared.yaml, got None"),
        ({"by_study": 2}, "by_study: Input should be a valid boolean"),
        ({"key": ["modle"]}, r"refer to columns \['modle'\], which the table does not have"),
        ({"columns": ["modle"]}, "'modle' is no column or list of store/tables/shared.yaml; near: model"),
        ({"columns": ["identity", "model"]}, r"columns \['model'\] are declared twice"),
        ({"columns": [{"name": "a", "type": "number", "meaning": "b"}]}, "columns.a.type: .*unknown type 'number'"),
        ({"columns": [{"name": "a", "type": "double"}]}, "columns.a.meaning: Field required"),
        ({"columns": [{"like": "model", "unti": "s"}]}, "columns.model.unti: Extra inputs are not permitted, got 's'"),
        ({"columns": [{"like": "model", "range": [True, 1]}]}, "columns.model.range: .*expected no boolean"),
        ({"columns": [{"like": "model", "needs_reason": True}]}, r"refer to columns \['reason'\]"),
    ],
)
def test_a_file_that_declares_no_table_is_refused_with_its_name(change: dict, text: str) -> None:
    with pytest.raises(ValueError, match=f"^store/tables/made_up.yaml: .*{text}"):
        parse_table("made_up", {"row": "one", "columns": ["model"]} | change)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "^store/broken.yaml: expected fields, such as .*, got None"),
        ("- model", r"^store/broken.yaml: expected fields, such as .*, got \['model'\]"),
        ("columns:\n  - {name: a", r"in \".*/broken.yaml\", line 2"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: str
) -> None:
    (tmp_path / "broken.yaml").write_text(text)
    monkeypatch.setattr(schema, "files", lambda package: tmp_path)
    with pytest.raises((ValueError, yaml.YAMLError), match=error):
        schema._read("broken.yaml")


def test_a_shared_column_may_differ_in_one_table() -> None:
    columns = [
        "model",
        {"like": "size", "nullable": False, "unit": "s"},
        {"name": "x", "type": "list of list of int8", "meaning": "a"},
    ]
    table = parse_table("made_up", {"row": "one", "columns": columns})
    assert [(column.name, column.nullable, column.unit) for column in table.columns] == [
        ("model", False, ""), ("size_parameter", False, "s"), ("size_rule", False, "s"), ("x", False, ""),
    ]  # fmt: skip
    assert table.columns[-1].type == pa.list_(pa.list_(pa.int8()))


def test_sources_name_papers_or_sections_of_the_page_science() -> None:
    headings = set(re.findall(r"^#+ (.+)$", SCIENCE.read_text(), re.MULTILINE))
    texts = [column.source for entry in TABLES.values() for column in entry.columns]
    texts += [*MEANINGS.values(), *(text for own in OWN.values() for text in own.values())]
    sections = {title for text in texts for title in re.findall(r"docs/science\.md, ([^)]+)", text)}
    assert sections and sections <= headings
    assert not [text for text in texts if re.search(r"\.md\b(?<!docs/science\.md)", text)]


def test_the_columns_of_a_cell_are_those_that_jobs_write() -> None:
    """`tasks` and `store` may not import each other, so each has the names."""
    names = tuple(column.name for column in TABLES["geometry"].columns)
    assert names[: len(job.IDENTITY) + len(job.LAYER)] == (*job.IDENTITY, *job.LAYER)


def test_the_schema_says_what_may_be_null() -> None:
    schema = arrow_schema("geometry")
    assert schema.field("zeta").nullable
    assert not schema.field("stack").nullable
    assert schema.field("eigenvalues").type == pa.list_(pa.float64())
    assert TABLES["geometry"].by_study
    assert TABLES["geometry"].keyed


def test_absent_nullable_columns_are_null(row) -> None:
    got = to_arrow("geometry", [row("geometry", job_key="k")]).to_pylist()[0]
    assert got["reason"] is None
    assert got["base_model"] is None
    assert got["zeta"] == 0.5


def test_a_nan_measure_becomes_null(row) -> None:
    got = to_arrow("geometry", [row("geometry", job_key="k", zeta=math.nan, reason="one type")])
    assert got["zeta"].null_count == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"zetta": 1.0}, r"table training, row 0: unknown columns \['zetta'\]"),
        ({"loss": None}, r"table training, row 0: missing columns \['loss'\]"),
        ({"step": "one"}, r"table training, column step: expected int64"),
        ({"step": 2**70}, r"table training, column step: expected int64"),
    ],
)
def test_rows_that_do_not_fit_are_named(row, change: dict, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        to_arrow("training", [row("training", job_key="k", **change)])


def test_a_dump_of_series_needs_no_model() -> None:
    fields = {"dataset": "d", "kind": "series", "path": "p", "rows": 1, "bytes": 1, "fingerprint": "0", "n_windows": 0}
    assert to_arrow("dumps", [fields | {"job_key": "k"}])["model"].null_count == 1

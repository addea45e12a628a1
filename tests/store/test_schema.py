from __future__ import annotations

import math
import re
from pathlib import Path

import pyarrow as pa
import pytest

from store.schema import TABLES, arrow_schema, to_arrow
from store.tables import answers
from store.tables.shared import IDENTITY, LAYER, NORMED, STACK
from tasks import job

SCIENCE = Path(__file__).parents[2] / "docs" / "science.md"


def test_every_column_has_a_meaning_and_stands_once() -> None:
    for one in TABLES.values():
        names = [column.name for column in one.columns]
        assert len(names) == len(set(names)), one.name
        assert all(column.meaning for column in one.columns)


def test_sources_name_papers_or_sections_of_the_page_science() -> None:
    headings = set(re.findall(r"^#+ (.+)$", SCIENCE.read_text(), re.MULTILINE))
    texts = [column.source for entry in TABLES.values() for column in entry.columns]
    texts += [*answers.MEANINGS.values(), *(text for own in answers.OWN.values() for text in own.values())]
    sections = {title for text in texts for title in re.findall(r"docs/science\.md, ([^)]+)", text)}
    assert sections and sections <= headings
    assert not [text for text in texts if re.search(r"\.md\b(?<!docs/science\.md)", text)]


def test_the_columns_of_a_cell_are_those_that_jobs_write() -> None:
    """`tasks` and `store` may not import each other, so each has the names."""
    assert tuple(column.name for column in IDENTITY) == job.IDENTITY
    assert tuple(column.name for column in (STACK, LAYER, NORMED)) == job.LAYER


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

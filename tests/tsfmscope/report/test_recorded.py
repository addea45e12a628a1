"""The recorded tables are those that the store declares, so that the report's tests cannot fall behind it."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from stages.planning.sources import sources
from store.schema import arrow_schema
from tests.tsfmscope.report import recorded
from tsfmscope.report.plots.islands import project

FIX = "record them again: python -m tests.tsfmscope.report.recorded FOLDER"


def test_every_table_is_recorded_and_all_together_are_small() -> None:
    assert set(recorded.names()) == set(sources()) - {"embeddings"}, FIX
    assert sum(path.stat().st_size for path in recorded.FOLDER.iterdir()) < 1e6


@pytest.mark.parametrize("name", recorded.names())
def test_recorded_columns_are_those_of_the_schema(name: str) -> None:
    schema, expected = pq.read_schema(recorded.FOLDER / f"{name}.parquet"), arrow_schema(name)
    assert dict(zip(schema.names, schema.types, strict=True)) == dict(
        zip(expected.names, expected.types, strict=True)
    ), FIX


def test_recorded_tokens_have_the_columns_of_the_projection() -> None:
    identity = dict.fromkeys(("stack", "layer", "model", "dataset", "condition"), "x")
    columns = project(np.ones((2, 4)), np.zeros(2, dtype=int), ["s", "s"], np.arange(2), identity).columns
    assert {*columns, "n_tokens"} == set(recorded.islands().columns), FIX


def test_the_recorded_studies_are_those_of_the_smoke_profile(connection: duckdb.DuckDBPyConnection) -> None:
    rows = connection.sql("select study, plot from studies order by study").fetchall()
    assert rows == sorted((name, study.plot) for name, study in recorded.PARAMS.studies.items()), FIX

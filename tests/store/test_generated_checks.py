"""Every rule that the schema declares is violated once, and its generated check finds the row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.store.conftest import valid_row
from tsfmscope.store import catalogue
from tsfmscope.store.generated_checks import generate
from tsfmscope.store.schema import TABLES, to_arrow
from tsfmscope.store.tables.columns import Column, Table

Rows = list[dict[str, Any]]
KNOWN: Rows = [{"model": "m"}, {"model": "m@half"}]
IN_CATALOGUE = [table for table in TABLES.values() if table.in_catalogue]


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """All tables without rows, and the view baselines."""
    with duckdb.connect() as connection:
        for table in IN_CATALOGUE:
            catalogue._create(connection, table)
        connection.execute("create view baselines as select 'auto-ets' as model")
        yield connection


@pytest.fixture
def failing(database: duckdb.DuckDBPyConnection) -> Iterator[Callable[..., set[str]]]:
    """`failing(geometry=[{"zeta": 2.0}])`: names of the tables' checks that find rows, given changes of valid rows."""

    def find(**tables: Rows) -> set[str]:
        for name, changes in ({"checkpoints": KNOWN} | tables).items():
            insert(database, TABLES[name], [valid_row(name) | change for change in changes])
        checks = dict(generate(TABLES[name] for name in tables))
        return {name for name, query in checks.items() if database.sql(query).fetchall()}

    database.execute("begin")
    yield find
    database.execute("rollback")


def insert(database: duckdb.DuckDBPyConnection, table: Table, rows: Rows) -> None:
    if table.keyed:
        rows = [{"job_key": "k"} | row for row in rows]
    given = to_arrow(table.name, rows)
    if table.by_study:
        given = given.append_column("study", pa.array(["s"] * len(rows)))
    database.execute(f"insert into {table.name} by name select * from given")


def declared(attribute: str) -> list[tuple[Table, Column]]:
    return [(table, column) for table in IN_CATALOGUE for column in table.columns if getattr(column, attribute)]


def case(table: Table, column: Column) -> str:
    return f"{table.name}.{column.name}"


def cases(attribute: str) -> pytest.MarkDecorator:
    pairs = declared(attribute)
    return pytest.mark.parametrize(("table", "column"), pairs, ids=[case(*pair) for pair in pairs])


@pytest.mark.parametrize("table", IN_CATALOGUE, ids=lambda table: table.name)
def test_valid_rows_violate_no_rule(failing, table: Table) -> None:
    assert failing(**{table.name: [{}]}) == set()


@pytest.mark.parametrize("table", [table for table in IN_CATALOGUE if table.key], ids=lambda table: table.name)
def test_two_rows_with_one_key_are_found(failing, table: Table) -> None:
    assert set(table.key) <= {column.name for column in table.columns}
    assert failing(**{table.name: [{}, {}]}) == {f"{table.name}_key"}


@cases("limits")
def test_a_value_outside_the_range_is_found(failing, table: Table, column: Column) -> None:
    low, high = column.range
    is_integer = pa.types.is_integer(column.type)
    outside = [] if low is None else [low - 1 if is_integer else low - max(2 * column.slack, 1e-12)]
    outside += [] if high is None else [high + 1 if is_integer else high + max(2 * column.slack, 1e-12)]
    assert outside
    for number in outside:
        value = [0.5, number] if pa.types.is_list(column.type) else number
        assert f"{table.name}_range" in failing(**{table.name: [{column.name: value}]}), number


@cases("limits")
def test_a_value_at_the_limit_passes(failing, table: Table, column: Column) -> None:
    for number in (limit for limit in column.range if limit is not None):
        value = [number] if pa.types.is_list(column.type) else number
        assert f"{table.name}_range" not in failing(**{table.name: [{column.name: value}]}), number


@cases("needs_reason")
def test_a_null_without_a_reason_is_found(failing, table: Table, column: Column) -> None:
    assert column.null
    assert f"{table.name}_reason" in failing(**{table.name: [{column.name: None}]})


@cases("needs_reason")
def test_a_null_with_a_reason_passes(failing, table: Table, column: Column) -> None:
    assert f"{table.name}_reason" not in failing(**{table.name: [{column.name: None, "reason": "constant"}]})


@cases("references")
def test_a_value_that_no_referenced_column_contains_is_found(failing, table: Table, column: Column) -> None:
    assert f"{table.name}_references" in failing(**{table.name: [{column.name: "nobody"}]})


def test_a_model_without_a_base_is_looked_up_itself(failing) -> None:
    assert "geometry_references" in failing(geometry=[{"model": "nobody"}])


def test_baselines_and_compressed_models_of_known_bases_pass(failing) -> None:
    rows = [{"model": "auto-ets"}, {"model": "m@half", "base_model": "m"}]
    assert failing(forecasts=rows) == set()


def test_nan_counts_as_null_and_as_outside_the_range(database: duckdb.DuckDBPyConnection, failing) -> None:
    assert failing(alignment=[{}], geometry=[{}]) == set()
    database.execute("update alignment set query = 'nan'")
    database.execute("update geometry set log_isotropy_scaled = 'nan'")
    found = failing(checkpoints=[], alignment=[], geometry=[])
    assert found == {"alignment_range", "alignment_reason", "geometry_reason"}


# Rows that the former checks in SQL files found, by the name of the generated check.
FORMER: list[tuple[str, dict[str, Rows]]] = [
    ("geometry_key", {"geometry": [{"job_key": "a"}, {"job_key": "b"}]}),
    ("forecasts_key", {"forecasts": [{"job_key": "a"}, {"job_key": "b"}]}),
    ("dumps_key", {"dumps": [{"job_key": "a"}, {"job_key": "b"}]}),
    ("training_key", {"training": [{"job_key": "a"}, {"job_key": "b"}]}),
    ("checkpoints_key", {"checkpoints": [{}, {"family": "chronos-t5"}]}),
    ("geometry_range", {"geometry": [{"zeta_adjusted": -1.001}]}),
    ("geometry_range", {"geometry": [{"zeta": 1.001}]}),
    ("geometry_range", {"geometry": [{"n_tokens": 0}]}),
    ("forecasts_reason", {"forecasts": [{"nmse": None}]}),
    ("geometry_reason", {"geometry": [{"zeta": None}]}),
    ("geometry_reason", {"geometry": [{"eigenvalues": None}]}),
    ("forecasts_references", {"forecasts": [{"model": "nobody"}]}),
    ("inference_key", {"inference": [{}, {"estimate": 0.6}]}),
    ("inference_reason", {"inference": [{"p": None}]}),
    ("alignment_key", {"alignment": [{"job_key": "a"}, {"job_key": "b"}]}),
    ("partition_key", {"partition": [{"job_key": "a"}, {"job_key": "b"}]}),
    ("jacobian_key", {"jacobian": [{"job_key": "a"}, {"job_key": "b"}]}),
    ("alignment_range", {"alignment": [{"job_key": "a", "query": 1.001}]}),
    ("alignment_range", {"alignment": [{"job_key": "a", "key_uncentred": -0.001}]}),
    ("partition_range", {"partition": [{"job_key": "a", "log_z_sd": -0.1}]}),
    ("alignment_reason", {"alignment": [{"job_key": "a", "key": None}]}),
    ("partition_reason", {"partition": [{"job_key": "a", "log_z_sd": None}]}),
    ("jacobian_reason", {"jacobian": [{"job_key": "a", "norm": None}]}),
    ("jacobian_references", {"jacobian": [{"job_key": "a", "model": "nobody"}]}),
    ("spectra_key", {"spectra": [{"job_key": "a"}, {"job_key": "b"}]}),
    ("angles_range", {"angles": [{"angles": [0.0, 1.58]}]}),
    ("theory_key", {"theory": [{}, {}]}),
    ("compressed_heads_range", {"compressed_heads": [{"rank": -1}], "checkpoints": [{}, {"model": "m@half"}]}),
    ("compression_references", {"compression": [{"base_model": "nobody"}], "checkpoints": [{}, {"model": "m@half"}]}),
    ("compression_references", {"compression": [{"model": "nobody"}]}),
    ("compression_key", {"compression": [{}, {"job_key": "other"}], "checkpoints": [{}, {"model": "m@half"}]}),
    ("compressed_heads_key", {"compressed_heads": [{}, {"rank": 4}]}),
    ("fidelity_range", {"fidelity": [{"overlap": 1.001}]}),
    ("fidelity_reason", {"fidelity": [{"lppl": None}]}),
]


@pytest.mark.parametrize(("name", "tables"), FORMER, ids=[f"{n}-{name}" for n, (name, _) in enumerate(FORMER)])
def test_rows_that_a_former_check_found_are_found(failing, name: str, tables: dict[str, Rows]) -> None:
    assert name in failing(**tables)


def test_the_first_line_states_the_rule() -> None:
    checks = dict(generate(TABLES.values()))
    assert checks["training_key"].startswith("-- No two rows of training have the same model, step.\n")
    assert "zeta is -1 to 1; " in checks["geometry_range"].split("\n")[0]
    assert "angles is 0 to 1.5708." in checks["angles_range"].split("\n")[0]
    assert math.isclose(TABLES["angles"].columns[-2].range[1] or 0, math.pi / 2)

"""Every rule that the schema declares, or that a check in SQL states of tables alone, is violated and found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from store import catalogue
from store.generated_checks import generate
from store.schema import TABLES, Column, Table, to_arrow
from tests.store.conftest import valid_row

Rows = list[dict[str, Any]]
KNOWN: Rows = [{"model": "m"}, {"model": "m@half"}]
IN_CATALOGUE = [table for table in TABLES.values() if table.in_catalogue]


# Name of a check of store/sql/checks, and rows that it must find. test_catalogue.py has the checks of long views.
WRITTEN: list[tuple[str, dict[str, Rows]]] = [
    ("safe_bound_violated", {"jacobian": [{"norm": 20.00000004}]}),
    ("singular_values_disordered", {"spectra": [{"singular_values": [1.0, 2.0]}]}),
    ("singular_values_disordered", {"spectra": [{"singular_values": [1.0]}]}),
    ("singular_values_disordered", {"spectra": [{"singular_values": [1.0, -0.1]}]}),
    ("compressed_rank_above_full", {"compressed_heads": [{"rank": 17}]}),
    ("compressed_larger_than_base", {"compression": [{"size_ratio": 1.02}]}),
    ("compressed_larger_than_base", {"compression": [{"attention_ratio": 1.02}]}),
    ("theory_holds_differs", {"theory": [{"y": 3.0}]}),
    ("theory_repaired_fails", {"theory": [{"y": 3.0, "holds": False, "form": "repaired"}]}),
    ("theory_repaired_fails", {"theory": [{"y": 1.0, "holds": False, "form": "repaired", "side": "lower"}]}),
]
SQL = Path(catalogue.__file__).parent / "sql"
WRITTEN_CHECKS = {name: (SQL / "checks" / f"{name}.sql").read_text() for name, _ in WRITTEN}


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """All tables without rows, and the views that the checks read."""
    with duckdb.connect() as connection:
        for table in IN_CATALOGUE:
            catalogue._create(connection, table)
        connection.execute("create view baselines as select 'auto-ets' as model")
        for name in ("lemma1_instances", "theory_ratios"):
            connection.execute(f"create view {name} as {(SQL / 'views' / f'{name}.sql').read_text()}")
        yield connection


@pytest.fixture
def failing(database: duckdb.DuckDBPyConnection) -> Iterator[Callable[..., set[str]]]:
    """`failing(geometry=[{"zeta": 2.0}])`: names of the tables' checks that find rows, given changes of valid rows."""

    def find(**tables: Rows) -> set[str]:
        for name, changes in ({"checkpoints": KNOWN} | tables).items():
            insert(database, TABLES[name], [valid_row(name) | change for change in changes])
        checks = dict(generate(TABLES[name] for name in tables)) | WRITTEN_CHECKS
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
    other_job = {"job_key": "another"} if table.keyed and "job_key" not in table.key else {}
    assert failing(**{table.name: [{}, other_job]}) == {f"{table.name}_key"}


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
    assert column.nullable
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


@pytest.mark.parametrize(("name", "tables"), WRITTEN, ids=[f"{n}-{name}" for n, (name, _) in enumerate(WRITTEN)])
def test_rows_that_a_written_check_is_for_are_found(failing, name: str, tables: dict[str, Rows]) -> None:
    assert name in failing(**tables)


def test_the_first_line_states_the_rule() -> None:
    checks = dict(generate(TABLES.values()))
    assert checks["training_key"].startswith("-- No two rows of training have the same model, step.\n")
    assert "zeta is -1 to 1; " in checks["geometry_range"].split("\n")[0]
    assert "angles is 0 to 1.5708." in checks["angles_range"].split("\n")[0]
    assert math.isclose(TABLES["angles"].columns[-2].range[1] or 0, math.pi / 2)

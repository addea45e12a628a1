"""Results that were saved as Parquet answer as the database does, and bad folders are named."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import catalogue, files, query, saved_results
from store.errors import DamagedFile
from tests.tsfmscope.report import recorded
from tsfmscope.errors import QueryError
from tsfmscope.functions import results

# Views of tables that are not saved: seconds, actors and nodes.
OF_THE_RUN = {"compression_frontier", "idle_share", "timeline", "warm_forecasts"}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The catalogue of a recorded smoke run."""
    folder = tmp_path_factory.mktemp("results")
    for name in recorded.names():  # recorded files have no checksum
        files.write_parquet(folder / f"{name}.parquet", pq.read_table(recorded.FOLDER / f"{name}.parquet"))
    catalogue.build(folder / "results.duckdb", {path.stem: [path] for path in folder.glob("*.parquet")})
    return folder / "results.duckdb"


def relations(connection: duckdb.DuckDBPyConnection) -> dict[str, pa.Table]:
    """The rows of every table and view."""
    names = [name for name, *_ in connection.execute(query.RELATIONS).fetchall()]
    return {name: connection.sql(f'select * from "{name}" order by all').to_arrow_table() for name in names}


def test_a_saved_folder_answers_every_table_and_view_as_the_database_does(database: Path, tmp_path: Path) -> None:
    written = saved_results.save(database, tmp_path)
    assert written == {path.stem: path.stat().st_size for path in tmp_path.iterdir()}
    assert {"geometry", "training"} <= written.keys()
    with results.connect(database) as before, saved_results.connect(tmp_path) as after:
        expected, found = relations(before), relations(after)
        assert expected["geometry"].num_rows > 0
        for name in expected.keys() - OF_THE_RUN - set(saved_results.LEFT_OUT):
            pd.testing.assert_frame_equal(
                found[name].to_pandas(), expected[name].to_pandas(), obj=name, rtol=1e-5, atol=1e-6
            )
        comment = "select comment from duckdb_columns() where table_name = 'geometry' order by column_index"
        assert after.sql(comment).fetchall() == before.sql(comment).fetchall()


@pytest.mark.parametrize("name", ["res[1]", "res?", "res*", "[!a]", "it's", "res{1,2}"])
def test_a_folder_whose_name_is_a_pattern_gives_its_own_rows(database: Path, tmp_path: Path, name: str) -> None:
    def step(folder: Path) -> list[tuple[int]]:
        with saved_results.connect(folder) as connection:
            return connection.sql("select distinct step from training").fetchall()

    for folder, number in ((name, 7), ("res1", 1), ("res2", 2), ("b", 3)):
        saved_results.save(database, tmp_path / folder, frozenset({"training"}))
        file = tmp_path / folder / "training.parquet"
        rows = files.read_parquet(file)
        steps = pa.array([number] * len(rows), rows.schema.field("step").type)
        rows = rows.set_column(rows.column_names.index("step"), rows.schema.field("step"), steps)
        files.write_parquet(file, rows)
    assert step(tmp_path / name) == [(7,)]
    assert step(tmp_path / "res1") == [(1,)]


def test_a_folder_is_read_only_and_no_statement_reads_a_file(database: Path, tmp_path: Path) -> None:
    saved_results.save(database, tmp_path)
    with saved_results.connect(tmp_path) as connection:
        for statement in ("delete from training", "create table mine as select 1", f"select * from '{database}'"):
            with pytest.raises(QueryError):
                query.query(connection, statement)


@given(
    st.lists(st.one_of(st.none(), st.floats(width=32), st.just(0.0)), min_size=1),
    st.integers(1, 6), st.sampled_from([pa.float32(), pa.float64()]),
)  # fmt: skip
def test_rounded_numbers_change_by_less_than_a_digit_and_what_is_no_number_stays(
    values: list[float | None], digits: int, kind: pa.DataType
) -> None:
    lists = pa.array([values, None, [], values[:1]], pa.list_(kind))
    rows = pa.table({"flat": pa.array([*values, None], kind), "n": range(len(values) + 1)})
    flat = saved_results._smaller(rows, frozenset(), digits)
    nested = saved_results._smaller(pa.table({"lists": lists}), frozenset(), digits)["lists"].to_pylist()
    assert flat["n"] == rows["n"] and nested[1:3] == [None, []] and flat.schema == rows.schema
    for found in (flat["flat"].to_pylist()[:-1], nested[0]):
        for before, after in zip(values, found, strict=True):
            if before is None or not math.isfinite(before):
                assert after == before or (after is not None and math.isnan(after) and math.isnan(before or 0))
            else:
                # Of numbers below the smallest normal one, float32 holds fewer digits.
                assert abs(after - before) <= 10.0**-digits * abs(before) + 1e-44


def test_columns_may_be_saved_empty(database: Path, tmp_path: Path) -> None:
    saved_results.save(database, tmp_path / "all")
    saved_results.save(database, tmp_path / "less", without=frozenset({"job_key", "eigenvalues"}), digits=4)
    with saved_results.connect(tmp_path / "all") as before, saved_results.connect(tmp_path / "less") as after:
        query = "select {}, zeta from geometry order by all"
        assert after.sql("select count(*) from geometry where eigenvalues is not null or job_key != ''").fetchall() == [
            (0,)
        ]
        expected, found = (
            one.sql(query.format("model, dataset, condition, stack, layer")).fetchall() for one in (before, after)
        )
        assert [row[:-1] for row in found] == [row[:-1] for row in expected]
        assert [row[-1] for row in found] == pytest.approx([row[-1] for row in expected], rel=1e-4, nan_ok=True)
    size = [(tmp_path / folder / "geometry.parquet").stat().st_size for folder in ("all", "less")]
    assert size[1] < size[0]
    for column in ("eigenvalue", "model", "zeta_"):
        with pytest.raises(QueryError, match=f"--without: unknown column '{column}', near: "):
            saved_results.save(database, tmp_path / "none", without=frozenset({column}))
    assert not (tmp_path / "none").exists()


def test_a_second_save_replaces_the_first_and_deletes_what_it_does_not_write(database: Path, tmp_path: Path) -> None:
    saved_results.save(database, tmp_path)
    assert saved_results.save(database, tmp_path, frozenset({"training"})).keys() == {"training"}
    assert [path.name for path in tmp_path.iterdir()] == ["training.parquet"]


def test_bad_folders_and_names_are_named(database: Path, empty_results: Path, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="unknown table 'geomtry', near: geometry"):
        saved_results.save(database, tmp_path, frozenset({"geomtry"}))
    with pytest.raises(QueryError, match="no saved results"):
        saved_results.connect(tmp_path)
    with pytest.raises(QueryError, match="no database"):
        saved_results.connect(tmp_path / "none")
    saved_results.save(database, tmp_path / "saved")
    before = {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()}
    with pytest.raises(QueryError, match="nothing was saved"):
        saved_results.save(empty_results, tmp_path / "saved")
    assert {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()} == before
    shutil.rmtree(tmp_path / "saved")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "mine.parquet")
    with pytest.raises(QueryError, match=r"mine\.parquet is no table"):
        saved_results.save(database, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.parquet"]


def test_damage_and_tables_of_another_version_are_found(database: Path, tmp_path: Path) -> None:
    saved_results.save(database, tmp_path)
    file = tmp_path / "training.parquet"
    rows = files.read_parquet(file)
    files.write_parquet(file, rows.append_column("of_the_future", pa.array(range(rows.num_rows))))
    with pytest.raises(QueryError, match="does not fit this version"):
        saved_results.connect(tmp_path)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedFile):
        saved_results.connect(tmp_path)

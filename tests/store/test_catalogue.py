"""The catalogue: its tables, views and checks, and what it does when the disk is full."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import store
from store import catalogue, dumps, files
from store.errors import CheckFailed, StoreError, StoreFull
from store.schema import MEANINGS, OWN, TABLES
from tests.small_disk import mount_small_disk
from tests.store.conftest import build_results
from tests.store.test_generated_checks import WRITTEN


@pytest.fixture
def build(tmp_path: Path, row) -> Callable[..., Path]:
    """`build(geometry=[rows], ...)`: a catalogue of these rows; every row is asked for by study `s` unless said."""

    def make(**tables: list[dict]) -> Path:
        tables = {"checkpoints": [row("checkpoints")], **tables}
        stages = {name: table.stages[0] for name, table in TABLES.items() if table.by_study}
        for name in stages:
            for n, one in enumerate(tables.get(name, [])):
                one.setdefault("job_key", f"{name}-{n}")
        asked = [("s", stage, one["job_key"]) for name, stage in stages.items() for one in tables.get(name, [])]
        keys = ("study", "stage", "job_key")
        tables.setdefault("study_jobs", [dict(zip(keys, line, strict=True)) for line in dict.fromkeys(asked)])
        return build_results(tmp_path, tables)

    return make


def test_the_catalogue_holds_every_table_and_view_with_its_comment(empty_results: Path) -> None:
    with store.open(empty_results) as connection:
        tables = connection.sql("select table_name, comment from duckdb_tables() where not internal").fetchall()
        views = dict(connection.sql("select view_name, comment from duckdb_views() where not internal").fetchall())
        columns = connection.sql(
            "select comment from duckdb_columns() where table_name = 'geometry' and column_name = 'zeta'"
        ).fetchall()
        study = connection.sql("select column_name from duckdb_columns() where table_name = 'geometry'").fetchall()[0]
        empty = {name: connection.sql(f"select * from {name}").fetchall() for name in views}
    materialized = {path.stem for path in (Path(catalogue.__file__).parent / "sql" / "materialized").glob("*.sql")}
    assert {name for name, _ in tables} == {name for name, table in TABLES.items() if table.in_catalogue} | materialized
    assert dict(tables)["training"] == "A row is one logged step of one pretraining run. Key: model, step."
    assert dict(tables)["scores"].startswith("How well does each model forecast") and len(materialized) == 8
    meaning = "inter-token cosine, in which every token type has equal weight"
    assert columns == [(f"{meaning} [cosine, -1 to 1] (Shelim et al. 2025, eq. 1)",)]
    assert study == ("study",)
    assert {"correlation", "correlation_by_model", "effective_dimension"} <= set(views)
    assert all(comment.endswith("?") for comment in views.values())
    printed = {
        "published_claims",
        "baselines",  # their names
        "published_beside_measured",  # what was not measured
        "published_compression",
        "published_numbers",
        "published_pretrained",
        "published_values",
        "published_vs_measured",
        "svd_compression",
    }  # what the paper says needs no rows of ours
    assert {name for name, rows in empty.items() if rows} == printed


def test_every_column_of_every_answer_says_what_it_means(empty_results: Path) -> None:
    with store.open(empty_results) as connection:
        found = connection.execute("select table_name, column_name, comment from duckdb_columns()").fetchall()
    folder = Path(catalogue.__file__).parent / "sql" / "answers"
    views = {*OWN, *(file.stem for file in folder.glob("*.sql"))}
    said = {(view, column): comment for view, column, comment in found if view in views}
    assert {view for view, _ in said} == views
    assert not [f"{view}.{column}" for (view, column), comment in said.items() if not comment]
    assert said["effective_dimension", "layer"] == MEANINGS["layer"]  # as in the table that it reads
    assert said["sign_test", "share"] != said["flow_of_ranks", "share"]  # one name, two meanings
    gone = [f"{view}.{column}" for view, own in OWN.items() for column in own if (view, column) not in said]
    assert not gone
    assert set(MEANINGS) <= {column for _, column, _ in found}


def test_a_row_stands_once_for_each_study_that_asks_and_not_where_none_does(build, row) -> None:
    path = build(
        geometry=[row("geometry", job_key="a"), row("geometry", job_key="b", layer=1), row("geometry", job_key="c")],
        study_jobs=[
            {"study": "two", "stage": "geometry", "job_key": "a"},
            {"study": "one", "stage": "geometry", "job_key": "a"},
            {"study": "one", "stage": "geometry", "job_key": "b"},
            {"study": "one", "stage": "forecasts", "job_key": "c"},
        ],
    )
    with store.open(path) as connection:
        got = connection.sql("select study, job_key from geometry order by all").fetchall()
    assert got == [("one", "a"), ("one", "b"), ("two", "a")]


def test_a_copy_elsewhere_and_an_attached_one_work(build, row, tmp_path: Path) -> None:
    path = build(geometry=[row("geometry")])
    copy = tmp_path / "another name.duckdb"
    shutil.move(path, copy)
    with store.open(copy) as connection:
        assert connection.sql("select count(*) from effective_dimension").fetchall() == [(5,)]
    with duckdb.connect() as connection:
        connection.execute(f"attach '{copy}' as moved (read_only)")
        assert connection.sql("select family, zeta from moved.last_layer").fetchall() == [("chronos-bolt", 0.5)]


def test_the_file_is_in_a_format_that_older_clients_open(empty_results: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"attach '{empty_results}' as it (read_only)")
        tags = connection.sql("select tags from duckdb_databases() where database_name = 'it'").fetchall()[0]
    assert tags[0]["storage_version"].startswith("v1.4.0")


def test_the_last_layer_is_the_family_s_own_also_for_compressed_models(build, row) -> None:
    layers = [("encoder", True), ("encoder", False), ("decoder", True), ("zoom", True)]
    models = [("t5", None), ("bolt", None), ("t5@half", "t5"), ("mixer", None)]
    rows = [
        row("geometry", model=model, base_model=base, stack=stack, normed=normed)
        for model, base in models
        for stack, normed in layers
    ]
    rows += [row("geometry", model="flat", layer=layer, normed=False) for layer in range(3)]  # without a final norm
    # The output stack of a plug-in may have any name, and need not be the last of the alphabet.
    families = {
        "t5": ("chronos-t5", "decoder"), "bolt": ("chronos-bolt", "encoder"), "flat": ("patchtst", "encoder"),
        "mixer": ("plug-in", "decoder"),
    }  # fmt: skip
    checkpoints = [
        row("checkpoints", model=model, family=family, output_stack=stack)
        for model, (family, stack) in families.items()
    ]
    with store.open(build(geometry=rows, checkpoints=checkpoints)) as connection:
        got = connection.sql("select model, family, stack, layer, normed from last_layer order by all").fetchall()
    assert got == [
        ("bolt", "chronos-bolt", "encoder", 2, True),
        ("flat", "patchtst", "encoder", 2, False),
        ("mixer", "plug-in", "decoder", 2, True),
        ("t5", "chronos-t5", "decoder", 2, True),
        ("t5@half", "chronos-t5", "decoder", 2, True),
    ]


def test_embedded_tokens_are_those_of_the_stack_that_reads_the_series(build, row) -> None:
    state = {"what": "input", "matrix": None, "attention": None, "layer": 0, "normed": False, "tokens": "valued"}
    cell = {"dataset": "d", "condition": "c", "context": 512, "noise": 0.0, "job_key": "s"}
    rows = [row("spectra", stack=stack, **state, **cell) for stack in ("alpha", "zoom")]
    checkpoints = [row("checkpoints", input_stack="alpha", output_stack="zoom")]
    with store.open(build(spectra=rows, checkpoints=checkpoints)) as connection:
        measured = connection.sql("select distinct stack from flow_of_ranks order by all").fetchall()
        embedded = connection.sql("select distinct stack from embedding_ranks").fetchall()
    assert measured == [("alpha",), ("zoom",)]
    assert embedded == [("alpha",)]


def test_scores_are_the_mean_median_and_pooled_over_windows_and_nulls_are_counted(build, row) -> None:
    facts = [(0.5, 2.0, 4.0, 9.0, 10.0, 1.0), (0.1, 1.0, 10.0, 6.0, 20.0, 3.0), (0.9, 9.0, 10.0, 3.0, 30.0, None)]
    names = ("nmse", "squared_error", "nmse_denominator", "quantile_loss", "target_abs", "mase")
    rows = [row("forecasts", series=f"s{n}", **dict(zip(names, line, strict=True))) for n, line in enumerate(facts)]
    rows.append(row("forecasts", series="s9", nmse=None, reason="constant", squared_error=7.0, nmse_denominator=0.0))
    with store.open(build(forecasts=rows)) as connection:
        got = connection.sql("select * from scores").to_arrow_table().to_pylist()
    assert len(got) == 1
    assert {name: got[0][name] for name in ("n", "n_null", "n_null_mase")} == {"n": 4, "n_null": 1, "n_null_mase": 1}
    expected = {"nmse": 0.5, "nmse_median": 0.5, "nmse_pooled": 12 / 24, "mase": 5 / 3, "log_nmse": np.log(0.5)}
    assert {name: got[0][name] for name in expected} == pytest.approx(expected)
    assert got[0]["wql"] == pytest.approx((9 + 6 + 3 + 9) / (3 * (10 + 20 + 30 + 10)))


def test_log_nmse_is_floored_and_says_so(build, row) -> None:
    with store.open(build(forecasts=[row("forecasts", nmse=1e-9)])) as connection:
        got = connection.sql("select log_nmse, is_floored, nmse_floor from scores").fetchall()
    assert got == [(pytest.approx(np.log(1e-6)), True, pytest.approx(1e-6))]


def test_the_sample_takes_its_tokens_from_last_states_and_is_seeded(tmp_path: Path) -> None:
    def layer(normed: bool, n: int, dtype: pa.DataType, offset: int) -> pa.Table:
        state = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2.0 * n)).cast(dtype), 2)
        fixed = {"stack": ["encoder"] * n, "layer": [1] * n, "normed": [normed] * n, "series": ["s"] * n}
        numbers = {"token": range(offset, offset + n), "origin": [0] * n, "position": [0] * n, "kind": [0] * n}
        return pa.table(
            fixed | {k: list(v) for k, v in numbers.items()} | {"type": pa.nulls(n, pa.int32()), "state": state}
        )

    sizes = {"a": 700, "b": 900, "c": 20}
    found = []
    for condition, n in sizes.items():
        tables = [layer(False, n, pa.float16(), 0), layer(True, n, pa.float16(), 10_000)]
        facts = dumps.write_dump(tmp_path / "embeddings", f"dumps/m/d/{condition}.arrow", tables)
        found.append(tmp_path / "embeddings" / facts["path"])
    samples = []
    for n, order in enumerate((found, found[::-1])):
        path = tmp_path / f"{n}.duckdb"
        catalogue.build(path, {"embeddings": order}, seed=3)
        with store.open(path) as connection:
            samples.append(connection.sql("select * from embeddings_sample order by all").to_arrow_table())
    assert samples[0].equals(samples[1])
    assert samples[0].num_rows == 1000
    counts = {c: samples[0]["condition"].to_pylist().count(c) for c in sizes}
    assert counts == {"a": 490, "b": 490, "c": 20}
    assert set(samples[0]["normed"].to_pylist()) == {True}
    assert min(samples[0]["token"].to_pylist()) >= 10_000
    assert len(set(zip(samples[0]["condition"].to_pylist(), samples[0]["token"].to_pylist(), strict=True))) == 1000


# Name of a check, and rows that it must find: the checks of long views. test_generated_checks.py tries the others.
BROKEN: list[tuple[str, dict[str, list[dict]]]] = [
    (
        "effective_dimension_above_width",
        {"geometry": [{"eigenvalues": [1.0, 1.0, 1.0, 1.0, 1.0]}], "dumps": [{"job_key": "a", "width": 4}]},
    )
]


@pytest.mark.parametrize(("name", "tables"), BROKEN, ids=[f"{n}-{name}" for n, (name, _) in enumerate(BROKEN)])
def test_each_check_finds_what_it_is_for(build, row, tmp_path: Path, name: str, tables: dict) -> None:
    rows = {table: [row(table, **changes) for changes in lines] for table, lines in tables.items()}
    with pytest.raises(CheckFailed, match=f"check {name} must find nothing"):
        build(**rows)
    assert not (tmp_path / "results.duckdb").exists()
    assert not list(tmp_path.glob(".tmp-*"))


def test_every_written_check_is_tried() -> None:
    folder = Path(catalogue.__file__).parent / "sql" / "checks"
    assert {path.stem for path in folder.glob("*.sql")} == {name for name, _ in [*BROKEN, *WRITTEN]}


def test_nulls_with_a_reason_pass(build, row) -> None:
    build(
        geometry=[row("geometry", zeta=None, eigenvalues=None, reason="one type")],
        forecasts=[row("forecasts", nmse=None, reason="constant target")],
        alignment=[row("alignment", job_key="a", query=None, key=None, reason="no directions")],
        partition=[row("partition", job_key="a", log_z_sd=None, reason="1 forecast position")],
        jacobian=[
            row("jacobian", job_key="a", norm=None, safe=None, reason="1 token"),
            row("jacobian", job_key="a", instance=1, norm=20.0 * (1 + 1e-10)),  # rounding is no violation
            row("jacobian", job_key="a", instance=2, norm=5.0, printed=1.0),  # nor are those of the printed bound
        ],
    )


def test_a_failed_check_shows_five_rows_and_leaves_the_former_catalogue(build, row) -> None:
    path = build(geometry=[row("geometry")])
    before = files.fingerprint(path)
    with pytest.raises(CheckFailed) as caught:
        build(geometry=[row("geometry", n_tokens=0, layer=n) for n in range(9)])
    assert str(caught.value).count("'layer':") == 5
    assert "n_tokens is at least 1" in str(caught.value)
    assert files.fingerprint(path) == before


def test_a_view_of_something_unknown_is_named(tmp_path: Path) -> None:
    for folder in ("views", "answers", "checks"):
        (tmp_path / "sql" / folder).mkdir(parents=True)
    (tmp_path / "sql" / "answers" / "b.sql").write_text("-- Why?\nselect * from a\n")
    (tmp_path / "sql" / "views" / "a.sql").write_text("-- What?\nselect * from geometri\n")
    with pytest.raises(StoreError, match=r"view a\.sql cannot be made: .*geometri"):
        catalogue.build(tmp_path / "r.duckdb", {}, sql=tmp_path / "sql")
    (tmp_path / "sql" / "views" / "a.sql").write_text("-- What?\nselect * from b\n")
    with pytest.raises(StoreError, match=r"views read each other in a circle: a reads b reads a|b reads a reads b"):
        catalogue.build(tmp_path / "r.duckdb", {}, sql=tmp_path / "sql")
    (tmp_path / "sql" / "views" / "a.sql").write_text("select 1")
    with pytest.raises(StoreError, match=r"views/a\.sql: expected the question as first line, .*, found 'select 1'"):
        catalogue.build(tmp_path / "r.duckdb", {}, sql=tmp_path / "sql")


MEBIBYTE = 2**20
JOBS = 1000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of two mebibytes."""
    with mount_small_disk(tmp_path / "small", 2 * MEBIBYTE) as folder:
        yield folder


@pytest.fixture
def sources(tmp_path: Path, row: Callable[..., dict[str, Any]]) -> dict[str, list[Path]]:
    """Spectra of more bytes than the disk holds."""
    values = [100 - i * 0.37 for i in range(100)]
    spectra = [
        row("spectra", job_key=str(n), layer=n, n_rows=100, singular_values=[n + one for one in values])
        for n in range(JOBS)
    ]
    files.write_rows(tmp_path / "spectra.parquet", "spectra", spectra)
    studies = [{"study": "s", "stage": "spectra", "job_key": str(n)} for n in range(JOBS)]
    files.write_rows(tmp_path / "study_jobs.parquet", "study_jobs", studies)
    return {name: [tmp_path / f"{name}.parquet"] for name in ("spectra", "study_jobs")}


@pytest.mark.parametrize("left", [0, 100_000, MEBIBYTE])
def test_a_full_disk_is_one_line_and_the_former_catalogue_stays(
    small: Path, sources: dict[str, list[Path]], left: int
) -> None:
    path = small / "results.duckdb"
    path.write_bytes(b"the former one")
    (small / "ballast").write_bytes(b"x" * (2 * MEBIBYTE - 4096 - left))
    with pytest.raises(StoreFull) as raised:
        catalogue.build(path, sources)
    said = str(raised.value)
    assert "\n" not in said
    assert f"cannot write {path}: No space left on device. Free some of that disk" in said
    assert sorted(one.name for one in small.iterdir()) == ["ballast", "results.duckdb"]
    assert path.read_bytes() == b"the former one"

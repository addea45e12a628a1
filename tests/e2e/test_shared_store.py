"""Stages whose rows and dumps lie in a shared folder, through DVC, Ray and DuckDB, next to the same run in data/."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from store import files
from store.stage_outputs import read_rows, table_files
from tests.e2e.checkout import Checkout

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(900),
]  # tests/stages/test_shared_store.py is not long
STAGES = ("tokens", "embeddings", "geometry")


def one_cell(block: dict[str, Any]) -> None:
    """The smoke profile with one model on one data set under one condition."""
    block["models"] = {"chronos-t5-nano": block["models"]["chronos-t5-nano"]}
    block["datasets"]["sets"] = {"macrodata": {}}
    block["conditions"] = {"noisy": block["conditions"]["noisy"]}
    block["studies"] = {"isotropy": block["studies"]["isotropy"]}
    block["compression"] = {}


@pytest.fixture(scope="module")
def local(smoke: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The smoke run reduced to one cell, whose rows and activation files are in data/; no job runs."""
    made = smoke.copy(tmp_path_factory.mktemp("local") / "repository")
    made.params(one_cell)
    made.repro("geometry")
    for stage in ("heads", "spectra", "forecasts", "statistics", "theory"):  # their rows are of all cells
        for out in (f"data/{stage}", f"data/timings/{stage}"):
            shutil.rmtree(made.folder / out, ignore_errors=True)
    made.run("python", "-m", "stages", "tables")
    return made


@pytest.fixture(scope="module")
def shared(local: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The same cell computed again, with rows and activation files in a shared folder."""
    made = local.copy(tmp_path_factory.mktemp("shared") / "repository")
    made.params(lambda block: block.setdefault("resources", {}).update(store=str(made.folder.parent / "store")))
    for stage in STAGES:
        for out in (f"data/{stage}", f"data/timings/{stage}"):
            shutil.rmtree(made.folder / out)
    assert made.repro("geometry") == ["external_inputs", *STAGES]
    made.run("python", "-m", "stages", "tables")
    return made


def test_the_outs_hold_manifests_and_dvc_versions_them(shared: Checkout) -> None:
    for stage in STAGES:
        held = [path.name for path in (shared.folder / "data" / stage).rglob("*") if path.is_file()]
        assert held == ["manifest.json"]
    assert shared.repro("geometry") == ["external_inputs"]


def test_the_rows_are_those_of_a_run_in_data_to_the_byte(shared: Checkout, local: Checkout) -> None:
    places = (("geometry", "geometry"), ("geometry", "study_jobs"), ("tokens", "dumps"), ("embeddings", "dumps"))
    for stage, table in places:
        there, here = (one.folder / "data" / stage for one in (shared, local))
        assert [files.fingerprint(path) for path in table_files(there, table)] == [
            files.fingerprint(path) for path in table_files(here, table)
        ], (stage, table)
    assert len(read_rows(shared.folder / "data/geometry", "geometry")) == 12


def test_the_catalogue_answers_as_from_data(shared: Checkout, local: Checkout) -> None:
    for query in (
        "select count(*) as n, sum(zeta) as zeta, sum(hash(job_key)) as keys from geometry",
        "select count(*) as n, count(distinct model) as models, sum(position) as position from embeddings_sample",
        "select count(*) as n from timings where stage = 'geometry'",
        "select * from failures",
    ):
        assert shared.sql(query) == local.sql(query), query


def test_a_dump_that_goes_missing_is_named_and_made_again_alone(shared: Checkout) -> None:
    row = read_rows(shared.folder / "data/embeddings", "dumps").to_pylist()[0]
    gone = shared.folder.parent / "store/embeddings" / row["path"]
    gone.unlink()
    output = shared.run("python", "-m", "stages", "embeddings")
    assert f"dump {gone} is gone; its job runs again" in output.stdout + output.stderr
    assert files.fingerprint(gone) == row["fingerprint"]
    (last,) = read_rows(shared.folder / "data/timings/embeddings", "runs").to_pylist()[-1:]
    assert last["done"] == 1

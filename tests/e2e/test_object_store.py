"""Stages whose rows and dumps lie on an object store, through DVC, Ray and DuckDB, beside the same run on a disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.checkout import Checkout, checkout, commit
from tests.store.s3 import s3  # noqa: F401  the fixture
from tsfmscope.store import files
from tsfmscope.store.objects import Remote
from tsfmscope.store.stage_outputs import read_rows, table_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STAGES = ("tokens", "embeddings", "geometry")


def one_cell(block: dict[str, Any]) -> None:
    """The smoke profile with one model on one data set under one condition."""
    block["models"] = {"chronos-t5-nano": block["models"]["chronos-t5-nano"]}
    block["datasets"]["sets"] = {"macrodata": {}}
    block["conditions"] = {"noisy": block["conditions"]["noisy"]}
    block["studies"] = {"isotropy": block["studies"]["isotropy"]}
    block["compression"] = {}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """These stages with all that they need, on a disk."""
    made = checkout(tmp_path_factory.mktemp("local") / "repository")
    made.params(one_cell)
    made.repro("geometry")
    commit(made, "ran")
    made.run("python", "-m", "tsfmscope.stages", "tables")
    return made


@pytest.fixture(scope="module")
def remote(local: Checkout, s3: str, tmp_path_factory: pytest.TempPathFactory) -> Checkout:  # noqa: F811
    """The same again from its series and checkpoints, with these stages' rows and dumps under a URI."""
    made = local.copy(tmp_path_factory.mktemp("remote") / "repository")
    made.params(lambda block: block.setdefault("resources", {}).update(store=f"{s3}/smoke"))
    for stage in STAGES:
        for out in (f"data/{stage}", f"data/timings/{stage}"):
            shutil.rmtree(made.folder / out)
    assert made.repro("geometry") == ["external_inputs", *STAGES]
    made.run("python", "-m", "tsfmscope.stages", "tables")
    return made


def test_the_outs_hold_manifests_and_dvc_versions_them(remote: Checkout) -> None:
    for stage in STAGES:
        held = [path.name for path in (remote.folder / "data" / stage).rglob("*") if path.is_file()]
        assert held == ["manifest.json"]
    assert remote.repro("geometry") == ["external_inputs"]


def test_the_rows_are_those_of_a_disk_to_the_byte(remote: Checkout, local: Checkout) -> None:
    places = (("geometry", "geometry"), ("geometry", "study_jobs"), ("tokens", "dumps"), ("embeddings", "dumps"))
    for stage, table in places:
        there, here = (one.folder / "data" / stage for one in (remote, local))
        assert [files.fingerprint(path) for path in table_files(there, table)] == [
            files.fingerprint(path) for path in table_files(here, table)
        ], (stage, table)
    assert len(read_rows(remote.folder / "data/geometry", "geometry")) == 12


def test_the_catalogue_answers_as_from_a_disk(remote: Checkout, local: Checkout) -> None:
    for query in (
        "select count(*) as n, sum(zeta) as zeta, sum(hash(job_key)) as keys from geometry",
        "select count(*) as n, count(distinct model) as models, sum(position) as position from embeddings_sample",
        "select count(*) as n from timings where stage = 'geometry'",
        "select * from failures",
    ):
        assert remote.sql(query) == local.sql(query), query


def test_a_dump_that_goes_missing_is_named_and_made_again_alone(remote: Checkout, s3: str) -> None:  # noqa: F811
    row = read_rows(remote.folder / "data/embeddings", "dumps").to_pylist()[0]
    gone = Remote.parse(f"{s3}/smoke/embeddings") / row["path"]
    gone.delete([gone.key])
    output = remote.run("python", "-m", "tsfmscope.stages", "embeddings")
    assert f"dump {gone} is gone; its job runs again" in output.stdout + output.stderr
    assert gone.fingerprint() == row["fingerprint"]
    (last,) = read_rows(Path(remote.folder, "data/timings/embeddings"), "runs").to_pylist()[-1:]
    assert last["done"] == 1
    assert json.loads((remote.folder / "data/embeddings/manifest.json").read_text())["store"].endswith("/embeddings")

"""Stages whose rows and dumps lie on an object store, through real DVC, Ray and DuckDB, beside the same run on a disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store import files
from store.published import read_rows, table_files
from tests.e2e.checkout import Checkout
from tests.store.s3 import s3  # noqa: F401  the fixture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STAGES = ("tokens", "embeddings", "geometry")


@pytest.fixture(scope="module")
def remote(smoke: Checkout, s3: str, tmp_path_factory: pytest.TempPathFactory) -> Checkout:  # noqa: F811
    """The smoke run again from its series and checkpoints, with these stages' rows and dumps under a URI."""
    made = smoke.copy(tmp_path_factory.mktemp("remote") / "repository")
    made.params(lambda block: block.setdefault("resources", {}).update(store=f"{s3}/smoke"))
    for stage in STAGES:
        made.run("rm", "-rf", f"data/{stage}", f"data/timings/{stage}")
    assert made.repro("geometry") == ["roots", *STAGES]
    return made


def test_the_outs_hold_manifests_and_dvc_versions_them(remote: Checkout) -> None:
    for stage in STAGES:
        held = [path.name for path in (remote.folder / "data" / stage).rglob("*") if path.is_file()]
        assert held == ["manifest.json"]
    lock = (remote.folder / "dvc.lock").read_text()
    assert "data/geometry" in lock
    assert remote.repro("geometry") == ["roots"]


def test_the_rows_are_those_of_a_disk_to_the_byte(remote: Checkout, smoke: Checkout) -> None:
    for stage, table in (
        ("geometry", "geometry"),
        ("geometry", "studies"),
        ("tokens", "dumps"),
        ("embeddings", "dumps"),
    ):
        there, here = (one.folder / "data" / stage for one in (remote, smoke))
        assert [files.fingerprint(path) for path in table_files(there, table)] == [
            files.fingerprint(path) for path in table_files(here, table)
        ], (stage, table)
    assert len(read_rows(remote.folder / "data/embeddings", "dumps")) > 3


def test_the_catalogue_answers_as_from_a_disk(remote: Checkout, smoke: Checkout) -> None:
    remote.run("python", "-m", "stages", "tables")
    for query in (
        "select count(*) as n, sum(zeta) as zeta, sum(hash(job_key)) as keys from geometry",
        "select count(*) as n, count(distinct model) as models, sum(position) as position from embeddings_sample",
        "select count(*) as n from timings where stage = 'geometry'",
        "select * from failures",
    ):
        assert remote.sql(query) == smoke.sql(query), query


def test_a_dump_that_goes_missing_is_named_and_made_again_alone(remote: Checkout, s3: str) -> None:  # noqa: F811
    from store.objects import Remote

    row = read_rows(remote.folder / "data/embeddings", "dumps").to_pylist()[0]
    gone = Remote.parse(f"{s3}/smoke/embeddings") / row["path"]
    gone.delete([gone.key])
    output = remote.run("python", "-m", "stages", "embeddings")
    assert f"dump {gone} is gone; its job runs again" in output.stdout + output.stderr
    assert gone.fingerprint() == row["fingerprint"]
    (last,) = read_rows(Path(remote.folder, "data/timings/embeddings"), "runs").to_pylist()[-1:]
    assert last["done"] == 1
    assert json.loads((remote.folder / "data/embeddings/manifest.json").read_text())["store"].endswith("/embeddings")

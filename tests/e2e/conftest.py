"""The smoke run that the end-to-end tests share."""

from __future__ import annotations

import shutil

import pytest
from filelock import FileLock

from tests.e2e.checkout import Checkout, checkout, commit


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Checkout:
    """The smoke profile, run once from nothing with bundled data only; tests that change it copy it.

    Kept in pytest's cache, so that both test processes and the next session with the very same files read one run.
    """
    made = checkout(tmp_path_factory.mktemp("smoke") / "repository")
    assert pytestconfig.cache is not None
    folder = pytestconfig.cache.mkdir("smoke")
    kept = folder / made.run("git", "rev-parse", "HEAD^{tree}").stdout.strip()
    # Of two test processes, one runs it and the other waits.
    with FileLock(folder / ".lock"):
        if kept.exists():
            shutil.rmtree(made.folder)
            return Checkout(kept).copy(made.folder)
        made.repro()
        commit(made, "ran")
        for old in folder.iterdir():
            if old.is_dir():
                shutil.rmtree(old)
        half = made.copy(folder / f"{kept.name}-half")
        half.folder.rename(kept)
    return made

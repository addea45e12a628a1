"""The smoke run that the end-to-end tests share."""

from __future__ import annotations

import pytest

from tests.e2e.checkout import Checkout, checkout, commit


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The smoke profile, run once from nothing with bundled data only; tests that change it copy it."""
    made = checkout(tmp_path_factory.mktemp("smoke") / "repository")
    made.repro()
    commit(made, "ran")
    return made

"""The ledger of the fault matrix: each fault adds a row; the table is printed and written when the session ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)
if HERE not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH", "")]))

from launcher import Launcher  # noqa: E402
from matrix import Row, as_table  # noqa: E402  # found through the path above, as workers and drivers find them

ROWS = pytest.StashKey[list[Row]]()
WRITTEN = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def ledger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Row]]:
    """The rows of this session's matrix."""
    rows = request.config.stash.setdefault(ROWS, [])
    yield rows
    path = tmp_path_factory.getbasetemp() / "faults.md"
    path.write_text(as_table(rows) + "\n", encoding="utf-8")
    request.config.stash[WRITTEN] = path


@pytest.fixture
def enter(ledger: list[Row]) -> Callable[[Row], None]:
    """Puts a row into the ledger, then fails the test where the row is not as it must be."""

    def put(row: Row) -> None:
        ledger.append(row)
        assert (row.lost, row.doubled) == (0, 0), row
        assert row.survived == row.injected > 0, row

    return put


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A node of two cores that the drivers of this folder share, with our environment in its workers."""
    import ray
    from ray.cluster_utils import Cluster

    from tsfmscope.tasks.sweep.cluster import QUIET, environment, worker_environment

    with environment({**QUIET, **worker_environment(1)}):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="session")
def launcher(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Starts drivers that join the cluster."""
    launcher = Launcher(cluster.address, tmp_path_factory.mktemp("drivers"))
    yield launcher
    launcher.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Always shown where the matrix ran, whatever became of it."""
    if rows := config.stash.get(ROWS, []):
        terminalreporter.section(f"fault matrix, also in {config.stash.get(WRITTEN, Path('nowhere'))}")
        terminalreporter.write_line(as_table(rows))

"""Settings of every test session."""

import functools
import gc
from pathlib import Path

import pytest

# Imports of torch and transformers make millions of objects that live to the end; as in `tsfmscope` itself.
gc.set_threshold(200_000)


@functools.cache
def _marks_slow(file: Path) -> bool:
    return "mark.slow" in file.read_text()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a slow test whose file does not contain `mark.slow`: `make test-slow` would not run it."""
    if item.get_closest_marker("slow") and not _marks_slow(item.path):
        raise pytest.UsageError(f"{item.nodeid} is slow, but make test-slow reads only files that contain mark.slow")

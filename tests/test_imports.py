"""No module imports itself through others, also not inside a function."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def order(graph: dict[str, set[str]]) -> list[str]:
    """The modules, each after those that it imports; CycleError names the modules of a circle."""
    return list(TopologicalSorter(graph).static_order())


def test_no_modules_import_each_other() -> None:
    graph = grimp.build_graph("tsfmscope", "stages", "tasks", "store")
    imported = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    assert len(order(imported)) > 300


def test_a_circle_is_found() -> None:
    with pytest.raises(CycleError):
        order({"a": {"b"}, "b": {"c"}, "c": {"a"}})

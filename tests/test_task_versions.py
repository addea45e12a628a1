"""A default of a spec changes together with the version of its task."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import task_versions


def test_versions_and_defaults_are_the_recorded_ones() -> None:
    recorded = json.loads(task_versions.RECORD.read_text())
    assert differences(recorded, task_versions.today()) == []


@pytest.mark.parametrize(("found", "expected"), [
    ({"versions": {"measure": 1}, "defaults": {"A.k": 10, "A.new": 3}}, []),
    ({"versions": {"measure": 1}, "defaults": {"A.k": 12}}, ["A.k: 10 recorded, 12 found"]),
    ({"versions": {"measure": 1}, "defaults": {}}, ["A.k: 10 recorded, no default found"]),
    ({"versions": {"measure": 2}, "defaults": {"A.k": 12}}, ["measure: version 1 recorded, 2 found"]),
])  # fmt: skip
def test_a_changed_default_is_named_and_a_new_field_keeps_keys(found: dict[str, Any], expected: list[str]) -> None:
    recorded = {"versions": {"measure": 1}, "defaults": {"A.k": 10}}
    sentences = differences(recorded, found)
    assert len(sentences) == len(expected)
    assert all(sentence.startswith(start) for sentence, start in zip(sentences, expected, strict=True))


def differences(recorded: dict[str, dict[str, Any]], found: dict[str, dict[str, Any]]) -> list[str]:
    """Return one sentence for each version, or else each default, that differs from the record."""
    write = "then run python -m tests.task_versions --write"
    versions = {**recorded["versions"], **found["versions"]}
    changed = [
        f"{name}: version {recorded['versions'].get(name)} recorded, {found['versions'].get(name)} found; {write}"
        for name in versions
        if recorded["versions"].get(name) != found["versions"].get(name)
    ]
    # A raised version makes all keys of its task anew, so that its defaults may change.
    return changed or [
        f"{name}: {value} recorded, {found['defaults'].get(name, 'no default')} found; "
        f"raise the version of the tasks whose spec this is, {write}"
        for name, value in recorded["defaults"].items()
        if name not in found["defaults"] or found["defaults"][name] != value
    ]

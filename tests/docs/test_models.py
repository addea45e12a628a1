"""The table of supported models has the registry, the published facts, and what was loaded and verified."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from docs.building import models
from tests.rehearsal.layouts import LAYOUTS
from tsfmscope.functions.verify import COLUMNS
from tsfmscope.models.registry import FAMILIES, family_class

RUN = "0123456789ab,timesfm,pass,34,0,transformers,128,24,6.5,4.1,0.9,2.2,0.1.0,2026-12-01"
LINE = f"google/timesfm-2.0-500m-pytorch,{RUN}"


def test_the_table_is_the_generated_one() -> None:
    page = models.PAGE.read_text("utf-8")
    assert models.with_table(page) == page, "run: python -m docs.building.models"


def test_every_family_has_a_row() -> None:
    rows = [line for line in models.table().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(FAMILIES)


def test_lines_have_the_columns_that_verify_prints_and_name_released_checkpoints() -> None:
    with models.VERIFIED.open(encoding="utf-8", newline="") as file:
        assert tuple(next(csv.reader(file))) == COLUMNS
    known = {name for family in FAMILIES for name in family_class(family).released.checkpoints}
    for row in models.read_verified():
        assert row["checkpoint"] in known and None not in row and None not in row.values()


def test_a_line_of_verify_fills_the_last_column_of_its_family_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = models.table().splitlines()
    file = tmp_path / "verified.csv"
    file.write_text(f"{','.join(COLUMNS)}\n{LINE}\n")
    monkeypatch.setattr(models, "VERIFIED", file)
    changed = [line for line, old in zip(models.table().splitlines(), before, strict=True) if line != old]
    assert len(changed) == 1 and changed[0].startswith("| `timesfm` |")
    assert changed[0].endswith(
        "| `google/timesfm-2.0-500m-pytorch` 2026-12-01: 34 of 34 checks, loads in 6.5 s (4.1 GB), one forecast 0.9 s "
        "(context 128, horizon 24) |"
    )


def test_every_layout_of_the_rehearsal_is_of_a_released_checkpoint_and_was_loaded() -> None:
    rows = models.read_rehearsed()
    assert {row["model"]: row["repository"] for row in rows} == {
        name: layout.repository for name, layout in LAYOUTS.items()
    }
    assert all(row["repository"] in family_class(row["family"]).released.checkpoints for row in rows)
    assert all(row["status"] == "passed" for row in rows)


def test_the_largest_layout_that_loaded_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, row = tmp_path / "rehearsed.json", {"status": "passed", "seconds_states": 0.3, "peak_bytes": 1.24e9}
    small = row | {"model": "chronos-bolt-tiny", "repository": "amazon/chronos-bolt-tiny", "parameters": 8_700_000}
    large = row | {"model": "chronos-bolt-base", "repository": "amazon/chronos-bolt-base", "parameters": 205_300_000}
    failed = large | {"repository": "amazon/chronos-bolt-small", "status": "failed"}
    file.write_text(json.dumps([small | {"seconds_load": 1}, large | {"seconds_load": 2}, failed]))
    monkeypatch.setattr(models, "REHEARSED", file)
    monkeypatch.setattr(models, "read_verified", list)
    rows = {line.split("`")[1]: line for line in models.table().splitlines()[2:]}
    assert "| 2 of 4; 205.3 M: 2.0 s, 0.3 s, 1.2 GB | not yet |" in rows["chronos-bolt"]
    assert rows["moirai"].endswith("| not yet | not yet |") and rows["totem"].endswith("| – | – |")


def test_a_page_without_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a table that begins with"):
        models.with_table("# Supported models\n")

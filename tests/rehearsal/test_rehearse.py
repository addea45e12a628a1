"""Files in the published layout of every released model load as from the hub, with the values that were written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.local_hub import LocalHub, serving
from tests.rehearsal.layouts import LAYOUTS, QUICK
from tests.rehearsal.rehearse import RECORD, rehearse

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in LAYOUTS]
)
def test_a_released_layout_is_loaded_tensor_by_tensor_and_measured(name: str, tmp_path: Path) -> None:
    with serving(LocalHub()) as server:
        row = rehearse(LAYOUTS[name], server, tmp_path)
    (recorded,) = [row for row in json.loads(RECORD.read_text()) if row["model"] == name]
    exact = ("repository", "parameters", "tensors", "bytes", "layers", "tokens")
    assert {key: row[key] for key in exact} == {key: recorded[key] for key in exact}
    # The hub's copy is read once, and the network is made without a second copy in float64.
    assert row["peak_bytes"] < 1e9 + 3 * row["bytes"]

"""The public Python functions answer what `tests/public_answers.json` records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.public_answers import RECORD, differences

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_public_functions_give_the_recorded_answers(tmp_path: Path) -> None:
    # A process of its own, since pytest turns the warnings of other packages into errors.
    command = [sys.executable, "-m", "tests.public_answers", "compare", str(RECORD)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, "equal: every answer\n")


def test_a_difference_in_a_text_a_count_a_key_or_a_number_is_named() -> None:
    expected = {"title": "a", "n": 1, "z": {"numbers": [0, 2, 1, 0.5]}, "share": 0.5, "files": ["x"]}
    close = {"title": "a", "n": 1, "z": {"numbers": [1e-5, 2, 1, 0.50019]}, "share": 0.50004, "files": ["x", "y"]}
    other = {"title": "b", "n": 2, "z": {"numbers": [0, 2, 1, 0.501]}, "share": 0.51, "files": [], "new": None}
    assert list(differences(expected, close, "")) == []
    named = [text.split(":")[0] for text in differences(expected, other, "")]
    assert named == ["/title", "/n", "/z", "/share", "/files", "/new"]


def test_numbers_that_turn_on_the_cpu_may_differ_more() -> None:
    def one(number: float) -> dict[str, object]:
        columns = {name: {"numbers": [0, 1, number]} for name in ("zeta_adjusted", "zeta_adjusted_corrected_sd")}
        return {"model_answers": {"m": {"columns": columns}}, "compression_answers": {"m": number}}

    assert [text.split(":")[0] for text in differences(one(0.5), one(0.52), "")] == [
        "/model_answers/m/columns/zeta_adjusted"
    ]


def test_the_record_is_short() -> None:
    assert RECORD.stat().st_size < 180_000
    assert len(json.loads(RECORD.read_text())) == 10

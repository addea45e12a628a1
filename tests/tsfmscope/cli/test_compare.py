"""Command `compare`: the numbers of the function, the tables, and the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from tsfmscope.cli.compare import COMMAND
from tsfmscope.functions.compare import compare


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    waves = np.sin(np.arange(160)[:, None] / [3, 5, 7]) + 0.2 * np.random.default_rng(0).normal(size=(160, 3))
    pd.DataFrame(waves, columns=["a", "b", "c"]).to_csv("mine.csv", index=False)
    return tmp_path


def run(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(COMMAND.callback())
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"}, catch_exceptions=False)


def test_json_has_the_rows_of_the_function() -> None:
    found = run("patchtst-mini", "ttm-mini", "mine.csv", "--context", "64", "--rows", "50", "--seed", "1", "--json")
    expected = compare("patchtst-mini", "ttm-mini", "mine.csv", context=64, rows=50, seed=1).layers
    rows = json.loads(found.stdout)
    assert [*rows[0]] == [*expected]
    pd.testing.assert_frame_equal(pd.DataFrame(rows), expected)
    assert {row["block"] for row in rows} == {"between", "within a", "within b"}


def test_tables_show_the_pairs_and_the_layers_that_moved() -> None:
    done = run("patchtst-mini", "patchtst-mini", "mine.csv", "--context", "64", "--out", "layers.csv")
    assert done.exit_code == 0
    for text in (
        "patchtst-mini and patchtst-mini on mine, context 64: CKA of the layers of the first (rows) and",
        "How far each layer moved: 1 − CKA", "Each row is one token of each model.", "debiased linear CKA",
        "First layer whose interval is above 0: none.", "file: layers.csv",
    ):  # fmt: skip
        assert text in done.stdout
    assert len(pd.read_csv("layers.csv")) == 3 * 4**2


def test_a_single_series_prints_values_without_an_interval() -> None:
    done = run("patchtst-mini", "ttm-mini", "mine.csv", "--value", "a", "--context", "64", "--json")
    rows = json.loads(done.stdout)
    assert all(row["cka"] is not None and row["cka_low"] is None for row in rows)
    assert {row["reason"] for row in rows} == {"one series gives no interval"}

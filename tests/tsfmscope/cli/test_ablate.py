"""The command `ablate`, made from the function."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import typer
from typer.testing import CliRunner

from tsfmscope.cli.ablate import COMMAND

APP = typer.Typer()
APP.command()(COMMAND.callback())


def test_the_command_prints_json_and_writes_files(tmp_path: Path) -> None:
    steps = np.arange(120)
    frame = pd.DataFrame({f"s{n}": 5 + np.sin(steps / 3 + n) for n in range(3)})
    frame.assign(ds=pd.date_range("2023-01-01", periods=120)).to_csv(tmp_path / "mine.csv", index=False)
    how = ["--data", str(tmp_path / "mine.csv"), "--parts", "layer,exit", "--horizon", "6", "--context", "64"]
    done = CliRunner().invoke(APP, ["ttm-mini", *how, "--json", "--out", str(tmp_path / "map.png")])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert {row["kind"] for row in document["parts"]} == {"layer", "exit"}
    assert set(document["depths"]) == {"encoder", "decoder"}
    assert (tmp_path / "map.png").stat().st_size > 0
    shown = CliRunner().invoke(APP, ["ttm-mini", *how, "--ways", "mean"])
    assert "early exit" in shown.stdout
    assert "can go within 2%" in shown.stdout

"""The README's four commands, from one CSV file to the forecasts of a small certified model without torch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
# What the console script runs, in a process that cannot import torch.
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from tsfmscope.cli.app import main; main()"


def commands() -> list[list[str]]:
    """Return the README's commands on mine.csv, without comments."""
    section = (ROOT / "README.md").read_text().partition("## From one CSV file")[2].partition("\n## ")[0]
    lines = re.findall(r"^\$ tsfmscope (.*?)(?:  +#.*)?$", section, re.MULTILINE)
    return [line.split() for line in lines]


@pytest.mark.slow
def test_four_commands_lead_from_a_table_to_forecasts_without_torch(tmp_path: Path) -> None:
    rng, parts = np.random.default_rng(0), []
    for shop in range(12):
        steps = np.arange(400)
        sales = (shop + 1) * (100 + 30 * np.sin(2 * np.pi * steps / 7) + 10 * rng.standard_normal(400))
        days = pd.date_range("2023-01-01", periods=400)
        parts.append(pd.DataFrame({"item_id": f"shop-{shop}", "timestamp": days, "target": sales.round(2)}))
    pd.concat(parts).to_csv(tmp_path / "mine.csv", index=False)
    given = commands()
    assert [words[0] for words in given] == ["score", "compress", "export", "forecast"]
    outputs = []
    for words in given:
        program = ["-c", WITHOUT_TORCH] if words[0] == "forecast" else ["-m", "tsfmscope"]
        done = subprocess.run([sys.executable, *program, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)
        outputs.append(done.stdout)
    assert re.search(r"^best: \S+ \(estimate 0\.\d+\)", outputs[0], re.MULTILINE)
    assert "certified: with 95 % confidence" in outputs[1]
    forecasts = pd.read_csv(tmp_path / "forecast.csv", parse_dates=["timestamp"])
    assert forecasts.groupby("item_id").size().to_dict() == {f"shop-{shop}": 24 for shop in range(12)}
    assert forecasts["timestamp"].min() == pd.Timestamp("2024-02-05")
    # The weekly season is forecast: errors are far below those of the last value.
    truth = 100 + 30 * np.sin(2 * np.pi * np.arange(400, 424) / 7)
    order = [int(name.partition("-")[2]) + 1 for name in forecasts["item_id"].unique()]
    means = forecasts["mean"].to_numpy().reshape(12, 24) / np.array(order)[:, None]
    assert np.abs(means - truth).mean() < 10
    assert (tmp_path / "forecast.png").stat().st_size > 20_000 and "<svg" in (tmp_path / "choice.html").read_text()

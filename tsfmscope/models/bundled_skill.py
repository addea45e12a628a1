"""Skill of the bundled models and of the baselines on the data sets that guided the recipes, and seconds.

`python -m bench.choice --skill` writes the file, and must run again when a checkpoint changes.
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import NamedTuple

PATH = Path(__file__).with_name("skill.csv")
COLUMNS = ("model", "weights", "log_ratio", "sd", "n_datasets", "seconds")


class StoredSkill(NamedTuple):
    """Mean over data sets of log WQL over that of point seasonal naive, and its standard deviation.

    weights: first 12 digits of the checkpoint's fingerprint; "" for a baseline. seconds: of one core of an Intel
    Xeon, for a forecast of eight series of 512 steps, 24 steps ahead, with 20 paths where the model samples.
    """

    weights: str
    log_ratio: float
    sd: float
    n_datasets: int
    seconds: float


@functools.cache
def bundled_skill() -> dict[str, StoredSkill]:
    """Return the stored skill by the name of the model or baseline."""
    with PATH.open(encoding="utf-8", newline="") as file:
        return {
            row["model"]: StoredSkill(
                row["weights"], float(row["log_ratio"]), float(row["sd"]), int(row["n_datasets"]), float(row["seconds"])
            )
            for row in csv.DictReader(file)
        }

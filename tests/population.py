"""Tables of a small population of trainings, and a hypothesis about it."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from tests.store.conftest import valid_row
from tsfmscope.statistics.options import SeededOptions

QUICK = SeededOptions(permutations=199, bootstrap=100, seed=3)
HYPOTHESIS = {"name": "h", "claim": "c", "study": "s", "measure": "zeta", "grouping": "across_runs"}
HYPOTHESIS |= {"direction": "negative"}


def is_confirming(dataset: str) -> bool:
    """Whether a data set is kept for confirming hypotheses: the first bit of the SHA-256 of its name."""
    return hashlib.sha256(dataset.encode()).digest()[0] >= 128


def population_tables() -> dict[str, list[dict[str, Any]]]:
    """Six trainings of two families on ten data sets, four snapshots each; isotropy falls with the error's log."""
    generator = np.random.default_rng(0)
    made: dict[str, list[dict[str, Any]]] = {name: [] for name in ("geometry", "forecasts", "study_jobs")}
    made |= {"population": [], "checkpoints": [], "datasets": []}
    facts = {"source": "bundled", "freq": "D", "horizon": 4, "season": 7, "n_series": 1, "n_available": 1}
    facts |= {"n_steps": 99, "provenance": "made up", "domain": "d"}
    datasets = [f"set-{n}" for n in range(10)]
    made["datasets"] = [{"dataset": name, **facts} for name in datasets]
    for run in range(6):
        for step in (1, 2, 3, 4):
            model = f"r{run}" if step == 4 else f"r{run}-step-{step}"
            row = {"model": model, "run": f"r{run}", "family": f"f{run // 3}", "size": "small", "run_seed": run % 3}
            row |= {"step": step, "is_final": step == 4, "validation_loss": float(-step + generator.normal())}
            made["population"].append(row | {"n_windows": 3, "seed": 0, "job_key": f"p{model}"})
            ref = f"data/r{run}" if step == 4 else f"data/r{run}/snapshots/step-{step}"
            made["checkpoints"].append(valid_row("checkpoints") | {"model": model, "ref": ref})
            for name in datasets:
                isotropy = run / 10 + 0.05 * step + 0.02 * generator.normal()
                cell = {"model": model, "dataset": name, "condition": "c500", "context": 500, "noise": 0.0}
                keys = {stage: f"{stage} {model} {name}" for stage in ("geometry", "forecasts")}
                made["geometry"].append(valid_row("geometry") | cell | {"zeta": isotropy, "job_key": keys["geometry"]})
                made["forecasts"].append(
                    valid_row("forecasts") | cell | {"nmse": math.exp(isotropy), "job_key": keys["forecasts"]}
                )
                made["study_jobs"] += [{"study": "s", "stage": stage, "job_key": key} for stage, key in keys.items()]
    return made

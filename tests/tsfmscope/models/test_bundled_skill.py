"""Stored skill: one row per bundled forecaster and baseline, measured with the weights of today."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tsfmscope.models import registry
from tsfmscope.models.bundled_skill import bundled_skill

CHECKPOINTS = Path(registry.__file__).parents[1] / "checkpoints"
MINIS = sorted(folder.name for folder in CHECKPOINTS.glob("*-mini"))


def test_every_bundled_forecaster_and_baseline_has_a_row() -> None:
    assert set(bundled_skill()) == {*MINIS, "seasonal-naive", "auto-ets", "auto-theta"}


@pytest.mark.parametrize("name", MINIS)
def test_the_stored_skill_is_that_of_the_checkpoint(name: str) -> None:
    weights = registry.resolve(str(CHECKPOINTS / name)).fingerprint[:12]
    row = bundled_skill()[name]
    assert row.weights == weights, f"{name} changed: run `python -m bench.choice --skill`"
    assert np.isfinite([row.log_ratio, row.sd]).all() and row.n_datasets >= 20 and row.seconds > 0

"""Toto 2.0: states and forecasts against numbers that toto-2 2.0.0 gave for the same weights and windows.

`TSFMSCOPE_TOTO2_PYTHON=PYTHON python -m tests.tsfmscope.models.toto_2.test_recorded` records them. With that variable,
`test_against_package.py` compares more.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.toto_2.parity import check_groups, check_parity, run_package, write_case
from tsfmscope.models.toto_2 import Toto2
from tsfmscope.series.types import Windows

CONFIG = {"patch_size": 8, "d_model": 16, "num_heads": 2, "num_layers": 4, "layer_group_size": 2}
CONFIG |= {"num_variate_layers_per_group": 1, "variate_layer_first": False, "residual_attn_ratio": 3.0}
# The first has the switches of Datadog/Toto-2.0-4m, the second those that it lacks.
SHAPES: list[dict[str, Any]] = [
    {"attn_bias": True, "qk_norm": False, "per_dim_scale": True, "use_xpos": True, "layer_group_size": 4},
    {"norm_include_weight": True, "variate_layer_first": True, "num_groups": 1, "v_dim": 6, "mlp_bias": True},
]
RECORD = Path(__file__).with_name("package.npz")
# 26 steps are no whole patches.
HORIZON = 26
SERIES = [[0, 0, 1], [2, 2, 2]]


def recorded_model(number: int) -> Toto2:
    """Return a model whose weights come from NumPy's generator, in the order of their names."""
    model, rng = Toto2.new(CONFIG | SHAPES[number], seed=0), np.random.default_rng(0)
    with torch.no_grad():
        for _, value in sorted(model.network.named_parameters()):
            value.copy_(torch.from_numpy(rng.normal(size=value.shape)))
    return model


def recorded_windows() -> Windows:
    """Return a walk, one with gaps, a short one, a constant, one without a last step, and one at a high level."""
    context = np.random.default_rng(1).normal(size=(6, 110)).cumsum(axis=1)
    context[1, 70:95] = np.nan
    context[2, :91] = np.nan
    context[3] = 3.0
    context[4, -3:] = np.nan
    context[5] = 1e3 + 20 * context[5]
    future = np.zeros((6, HORIZON), np.float32)
    return Windows(context.astype(np.float32), future, list("abcdef"), np.full(6, 110), "walks", "D", 1)


def answer_of(name: str) -> dict[str, np.ndarray]:
    with np.load(RECORD) as record:
        return {key.removeprefix(f"{name}/"): record[key] for key in record if key.startswith(f"{name}/")}


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_states_and_forecasts_are_those_that_the_package_gave(number: int) -> None:
    check_parity(recorded_model(number), recorded_windows(), answer_of(f"{number} alone"))


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_series_of_a_group_read_each_other_as_they_did_in_the_package(number: int) -> None:
    check_groups(recorded_model(number), recorded_windows(), SERIES, answer_of(f"{number} groups"))


def record() -> None:
    """Write the package's states and quantiles."""
    found = {}
    with tempfile.TemporaryDirectory() as root:
        for number in range(len(SHAPES)):
            for name, series in ((f"{number} alone", None), (f"{number} groups", SERIES)):
                folder = Path(root, name)
                write_case(folder, recorded_model(number), recorded_windows(), series)
                run_package([folder])
                with np.load(folder / "outputs.npz") as answer:
                    kept = {key: answer[key] for key in answer if series is None or key in ("normed", "quantiles")}
                found |= {f"{name}/{key}": values for key, values in kept.items()}
                shutil.rmtree(folder)
    np.savez_compressed(RECORD, **found)


if __name__ == "__main__":
    record()

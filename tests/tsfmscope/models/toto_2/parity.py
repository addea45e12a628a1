"""Comparison of Toto 2.0 with what the package toto-2 answers for the same weights and windows."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from tsfmscope.models.toto_2 import Scaled, Toto2, scale_and_cut
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

# Interpreter that has the package, which needs Python 3.12: docs/install.md.
INTERPRETER = "TSFMSCOPE_TOTO2_PYTHON"


def write_case(folder: Path, model: Toto2, windows: Windows, series: Sequence[Sequence[int]] | None = None) -> None:
    """Write model and windows as `package_run.py` reads them.

    series: number of every series of every row; the rows' series are windows in this order. By default each window is
    a row. Contexts are padded to whole patches, and missing steps are filled as the package's GluonTS predictor does.
    """
    model.save(folder / "model")
    numbers = np.zeros((len(windows), 1), np.int64) if series is None else np.array(series, np.int64)
    pad = -windows.context.shape[1] % model.config["patch_size"]
    values = np.pad(windows.context, ((0, 0), (pad, 0)), constant_values=np.nan)
    is_observed, filled = ~np.isnan(values), values.copy()
    for row in filled:
        last = np.float32(0)
        for step, value in enumerate(row):
            row[step] = last = last if np.isnan(value) else value
    shape = (*numbers.shape, -1)
    np.savez(
        folder / "inputs.npz", target=filled.reshape(shape), target_mask=is_observed.reshape(shape),
        series_ids=numbers, horizon=windows.horizon,
    )  # fmt: skip


def run_package(folders: Sequence[Path]) -> None:
    """Run the package on these folders."""
    script = Path(__file__).with_name("package_run.py")
    subprocess.run([os.environ[INTERPRETER], script, *folders], check=True)


def check_parity(model: Toto2, windows: Windows, answer: Mapping[str, np.ndarray]) -> None:
    """Compare states of every layer and forecasts; padding counts too, since the package computes it alike."""
    tokens = model.tokenize(windows)
    assert (tokens.kinds["decoder"] == TokenKind.OBSERVATION).any()
    layers = list(model.hidden_states(tokens))
    assert len(layers) == model.layers["decoder"] + 2
    for ours in layers:
        wanted = answer["normed" if ours.normed else f"layer {ours.layer}"]
        close_states(ours.states, wanted.reshape(len(windows), -1, wanted.shape[-1]))
    wanted = np.moveaxis(answer["quantiles"][:, :, 0], 0, 1)
    ours_forecast = model.forecast(windows, levels=model.levels, seeds=[0] * len(windows)).values
    assert (np.abs(ours_forecast - wanted) <= 1e-4 * np.abs(wanted).max(axis=(1, 2), keepdims=True)).all()


def check_groups(
    model: Toto2, windows: Windows, series: Sequence[Sequence[int]], answer: Mapping[str, np.ndarray]
) -> None:
    """Compare normed states and forecasts of rows whose series read each other in variate layers."""
    groups = [100 * row + number for row, numbers in enumerate(series) for number in numbers]
    size = model.config["patch_size"]
    ahead = -(-windows.horizon // size) - 1
    cut = scale_and_cut(windows.context, ahead, size)
    inputs = (torch.from_numpy(part) for part in Scaled.of(cut.arrays()))
    with torch.inference_mode():
        states = model.network(*inputs, torch.tensor(groups))
        outputs = model.network.quantiles(states[:, -1 - ahead :]).numpy()
    close_states(states.numpy(), answer["normed"].reshape(len(windows), -1, states.shape[-1]))
    ours = cut.unscale(outputs)[:, :, : windows.horizon]
    wanted = np.moveaxis(answer["quantiles"].reshape(len(model.levels), len(windows), -1), 0, 1)
    assert (np.abs(ours - wanted) <= 1e-4 * np.abs(wanted).max(axis=(1, 2), keepdims=True)).all()


def close_states(ours: np.ndarray, wanted: np.ndarray) -> None:
    # The package runs one more patch, whose state nothing reads.
    wanted = wanted[:, : ours.shape[1]]
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())

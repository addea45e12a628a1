"""PatchTST-FM: gaps and loss against granite-tsfm's own classes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import hard_windows, package_network, shake
from tsfmscope.models.patchtst_fm import PatchTSTFM
from tsfmscope.series.types import Windows

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("tsfm_public") is None, reason="granite-tsfm is not installed; see docs/install.md"
)

Make = Callable[..., Windows]
CONFIG = {"context_length": 96, "d_patch": 8, "d_model": 32, "n_head": 4, "n_layer": 3, "pretrain_mask_cont": 2}


def random_model(config: dict[str, Any]) -> PatchTSTFM:
    return shake(PatchTSTFM.new(CONFIG | config, seed=2))


@needs_package
def test_tensors_with_gaps_give_the_forecasts_of_the_package(windows: Make, tmp_path: Path) -> None:
    """A tensor has no padding: its missing first steps are gaps."""
    model, made = random_model({"num_quantile": 9}), windows(count=4, context=64)
    made.context[0, 20:40] = np.nan
    made.context[1, 63] = np.nan
    made.context[2, 1::2] = np.nan
    with torch.no_grad():
        wanted = package_network(model, tmp_path)(torch.from_numpy(made.context), prediction_length=12)
    ours = model._forecast(made, model.levels, 1, [])
    np.testing.assert_allclose(ours, wanted.quantile_outputs[..., 0], rtol=1e-4, atol=1e-4)


@needs_package
def test_the_loss_is_that_of_the_package_for_the_same_masks(
    windows: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tsfm_public.models.patchtst_fm import modeling_patchtst_fm

    model, made = (
        random_model({"num_quantile": 9}),
        hard_windows(windows(count=7, context=70, horizon=16)).take([0, 1, 3, 4, 5, 6]),
    )
    made.future[2, 5] = np.nan
    hidden = np.zeros(made.context.shape, bool)
    hidden[:, 30:46] = True
    hidden[2] = False
    monkeypatch.setattr(model, "_draw_masks", lambda past: hidden)
    ours = model.loss(torch.from_numpy(made.context), torch.from_numpy(made.future))
    steps = np.concatenate((made.context, made.future), axis=1)
    steps = np.pad(steps, ((0, 0), (96 - steps.shape[1], 0)), constant_values=np.nan)
    is_padding = np.logical_and.accumulate(np.isnan(steps), axis=1)
    masked = np.pad(hidden, ((0, 0), (10, 16)))
    masked[:, -16:] = True
    arguments = (np.nan_to_num(steps), masked, np.isnan(steps) & ~is_padding, is_padding)
    model.save(tmp_path)
    package = modeling_patchtst_fm.PatchTSTFMForPretraining.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        theirs = package(*map(torch.from_numpy, arguments), return_loss=True)
    assert float(ours.detach()) == pytest.approx(float(theirs.loss), rel=1e-4)

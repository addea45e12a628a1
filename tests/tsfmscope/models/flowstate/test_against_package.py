"""FlowState: special forecasts, folders and new weights against granite-tsfm's own FlowStateForPrediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import shake
from tsfmscope.conformance.package import load_package_network
from tsfmscope.models.flowstate.family import FlowState
from tsfmscope.series.types import Windows

pytest.importorskip("tsfm_public", reason="granite-tsfm is not installed; see docs/install.md")

Make = Callable[..., Windows]
CONFIG = {
    **{"context_length": 60, "embedding_feature_dim": 16, "encoder_num_layers": 3, "encoder_state_dim": 12},
    **{"encoder_num_hippo_blocks": 2, "decoder_patch_len": 8, "decoder_dim": 6},
}
R1_1 = {"mlp_type": "transformer", "out_gating": True}


def random_model(config: dict[str, Any]) -> FlowState:
    return shake(FlowState.new(CONFIG | config, seed=2))


def package_forecast(model: FlowState, windows: Windows, folder: Path) -> np.ndarray:
    model.save(folder)
    with torch.no_grad():
        forecast = model.forecast_with_package(load_package_network(model, folder), windows, model.tokenize(windows))
    assert forecast.quantiles is not None
    return forecast.quantiles


def close_forecasts(ours: np.ndarray, wanted: np.ndarray) -> None:
    assert ours.shape == wanted.shape
    assert (np.abs(ours - wanted) <= 1e-4 * np.abs(wanted).max(axis=(1, 2), keepdims=True)).all()


def test_a_horizon_one_step_short_of_whole_patches_is_forecast_whole(windows: Make, tmp_path: Path) -> None:
    """The package returns the whole patches before it only."""
    model, made = random_model(R1_1), windows(count=6, context=36, horizon=23)
    wanted = package_forecast(model, made, tmp_path)
    ours = model.forecast(made, levels=model.levels, seeds=[0] * 6).values
    assert wanted.shape[2] == 16 and ours.shape[2] == 23
    close_forecasts(ours[:, :, :16], wanted)


def test_a_series_whose_first_steps_are_missing_is_forecast_without_them(windows: Make, tmp_path: Path) -> None:
    model, made = random_model(R1_1), windows(count=3, horizon=20)
    made.context[1, :17] = np.nan
    rows = [made.take([0]), replace(made.take([1]), context=made.context[1:2, 17:]), made.take([2])]
    forecasts = [package_forecast(model, row, tmp_path) for row in rows]
    close_forecasts(model.forecast(made, levels=model.levels, seeds=[0] * 3).values, np.concatenate(forecasts))


@pytest.mark.parametrize("within", [False, True])
def test_folders_of_the_package_are_read(windows: Make, tmp_path: Path, within: bool) -> None:
    """Those of FlowStateForPrediction, and of the FlowStateModel within it, as the release r1 is."""
    model, made = random_model(R1_1), windows(count=3)
    model.save(tmp_path / "ours")
    package = load_package_network(model, tmp_path / "ours")
    (package.model if within else package).save_pretrained(tmp_path / "theirs")
    loaded = FlowState.load(tmp_path / "theirs")
    assert loaded.config == model.config
    ours, theirs = (one.forecast(made, seeds=[0] * 3).values for one in (model, loaded))
    np.testing.assert_array_equal(ours, theirs)


def test_new_weights_have_the_distribution_of_the_packages(tmp_path: Path) -> None:
    config = CONFIG | R1_1 | {"encoder_state_dim": 64, "embedding_feature_dim": 64, "encoder_num_layers": 2}
    model = FlowState.new(config, seed=0)
    model.save(tmp_path)
    package = load_package_network(model, tmp_path)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = dict(type(package)(package.config).model.named_parameters())
    for name, ours in model.network.named_parameters():
        wanted = theirs[name].detach()
        # The eigenvalues come in another order.
        moments = [(values.detach().mean(), values.detach().std()) for values in (ours, wanted)]
        assert np.allclose(*moments, atol=0.12 * float(wanted.std()) + 1e-6) or wanted.numel() < 500, name
        if name.endswith(("log_Lambda_real", "Lambda_imag")):
            np.testing.assert_allclose(ours.detach().sort().values, wanted.sort().values, rtol=1e-3, atol=1e-3)

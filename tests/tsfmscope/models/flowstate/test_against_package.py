"""FlowState: states, forecasts and folders against granite-tsfm's own FlowStateForPrediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import shake
from tsfmscope.models.flowstate.family import FlowState
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

pytest.importorskip("tsfm_public", reason="granite-tsfm is not installed; see docs/install.md")

Make = Callable[..., Windows]
CONFIG = {
    **{"context_length": 60, "embedding_feature_dim": 16, "encoder_num_layers": 3, "encoder_state_dim": 12},
    **{"encoder_num_hippo_blocks": 2, "decoder_patch_len": 8, "decoder_dim": 6},
}
R1_1 = {"mlp_type": "transformer", "out_gating": True}
SHAPES: list[dict[str, Any]] = [
    {},
    R1_1,
    R1_1 | {"scale_factor": 0.25, "encoder_state_dim": 20, "encoder_num_hippo_blocks": 1},
    {"scale_factor": 24 / 7, "decoder_type": "hlegs"},
    {"scale_factor": 0.0656, "out_gating": True},
    R1_1 | {"decoder_type": "four", "decoder_dim": 7, "quantiles": [0.05, 0.5, 0.8]},
    # One quantile, one layer, one state per HiPPO block.
    {"quantiles": [0.5], "encoder_num_layers": 1, "encoder_num_hippo_blocks": 12, "decoder_dim": 1},
]


def package_model(model: FlowState, folder: Path) -> Any:
    """Return the package's model with these weights, read from a folder that the family wrote."""
    from tsfm_public import FlowStateForPrediction

    model.save(folder)
    found, info = FlowStateForPrediction.from_pretrained(folder, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return found.eval()


def random_model(config: dict[str, Any]) -> FlowState:
    return shake(FlowState.new(CONFIG | config, seed=2))


def made_windows(make: Make, horizon: int, context: int = 48) -> Windows:
    """Return windows at several levels and scales, one of them constant and two with missing steps."""
    made = make(count=6, context=context, horizon=horizon)
    values = made.context * np.array([1, 10, 1000, 1, 0, 1], np.float32)[:, None]
    values += np.array([0, 0, 5000, -20, 3, 0], np.float32)[:, None]
    values[3, 10:19] = values[5, ::3] = np.nan
    # A series that the package gets has an observed first step.
    values[5, 0] = 1.0
    return Windows(values, made.future, made.series, made.origin, made.dataset, made.freq, made.season)


@pytest.mark.parametrize("config", SHAPES, ids=str)
@pytest.mark.parametrize("horizon", [2, 30])
def test_states_of_every_layer_are_those_of_the_package(
    windows: Make, tmp_path: Path, config: dict[str, Any], horizon: int
) -> None:
    model = random_model(config)
    made = made_windows(windows, horizon)
    package = package_model(model, tmp_path).model
    factor, tokens = model.config["scale_factor"], model.tokenize(made)
    layers = list(model.hidden_states(tokens))
    masked = int((tokens.kinds["encoder"] == TokenKind.MASK).sum(axis=1)[0])
    # The last layer then returns all rows.
    package.config.min_context = 1
    past = torch.from_numpy(made.context[:, -(layers[0].states.shape[1] - masked) :])[:, :, None]
    with torch.no_grad():
        theirs = package(past, batch_first=True, scale_factor=factor, mask_n=masked)
    wanted = [theirs.embedded_output, *theirs.hidden_states[: len(layers) - 1]]
    assert len(layers) == len(wanted) == model.layers["encoder"] + 1
    for ours, state in zip(layers, wanted, strict=True):
        expected = state.transpose(0, 1).numpy()
        np.testing.assert_allclose(ours.states, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def package_forecasts(package: Any, windows: Windows, factor: float | None = None) -> np.ndarray:
    """Return the package's quantiles, [W, Q, H]; factor: its scale factor, by default its config's."""
    past = torch.from_numpy(windows.context)[:, :, None]
    with torch.no_grad():
        output = package(past, prediction_length=windows.horizon, scale_factor=factor, batch_first=True)
    quantiles: np.ndarray = output.quantile_outputs[..., 0].numpy()
    return quantiles


def close_forecasts(ours: np.ndarray, wanted: np.ndarray) -> None:
    assert ours.shape == wanted.shape
    assert (np.abs(ours - wanted) <= 1e-4 * np.abs(wanted).max(axis=(1, 2), keepdims=True)).all()


# Horizons of less than a patch, a patch, several whole ones, and several with a rest.
@pytest.mark.parametrize("config", SHAPES, ids=str)
@pytest.mark.parametrize(("horizon", "context"), [(2, 48), (8, 30), (16, 48), (30, 48), (30, 90)])
def test_forecasts_are_those_of_the_package(
    windows: Make, tmp_path: Path, config: dict[str, Any], horizon: int, context: int
) -> None:
    model = random_model(config)
    horizon = min(horizon, model._longest(model.config["scale_factor"]))
    made = made_windows(windows, horizon, context)
    wanted = package_forecasts(package_model(model, tmp_path), made)
    close_forecasts(model.forecast(made, levels=model.levels, seeds=[0] * 6).values, wanted)


def test_a_horizon_one_step_short_of_whole_patches_is_forecast_whole(windows: Make, tmp_path: Path) -> None:
    """The package returns the whole patches before it only."""
    model, made = random_model(R1_1), made_windows(windows, 23, 36)
    wanted = package_forecasts(package_model(model, tmp_path), made)
    ours = model.forecast(made, levels=model.levels, seeds=[0] * 6).values
    assert wanted.shape[2] == 16 and ours.shape[2] == 23
    close_forecasts(ours[:, :, :16], wanted)


@pytest.mark.parametrize("season", [2, 7, 48])
def test_a_base_season_gives_the_package_a_scale_factor(windows: Make, tmp_path: Path, season: int) -> None:
    model = random_model(R1_1 | {"base_season": 8})
    made = replace(made_windows(windows, 4), season=season)
    wanted = package_forecasts(package_model(model, tmp_path), made, 8 / season)
    close_forecasts(model.forecast(made, levels=model.levels, seeds=[0] * 6).values, wanted)


def test_a_series_whose_first_steps_are_missing_is_forecast_without_them(windows: Make, tmp_path: Path) -> None:
    model, made = random_model(R1_1), windows(count=3, horizon=20)
    made.context[1, :17] = np.nan
    package, forecasts = package_model(model, tmp_path), []
    for number, first in enumerate((0, 17, 0)):
        one = made.take([number])
        forecasts.append(package_forecasts(package, replace(one, context=one.context[:, first:])))
    close_forecasts(model.forecast(made, levels=model.levels, seeds=[0] * 3).values, np.concatenate(forecasts))


@pytest.mark.parametrize("within", [False, True])
def test_folders_of_the_package_are_read(windows: Make, tmp_path: Path, within: bool) -> None:
    """Those of FlowStateForPrediction, and of the FlowStateModel within it, as the release r1 is."""
    model, made = random_model(R1_1), windows(count=3)
    package = package_model(model, tmp_path / "ours")
    (package.model if within else package).save_pretrained(tmp_path / "theirs")
    loaded = FlowState.load(tmp_path / "theirs")
    assert loaded.config == model.config
    ours, theirs = (one.forecast(made, seeds=[0] * 3).values for one in (model, loaded))
    np.testing.assert_array_equal(ours, theirs)


def test_new_weights_have_the_distribution_of_the_packages(tmp_path: Path) -> None:
    config = CONFIG | R1_1 | {"encoder_state_dim": 64, "embedding_feature_dim": 64, "encoder_num_layers": 2}
    model = FlowState.new(config, seed=0)
    package = type(package_model(model, tmp_path))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = dict(package(package_model(model, tmp_path).config).model.named_parameters())
    for name, ours in model.network.named_parameters():
        wanted = theirs[name].detach()
        # The eigenvalues come in another order.
        moments = [(values.detach().mean(), values.detach().std()) for values in (ours, wanted)]
        assert np.allclose(*moments, atol=0.12 * float(wanted.std()) + 1e-6) or wanted.numel() < 500, name
        if name.endswith(("log_Lambda_real", "Lambda_imag")):
            np.testing.assert_allclose(ours.detach().sort().values, wanted.sort().values, rtol=1e-3, atol=1e-3)

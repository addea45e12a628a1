"""TTM: recursion, loss and frequencies against granite-tsfm's own classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import shake
from tsfmscope.models.ttm.family import TTM
from tsfmscope.series.types import Windows

pytest.importorskip("tsfm_public", reason="granite-tsfm is not installed; see docs/install.md")

Make = Callable[..., Windows]
# 52 steps are six patches and four steps that no patch reads.
CONFIG = {"context_length": 52, "prediction_length": 12, "patch_length": 8, "d_model": 24, "num_layers": 2}
R1 = {"adaptive_patching_levels": 3, "decoder_d_model": 16, "decoder_num_layers": 2}


def package_model(model: TTM, folder: Path) -> Any:
    """Return the package's model with these weights, read from a folder that the family wrote."""
    from tsfm_public.models.tinytimemixer import TinyTimeMixerForPrediction

    model.save(folder)
    found, info = TinyTimeMixerForPrediction.from_pretrained(folder, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return found.eval()


def random_model(config: dict[str, Any]) -> TTM:
    return shake(TTM.new(CONFIG | config, seed=2))


def made_windows(make: Make, horizon: int, context: int = 52) -> Windows:
    """Return windows at several levels and scales, one of them constant, of data of 15 minutes."""
    made = make(count=5, context=context, horizon=horizon)
    context_values = made.context * np.array([1, 0.01, 1000, 1, 0], np.float32)[:, None]
    context_values += np.array([0, 0, 5000, -20, 3], np.float32)[:, None]
    return Windows(context_values, made.future, made.series, made.origin, made.dataset, "15min", 96)


def close_forecasts(ours: np.ndarray, wanted: np.ndarray) -> None:
    assert ours.shape == wanted.shape
    assert (np.abs(ours - wanted) <= 1e-4 * np.abs(wanted).max(axis=1, keepdims=True)).all()


@pytest.mark.parametrize(("horizon", "context"), [(5, 52), (30, 52), (30, 70)])
def test_longer_and_shorter_horizons_are_those_of_the_packages_recursion(
    windows: Make, tmp_path: Path, horizon: int, context: int
) -> None:
    from tsfm_public.toolkit.recursive_predictor import RecursivePredictor, RecursivePredictorConfig

    model = random_model(R1)
    made = made_windows(windows, horizon, context)
    package = package_model(model, tmp_path)
    lengths = {"requested_prediction_length": horizon, "model_prediction_length": 12}
    recursive = RecursivePredictor(RecursivePredictorConfig(model=package, loss="mse", **lengths))
    past = torch.from_numpy(made.context[:, -52:])[:, :, None]
    with torch.no_grad():
        future = torch.ones(5, horizon, 1, dtype=torch.bool)
        wanted = recursive(past, past_observed_mask=torch.ones_like(past), future_observed_mask=future)
    close_forecasts(model.forecast(made, seeds=[0] * 5).values[:, 4], wanted.prediction_outputs[:, :horizon, 0].numpy())


@pytest.mark.parametrize("loss", ["mse", "mae", "huber", "pinball"])
def test_the_loss_is_that_of_the_package_for_standardised_windows(windows: Make, tmp_path: Path, loss: str) -> None:
    model = random_model({"loss": loss, "quantile": 0.3, "huber_delta": 0.7})
    made = windows(count=5, context=52, horizon=12)
    context = made.context - made.context.mean(axis=1, keepdims=True)
    # With the scaler's 1e-5, loc is 0 and scale is 1.
    context *= np.sqrt(1 - 1e-5) / context.std(axis=1, keepdims=True)
    future = torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    future[2, 4] = future[3, :] = np.nan
    ours = model.loss(torch.from_numpy(context), future)
    past, later = torch.from_numpy(context)[:, :, None], future[:, :, None]
    with torch.no_grad():
        theirs = package_model(model, tmp_path)(past, later, future_observed_mask=~later.isnan())
    assert float(ours.detach()) == pytest.approx(float(theirs.loss), rel=1e-4)


def test_frequency_tokens_are_those_of_the_package() -> None:
    from tsfm_public.toolkit.time_series_preprocessor import DEFAULT_FREQUENCY_MAPPING

    from tsfmscope.models.ttm.family import FREQUENCIES, UNKNOWN

    theirs = {**DEFAULT_FREQUENCY_MAPPING}
    assert theirs.pop("oov") == UNKNOWN
    theirs.pop("d", None)
    assert {name: FREQUENCIES[name] for name in theirs} == theirs

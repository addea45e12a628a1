"""TTM: states and forecasts against numbers that granite-tsfm 0.3.11 gave for the same weights and windows.

`python -m tests.tasks.models.ttm.test_recorded` records them; it needs the package. `test_against_package.py` compares
more, where the package is installed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

from tsfmscope.tasks.models.common.capture import capture
from tsfmscope.tasks.models.ttm.family import TTM
from tsfmscope.tasks.series.types import Windows

# The layers of R1, with the prefix and the raw residual that other releases have.
CONFIG = {"context_length": 50, "prediction_length": 12, "patch_length": 8, "d_model": 24, "num_layers": 2}
CONFIG |= {"adaptive_patching_levels": 3, "decoder_d_model": 16, "decoder_num_layers": 2}
CONFIG |= {"resolution_prefix_tuning": True, "frequency_token_vocab_size": 10, "decoder_raw_residual": True}
RECORD = Path(__file__).with_name("package.npz")
# Token of hourly data in the package.
HOURLY = 7


def recorded_model() -> TTM:
    """Return a model whose weights come from NumPy's generator, in the order of their names."""
    model, rng = TTM.new(CONFIG, seed=0), np.random.default_rng(0)
    with torch.no_grad():
        for _, value in sorted(model.network.named_parameters()):
            value.copy_(torch.from_numpy(rng.normal(size=value.shape) * 0.4))
    return model


def recorded_windows() -> Windows:
    """Return walks at several levels and scales and a constant, of hourly data."""
    context = np.random.default_rng(1).normal(size=(5, 50)).cumsum(axis=1)
    context[1] *= 1e-3
    context[2] = 3.0
    context[3] = 1e3 + 20 * context[3]
    future = np.zeros((5, 12), np.float32)
    return Windows(context.astype(np.float32), future, list("abcde"), np.full(5, 50), "walks", "h", 24)


def test_states_and_forecasts_are_those_that_the_package_gave() -> None:
    model, windows, record = recorded_model(), recorded_windows(), np.load(RECORD)
    layers = list(model.hidden_states(model.tokenize(windows)))
    assert [layer.layer for layer in layers] == list(range(7))
    for ours in layers:
        wanted = record[f"layer {ours.layer}"].reshape(5, 7, 24)
        np.testing.assert_allclose(ours.states, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    wanted = record["forecast"]
    ours_forecast = model.forecast(windows, levels=(0.1, 0.5), seeds=[0] * 5).values
    room = 1e-4 * np.abs(wanted).max(axis=1, keepdims=True)
    for level in range(2):
        assert (np.abs(ours_forecast[:, level] - wanted) <= room).all()


def record() -> None:
    """Write the package's states and forecasts."""
    from tsfm_public.models.tinytimemixer import TinyTimeMixerForPrediction

    with tempfile.TemporaryDirectory() as folder:
        recorded_model().save(Path(folder))
        package = TinyTimeMixerForPrediction.from_pretrained(folder).eval()
    past = torch.from_numpy(recorded_windows().context)[:, :, None]
    mixer = package.backbone.encoder.mlp_mixer_encoder
    blocks = dict(enumerate((layer for level in mixer.mixers for layer in level.mixer_layers), start=1))
    with torch.no_grad(), capture(blocks, {0: mixer}) as states:
        answer = package(past, freq_token=torch.full((5,), HOURLY))
    layers = {f"layer {layer}": value.numpy() for layer, value in states.items()}
    np.savez_compressed(RECORD, forecast=answer.prediction_outputs[:, :, 0].numpy(), **layers)


if __name__ == "__main__":
    record()

"""MOMENT: states and forecasts against numbers that momentfm 0.1.4 gave for the same weights and windows.

`python -m tests.tasks.models.moment.test_recorded` records them; it needs the package. `test_against_package.py`
compares more, where the package is installed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

from tsfmscope.tasks.models.common.capture import capture
from tsfmscope.tasks.models.moment.family import Moment
from tsfmscope.tasks.series.types import Windows

CONFIG = {"seq_len": 96, "patch_len": 8, "d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 2, "num_layers": 2}
RECORD = Path(__file__).with_name("package.npz")
# 26 steps are no whole patches: 32 steps are masked.
HORIZON = 26


def recorded_model() -> Moment:
    """Return a model whose weights come from NumPy's generator, in the order of their names."""
    model, rng = Moment.new(CONFIG, seed=0), np.random.default_rng(0)
    with torch.no_grad():
        for _, value in sorted(model.network.named_parameters()):
            value.copy_(torch.from_numpy(rng.normal(size=value.shape) * 0.4))
    return model


def recorded_windows() -> Windows:
    """Return a walk, a short one, a constant, and one at a high level that is longer than the window."""
    context = np.random.default_rng(1).normal(size=(4, 110)).cumsum(axis=1)
    context[1, :75] = np.nan
    context[2] = 3.0
    context[3] = 1e3 + 20 * context[3]
    future = np.zeros((4, HORIZON), np.float32)
    return Windows(context.astype(np.float32), future, list("abcd"), np.full(4, 110), "walks", "D", 1)


def test_states_and_forecasts_are_those_that_the_package_gave() -> None:
    model, windows, record = recorded_model(), recorded_windows(), np.load(RECORD)
    tokens = model.tokenize(windows)
    attended = tokens.arrays["attended"]
    assert attended.sum(axis=1).tolist() == [12, 8, 12, 12]
    layers = list(model.hidden_states(tokens))
    assert len(layers) == 4
    for ours in layers:
        wanted = record["normed" if ours.normed else f"layer {ours.layer}"][attended]
        np.testing.assert_allclose(ours.states[attended], wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    wanted = record["forecast"]
    ours = model.forecast(windows, levels=(0.5,), seeds=[0] * 4).values[:, 0]
    assert (np.abs(ours - wanted) <= 1e-4 * np.abs(wanted).max(axis=1, keepdims=True)).all()


def record() -> None:
    """Write the package's states and forecasts."""
    from momentfm import MOMENTPipeline

    with tempfile.TemporaryDirectory() as folder:
        recorded_model().save(Path(folder))
        package = MOMENTPipeline.from_pretrained(folder, model_kwargs={"task_name": "reconstruction"}).eval()
    values = recorded_windows().context[:, -96:]
    mask = torch.from_numpy(~np.isnan(values)).float()
    blocks = package.encoder.block
    watched = {**dict(enumerate(blocks, start=1)), -1: package.encoder.final_layer_norm}
    with torch.no_grad(), capture(watched, {0: blocks[0]}) as states:
        answer = package.short_forecast(
            x_enc=torch.from_numpy(np.nan_to_num(values))[:, None], input_mask=mask, forecast_horizon=HORIZON
        )
    layers = {"normed" if layer < 0 else f"layer {layer}": value.numpy() for layer, value in states.items()}
    np.savez_compressed(RECORD, forecast=answer.forecast[:, 0].numpy(), **layers)


if __name__ == "__main__":
    record()

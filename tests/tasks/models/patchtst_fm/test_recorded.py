"""PatchTST-FM: states and forecasts against numbers that granite-tsfm 0.3.11 gave for the same weights and windows.

`python -m tests.tasks.models.patchtst_fm.test_recorded` records them; it needs the package. `test_against_package.py`
compares more, where the package is installed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

from tsfmscope.tasks.models.common.capture import capture
from tsfmscope.tasks.models.patchtst_fm.family import PatchTSTFM
from tsfmscope.tasks.models.types import TokenKind
from tsfmscope.tasks.series.types import Windows

CONFIG = {"context_length": 96, "d_patch": 8, "d_model": 16, "n_head": 2, "n_layer": 2, "pretrain_mask_cont": 2}
CONFIG |= {"num_quantile": 9}
RECORD = Path(__file__).with_name("package.npz")
# 26 steps are no whole patches: one patch has context and forecast.
HORIZON = 26


def recorded_model() -> PatchTSTFM:
    """Return a model whose weights come from NumPy's generator, in the order of their names."""
    model, rng = PatchTSTFM.new(CONFIG, seed=0), np.random.default_rng(0)
    with torch.no_grad():
        for _, value in sorted(model.network.named_parameters()):
            value.copy_(torch.from_numpy(rng.normal(size=value.shape) * 0.4))
    return model


def recorded_windows() -> Windows:
    """Return a walk, one with gaps, a short one, a constant, and one at a high level that is longer than the window."""
    context = np.random.default_rng(1).normal(size=(5, 110)).cumsum(axis=1)
    context[1, 70:95] = np.nan
    context[2, :91] = np.nan
    context[3] = 3.0
    context[4] = 1e3 + 20 * context[4]
    future = np.zeros((5, HORIZON), np.float32)
    return Windows(context.astype(np.float32), future, list("abcde"), np.full(5, 110), "walks", "D", 1)


def test_states_and_forecasts_are_those_that_the_package_gave() -> None:
    model, windows, record = recorded_model(), recorded_windows(), np.load(RECORD)
    tokens = model.tokenize(windows)
    is_counted = tokens.kinds["encoder"] != TokenKind.PADDING
    assert is_counted.sum(axis=1).tolist() == [12, 10, 6, 12, 12]
    layers = list(model.hidden_states(tokens))
    assert len(layers) == 3
    for ours in layers:
        wanted = record[f"layer {ours.layer}"][is_counted]
        np.testing.assert_allclose(ours.states[is_counted], wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    wanted = record["quantiles"]
    ours = model.forecast(windows, levels=model.levels, seeds=[0] * 5).values
    assert (np.abs(ours - wanted) <= 1e-4 * np.abs(wanted).max(axis=(1, 2), keepdims=True)).all()


def record() -> None:
    """Write the package's states and quantiles."""
    from tsfm_public.models.patchtst_fm.modeling_patchtst_fm import PatchTSTFMForPrediction

    with tempfile.TemporaryDirectory() as folder:
        recorded_model().save(Path(folder))
        package = PatchTSTFMForPrediction.from_pretrained(folder).eval()
    rows = [row[(~np.isnan(row)).argmax() :] for row in recorded_windows().context]
    blocks = package.backbone.blocks
    with torch.no_grad(), capture(dict(enumerate(blocks, start=1)), {0: blocks[0]}) as states:
        answer = package([torch.from_numpy(row) for row in rows], prediction_length=HORIZON)
    quantiles = torch.stack(answer.quantile_outputs)[..., 0].numpy()
    layers = {f"layer {layer}": value.numpy() for layer, value in states.items()}
    np.savez_compressed(RECORD, quantiles=quantiles, **layers)


if __name__ == "__main__":
    record()

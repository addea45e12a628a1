"""Against the chronos package's Chronos-2, and loops written out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chronos import BaseChronosPipeline, Chronos2Pipeline
from chronos.chronos2.config import Chronos2CoreConfig
from chronos.chronos2.model import Chronos2Model

import tsfmscope as ts
from tests.tsfmscope.models.families import hard_windows
from tsfmscope.conformance.package import CLOSE, compare_with_package
from tsfmscope.errors import ModelError
from tsfmscope.models.chronos_2 import LEVELS, Chronos2
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
SHAPE = {"d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 3, "num_layers": 2, "context_length": 48}
SHAPE |= {"input_patch_size": 8, "max_output_patches": 2}


@pytest.fixture(scope="module")
def model() -> Chronos2:
    return Chronos2.new(SHAPE | {"initializer_factor": 0.5}, seed=1)


@pytest.fixture(scope="module")
def linear() -> Chronos2:
    return Chronos2.new(SHAPE | {"initializer_factor": 0.5, "use_arcsinh": False}, seed=2)


def test_a_window_worked_by_hand(linear: Chronos2, windows_of: Callable[..., Windows]) -> None:
    context = np.r_[np.full(10, np.nan), 1.0, 3.0]  # 12 steps: patches of 8, padded on the left
    tokens = linear.tokenize(windows_of(context[None], np.zeros((1, 9))))
    assert tokens.arrays["loc"].tolist() == [2.0]
    assert tokens.arrays["scale"].tolist() == [1.0]
    assert tokens.arrays["patches"].tolist() == [[[0.0] * 8, [0.0] * 6 + [-1.0, 1.0]]]
    kinds = [TokenKind.PADDING, TokenKind.OBSERVATION, TokenKind.REG, TokenKind.MASK, TokenKind.MASK]
    assert tokens.kinds["encoder"].tolist() == [kinds]
    # time is -16..-1 and 0..15, over the longest context
    found: list[torch.Tensor] = []
    handle = linear.network.input_patch_embedding.register_forward_pre_hook(lambda module, args: found.append(args[0]))
    list(linear.hidden_states(tokens))
    handle.remove()
    time, values, masks = found[0][0].numpy().reshape(4, 3, 8).transpose(1, 0, 2)
    np.testing.assert_allclose(time.reshape(-1), np.arange(-16, 16) / 48, rtol=1e-6)
    assert values[1].tolist() == [0.0] * 6 + [-1.0, 1.0]
    assert masks.sum(axis=1).tolist() == [0, 2, 0, 0]
    assert not values[2:].any()


def test_levels_between_those_of_the_model_are_those_of_the_packages_pipeline(model: Chronos2, windows: Make) -> None:
    made, levels = hard_windows(windows(count=6, context=60, horizon=40)), [0.03, 0.5, 0.97]
    ours = model.forecast(made, levels=tuple(levels), seeds=[0] * 6).values
    for one, row in zip(ours, made.context, strict=True):  # one at a time
        with pytest.warns(UserWarning, match="We recommend"):
            found, _ = Chronos2Pipeline(model.network).predict_quantiles(
                [torch.from_numpy(row)], 40, quantile_levels=levels
            )
        want = found[0][0].T.numpy()
        np.testing.assert_allclose(one, want, atol=1e-4 * max(1.0, float(np.abs(want).max())))


def test_the_loss_is_the_quantile_loss_of_the_scaled_future(linear: Chronos2, windows: Make) -> None:
    made = windows(count=3)
    made.future[1, 2:5] = np.nan
    with torch.no_grad():
        predicted = linear.network(context=torch.from_numpy(made.context), num_output_patches=2).quantile_preds.numpy()
    total = 0.0
    for window in range(3):
        scale = made.context[window].std(dtype=float)
        for q, level in enumerate(LEVELS):
            for step in range(12):
                if not np.isnan(made.future[window, step]):
                    gap = (made.future[window, step] - predicted[window, q, step]) / scale
                    total += 2 * max(level * gap, (level - 1) * gap)
    # summed over the levels, averaged over windows and the 16 steps of two patches; missing ones count as 0
    got = linear.loss(torch.from_numpy(made.context), torch.from_numpy(made.future)).item()
    assert got == pytest.approx(total / (3 * 16), rel=1e-4)


def test_group_attention_of_single_series_has_no_gradient_in_q_and_k(model: Chronos2, windows: Make) -> None:
    made = windows(count=4)
    network = Chronos2.new(SHAPE | {"initializer_factor": 0.5}, seed=1)
    network.loss(torch.from_numpy(made.context), torch.from_numpy(made.future)).backward()
    largest = {
        (at, what): max(
            float(getattr(block.layer[at].self_attention, what).weight.grad.abs().max())
            for block in network.network.encoder.block
        )
        for at in (0, 1)
        for what in "qkvo"
    }
    assert largest[1, "q"] < 1e-7 and largest[1, "k"] < 1e-7
    assert all(value > 1e-5 for key, value in largest.items() if key not in ((1, "q"), (1, "k"))), largest


def released(**chronos: Any) -> Chronos2Model:
    """A network of the package's own classes with a config like amazon/chronos-2's."""
    block = {"context_length": 48, "input_patch_size": 8, "input_patch_stride": 8, "output_patch_size": 8}
    block |= {"quantiles": list(LEVELS), "use_reg_token": True, "use_arcsinh": True, "max_output_patches": 2}
    block |= {"time_encoding_scale": 64}
    shape = {
        key: value for key, value in SHAPE.items() if key in ("d_model", "d_ff", "d_kv", "num_heads", "num_layers")
    }
    torch.manual_seed(0)
    return Chronos2Model(
        Chronos2CoreConfig(
            **shape, chronos_config=block | chronos, chronos_pipeline_class="Chronos2Pipeline", initializer_factor=0.5
        )
    )


def test_a_folder_that_the_package_saved_loads_and_forecasts_as_it_does(windows: Make, tmp_path: Path) -> None:
    Chronos2Pipeline(released()).save_pretrained(tmp_path)
    model, made = Chronos2.load(tmp_path), windows(count=3)
    assert isinstance(BaseChronosPipeline.from_pretrained(tmp_path), Chronos2Pipeline)
    compared = compare_with_package(model, tmp_path, made)
    assert max(*compared.state_distances().values(), compared.forecast_distance()) <= CLOSE


def test_the_folders_of_a_fit_load_as_autogluon_lays_them_out(tmp_path: Path) -> None:
    """AutoGluon calls `fit` with the folder of its model and this name of the last checkpoint."""
    folder = tmp_path / "models" / "Chronos2" / "W0"
    values = [np.sin(np.arange(120) / 3)]
    with torch.random.fork_rng(devices=[]):
        tuned = Chronos2Pipeline(released()).fit(
            values, prediction_length=8, validation_inputs=values, num_steps=2, batch_size=4, learning_rate=1e-2,
            output_dir=folder, finetuned_ckpt_name="fine-tuned-ckpt", disable_tqdm=True,
        )  # fmt: skip
    loaded = ts.load(folder / "fine-tuned-ckpt")
    assert loaded.source.family == "chronos-2"
    for name, value in tuned.model.state_dict().items():
        assert torch.equal(value, loaded.family.network.state_dict()[name])
    assert (folder / "checkpoint-2" / "training_args.bin").exists()
    assert ts.load(folder / "checkpoint-2").width == 16
    with pytest.raises(ModelError, match="contain one: 'checkpoint-2', 'fine-tuned-ckpt'; name one of them"):
        ts.load(folder)
    with pytest.raises(ModelError, match="contain one: 'W0/checkpoint-2', 'W0/fine-tuned-ckpt'; name one of them"):
        ts.load(folder.parent)

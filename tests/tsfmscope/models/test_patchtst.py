"""Against transformers' own PatchTSTForPrediction, and values worked by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import PatchTSTConfig, PatchTSTForPrediction

from tsfmscope.errors import ModelError
from tsfmscope.models.patchtst import PatchTST
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
SIZE = {"d_model": 16, "ffn_dim": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "init_std": 0.2}
SIZE |= {"patch_length": 8, "patch_stride": 4, "context_length": 50, "prediction_length": 12}  # 2 steps fill no patch
VARIANTS: Mapping[str, dict[str, Any]] = {
    "batch norm": {}, "normal": {"distribution_output": "normal"}, "squared error": {"loss": "mse"},
}  # fmt: skip
LEVELS = (0.1, 0.5, 0.9)


def trained(config: Mapping[str, Any]) -> PatchTST:
    """A random model whose batch norms have seen something, so that they are not the identity."""
    family = PatchTST.new(config, seed=2)
    seen = 3 * torch.randn(64, config["context_length"], 1, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        family.network.train()(past_values=seen)
    family.network.eval()
    return family


def hard(windows: Windows, steps: int = 50) -> Windows:
    """The last steps of the context; rows with padding, a gap, a constant, zeros, a level far from 0, one step."""
    context = windows.context
    context[0, :30] = np.nan
    context[1, 10:25] = np.nan
    context[2] = 3.0
    context[3] = 0.0
    context[4] += 100
    context[5, :-1] = np.nan
    windows.future[1, 3] = np.nan
    return replace(windows, context=context[:, -steps:])


def as_theirs(family: PatchTST, windows: Windows) -> dict[str, torch.Tensor]:
    """The package's arguments: 50 steps and a mask; missing ones stand where their scaled value is 0."""
    values = windows.context[:, -50:]
    values = np.pad(values, ((0, 0), (50 - values.shape[1], 0)), constant_values=np.nan)
    observed = ~np.isnan(values)
    centred = family.network.config.scaling == "std"
    fill = [row[seen].mean() if centred else 0.0 for row, seen in zip(values, observed, strict=True)]
    filled = np.where(observed, values, np.array(fill)[:, None]).astype(np.float32)
    past, mask = torch.from_numpy(filled)[:, :, None], torch.from_numpy(observed)[:, :, None]
    return {"past_values": past, "past_observed_mask": mask}


def test_quantiles_are_where_the_samples_of_the_package_lie(patchtst: PatchTST, windows: Make) -> None:
    made = windows(count=1)
    patchtst.network.config.num_parallel_samples = 4000
    torch.manual_seed(0)
    samples = patchtst.network.generate(torch.from_numpy(made.context)[:, :, None]).sequences[0, :, :, 0].numpy()
    ours = patchtst.forecast(made, levels=LEVELS, seeds=[0]).values[0]
    np.testing.assert_allclose((samples[None] <= ours[:, None]).mean(axis=1).T, [LEVELS] * 12, atol=0.03)


def test_a_long_forecast_goes_on_from_its_median(patchtst: PatchTST, windows: Make) -> None:
    made = windows(count=3, horizon=30)
    whole = patchtst.forecast(made, levels=LEVELS, seeds=[0] * 3)
    context = made.context
    for start in range(0, 30, 12):
        part = replace(made, context=context, future=made.future[:, start : start + 12])
        step = patchtst.forecast(part, levels=LEVELS, seeds=[0] * 3)
        np.testing.assert_allclose(whole.values[:, :, start : start + 12], step.values, rtol=1e-4, atol=1e-4)
        context = np.concatenate((context, step.median), axis=1)


@pytest.mark.parametrize("name", ["batch norm", "normal", "squared error"])
def test_the_loss_is_the_package_s_own(name: str, windows: Make) -> None:
    family = trained(SIZE | VARIANTS[name])
    made = windows(count=7, context=50)
    future = torch.from_numpy(made.future)
    with torch.no_grad():
        theirs = family.network(**as_theirs(family, made), future_values=future[:, :, None]).loss
        ours = family.loss(torch.from_numpy(made.context), future)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-4)


@pytest.mark.parametrize("name", ["batch norm", "squared error"])
def test_missing_future_steps_weigh_nothing_in_the_loss(name: str, windows: Make) -> None:
    family = trained(SIZE | VARIANTS[name])
    made = hard(windows(count=7, context=50))
    made.future[0, 5:] = np.nan
    made.future[6] = np.nan
    seen = ~np.isnan(made.future)
    total = 0.0
    for w in range(7):
        one = replace(made, context=made.context[[w]], future=made.future[[w]])
        with torch.no_grad():
            output = family.network(**as_theirs(family, one))
        scale, loc = output.scale.item(), output.loc.item()
        for h in np.flatnonzero(seen[w]):
            y = float(made.future[w, h])
            if name == "squared error":
                total += (y - output.prediction_outputs[0, h, 0].item()) ** 2
            else:
                df, at, spread = (part[0, h, 0].item() for part in output.prediction_outputs)
                total -= stats.t.logpdf((y - loc) / scale, df, at, spread) - np.log(scale)
    with torch.no_grad():
        ours = family.loss(torch.from_numpy(made.context), torch.from_numpy(made.future)).item()
    assert ours == pytest.approx(total / seen.sum(), rel=1e-4)


def test_a_window_worked_by_hand(windows_of: Callable[..., Windows]) -> None:
    family = PatchTST.new(SIZE | {"context_length": 14, "patch_length": 4, "patch_stride": 4}, seed=0)
    tokens = family.tokenize(windows_of(np.array([[1.0, np.nan, 3.0]]), np.zeros((1, 12))))
    std = np.sqrt(1 + 1e-5)  # the package adds 1e-5 to the variance
    assert tokens.arrays["loc"].tolist() == [2.0]
    assert tokens.arrays["scale"].tolist() == [pytest.approx(std)]
    # 14 steps are 3 patches, the first 2 steps left out; 11 of them are padding
    expected = [[[0.0] * 4, [0.0] * 4, [0.0, -1 / std, 0.0, 1 / std]]]
    np.testing.assert_allclose(tokens.arrays["patches"], expected, rtol=1e-6)
    assert tokens.arrays["masks"].tolist() == [[[False] * 4, [False] * 4, [False, True, False, True]]]
    assert tokens.kinds["encoder"].tolist() == [[TokenKind.PADDING, TokenKind.PADDING, TokenKind.OBSERVATION]]
    assert dict(tokens.types) == {}


def test_the_cls_row_comes_first_and_stands_for_no_value(windows: Make) -> None:
    family = PatchTST.new(SIZE | {"use_cls_token": True}, seed=0)
    kinds = family.tokenize(windows(context=50)).kinds["encoder"]
    assert (kinds[:, 0] == TokenKind.REG).all()
    assert (kinds[:, 1:] == TokenKind.OBSERVATION).all()
    assert family.rows_per_window(50, 12) == {"encoder": kinds.shape[1] - 1}


# Facts of the config.json of ibm-granite/granite-timeseries-patchtst (7 channels of ETTh1), smaller; keys that today's
# transformers does not know are among them
RELEASED = {
    "architectures": ["PatchTSTForPrediction"], "model_type": "patchtst", "num_input_channels": 7, "loss": "mse",
    "share_embedding": True, "share_projection": True, "channel_attention": False, "use_cls_token": True,
    "pooling_type": None, "patch_length": 12, "patch_stride": 12, "context_length": 50, "prediction_length": 12,
    "d_model": 16, "ffn_dim": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "do_mask_input": None,
    "dropout": 0.2, "head_dropout": 0.2, "mask_input": None, "seed_number": None, "torch_dtype": "float32",
    "transformers_version": "4.36.0.dev0",
}  # fmt: skip


def released(folder: Path, **changes: Any) -> PatchTSTForPrediction:
    """Such a checkpoint, with random weights, under `folder`."""
    config = RELEASED | changes
    own = {name: value for name, value in config.items() if name in PatchTSTConfig().to_dict()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = PatchTSTForPrediction(PatchTSTConfig(**own)).eval()
    network.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    return network


def test_a_saved_model_is_read_by_transformers_and_batch_norms_keep_what_they_saw(tmp_path: Path) -> None:
    family = trained(SIZE)
    family.save(tmp_path)
    theirs = PatchTSTForPrediction.from_pretrained(tmp_path)
    state, again = family.network.state_dict(), PatchTST.load(tmp_path).network.state_dict()
    assert any("running_mean" in name for name in state)
    for name, values in theirs.state_dict().items():
        assert torch.equal(values, state[name])
        assert torch.equal(values, again[name])


def test_a_released_checkpoint_of_many_channels_is_a_model_of_each(windows: Make, tmp_path: Path) -> None:
    theirs = released(tmp_path)
    family = PatchTST.load(tmp_path)
    made = windows(count=7, context=50)
    with torch.no_grad():
        output = theirs(past_values=torch.from_numpy(made.context.T)[None], output_hidden_states=True)
    ours = family.forecast(made, levels=LEVELS, seeds=[0] * 7).values
    for level in range(3):  # a squared-error head answers a point, at every level
        np.testing.assert_allclose(ours[:, level], output.prediction_outputs[0].T, rtol=1e-4, atol=1e-4)
    for layer, expected in zip(family.hidden_states(family.tokenize(made)), output.hidden_states, strict=False):
        np.testing.assert_allclose(layer.states, expected[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"share_embedding": False}, "got {'share_embedding': False} with 7 channels, expected channels that share"),
        ({"channel_attention": True}, "got {'channel_attention': True} with 7 channels"),
        ({"loss": "nll", "distribution_output": "negative_binomial"}, "'negative_binomial', expected one of "),
        (
            {"architectures": ["PatchTSTModel"]},
            r"architectures \['PatchTSTModel'\], expected 'patchtst', one of \['Pat",
        ),
    ],
)
def test_a_checkpoint_that_is_no_model_of_one_real_channel_is_refused(
    changes: dict[str, Any], text: str, tmp_path: Path
) -> None:
    released(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(RELEASED | changes))
    with pytest.raises(ModelError, match=text):
        PatchTST.load(tmp_path)


def test_a_future_of_another_length_is_refused(patchtst: PatchTST) -> None:
    with pytest.raises(ValueError, match="future: got 7 steps, expected prediction_length 12"):
        patchtst.loss(torch.zeros(1, 48), torch.zeros(1, 7))

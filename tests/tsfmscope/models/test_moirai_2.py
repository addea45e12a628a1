"""Moirai 2: states, forecasts and folders against uni2ts and gluonts, and the loss against a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import torch
from gluonts.dataset.common import ListDataset
from gluonts.transform.feature import CausalMeanValueImputation
from hypothesis import given
from uni2ts.model.moirai2 import Moirai2Module

from tests.tsfmscope.models.families import hard_windows
from tsfmscope.models.common.capture import capture
from tsfmscope.models.moirai_2 import Moirai2
from tsfmscope.models.moirai_patches import causal_means
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
CONFIG = {"d_model": 128, "d_ff": 48, "num_layers": 3, "patch_size": 8, "num_predict_token": 2}
# gluonts divides 0 by 0 for the first step, and then replaces it.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in divide:RuntimeWarning")
# Salesforce/moirai-2.0-R-small as the paper gives it (arXiv 2511.11698): 6 layers, width 384, 11.4 million parameters.
SMALL = {"d_model": 384, "d_ff": 1024, "num_layers": 6, "patch_size": 16, "num_predict_token": 4}


def package_forecasts(model: Moirai2, windows: Windows) -> np.ndarray:
    """Quantiles [W, Q, H] of the package's network, from inputs of the package's own transformations.

    They fill gaps and pad. Its `create_predictor(...).predict` fails with gluonts 0.17.
    """
    context, horizon = windows.context, windows.horizon
    # Of a series without a value, the package pads nothing.
    first = np.where(np.isnan(context).all(axis=1), 0, (~np.isnan(context)).argmax(axis=1))
    entries = [
        {"start": pd.Period("2020-01-01", "D"), "target": row[begin:]}
        for row, begin in zip(context, first, strict=True)
    ]
    forecaster = model.stock_model(prediction_length=horizon, context_length=context.shape[1])
    transformation = forecaster.create_predictor(batch_size=4, device="cpu").input_transform
    made = list(transformation(ListDataset(entries, freq="D"), is_train=False))
    inputs = {
        name: torch.from_numpy(np.stack([entry[name] for entry in made])) for name in forecaster.prediction_input_names
    }
    inputs["past_is_pad"] = inputs["past_is_pad"].bool()
    with torch.no_grad():
        quantiles: np.ndarray = forecaster(**inputs).numpy()
    return quantiles


@pytest.mark.parametrize("horizon", [5, 16, 40])
def test_forecasts_are_those_of_the_package(windows: Make, horizon: int) -> None:
    """At most 16 steps are one forward pass; 40 take three, with a path of every quantile."""
    model = Moirai2.new(CONFIG, seed=3)
    made = hard_windows(windows(count=7, context=50, horizon=horizon))
    if horizon > 16:
        # Without the series that has no value: see the deviations of the class.
        made = made.take(np.array([0, 1, 3, 4, 5, 6]))
    levels = model.network.quantile_levels
    ours = model.forecast(made, levels=levels, seeds=[0] * len(made)).values
    wanted = package_forecasts(model, made)
    room = 1e-4 * np.abs(wanted).max(axis=(1, 2), keepdims=True)
    assert (np.abs(ours - wanted) <= room).all()


@pytest.mark.parametrize(("size", "context"), [(8, 48), (16, 50)])
def test_every_layer_is_that_of_the_package(windows: Make, size: int, context: int) -> None:
    model = Moirai2.new(CONFIG | {"patch_size": size}, seed=2)
    made = hard_windows(windows(count=7, context=context, horizon=12))
    decoder = model.network.encoder
    outputs: dict[Any, torch.nn.Module] = dict(enumerate(decoder.layers, start=1))
    with torch.no_grad(), capture(outputs | {"normed": decoder.norm}, {0: decoder.layers[0]}) as theirs:
        package_forecasts(model, made)
    tokens = model.tokenize(made)
    is_counted = tokens.kinds["decoder"] != TokenKind.PADDING
    for ours in model.hidden_states(tokens):
        wanted = theirs["normed" if ours.normed else ours.layer].numpy()[:, : ours.states.shape[1]][is_counted]
        np.testing.assert_allclose(ours.states[is_counted], wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_levels_between_those_of_the_model_lie_on_a_line(windows: Make) -> None:
    model, made = Moirai2.new(CONFIG, seed=3), windows(count=2)
    ours = model.forecast(made, levels=(0.05, 0.1, 0.45, 0.5), seeds=[0, 0]).values
    four = model.forecast(made, levels=(0.4, 0.5), seeds=[0, 0]).values[:, 0]
    np.testing.assert_array_equal(ours[:, 0], ours[:, 1])
    np.testing.assert_allclose(ours[:, 2], (four + ours[:, 3]) / 2, rtol=1e-5, atol=1e-5)


def test_the_loss_is_the_mean_pinball_loss_of_every_prediction(windows: Make) -> None:
    model = Moirai2.new(CONFIG, seed=4)
    made = hard_windows(windows(count=7, context=48, horizon=12))
    loss = float(model.loss(torch.from_numpy(made.context), torch.from_numpy(made.future)).detach())
    network, found = model.network, []
    packed = model._pack_windows(made.context, made.future)
    with torch.no_grad():
        predicted = network.out_proj(model._encode(packed, slice(None))).numpy().reshape(7, 8, 2, 9, 8)
    for window, token, ahead, step in np.ndindex(7, 8, 2, 8):
        target = token + 1 + ahead
        if target < 8 and packed.sample_id[window, token] and packed.observed[window, target, step]:
            errors = packed.patches[window, target, step] - predicted[window, token, ahead, :, step]
            levels = np.array(network.quantile_levels)
            found.append(np.where(errors > 0, levels * errors, (levels - 1) * errors).mean())
    assert loss == pytest.approx(np.mean(found), rel=1e-5)


def test_later_steps_do_not_change_earlier_states(windows: Make) -> None:
    model, made = Moirai2.new(CONFIG, seed=1), windows(count=1, context=48)
    packed = model._pack_windows(made.context, made.future)
    with torch.no_grad():
        before = model._encode(packed, slice(None))
        packed.patches[:, 4:] += 1.0
        after = model._encode(packed, slice(None))
    torch.testing.assert_close(after[:, :4], before[:, :4], rtol=0, atol=0)
    assert (after[:, 4:] != before[:, 4:]).any(dim=-1).all()


@given(st.lists(st.one_of(st.just(np.nan), st.floats(-1e3, 1e3)), min_size=2, max_size=30))
def test_gaps_are_filled_as_gluonts_fills_them(values: list[float]) -> None:
    steps = np.array(values)
    ours = causal_means(steps[None])[0]
    first = int((~np.isnan(steps)).argmax())
    if np.isnan(steps).all():
        assert (ours == 0).all()
        return
    assert (ours[:first] == 0).all()
    np.testing.assert_allclose(ours[first:], CausalMeanValueImputation()(steps[first:].copy()), rtol=1e-9, atol=1e-9)


def test_the_published_shape_has_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        module = Moirai2Module(**SMALL, max_seq_len=512, attn_dropout_p=0.0, dropout_p=0.0)
    assert sum(values.numel() for values in module.parameters()) == pytest.approx(11.4e6, rel=0.01)

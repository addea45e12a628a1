"""FlowState: the recurrence, padding and missing steps, scale factors, long horizons, the loss."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import example_model, package_network, shake
from tsfmscope.errors import ModelError
from tsfmscope.models import flowstate as module
from tsfmscope.models import registry
from tsfmscope.models.flowstate import Config, FlowState
from tsfmscope.models.flowstate_network import FlowStateNetwork, LinearScan
from tsfmscope.models.graphs import FIRST, S5Graph, toeplitz_places
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("tsfm_public") is None, reason="granite-tsfm is not installed; see docs/install.md"
)
# config.json of ibm-granite/granite-timeseries-flowstate-r1.
R1 = {
    **{"context_length": 2048, "embedding_feature_dim": 512, "encoder_num_layers": 6, "encoder_state_dim": 512},
    **{"encoder_num_hippo_blocks": 8, "decoder_patch_len": 24, "decoder_dim": 256},
}
R1_1 = R1 | {"context_length": 4096, "mlp_type": "transformer", "out_gating": True}


# Numbers of the release's page on the hub.
@pytest.mark.parametrize(("config", "parameters"), [(R1, 9.07e6), (R1_1, 18.5e6)])
def test_released_shapes_have_the_released_number_of_parameters(config: dict[str, Any], parameters: float) -> None:
    with torch.device("meta"):
        network = FlowStateNetwork(Config.fill(config, "release"))
    assert sum(values.numel() for values in network.parameters()) == pytest.approx(parameters, rel=2e-3)


@pytest.mark.parametrize("steps", [1, 2, 7, 16, 23])
def test_the_recurrence_and_its_gradient_are_those_of_a_loop(steps: int) -> None:
    generator = torch.Generator().manual_seed(steps)
    inputs = torch.randn(2, steps, 3, dtype=torch.complex128, generator=generator).requires_grad_()
    rate = torch.complex(-torch.rand(3, generator=generator), torch.randn(3, generator=generator)).to(torch.complex128)
    rate.requires_grad_()

    def loop(inputs: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
        states = [inputs[:, 0]]
        for step in range(1, steps):
            states.append(rate.exp() * states[-1] + inputs[:, step])
        return torch.stack(states, dim=1)

    weights = torch.randn(2, steps, 3, dtype=torch.complex128, generator=generator)
    results = []
    for run in (loop, LinearScan.apply):
        states = run(inputs, rate)
        loss = (states * weights).real.sum()
        results.append((states.detach(), *torch.autograd.grad(loss, (inputs, rate), allow_unused=True)))
    for slow, fast in zip(*results, strict=True):
        # One step has no factor, and no gradient of it.
        torch.testing.assert_close(fast, torch.zeros_like(fast) if slow is None else slow)


@pytest.mark.parametrize("steps", [1, 5, 16, 17, 64, 65, 300])
@pytest.mark.parametrize("factor", [1.0, 3.4])
def test_the_graph_of_a_block_has_the_outputs_of_the_block(steps: int, factor: float) -> None:
    """One step, whole chunks, one step more, and three levels of chunks; rows that are no input; rows picked."""
    model = shake(FlowState.new(FlowState.example, seed=0))
    block, generator = model.network.layers[0].ssm, torch.Generator().manual_seed(steps)
    states = torch.randn(3, steps, 16, generator=generator)
    attended = torch.rand(3, steps, 1, generator=generator) < 0.7
    rows = sorted({0, steps // 2, steps - 1})
    with torch.no_grad():
        expected = block(states, attended, factor)
        for picked in (None, rows):
            graph = S5Graph(block, factor, steps)
            graph.rows = picked
            within = graph.powers[:, toeplitz_places(FIRST)].unflatten(1, (2 * FIRST, 2 * FIRST))
            found = graph(states, attended.float(), within).unflatten(0, (3, -1))
            torch.testing.assert_close(found, expected if picked is None else expected[:, rows], rtol=1e-4, atol=1e-4)


def test_masked_rows_follow_the_context_and_a_missing_step_is_read_but_not_counted(windows: Make) -> None:
    model, made = example_model("flowstate"), windows(count=2, context=30, horizon=12)
    made.context[0, :4] = made.context[1, 20] = np.nan
    tokens = model.tokenize(made)
    kinds = np.full((2, 34), TokenKind.OBSERVATION)
    kinds[:, 30:] = TokenKind.MASK
    kinds[0, :4] = kinds[1, 20] = TokenKind.PADDING
    np.testing.assert_array_equal(tokens.kinds["encoder"], kinds)
    assert (~tokens.arrays["attended"]).nonzero()[1].tolist() == [0, 1, 2, 3]


def test_a_step_changes_no_row_before_it(windows: Make) -> None:
    model, made = shake(FlowState.new(FlowState.example, seed=0)), windows(count=2, horizon=4)
    before = list(model.hidden_states(model.tokenize(made)))
    made.context[:, 20] += 5.0
    for old, new in zip(before, model.hidden_states(model.tokenize(made)), strict=True):
        np.testing.assert_allclose(old.states[:, :20], new.states[:, :20], rtol=1e-5, atol=1e-5)
        assert (np.abs(old.states[:, 20] - new.states[:, 20]).max(axis=-1) > 1e-3).all()


def test_each_row_has_the_mean_and_deviation_of_the_steps_up_to_it(windows: Make) -> None:
    context = windows(count=1).context.astype(np.float64)
    context[0, 3:5] = np.nan
    cut = module.scale_causally(context, 40, 2)
    kept, means = context[0, 8:], []
    for row in range(40):
        seen = kept[: row + 1][~np.isnan(kept[: row + 1])]
        means.append(seen.mean())
        spread = np.sqrt(max(np.mean([(seen[n] - means[n]) ** 2 for n in range(row + 1)]), 1e-5))
        assert (cut.loc[0, row], cut.scale[0, row]) == pytest.approx((means[-1], spread))
        assert cut.values[0, row] == pytest.approx((kept[row] - means[-1]) / spread, abs=1e-6)
    assert (cut.loc[0, 40:] == cut.loc[0, 39]).all() and (cut.missing[0] == [0] * 40 + [1] * 2).all()


def test_options_of_a_load_set_the_scale_factor_and_are_saved(windows: Make, tmp_path: Path) -> None:
    model, made = example_model("flowstate"), replace(windows(count=2, horizon=4), season=7)
    model.save(tmp_path / "plain")
    stretched = registry.load("flowstate", tmp_path / "plain", options={"scale_factor": 8 / 7})
    by_season = registry.load("flowstate", tmp_path / "plain", options={"base_season": 8})
    by_season.save(tmp_path / "by_season")
    assert isinstance(stretched, FlowState) and isinstance(by_season, FlowState)
    again = FlowState.load(tmp_path / "by_season")
    plain, *others = (one.forecast(made, seeds=[0, 0]).values for one in (model, stretched, by_season, again))
    assert (others[0] != plain).any()
    for other in others[1:]:
        np.testing.assert_array_equal(others[0], other)
    # Data without a season have the config's factor.
    seasonless = replace(made, season=1)
    np.testing.assert_array_equal(by_season.forecast(seasonless, seeds=[0, 0]).values, plain)


def test_an_option_that_leaves_no_step_to_forecast_is_refused(tmp_path: Path) -> None:
    example_model("flowstate").save(tmp_path)
    with pytest.raises(ModelError, match=r"with options .* got a scale factor of 9.*; change the option"):
        registry.load("flowstate", tmp_path, options={"scale_factor": 9})


@pytest.mark.parametrize("horizon", [38, 39, 90])
def test_a_horizon_beyond_half_a_window_takes_passes_that_append_the_median(windows: Make, horizon: int) -> None:
    model, made = example_model("flowstate"), windows(count=2, horizon=horizon)
    # A patch of 8 steps and half of 60.
    longest, levels, history, blocks = 38, (0.2, 0.5), made.context, []
    for start in range(0, horizon, longest):
        future = made.future[:, start : start + longest]
        blocks.append(model.forecast(replace(made, context=history, future=future), levels=levels, seeds=[0, 0]).values)
        history = np.concatenate((history, blocks[-1][:, 1]), axis=1)
    values = model.forecast(made, levels=levels, seeds=[0, 0]).values
    np.testing.assert_allclose(values, np.concatenate(blocks, axis=2), rtol=1e-5, atol=1e-5)


def test_quantiles_are_those_of_the_predicted_ones() -> None:
    values, levels = np.random.default_rng(0).normal(size=(3, 9, 4)).astype(np.float32), tuple(np.arange(1, 10) / 10)
    wanted = torch.quantile(torch.from_numpy(values), torch.tensor(levels, dtype=torch.float32), dim=1)
    np.testing.assert_allclose(module._at_levels(values, levels), wanted.transpose(0, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("steps", [5, 12])
def test_the_loss_is_the_pinball_loss_of_the_forecast_of_every_row(windows: Make, steps: int) -> None:
    model, made = (shake(FlowState.new(FlowState.example, seed=0)), windows(count=2, context=20, horizon=steps))
    made.context[1, :15] = made.context[0, 4] = made.future[0, 2] = np.nan
    loss = float(model.loss(torch.from_numpy(made.context), torch.from_numpy(made.future)).detach())
    tokens, masked = model.tokenize(made), max(steps - 8, 0)
    states = torch.from_numpy(list(model.hidden_states(tokens))[-1].states)
    with torch.no_grad():
        forecasts = model.network.decoder(states, 8, 1.0).numpy()  # [W, T, Q, P]
    cut, losses = module.scale_causally(made.context, 20, masked), []
    series = np.concatenate((made.context, made.future), axis=1)
    for window, row in np.ndindex(2, 20 + masked):
        if np.isfinite(made.context[window, : row + 1]).sum() < 8 and row < 19:
            continue
        for step, level in np.ndindex(8, 9):
            if (at := row + 1 + step) < series.shape[1] and np.isfinite(series[window, at]):
                target = (series[window, at] - cut.loc[window, row]) / cut.scale[window, row]
                error = target - forecasts[window, row, level, step]
                losses.append(2 * max(model.levels[level] * error, (model.levels[level] - 1) * error))
    assert loss == pytest.approx(np.mean(losses), rel=1e-4)


def test_a_future_that_leaves_no_context_is_refused() -> None:
    with pytest.raises(ValueError, match="future: got 39 steps, expected at most 38"):
        example_model("flowstate").loss(torch.zeros(2, 48), torch.zeros(2, 39))


def test_matrices_of_a_state_space_are_real_maps() -> None:
    model = example_model("flowstate")
    block, found = model.network.layers[1].ssm, {one.name: one.matrix for one in model.weights() if one.layer == 2}
    states, hidden = torch.randn(5, 16), torch.randn(5, 12, dtype=torch.complex64)
    with torch.no_grad():
        projected = states.to(torch.complex64) @ torch.complex(block.B_tilde_r, block.B_tilde_i).T
        output = (hidden @ torch.complex(block.C_tilde_r, block.C_tilde_i).T).real
    wide = np.concatenate((projected.real, projected.imag), axis=1)
    np.testing.assert_allclose(states.numpy() @ found["ssm_in"].T, wide, rtol=1e-4, atol=1e-5)
    both = np.concatenate((hidden.real, hidden.imag), axis=1)
    np.testing.assert_allclose(both @ found["ssm_out"].T, output, rtol=1e-4, atol=1e-5)


def test_a_model_of_version_1_has_the_gate_as_its_only_other_matrix() -> None:
    model = FlowState.new(FlowState.example | {"mlp_type": "gated", "out_gating": False}, seed=0)
    assert [one.name for one in model.weights()] == ["ssm_in", "ssm_out", "mlp_gate"] * 3


def random_model() -> FlowState:
    return shake(FlowState.new(FlowState.example, seed=2))


def package_forecast(model: FlowState, windows: Windows, folder: Path) -> np.ndarray:
    with torch.no_grad():
        forecast = model.forecast_with_package(package_network(model, folder), windows, model.tokenize(windows))
    assert forecast.quantiles is not None
    return forecast.quantiles


def close_forecasts(ours: np.ndarray, wanted: np.ndarray) -> None:
    assert ours.shape == wanted.shape
    assert (np.abs(ours - wanted) <= 1e-4 * np.abs(wanted).max(axis=(1, 2), keepdims=True)).all()


@needs_package
def test_a_horizon_one_step_short_of_whole_patches_is_forecast_whole(windows: Make, tmp_path: Path) -> None:
    """The package returns the whole patches before it only."""
    model, made = random_model(), windows(count=6, context=36, horizon=23)
    wanted = package_forecast(model, made, tmp_path)
    ours = model.forecast(made, levels=model.levels, seeds=[0] * 6).values
    assert wanted.shape[2] == 16 and ours.shape[2] == 23
    close_forecasts(ours[:, :, :16], wanted)


@needs_package
def test_a_series_whose_first_steps_are_missing_is_forecast_without_them(windows: Make, tmp_path: Path) -> None:
    model, made = random_model(), windows(count=3, horizon=20)
    made.context[1, :17] = np.nan
    rows = [made.take([0]), replace(made.take([1]), context=made.context[1:2, 17:]), made.take([2])]
    forecasts = [package_forecast(model, row, tmp_path) for row in rows]
    close_forecasts(model.forecast(made, levels=model.levels, seeds=[0] * 3).values, np.concatenate(forecasts))


@needs_package
def test_a_folder_of_the_model_within_the_package_class_is_read(windows: Make, tmp_path: Path) -> None:
    """The release r1 is such a folder."""
    model, made = random_model(), windows(count=3)
    package_network(model, tmp_path / "ours").model.save_pretrained(tmp_path / "theirs")
    loaded = FlowState.load(tmp_path / "theirs")
    assert loaded.config == model.config
    ours, theirs = (one.forecast(made, seeds=[0] * 3).values for one in (model, loaded))
    np.testing.assert_array_equal(ours, theirs)


@needs_package
def test_new_weights_have_the_distribution_of_the_packages(tmp_path: Path) -> None:
    config = {**FlowState.example} | {"encoder_state_dim": 64, "embedding_feature_dim": 64, "encoder_num_layers": 2}
    model = FlowState.new(config, seed=0)
    package = package_network(model, tmp_path)
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

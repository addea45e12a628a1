"""Moirai against uni2ts: quantiles, loss and folders."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Categorical
from uni2ts.distribution import MixtureOutput, NormalOutput, StudentTOutput
from uni2ts.distribution.mixture import Mixture
from uni2ts.loss.packed import PackedNLLLoss
from uni2ts.model.moirai import MoiraiForecast
from uni2ts.model.moirai.module import MoiraiModule

from tests.tsfmscope.models.families import hard_windows
from tsfmscope.errors import HealthError, ModelError
from tsfmscope.models.moirai import Moirai
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
CONFIG = {"d_model": 128, "num_layers": 3, "patch_sizes": [8, 16, 32]}


@pytest.fixture(scope="module")
def moirai() -> Moirai:
    return Moirai.new(CONFIG | {"patch_size": 8}, seed=1)


def package_inputs(context: np.ndarray) -> dict[str, torch.Tensor]:
    """What gluonts' transformations give the package: missing steps are 0, those before the first observed padding."""
    observed = ~np.isnan(context)
    return {
        "past_target": torch.from_numpy(np.nan_to_num(context))[:, :, None],
        "past_observed_target": torch.from_numpy(observed)[:, :, None],
        "past_is_pad": torch.from_numpy(~np.logical_or.accumulate(observed, axis=1)),
    }


def forecaster(family: Moirai, windows: Windows, size: int) -> MoiraiForecast:
    return MoiraiForecast(
        prediction_length=windows.horizon,
        target_dim=1,
        feat_dynamic_real_dim=0,
        past_feat_dynamic_real_dim=0,
        context_length=windows.context.shape[1],
        module=family.network,
        patch_size=size,
    )


def package_mixture(family: Moirai, windows: Windows, size: int) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """The package's mixture with its loc and scale."""
    with torch.no_grad():
        distribution = forecaster(family, windows, size)._get_distr(size, **package_inputs(windows.context))
    return distribution.base_dist, distribution.loc[:, -1, 0], distribution.scale[:, -1, 0]


def part_of(distribution: Any, window: int, start: int, size: int) -> Any:
    """The distribution of one window's future tokens, of the steps that a patch has."""
    names = ("df", "loc", "scale", "total_count", "logits")
    found = {name: vars(distribution)[name] for name in names if name in vars(distribution)}
    if "base_dist" in vars(distribution):  # a log-normal
        found = {name: getattr(distribution, name) for name in ("loc", "scale")}
    return type(distribution)(**{name: value[window, start:, :size] for name, value in found.items()})


@pytest.mark.parametrize(("size", "horizon"), [(8, 12), (16, 20)])
def test_quantiles_are_those_of_the_packages_mixture_under_the_same_seed(
    windows: Make, size: int, horizon: int
) -> None:
    family = Moirai.new(CONFIG | {"patch_size": size}, seed=3)
    made = hard_windows(windows(count=7, context=48, horizon=horizon))
    mixture, loc, scale = package_mixture(family, made, size)
    seeds, start, levels = [11, 12, 13, 14, 15, 16, 17], 48 // size, (0.1, 0.5, 0.75)
    ours = family.forecast(made, levels=levels, samples=50, seeds=seeds).values
    for window, seed in enumerate(seeds):
        weights = Categorical(logits=mixture.weights.logits[window, start:, :size])
        theirs = Mixture(weights, [part_of(one, window, start, size) for one in mixture.components])
        torch.manual_seed(seed)
        drawn = (theirs.sample((50,)) * scale[window] + loc[window]).flatten(1)[:, :horizon].numpy()
        wanted = np.quantile(drawn.astype(float), levels, axis=0)
        np.testing.assert_allclose(ours[window], wanted, rtol=1e-4, atol=1e-4 * float(scale[window]))


def test_samples_are_spread_as_those_of_the_packages_own_forecast(moirai: Moirai, windows: Make) -> None:
    made = windows(count=2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = forecaster(moirai, made, 8)(**package_inputs(made.context), num_samples=4000).numpy()  # [W, S, H]
    levels = (0.25, 0.5, 0.75)
    ours = moirai.forecast(made, levels=levels, samples=4000, seeds=[1, 2]).values
    for place, level in enumerate(levels):
        quantile, room = ours[:, [place]], 1e-4  # a component has nearly all its mass in one place
        assert ((drawn <= quantile + room).mean(axis=1) > level - 0.04).all()
        assert ((drawn < quantile - room).mean(axis=1) < level + 0.04).all()


@pytest.mark.parametrize("size", [8, 16])
def test_the_loss_is_the_packages_on_the_future(windows: Make, size: int) -> None:
    family = Moirai.new(CONFIG | {"patch_size": size}, seed=4)
    made = hard_windows(windows(count=7))
    made.future[6, 4:] = np.nan
    inputs = package_inputs(made.context)
    observed = torch.from_numpy(~np.isnan(made.future))[:, :, None]
    future = torch.from_numpy(np.nan_to_num(made.future))[:, :, None]
    with torch.no_grad():
        target, mask, sample, time, variate, predicted = forecaster(family, made, size)._convert(
            size, **inputs, future_target=future, future_observed_target=observed
        )
        sizes = torch.full_like(time, size)
        distribution = family.network(target, mask, sample, time, variate, predicted, sizes)
        theirs = PackedNLLLoss()(distribution, target, predicted, mask, sample, variate)
        ours = family.loss(torch.from_numpy(made.context), torch.from_numpy(made.future))
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-4)


def test_a_missing_future_step_weighs_nothing(moirai: Moirai, windows: Make) -> None:
    made = windows(count=1, horizon=12)
    context, future = torch.from_numpy(made.context), torch.from_numpy(made.future)
    cut, gone = future.clone(), torch.full_like(future, torch.nan)
    cut[:, 5:] = torch.nan
    with torch.no_grad():
        alone = [moirai.loss(context, torch.where(torch.arange(12) == step, future, gone)) for step in range(5)]
        assert moirai.loss(context, cut).item() == pytest.approx(float(torch.stack(alone).mean()), rel=1e-5)
        assert moirai.loss(context, gone).item() == 0.0


def test_gradients_stay_finite_where_a_component_cannot_be_sampled(windows: Make) -> None:
    family = Moirai.new(CONFIG | {"patch_size": 8}, seed=1)
    with torch.no_grad():
        for parameter in family.network.param_proj.parameters():
            parameter.mul_(30)  # a negative binomial's rate overflows
    made = windows(count=20)
    loss = family.loss(torch.from_numpy(made.context), torch.from_numpy(made.future))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in family.network.parameters() if p.grad is not None)


def test_parameters_that_are_not_finite_are_named(windows: Make) -> None:
    family = Moirai.new(CONFIG, seed=1)
    with torch.no_grad():
        next(family.network.param_proj.parameters()).fill_(torch.nan)
    with pytest.raises(HealthError, match="parameters contain NaN or infinity; check weights"):
        family.forecast(windows(count=1), seeds=[0])


def test_patch_sizes_of_a_training_batch_are_drawn_by_the_seed(windows: Make) -> None:
    family = Moirai.new(CONFIG, seed=0)
    made = windows(count=2, context=40)
    context, future = torch.from_numpy(made.context), torch.from_numpy(made.future)
    with torch.random.fork_rng(), torch.no_grad():
        losses = []
        for seed in (*range(8), *range(8)):
            torch.manual_seed(seed)
            losses.append(family.loss(context, future).item())
    assert losses[:8] == losses[8:]
    assert len({round(loss, 4) for loss in losses}) == 2  # 8 and 16: of 32 a context of 40 holds but one


def same_forecasts(first: Moirai, second: Moirai, windows: Windows) -> bool:
    a, b = (family.forecast(windows, seeds=[1] * len(windows)).values for family in (first, second))
    return np.array_equal(a, b)


@pytest.mark.parametrize("components", [[StudentTOutput(), NormalOutput()], None])
def test_a_folder_of_the_package_loads(windows: Make, tmp_path: Path, components: list[Any] | None) -> None:
    family = Moirai.new(CONFIG, seed=5)
    output = MixtureOutput(components) if components else family.network.distr_output
    module = MoiraiModule(output, 128, 3, (8, 16, 32), 64, attn_dropout_p=0.5, dropout_p=0.1)
    module.save_pretrained(tmp_path)
    loaded = Moirai.load(tmp_path)
    tensors = loaded.network.state_dict()
    assert all(torch.equal(tensors[name], value) for name, value in module.state_dict().items())
    assert same_forecasts(loaded, loaded, windows())  # the package would drop out attention in eval mode too


@pytest.mark.parametrize("patch_size", [None, 16])
def test_the_package_loads_our_folder(windows: Make, tmp_path: Path, patch_size: int | None) -> None:
    family = Moirai.new(CONFIG | {"patch_size": patch_size}, seed=6)
    family.save(tmp_path)
    module = MoiraiModule.from_pretrained(tmp_path)
    tensors = family.network.state_dict()
    assert all(torch.equal(tensors[name], value) for name, value in module.state_dict().items())
    assert Moirai.load(tmp_path).config == family.config
    loaded = Moirai(module, family.config)
    assert same_forecasts(loaded, family, windows())


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uni2ts.model.moirai.module", None)
    with pytest.raises(ModelError, match=r"family moirai: module 'uni2ts.* is missing; install it.*moirai"):
        Moirai.new(CONFIG, seed=0)

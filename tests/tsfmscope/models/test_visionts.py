"""Against a slow drawing in numpy, and transformers' ViTMAE run as it is, its noise putting the left part first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.tsfmscope.models.families import shake
from tests.tsfmscope.models.test_vit import released
from tsfmscope.models import visionts_image as periods
from tsfmscope.models.types import TokenKind
from tsfmscope.models.visionts import VisionTS, positions_2d
from tsfmscope.models.visionts_image import Layout, choose_periods, find_period, largest_filled_context, make_layout
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
SIZE = {"image_size": 32, "patch_size": 4, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
SIZE |= {"num_attention_heads": 2, "decoder_hidden_size": 8, "decoder_intermediate_size": 12}
SIZE |= {"decoder_num_hidden_layers": 2, "decoder_num_attention_heads": 2, "initializer_range": 0.3}
CASES = [(48, 12, 12), (50, 20, 7), (33, 12, 1), (30, 64, 24), (10, 5, 16), (96, 1, 4)]  # context, horizon, period


@pytest.fixture(scope="module")
def model() -> VisionTS:
    return shake(VisionTS.new(SIZE, seed=3))


@pytest.fixture
def with_period(model: VisionTS, monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], VisionTS]:
    def make(period: int | None) -> VisionTS:
        monkeypatch.setattr(model.network.config, "periodicity", period)
        return model

    return make


# -- the slow definition ----------------------------------------------------------------------------------------------
def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear, pixel centres aligned, edges repeated, nothing averaged: along the columns, then the rows."""

    def along(values: np.ndarray, size: int) -> np.ndarray:
        out = []
        for i in range(size):
            at = max((i + 0.5) * len(values) / size - 0.5, 0)
            low = min(int(at), len(values) - 1)
            high = min(low + 1, len(values) - 1)
            out.append((1 - (at - low)) * values[low] + (at - low) * values[high])
        return np.stack(out)

    return along(along(image.astype(np.float64).T, width).T, height)


def slow_image(steps: np.ndarray, horizon: int, period: int, size: int, patch: int) -> tuple[np.ndarray, int, float]:
    """As update_config and forward of visionts/model.py: the image, patches of columns shown, and scale_x."""
    left, right = -len(steps) % period, -horizon % period
    padded = np.concatenate((np.full(left, steps[0]), steps))
    patches = size // patch
    shown = int(len(padded) / (len(padded) + right + horizon) * patches * 0.4) or 1
    columns = len(padded) // period
    image = np.zeros((size, size))
    image[:, : shown * patch] = resized(padded.reshape(columns, period).T, size, shown * patch)
    return image, shown, columns / (shown * patch)


def whole_answer(model: VisionTS, image: np.ndarray, shown: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """ViTMAEForPreTraining's own answer, three channels alike, the left `shown` columns of patches kept."""
    grid = SIZE["image_size"] // SIZE["patch_size"]
    noise = torch.arange(grid**2).float().view(grid, grid)
    noise[:, shown:] += grid**2
    kept = (shown * grid + 0.5) / grid**2  # int() of it times grid^2 is shown * grid, whatever is rounded
    monkeypatch.setattr(model.network.config, "mask_ratio", 1 - kept)
    pixels = torch.from_numpy(np.repeat(image[None, None], 3, axis=1)).float()
    with torch.inference_mode():
        return model.network(pixels, noise=noise.view(1, -1), output_hidden_states=True)


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 600), st.integers(1, 300), st.integers(1, 400), st.sampled_from([(2, 8), (8, 8), (14, 16)]))
def test_every_horizon_fits_in_the_image(context: int, horizon: int, period: int, size: tuple[int, int]) -> None:
    where = make_layout(context, horizon, period, grid=size[0], patch=size[1])
    assert where.columns * period == where.left + context and 1 <= where.shown < where.grid
    held = round(where.size * where.columns / (where.shown * where.patch)) * period
    assert held >= where.left + context + horizon
    asked = -(-horizon // period)
    if where.left >= period:  # more than the release puts there: only as many periods as are needed
        assert (where.columns - 1) * (where.grid - 1) < asked


@pytest.mark.parametrize(
    ("freq", "season", "length", "period"),
    [
        ("h", 24, 100, 24),
        ("H", 24, 100, 24),  # as pandas wrote it before 2.2
        ("2h", 12, 100, 12),
        ("D", 1, 100, 7),
        ("W-SUN", 1, 500, 52),
        ("W", 1, 40, 4),
        ("MS", 12, 100, 12),
        ("ME", 12, 11, 6),
        ("QS", 4, 100, 4),
        ("15min", 96, 500, 96),
        ("min", 1440, 500, 1),  # none that the context holds
        ("5h", 9, 100, 9),  # 5 divides neither 24 nor 168
        ("YS", 1, 100, 1),
        ("", 9, 100, 9),
        ("", 9, 5, 1),
    ],
)
def test_the_period_is_the_first_of_the_release_that_the_context_holds(
    freq: str, season: int, length: int, period: int
) -> None:
    assert find_period(freq, season, length) == period


def test_positions_are_sines_and_cosines_of_column_and_row() -> None:
    got = positions_2d(3, 8)[0]
    assert got.shape == (10, 8) and not got[0].any()
    for number in range(9):
        row, column = divmod(number, 3)
        expected = [f(at * w) for at in (column, row) for f in (np.sin, np.cos) for w in (1.0, 0.01)]
        np.testing.assert_allclose(got[1 + number], expected, atol=1e-6)


# -- the model ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("context", "horizon", "period"), CASES)
def test_states_and_forecasts_are_those_of_the_whole_autoencoder(
    with_period: Callable[[int | None], VisionTS],
    windows: Make,
    monkeypatch: pytest.MonkeyPatch,
    context: int,
    horizon: int,
    period: int,
) -> None:
    model, made = with_period(period), windows(count=2, context=context, horizon=horizon)
    states = {(s.layer, s.normed): s.states for s in model.hidden_states(model.tokenize(made))}
    answer = model.forecast(made, seeds=[0, 0])
    for row, values in enumerate(made.context.astype(np.float64)):
        scale = np.sqrt(values.var() + 1e-5) / 0.4
        image, shown, columns = slow_image((values - values.mean()) / scale, horizon, period, 32, 4)
        theirs = whole_answer(model, image, shown, monkeypatch)
        assert int((theirs.mask == 0).sum()) == shown * 8
        for layer, one in enumerate(theirs.hidden_states[:3]):
            np.testing.assert_allclose(states[layer, False][row], one[0].numpy(), atol=1e-4)
        with torch.inference_mode():
            normed = model.network.vit.layernorm(theirs.hidden_states[2])
        np.testing.assert_allclose(states[2, True][row], normed[0].numpy(), atol=1e-4)
        filled = model.network.unpatchify(theirs.logits)[0].numpy().mean(axis=0)
        flat = resized(filled, period, round(32 * columns)).T.ravel()
        first = -context % period + context
        point = flat[first : first + horizon] * scale + values.mean()
        np.testing.assert_allclose(answer.median[row], point, atol=1e-4)
    assert np.ptp(answer.values, axis=1).max() == 0  # a point forecaster: every quantile is the same


def test_windows_of_several_lengths_are_each_drawn_from_their_first_step(
    with_period: Callable[[int | None], VisionTS], windows: Make, windows_of: Callable[..., Windows]
) -> None:
    model, made = with_period(None), windows(count=4, context=60, horizon=16)
    starts = [0, 45, 59, 20]
    for row, start in enumerate(starts):
        made.context[row, :start] = np.nan
    whole, tokens = model.forecast(made, seeds=[0] * 4).median, model.tokenize(made)
    states = list(model.hidden_states(tokens))
    for row, start in enumerate(starts):
        alone = windows_of(made.context[row : row + 1, start:], made.future[row : row + 1])
        np.testing.assert_allclose(model.forecast(alone, seeds=[0]).median[0], whole[row], atol=1e-4)
        own = model.tokenize(alone)
        rows = own.kinds["encoder"].shape[1]
        np.testing.assert_array_equal(own.kinds["encoder"][0], tokens.kinds["encoder"][row, -rows:])
        assert (tokens.kinds["encoder"][row, :-rows] == TokenKind.PADDING).all()
        for one, several in zip(model.hidden_states(own), states, strict=True):
            np.testing.assert_allclose(several.states[row, -rows:], one.states[0], atol=1e-4)


def test_cls_is_no_value_and_a_patch_without_an_observed_step_is_padding(
    with_period: Callable[[int | None], VisionTS], windows_of: Callable[..., Windows]
) -> None:
    context = np.arange(64.0)[None] % 8
    context[0, 24:56] = np.nan  # columns 3 to 6 of 8
    tokens = with_period(8).tokenize(windows_of(np.concatenate((np.arange(64.0)[None] % 8, context)), np.zeros((2, 8))))
    assert tokens.arrays["ids"][0].reshape(8, 2).tolist() == [[8 * row, 8 * row + 1] for row in range(8)]
    kinds = tokens.kinds["encoder"]
    assert (kinds[:, 0] == TokenKind.REG).all() and (kinds[0, 1:] == TokenKind.OBSERVATION).all()
    # 8 columns on 8 pixels: patch 0 shows columns 0 to 3, patch 1 columns 4 to 7, of which the last is observed
    assert (kinds[1, 1:] == TokenKind.OBSERVATION).all()
    context[0, 24:64] = np.nan
    kinds = with_period(8).tokenize(windows_of(context, np.zeros((1, 8)))).kinds["encoder"]
    assert kinds[0, 1:].reshape(8, 2).tolist() == [[TokenKind.OBSERVATION, TokenKind.PADDING]] * 8


def test_missing_steps_repeat_the_one_before(
    with_period: Callable[[int | None], VisionTS], windows_of: Callable[..., Windows]
) -> None:
    model, gaps = with_period(4), np.array([[np.nan, np.nan, 3, np.nan, 5, 1, np.nan, np.nan]])
    filled = np.array([[3, 3, 5, 1, 1, 1.0]])
    a, b = (model.forecast(windows_of(c, np.zeros((1, 5))), seeds=[0]).values for c in (gaps, filled))
    np.testing.assert_array_equal(a, b)


def test_a_negligible_spread_is_drawn_flat_and_forecast_near_the_level(
    with_period: Callable[[int | None], VisionTS], windows_of: Callable[..., Windows]
) -> None:
    model = with_period(None)
    level = model.forecast(windows_of(np.full((1, 40), 5.0), np.zeros((1, 8))), seeds=[0]).median
    assert np.abs(level - 5).max() < 0.1  # the answer's pixels times sqrt(1e-5) / 0.4


def test_the_loss_is_huber_of_the_forecast_in_pixel_values(
    with_period: Callable[[int | None], VisionTS], windows: Make
) -> None:
    made = windows(count=4, context=24, horizon=6)
    made.future[1, 2] = np.nan
    made.context[3, :20] = np.nan  # four steps: cut to C / 8 = 3, which hold no period, so that it is 1
    made.context[2, :3] = np.nan  # 21 steps: cut to C / 2
    terms = []
    for row, (length, period) in enumerate([(24, 6), (24, 6), (12, 6), (3, 1)]):
        cut = made.context[row : row + 1, -length:]
        one = Windows(cut, made.future[row : row + 1], ["s"], np.array([24]), "w", "", 1)
        forecast = with_period(period).forecast(one, seeds=[0]).median
        gap = np.abs(forecast - one.future) / (np.sqrt(cut.astype(np.float64).var() + 1e-5) / 0.4)
        terms += np.where(gap < 1, gap**2 / 2, gap - 0.5)[~np.isnan(gap)].tolist()
    got = with_period(6).loss(torch.from_numpy(made.context), torch.from_numpy(made.future)).item()
    assert len(terms) == 23 and got == pytest.approx(np.mean(terms), rel=1e-4)


def mixed_periods() -> tuple[torch.Tensor, torch.Tensor]:
    """Windows of several lengths and periods, some without a future step: contexts [8, 128], futures [8, 16]."""
    rng, time = np.random.default_rng(0), np.arange(144)
    periods = np.array([7, 24, 12, 24, 7, 144, 12, 30])
    values = np.sin(2 * np.pi * time / periods[:, None]) + 0.1 * rng.normal(size=(8, 144))
    values[3, :70] = values[4, :40] = values[5, :127] = np.nan
    values[6, :128] = values[1, 130:] = values[0, 50:60] = np.nan
    return torch.from_numpy(values[:, :128]), torch.from_numpy(values[:, 128:])


def test_the_loss_of_mixed_periods_is_the_weighted_loss_of_windows_alone(
    with_period: Callable[[int | None], VisionTS], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (context, future) = with_period(None), mixed_periods()
    monkeypatch.setattr(periods, "RANDOM_PERIODS", 0.0)
    counts = [int((~row.isnan()).sum()) for row in future]
    alone = [model.loss(context[row : row + 1], future[row : row + 1]).item() for row in range(len(context))]
    assert model.loss(context, future).item() == pytest.approx(np.average(alone, weights=counts), rel=1e-5)


def test_the_loss_repeats_with_the_seed_of_torch(with_period: Callable[[int | None], VisionTS]) -> None:
    model, (context, future) = with_period(None), mixed_periods()

    def loss(seed: int) -> float:
        torch.manual_seed(seed)
        return model.loss(context, future).item()

    losses = [loss(seed) for seed in range(8)]
    assert losses == [loss(seed) for seed in range(8)] and len(set(losses)) > 1


def test_one_window_of_five_has_a_random_period_that_fits() -> None:
    time = np.arange(64)
    torch.manual_seed(0)
    past = np.sin(2 * np.pi * time / 24 + np.arange(4000)[:, None])
    periods = choose_periods(past, np.full(4000, 64), None)
    assert set(periods.tolist()) == {1, 4, 5, 7, 12, 24, 30}
    # A seventh of the random ones is 24, too.
    assert (periods != 24).mean() == pytest.approx(0.2 * 6 / 7, abs=0.02)
    assert set(choose_periods(past, np.full(4000, 1), None).tolist()) == {1}


def test_the_period_of_the_config_overrides_that_of_a_window() -> None:
    past = np.sin(2 * np.pi * np.arange(64) / 24)[None].repeat(3, axis=0)
    assert choose_periods(past, np.array([64, 6, 5]), 6).tolist() == [6, 6, 1]


def test_contexts_are_cut_to_halvings_that_they_fill() -> None:
    context = np.ones((7, 20))
    for row, missing in enumerate([0, 1, 10, 11, 18, 19, 20]):
        context[row, :missing] = np.nan
    assert largest_filled_context(context).tolist() == [20, 10, 10, 5, 2, 1, 1]


# -- checkpoints -------------------------------------------------------------------------------------------------------
def released_names(layers: int, decoder_layers: int) -> set[str]:
    """Of facebook/vit-mae-base, as transformers has written them since its ViTMAE came."""
    parts = ["attention.attention.query", "attention.attention.key", "attention.attention.value"]
    parts += ["attention.output.dense", "intermediate.dense", "output.dense", "layernorm_before", "layernorm_after"]
    blocks = [f"vit.encoder.layer.{i}" for i in range(layers)]
    blocks += [f"decoder.decoder_layers.{i}" for i in range(decoder_layers)]
    modules = [f"{block}.{part}" for block in blocks for part in parts] + ["vit.layernorm"]
    modules += ["vit.embeddings.patch_embeddings.projection"]
    modules += [f"decoder.decoder_{part}" for part in ("embed", "norm", "pred")]
    names = {f"{module}.{kind}" for module in modules for kind in ("weight", "bias")}
    return names | {
        *("vit.embeddings.cls_token", "vit.embeddings.position_embeddings"),
        *("decoder.mask_token", "decoder.decoder_pos_embed"),
    }


def test_a_folder_with_the_released_names_loads(model: VisionTS, tmp_path: Path, windows: Make) -> None:
    state = model.network.state_dict()
    renamed = released(state)
    assert set(renamed) == released_names(2, 2)
    config = {"model_type": "vit_mae", "architectures": ["ViTMAEForPreTraining"], **SIZE, "layer_norm_eps": 1e-6}
    save_file(renamed, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(config))
    loaded = VisionTS.load(tmp_path)
    assert all(torch.equal(value, state[name]) for name, value in loaded.network.state_dict().items())
    assert loaded.network.config.periodicity is None
    made = windows()
    np.testing.assert_array_equal(
        loaded.forecast(made, seeds=[0] * 5).values, model.forecast(made, seeds=[0] * 5).values
    )


def test_a_period_that_is_asked_for_is_kept(model: VisionTS, tmp_path: Path) -> None:
    model.save(tmp_path / "a")
    VisionTS.load(tmp_path / "a", periodicity=5).save(tmp_path / "b")
    assert VisionTS.load(tmp_path / "b").network.config.periodicity == 5
    assert set(load_file(tmp_path / "b" / "model.safetensors")) == set(load_file(tmp_path / "a" / "model.safetensors"))


def test_layouts_are_those_worked_by_hand() -> None:
    # 14 patches of 16: 96 + 24 steps in columns of 24 give 4 of 5 columns, int(0.8 * 14 * 0.4) = 4 patches
    assert make_layout(96, 24, 24, grid=14, patch=16) == Layout(96, 24, 24, 0, 4, 4, 14, 16)
    # 100 steps of period 7 need 5 more; 30 of horizon make 5 columns: 15 / 20 * 8 * 0.4 = 2.4
    assert make_layout(100, 30, 7, grid=8, patch=4) == Layout(100, 30, 7, 5, 15, 2, 8, 4)
    # one step and 12 to forecast: 8 patches show 7 as many columns as the first, so 2 columns are needed
    assert make_layout(1, 12, 1, grid=8, patch=4) == Layout(1, 12, 1, 1, 2, 1, 8, 4)

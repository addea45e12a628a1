"""TTM: padding and missing steps, the sizes of the releases, point forecasts, and a clear error for compression."""

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
from tsfmscope.compression.compress import compress_model
from tsfmscope.compression.options import Method, Ranks
from tsfmscope.errors import ModelError
from tsfmscope.models.ttm import FREQUENCIES, TTM, UNKNOWN, Config
from tsfmscope.models.ttm_network import TTMNetwork
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("tsfm_public") is None, reason="granite-tsfm is not installed; see docs/install.md"
)
# ibm-granite/granite-timeseries-ttm-r1, 512-96: 3.24 MB of float32 weights (its page on the hub).
R1 = {
    **{"context_length": 512, "prediction_length": 96, "patch_length": 64, "patch_stride": 64, "d_model": 192},
    **{"num_layers": 2, "adaptive_patching_levels": 3, "decoder_d_model": 128, "decoder_num_layers": 2},
}
# 52 steps are six patches and four steps that no patch reads.
CONFIG = {"context_length": 52, "prediction_length": 12, "patch_length": 8, "d_model": 24, "num_layers": 2}
LEVELS = {"adaptive_patching_levels": 3, "decoder_d_model": 16, "decoder_num_layers": 2}


def test_the_released_shape_has_the_released_number_of_parameters() -> None:
    with torch.device("meta"):
        network = TTMNetwork(Config.fill(R1, "r1"))
    assert 4 * sum(values.numel() for values in network.parameters()) == pytest.approx(3.24e6, rel=0.01)


def test_a_missing_step_is_the_mean_and_a_short_context_has_padding_patches(windows: Make) -> None:
    model, made = example_model("ttm"), windows(count=3, context=30)
    made.context[1, 10:25] = np.nan
    filled = replace(made, context=made.context.copy())
    tokens = model.tokenize(made)
    # 30 of 48 steps: two of six patches are padding, and one has both. Steps 10 to 24 hold all of the fifth patch.
    kinds = [[TokenKind.PADDING] * 2 + [TokenKind.OBSERVATION] * 4 for _ in range(3)]
    kinds[1][4] = TokenKind.PADDING
    assert tokens.kinds["encoder"].tolist() == kinds
    # The mean of a context as its missing values keeps the mean; the scale differs, so the patches are proportional.
    filled.context[1, 10:25] = np.nanmean(made.context[1])
    known = tokens.arrays["patches"][1] != 0
    ratio = model.tokenize(filled).arrays["patches"][1][known] / tokens.arrays["patches"][1][known]
    np.testing.assert_allclose(ratio, np.sqrt(30 / 15), rtol=1e-4)
    assert (tokens.arrays["patches"][1, 4] == 0).all()


def test_every_quantile_is_the_point(windows: Make) -> None:
    values = example_model("ttm").forecast(windows(count=2), levels=(0.1, 0.5, 0.9), seeds=[0, 0]).values
    np.testing.assert_array_equal(values[:, :1].repeat(3, axis=1), values)


def test_the_frequency_changes_the_states_of_a_model_that_reads_it_and_of_no_other(windows: Make) -> None:
    small = CONFIG | {"context_length": 48, "num_layers": 1}
    made = windows(count=2)

    def last_states(model: TTM, freq: str) -> np.ndarray:
        tokens = model.tokenize(replace(made, freq=freq))
        states: np.ndarray = list(model.hidden_states(tokens))[-1].states
        return states

    plain = TTM.new(small, seed=0)
    reads = TTM.new(small | {"resolution_prefix_tuning": True, "frequency_token_vocab_size": 9}, seed=0)
    np.testing.assert_array_equal(last_states(plain, "h"), last_states(plain, "D"))
    assert (last_states(reads, "h") != last_states(reads, "D")).any()
    # Of a vocabulary of nine, weeks are out: they count as unknown, like months.
    np.testing.assert_array_equal(last_states(reads, "W-SUN"), last_states(reads, "ME"))
    kinds = reads.tokenize(made).kinds["encoder"]
    assert (kinds[:, 0] == TokenKind.REG).all() and (kinds[:, 1:] == TokenKind.OBSERVATION).all()


@pytest.mark.parametrize(
    "settings",
    [
        Method(method="joint", ranks=Ranks(budget=0.5)),
        Method(method="activation-aware-2step", ranks=Ranks(budget=0.5)),
    ],
    ids=lambda settings: settings.method,
)
def test_compression_is_refused_in_one_line(settings: Method) -> None:
    with pytest.raises(ModelError, match="small: family ttm describes no attention layers, so it cannot be compressed"):
        compress_model(example_model("ttm"), settings, base_model="small", tables={})


def test_the_future_must_have_the_length_of_the_head() -> None:
    with pytest.raises(ValueError, match="future: got 5 steps, expected the 12 of the head"):
        example_model("ttm").loss(torch.zeros(2, 48), torch.zeros(2, 5))


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


@needs_package
@pytest.mark.parametrize(("horizon", "context"), [(5, 52), (30, 52), (30, 70)])
def test_longer_and_shorter_horizons_are_those_of_the_packages_recursion(
    windows: Make, tmp_path: Path, horizon: int, context: int
) -> None:
    from tsfm_public.toolkit.recursive_predictor import RecursivePredictor, RecursivePredictorConfig

    model = random_model(LEVELS)
    made = made_windows(windows, horizon, context)
    package = package_network(model, tmp_path)
    lengths = {"requested_prediction_length": horizon, "model_prediction_length": 12}
    recursive = RecursivePredictor(RecursivePredictorConfig(model=package, loss="mse", **lengths))
    past = torch.from_numpy(made.context[:, -52:])[:, :, None]
    with torch.no_grad():
        future = torch.ones(5, horizon, 1, dtype=torch.bool)
        wanted = recursive(past, past_observed_mask=torch.ones_like(past), future_observed_mask=future)
    close_forecasts(model.forecast(made, seeds=[0] * 5).values[:, 4], wanted.prediction_outputs[:, :horizon, 0].numpy())


@needs_package
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
        theirs = package_network(model, tmp_path)(past, later, future_observed_mask=~later.isnan())
    assert float(ours.detach()) == pytest.approx(float(theirs.loss), rel=1e-4)


@needs_package
def test_frequency_tokens_are_those_of_the_package() -> None:
    from tsfm_public.toolkit.time_series_preprocessor import DEFAULT_FREQUENCY_MAPPING

    theirs = {**DEFAULT_FREQUENCY_MAPPING}
    assert theirs.pop("oov") == UNKNOWN
    theirs.pop("d", None)
    assert {name: FREQUENCIES[name] for name in theirs} == theirs

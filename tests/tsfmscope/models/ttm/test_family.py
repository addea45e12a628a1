"""TTM: padding and missing steps, the sizes of the releases, point forecasts, and a clear error for compression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import example_model
from tsfmscope.compression.compress import compress_model
from tsfmscope.compression.options import Method, Ranks
from tsfmscope.errors import ModelError
from tsfmscope.models.ttm.family import TTM
from tsfmscope.models.ttm.network import TTMNetwork
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
# ibm-granite/granite-timeseries-ttm-r1, 512-96: 3.24 MB of float32 weights (its page on the hub).
R1 = {
    **{"context_length": 512, "prediction_length": 96, "patch_length": 64, "patch_stride": 64, "d_model": 192},
    **{"num_layers": 2, "adaptive_patching_levels": 3, "decoder_d_model": 128, "decoder_num_layers": 2},
}


def test_the_released_shape_has_the_released_number_of_parameters() -> None:
    from tsfmscope.models.ttm.checkpoint import Config

    with torch.device("meta"):
        network = TTMNetwork(Config.fill(R1, "r1"))
    assert 4 * sum(values.numel() for values in network.parameters()) == pytest.approx(3.24e6, rel=0.01)


def test_a_missing_step_is_the_mean_and_a_short_context_has_padding_patches(windows: Make) -> None:
    model, made = example_model("ttm"), windows(count=3, context=30)
    made.context[1, 10:25] = np.nan
    filled = Windows(made.context.copy(), made.future, made.series, made.origin, made.dataset, made.freq, made.season)
    tokens = model.tokenize(made)
    # 30 of 48 steps: two of six patches are padding, and one has both. Steps 10 to 24 hold all of the fifth patch.
    kinds = [
        [TokenKind.OBSERVATION if seen else TokenKind.PADDING for seen in row] for row in ((0, 0, 1, 1, 1, 1),) * 3
    ]
    kinds[1][4] = TokenKind.PADDING
    assert tokens.kinds["encoder"].tolist() == kinds
    # The mean of a context as its missing values keeps the mean; the scale differs, so the patches are proportional.
    filled.context[1, 10:25] = np.nanmean(made.context[1])
    ratio = model.tokenize(filled).arrays["patches"][1] / np.where(tokens.arrays["patches"][1] == 0, np.nan, 1)
    np.testing.assert_allclose(
        ratio[~np.isnan(ratio)] / tokens.arrays["patches"][1][~np.isnan(ratio)],
        np.sqrt(30 / 15) * np.ones((~np.isnan(ratio)).sum()),
        rtol=1e-4,
    )
    assert (tokens.arrays["patches"][1, 4] == 0).all()


def test_every_quantile_is_the_point(windows: Make) -> None:
    values = example_model("ttm").forecast(windows(count=2), levels=(0.1, 0.5, 0.9), seeds=[0, 0]).values
    np.testing.assert_array_equal(values[:, :1].repeat(3, axis=1), values)


def test_the_frequency_changes_the_states_of_a_model_that_reads_it_and_of_no_other(windows: Make) -> None:
    small: dict[str, Any] = {"context_length": 48, "prediction_length": 12, "patch_length": 8, "d_model": 16}
    small |= {"num_layers": 1}
    made = windows(count=2)

    def last_states(model: TTM, freq: str) -> np.ndarray:
        of = Windows(made.context, made.future, made.series, made.origin, made.dataset, freq, made.season)
        states: np.ndarray = list(model.hidden_states(model.tokenize(of)))[-1].states
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
        Method(method="whole-model", ranks=Ranks(bytes=0.5), bits=8),
    ],
    ids=lambda settings: settings.method,
)
def test_compression_is_refused_in_one_line(settings: Method) -> None:
    with pytest.raises(ModelError, match="small: family ttm describes no attention layers, so it cannot be compressed"):
        compress_model(example_model("ttm"), settings, base_model="small", tables={})


def test_the_future_must_have_the_length_of_the_head() -> None:
    with pytest.raises(ValueError, match="future: got 5 steps, expected the 12 of the head"):
        example_model("ttm").loss(torch.zeros(2, 48), torch.zeros(2, 5))

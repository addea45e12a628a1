"""Against the chronos package, and loops written out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from chronos import ChronosBoltPipeline

from tests.tsfmscope.models.families import hard_windows
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]


def test_a_window_worked_by_hand(bolt: ChronosBolt, windows_of: Callable[..., Windows]) -> None:
    context = np.r_[np.full(10, np.nan), 1.0, 3.0]  # 12 steps: patches of 8, padded on the left
    tokens = bolt.tokenize(windows_of(context[None], np.zeros((1, 4))))
    assert tokens.arrays["loc"].tolist() == [2.0]
    assert tokens.arrays["scale"].tolist() == [1.0]
    assert tokens.arrays["patches"].tolist() == [[[0.0] * 8, [0.0] * 6 + [-1.0, 1.0]]]
    assert tokens.arrays["masks"].tolist() == [[[False] * 8, [False] * 6 + [True, True]]]
    assert tokens.kinds["encoder"].tolist() == [[TokenKind.PADDING, TokenKind.OBSERVATION, TokenKind.REG]]
    assert tokens.kinds["decoder"].tolist() == [[TokenKind.FUTURE]]
    assert dict(tokens.types) == {}


@pytest.mark.parametrize("horizon", [5, 12])
@pytest.mark.parametrize("levels", [(0.1, 0.5, 0.9), (0.25, 0.5, 0.95)])
def test_a_forecast_is_that_of_the_package(
    bolt: ChronosBolt, windows: Make, horizon: int, levels: tuple[float, ...]
) -> None:
    made = hard_windows(windows(count=6, context=60, horizon=horizon))
    pipeline = ChronosBoltPipeline(bolt.network)
    theirs, _ = pipeline.predict_quantiles(torch.from_numpy(made.context), horizon, quantile_levels=list(levels))
    ours = bolt.forecast(made, levels=levels, seeds=[0] * 6)
    np.testing.assert_allclose(ours.values, theirs.permute(0, 2, 1), rtol=1e-4, atol=1e-5)


def test_a_long_forecast_recurs_over_the_quantiles(bolt: ChronosBolt, windows: Make) -> None:
    made = windows(count=2, horizon=20)
    ours = bolt.forecast(made, seeds=[0, 0]).values
    context = torch.from_numpy(made.context)
    with torch.no_grad():
        first = bolt.network(context=context).quantile_preds  # [W, 9, 12]
        for w in range(2):
            paths = torch.stack([torch.cat((context[w], first[w, q]))[-48:] for q in range(9)])
            second = bolt.network(context=paths).quantile_preds.reshape(81, 12).numpy()
            np.testing.assert_allclose(ours[w, :, :12], first[w], rtol=1e-4, atol=1e-5)
            wanted = np.quantile(second, np.arange(1, 10) / 10, axis=0)[:, :8]
            np.testing.assert_allclose(ours[w, :, 12:], wanted, rtol=1e-4, atol=1e-4)


def test_the_loss_is_the_quantile_loss_of_the_scaled_future(bolt: ChronosBolt, windows: Make) -> None:
    made = windows(count=4)
    made.future[1, 2:5] = np.nan
    context, future = torch.from_numpy(made.context), torch.from_numpy(made.future)
    with torch.no_grad():
        predicted = bolt.network(context=context).quantile_preds.double().numpy()
    total = 0.0
    for w in range(4):
        scale = made.context[w].std(dtype=float)
        for q, level in enumerate(np.arange(1, 10) / 10):
            for h in range(12):
                if not np.isnan(made.future[w, h]):
                    gap = (made.future[w, h] - predicted[w, q, h]) / scale
                    total += 2 * max(level * gap, (level - 1) * gap)
    # the package averages over the quantiles and sums over the horizon; missing steps count as 0
    assert bolt.loss(context, future).item() == pytest.approx(total / (4 * 9), rel=1e-4)

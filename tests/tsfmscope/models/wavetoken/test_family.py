"""Against transformers, the lifting steps written out, and loops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.wavetoken.test_wavelets import lifted
from tsfmscope.models.types import TokenKind
from tsfmscope.models.wavetoken import EOS, PAD, SPECIAL, WaveToken
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
TINY = {"d_model": 8, "d_ff": 8, "d_kv": 4, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1, "n_tokens": 43}
TINY |= {"context_length": 16, "prediction_length": 4, "low_limit": -2.0, "high_limit": 2.0}  # bins of 0.1


def by_hand(values: np.ndarray, loc: float, scale: float) -> list[int]:
    """Ids of a complete stretch of values under one level of bior2.2 and bins of 0.1 in [-2, 2]."""
    coefficients = np.concatenate(lifted((values - loc) / scale))
    return [int(np.rint((min(max(c, -2.0), 2.0) + 2.0) / 0.1)) + SPECIAL for c in coefficients]


@pytest.fixture(scope="module")
def tiny() -> WaveToken:
    return WaveToken.new(TINY, seed=0)


def test_ids_of_a_window_worked_by_hand(tiny: WaveToken, windows_of: Callable[..., Windows]) -> None:
    nan = np.nan
    context, future = np.array([nan, nan, nan, 1.0, 2.0, 4.0, 3.0, 5.0]), np.array([4.0, nan, nan, nan])
    tokens = tiny.tokenize(windows_of(context[None], future[None]))
    loc, scale = np.mean(context[3:]), np.std(context[3:])
    held = np.array([1.0, 1.0, 2.0, 4.0, 3.0, 5.0])  # five observed steps are held to three pairs
    assert tokens.arrays["ids"].tolist() == [[PAD, PAD, *by_hand(held, loc, scale), EOS]]
    assert tokens.arrays["mask"].tolist() == [[False] * 2 + [True] * 7]
    padding, seen = TokenKind.PADDING, TokenKind.OBSERVATION
    assert tokens.kinds["encoder"].tolist() == [[padding, padding, *[seen] * 6, TokenKind.EOS]]
    a, _, d, _ = by_hand(np.full(4, 4.0), loc, scale)  # the second pair reads nothing that is observed but step 0
    reads = tiny.bins.reading(np.array([True, False, False, False]))
    assert reads.tolist() == [True, True, True, False]
    second = by_hand(np.full(4, 4.0), loc, scale)[1]
    assert tokens.arrays["decoder_ids"].tolist() == [[PAD, a, second, d]]
    assert tokens.kinds["decoder"].tolist() == [[TokenKind.START, *[TokenKind.FUTURE] * 3]]
    np.testing.assert_allclose([tokens.arrays[name][0] for name in ("loc", "scale")], [loc, scale], rtol=1e-6)
    assert tokens.types["encoder"].tolist() == tokens.arrays["ids"].tolist()
    assert tokens.types["decoder"].tolist() == tokens.arrays["decoder_ids"].tolist()


def test_a_long_gap_is_padding_and_a_short_one_is_filled(tiny: WaveToken, windows_of: Callable[..., Windows]) -> None:
    context = np.arange(16.0) % 5
    context[3] = context[7:13] = np.nan
    tokens = tiny.tokenize(windows_of(context[None], np.full((1, 4), np.nan)))
    reading = tiny.bins.reading(~np.isnan(context))
    assert (tokens.kinds["encoder"][0, :16] == TokenKind.PADDING).tolist() == (~reading).tolist()
    assert 0 < (~reading).sum() < 6
    assert (tokens.arrays["ids"][0, :16][~reading] == PAD).all() and not tokens.arrays["mask"][0, :16][~reading].any()
    whole = by_hand(np.interp(np.arange(16), np.flatnonzero(~np.isnan(context)), context[~np.isnan(context)]),
                    float(np.nanmean(context)), float(np.nanstd(context)))  # fmt: skip
    np.testing.assert_array_equal(tokens.arrays["ids"][0, :16][reading], np.array(whole)[reading])
    assert tokens.kinds["decoder"].tolist() == [[TokenKind.START, *[TokenKind.PADDING] * 3]]


@pytest.mark.parametrize("horizon", [1, 3, 4, 7, 9])
def test_every_horizon_has_whole_cells_of_rows_and_a_forecast_of_its_length(
    tiny: WaveToken, windows: Make, horizon: int
) -> None:
    made = windows(count=2, context=11, horizon=horizon)
    tokens = tiny.tokenize(made)
    whole = horizon + horizon % 2
    assert tokens.arrays["decoder_ids"].shape == (2, whole)
    assert tiny.rows_per_window(11, horizon) == {"encoder": 12, "decoder": whole - 1}
    assert tiny.forecast(made, seeds=[0, 1]).values.shape == (2, 9, horizon)


def test_the_loss_is_the_mean_over_coefficients_that_read_no_missing_step(wavetoken: WaveToken, windows: Make) -> None:
    made = windows(count=5)
    made.context[0, :7] = np.nan
    made.context[1], made.context[2] = 3.0, np.nan
    made.future[0, 3], made.future[3, 6:] = np.nan, np.nan
    tokens = wavetoken.tokenize(made)
    logits = np.concatenate(list(wavetoken.forecast_logits(tokens))).astype(np.float64)
    total, count = 0.0, 0
    for w in range(5):
        past = made.context[w][~np.isnan(made.context[w])].astype(np.float64)
        loc, scale = (past.mean(), past.std() or abs(past.mean())) if len(past) else (0.0, 1.0)
        gaps = np.isnan(made.future[w])
        steps = np.arange(12)
        future = np.interp(steps, steps[~gaps], made.future[w][~gaps])
        coefficients = np.concatenate(lifted((future - loc) / scale))
        broken = np.zeros(12, dtype=bool)
        for step in steps[gaps]:
            broken |= np.concatenate(lifted(np.eye(12)[step])) != 0
        for place in steps[~broken]:
            label = int(np.rint(np.clip((coefficients[place] + 20) / 40 * 125, 0, 125))) + SPECIAL
            row = logits[w, place]
            total -= row[label] - row.max() - np.log(np.exp(row - row.max()).sum())
            count += 1
    loss = wavetoken.loss(torch.from_numpy(made.context), torch.from_numpy(made.future))
    assert count < 60 and loss.item() == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize("horizon", [12, 20])
def test_a_greedy_forecast_is_generate_and_lifting_undone(windows: Make, horizon: int) -> None:
    shape = TINY | {"n_tokens": 66, "prediction_length": 12, "context_length": 24, "initializer_factor": 1.0}
    family = WaveToken.new(shape | {"top_k": 1}, seed=3)
    made = windows(count=3, context=24, horizon=horizon)
    found = family.forecast(made, seeds=[1, 2, 3], samples=2).values
    assert np.array_equal(found[:, 0], found[:, -1])  # one path
    undo = np.linalg.inv(np.stack([np.concatenate(lifted(one)) for one in np.eye(12)]))
    history, paths = made.context.astype(np.float64), []
    for _ in range(-(-horizon // 12)):
        tokens = family.tokenize(
            Windows(history.astype(np.float32), made.future, made.series, made.origin, "w", "D", 7)
        )
        out = family.network.generate(
            input_ids=torch.from_numpy(tokens.arrays["ids"]).long(),
            attention_mask=torch.from_numpy(tokens.arrays["mask"]),
            min_new_tokens=12, max_new_tokens=12, do_sample=False, suppress_tokens=[PAD, EOS],
        )  # fmt: skip
        values = np.linspace(-2, 2, 64)[out[:, 1:].numpy() - SPECIAL] @ undo
        past = history[:, -24:]
        paths.append(values * past.std(axis=1)[:, None] + past.mean(axis=1)[:, None])
        history = np.concatenate((history, paths[-1]), axis=1)
    wanted = np.concatenate(paths, axis=1)[:, :horizon]
    np.testing.assert_allclose(found[:, 4], wanted, rtol=1e-5, atol=1e-5)


def test_two_levels_and_a_threshold_are_saved_and_used(windows: Make, tmp_path: Path) -> None:
    family = WaveToken.new(TINY | {"levels": 2, "threshold": "universal", "n_tokens": 600}, seed=0)
    family.save(tmp_path)
    loaded, made = WaveToken.load(tmp_path), windows(count=2, context=16, horizon=4)
    assert loaded.bins == family.bins
    steps = made.context.astype(np.float64)
    scaled = (steps - steps.mean(axis=1)[:, None]) / steps.std(axis=1)[:, None]
    wanted = family.bins.bins(family.bins.coefficients(scaled)) + SPECIAL
    np.testing.assert_array_equal(loaded.tokenize(made).arrays["ids"][:, :16], wanted)
    assert np.isfinite(loaded.forecast(made, seeds=[0, 1]).values).all()

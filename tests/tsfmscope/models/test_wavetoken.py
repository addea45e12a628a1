"""WaveToken: wavelets against lifting written out, ids worked by hand, loss and forecast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import pywt
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.models.types import TokenKind
from tsfmscope.models.wavetoken import EOS, PAD, SPECIAL, WaveletBins, WaveToken, fill_missing
from tsfmscope.series.types import Windows

RNG = np.random.default_rng(0)


def made(wavelet: str = "bior2.2", levels: int = 1, threshold: str = "none") -> WaveletBins:
    return WaveletBins(wavelet, levels, -20.0, 20.0, 1022, threshold)


def lifted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Approximation and detail of the 5/3 (bior2.2) transform, the ends reflected: steps of Sweldens' lifting."""
    n, half = len(x), len(x) // 2
    at = [*range(n), n - 2]
    detail = np.array([x[2 * i + 1] - (x[2 * i] + x[at[2 * i + 2]]) / 2 for i in range(half)])
    before = np.concatenate((detail[:1], detail))
    approximation = np.array([x[2 * i] + (before[i] + before[i + 1]) / 4 for i in range(half)])
    return approximation * np.sqrt(2), -detail / np.sqrt(2)  # PyWavelets' signs and norms


@pytest.mark.parametrize("length", [2, 4, 6, 16, 64])
def test_one_level_is_lifting_written_out(length: int) -> None:
    x = RNG.normal(size=length).cumsum()
    np.testing.assert_allclose(made().coefficients(x), np.concatenate(lifted(x)), atol=1e-12)


def test_levels_come_coarse_to_fine() -> None:
    x = RNG.normal(size=16)
    first, fine = lifted(x)
    second, middle = lifted(first)
    coarse = lifted(second)
    wanted = np.concatenate((*coarse, middle, fine))
    np.testing.assert_allclose(made(levels=3).coefficients(x), wanted, atol=1e-12)


@pytest.mark.parametrize("wavelet", ["haar", "bior2.2", "bior4.4", "coif1", "rbio2.2"])
def test_away_from_the_ends_coefficients_are_those_of_pywavelets_whatever_its_ends(wavelet: str) -> None:
    x = RNG.normal(size=64)
    mine = made(wavelet).coefficients(x)
    reach = pywt.Wavelet(wavelet).dec_len // 2
    first = (reach - 1) // 2
    for part, theirs in zip((mine[:32], mine[32:]), pywt.dwt(x, wavelet, mode="zero"), strict=True):
        np.testing.assert_allclose(part[reach:-reach], theirs[first + reach : first + 32 - reach], atol=1e-12)


@given(st.integers(0, 2**31), st.sampled_from(["haar", "bior2.2", "bior4.4", "coif1"]), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_coefficients_give_the_series_back(seed: int, wavelet: str, levels: int) -> None:
    rng = np.random.default_rng(seed)
    bins = made(wavelet, levels)
    x = rng.normal(size=(2, 3, bins.cell * int(rng.integers(1, 9)))).cumsum(axis=-1) * 10.0 ** rng.integers(-30, 30)
    back = bins.series(bins.coefficients(x))
    np.testing.assert_allclose(back, x, atol=1e-12 * float(np.abs(x).max()))


def test_a_line_has_no_detail_but_in_the_last_coefficient() -> None:
    coefficients = made().coefficients(3.0 * np.arange(32) - 7)
    np.testing.assert_allclose(coefficients[16:-1], 0, atol=1e-12)
    assert coefficients[-1] == pytest.approx(-3 / np.sqrt(2))


@pytest.mark.parametrize(("wavelet", "levels"), [("bior2.2", 1), ("bior2.2", 3), ("haar", 2), ("coif1", 1)])
def test_a_coefficient_reads_the_steps_that_move_it(wavelet: str, levels: int) -> None:
    bins = made(wavelet, levels)
    moved = np.abs(bins.coefficients(np.eye(24))) > 1e-12
    assert not (moved & ~bins.reading(np.eye(24, dtype=bool))).any()
    if levels == 1 or wavelet == "haar":  # of several levels, what a step adds on two ways may cancel
        np.testing.assert_array_equal(bins.reading(np.eye(24, dtype=bool)), moved)
    assert not bins.reading(np.zeros(24, dtype=bool)).any() and bins.reading(np.ones(24, dtype=bool)).all()


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=20))
def test_a_bin_is_that_of_the_nearest_centre(values: list[float]) -> None:
    bins = WaveletBins("haar", 1, -3.0, 5.0, 9, "none")
    centres = np.arange(-3.0, 5.5)
    found = bins.bins(np.array(values))
    for value, one in zip(values, found, strict=True):
        assert abs(centres[one] - value) <= np.abs(centres - value).min() * (1 + 1e-12)
    np.testing.assert_array_equal(bins.bins(bins.centres(found)), found)


def test_the_universal_threshold_is_that_of_visushrink_and_spares_the_coarsest() -> None:
    noise = RNG.normal(size=(4, 64))
    noise[0] = 0.0
    noise[1, 20] += 50.0
    plain, shrunk = (made(levels=2, threshold=name).coefficients(noise) for name in ("none", "universal"))
    for before, after in zip(plain, shrunk, strict=True):
        limit = np.median(np.abs(before[32:])) / 0.6745 * np.sqrt(2 * np.log(64))
        np.testing.assert_array_equal(after[:16], before[:16])
        expected = pywt.threshold(before[16:], limit, mode="hard") if limit else before[16:]
        np.testing.assert_array_equal(after[16:], expected)
    assert (shrunk[2:, 16:] == 0).mean() > 0.8 and np.abs(shrunk[1, 16:]).max() > 10


def test_missing_steps_are_on_the_line_between_their_neighbours() -> None:
    nan = np.nan
    values = np.array([[nan, 1.0, nan, nan, 4.0, nan], [nan] * 6, [1, 2, 3, 4, 5, 6], [nan, nan, nan, 7, nan, nan]])
    wanted = [[1, 1, 2, 3, 4, 4], [0] * 6, [1, 2, 3, 4, 5, 6], [7] * 6]
    np.testing.assert_allclose(fill_missing(values), wanted)
    assert np.isnan(values[0, 0])  # the input stays


@pytest.mark.parametrize("length", [0, 3, 6])
def test_a_length_that_does_not_fit_is_said(length: int) -> None:
    with pytest.raises(ValueError, match=f"got {length} steps, expected a multiple of 4"):
        made(levels=2).coefficients(np.zeros(length))


def test_a_wavelet_whose_coefficients_do_not_give_the_series_back_is_refused() -> None:
    with pytest.raises(ValueError, match=r"wavelet 'db4': its transform of 64 steps has condition .*such as bior2.2"):
        made("db4").series(np.zeros(64))


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

"""What is Lag-Llama's own: history and lags, kinds, the loss, and sampling against a loop without a cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gluonts.time_feature import time_features_from_frequency_str
from scipy import stats

from tsfmscope.models import lag_llama_network as sampling
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.models.lag_llama import LagLlama
from tsfmscope.models.lag_llama_network import StudentT, features
from tsfmscope.models.types import TokenKind
from tsfmscope.series.calendar import window_dates
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
LAGS = (0, 1, 2, 6, 7, 23)
CONFIG = {"context_length": 16, "n_layer": 2, "n_head": 2, "n_embd_per_head": 8, "lags": LAGS}


def model(**changes: Any) -> LagLlama:
    return LagLlama.new(CONFIG | changes, seed=1)


@pytest.fixture(scope="module")
def lag_llama() -> LagLlama:
    return model()


def dated(windows: Windows, start: str = "1968-02-27T22:47:05") -> Windows:
    """The windows, hours from that start on, and every next window a day later."""
    days = np.arange(len(windows)) * np.timedelta64(1, "D")
    return replace(windows, starts=np.datetime64(start, "ms") + days, freq="h" if "T" in start else "D")


def official_features(windows: Windows) -> np.ndarray:
    """Features of every step of windows that begin with their series, [W, C + H, 6], made by gluonts."""
    assert windows.starts is not None
    functions = time_features_from_frequency_str("s")
    steps = windows.context.shape[1] + windows.horizon
    found = []
    for start in windows.starts.tolist():
        index = pd.period_range(pd.Period(start, windows.freq), periods=steps)
        found.append(np.stack([function(index) for function in functions], axis=-1))
    return np.stack(found)


def gappy(windows: Windows) -> Windows:
    windows.context[0, 20:25] = np.nan
    windows.context[1, :30] = np.nan
    windows.context[2, -4:-1] = np.nan
    return windows


@pytest.mark.parametrize("missing", ["zero", "median"])
@pytest.mark.parametrize("context", [10, 48, 80])
def test_tokens_are_the_last_steps_and_their_lags_reach_into_history(windows: Make, context: int, missing: str) -> None:
    family = model(missing=missing)
    made = dated(windows(context=context))
    if context == 48:
        made = gappy(made)
    tokens = family.tokenize(made)
    times = np.zeros((5, 16, 6))
    times[:, -context:] = official_features(made)[:, -16 - 12 : -12]
    assert tokens.arrays["inputs"].shape == (5, 16, len(LAGS) + 8)
    for w in range(5):
        past = np.full(16 + 23, np.nan)
        kept = made.context[w, -len(past) :]
        past[len(past) - len(kept) :] = kept
        seen = np.sort(past[~np.isnan(past)])
        loc, scale = seen[(len(seen) - 1) // 2], np.subtract(*np.quantile(seen, [0.75, 0.25]))
        assert tokens.arrays["loc"][w] == pytest.approx(loc, rel=1e-5)
        assert tokens.arrays["scale"][w] == pytest.approx(scale, rel=1e-5)
        for t in range(16):
            place = 23 + t
            assert tokens.kinds["decoder"][w, t] == (
                TokenKind.PADDING if np.isnan(past[place]) else TokenKind.OBSERVATION
            )
            lagged = [past[place - lag] for lag in LAGS]
            lagged = [(0.0 if missing == "zero" else loc) if np.isnan(value) else value for value in lagged]
            want = [(value - loc) / scale for value in lagged] + [np.log1p(abs(loc)), np.log(scale), *times[w, t]]
            np.testing.assert_allclose(tokens.arrays["inputs"][w, t], want, rtol=1e-4, atol=1e-5)


def test_windows_of_other_dates_have_other_states_and_forecasts(lag_llama: LagLlama, windows: Make) -> None:
    made = windows()
    january, july, again = (dated(made, start) for start in ("2024-01-01", "2024-07-03", "2024-01-01"))
    a, b, same = (list(lag_llama.hidden_states(lag_llama.tokenize(one))) for one in (january, july, again))
    for left, right, copy in zip(a, b, same, strict=True):
        assert np.abs(left.states - right.states).max() > 1e-3
        assert np.array_equal(left.states, copy.states)
    a, b, same = (lag_llama.forecast(one, seeds=[1] * 5).values for one in (january, july, again))
    assert np.abs(a - b).max() > 1e-3
    assert np.array_equal(a, same)


def test_a_window_without_dates_has_nominal_ones(lag_llama: LagLlama, windows: Make) -> None:
    made = windows()
    starts = np.full(5, "2000-01-01", dtype="datetime64[ms]")
    nominal = replace(made, starts=starts, freq="D")
    unknown = replace(made, starts=np.full_like(starts, "NaT"), freq="")
    expected = lag_llama.tokenize(nominal).arrays["inputs"]
    for one in (made, unknown):
        assert np.array_equal(lag_llama.tokenize(one).arrays["inputs"], expected)
    context, future = torch.from_numpy(made.context), torch.from_numpy(made.future)
    dates = torch.from_numpy(window_dates(nominal, 48).astype(np.int64))
    assert lag_llama.loss(context, future).item() == lag_llama.loss(context, future, dates).item()


def test_steps_beyond_the_largest_lag_are_not_read(lag_llama: LagLlama, windows: Make) -> None:
    made = windows(context=60)
    assert lag_llama.max_context == 16 + 23
    changed = replace(made, context=np.concatenate((made.context[:, :21] * -3, made.context[:, 21:]), axis=1))
    a, b = (lag_llama.tokenize(w).arrays["inputs"] for w in (made, changed))
    assert np.array_equal(a, b)
    changed.context[:, 21] += 1
    assert not np.array_equal(a, lag_llama.tokenize(changed).arrays["inputs"])


def test_a_huge_window_has_the_lags_of_its_scaled_copy_and_its_own_scale(
    lag_llama: LagLlama, windows: Make, windows_of: Make
) -> None:
    small = windows()
    huge = windows_of(small.context * 2.0**90, small.future)
    a, b = (lag_llama.tokenize(w).arrays for w in (small, huge))
    assert np.array_equal(a["inputs"][..., : len(LAGS)], b["inputs"][..., : len(LAGS)])
    np.testing.assert_allclose(b["inputs"][..., -7], np.log(a["scale"] * 2.0**90)[:, None].repeat(16, 1), rtol=1e-5)


def test_how_windows_are_read_is_an_option_that_is_kept(lag_llama: LagLlama, windows: Make, tmp_path: Path) -> None:
    lag_llama.save(tmp_path / "a")
    longer = LagLlama.load(tmp_path / "a", tokens=24, rope_scaling="linear")
    longer.save(tmp_path / "b")
    again = LagLlama.load(tmp_path / "b")
    assert again.config == longer.config
    assert (again.tokens, again.config["context_length"], again.rows_per_window(100, 12)) == (24, 16, {"decoder": 24})
    assert [again.rope_factor(horizon) for horizon in (4, 12)] == [28 / 16, 36 / 16]
    assert lag_llama.rope_factor(1000) == 1.0
    assert LagLlama.load(tmp_path / "a", tokens=4, rope_scaling="linear").rope_factor(3) == 1.0  # never below
    plain = LagLlama.load(tmp_path / "a", tokens=24)
    states = [list(f.hidden_states(f.tokenize(windows()))) for f in (plain, longer)]
    assert np.array_equal(states[0][0].states, states[1][0].states)  # the embedding has no position
    assert not np.allclose(states[0][1].states, states[1][1].states)


@pytest.mark.parametrize("changes", [{}, {"rope_scaling": "linear"}, {"missing": "median", "tokens": 24}])
def test_paths_are_those_of_a_loop_that_keeps_nothing(windows: Make, changes: dict[str, Any]) -> None:
    family = model(**changes)
    made = dated(gappy(windows(count=3, horizon=6)))
    calendar = torch.from_numpy(official_features(made)).float()[:, -family.tokens - 6 :]
    past = family._past(torch.from_numpy(made.context))
    scaled = family._standardise(past, torch.ones(3, dtype=torch.float64))
    uniforms = np.random.default_rng(0).random((3, 4, 6))
    lags = torch.tensor(family.config["lags"])
    rope_factor = family.rope_factor(6)
    got = sampling.sample_paths(family.network, scaled, lags, family.tokens, calendar, uniforms, rope_factor)
    for w in range(3):
        for path in range(4):
            steps = scaled.steps[w : w + 1]
            for h in range(6):
                positions = torch.arange(past.shape[1] - family.tokens, steps.shape[1])
                own = calendar[w : w + 1, : family.tokens + h]
                inputs = features(steps, scaled.static[w : w + 1], lags, positions, own)
                with torch.no_grad():
                    answer = StudentT(*(part[0, -1].double() for part in family.network(inputs, rope_factor)))
                drawn = stats.t.ppf(uniforms[w, path, h], answer.df, answer.loc, answer.scale)
                steps = torch.cat((steps, torch.tensor([[drawn]], dtype=torch.float32)), dim=1)
            np.testing.assert_allclose(got[w, path], steps[0, -6:], rtol=1e-3, atol=1e-4)


def test_a_forecast_is_the_quantiles_of_seeded_paths(lag_llama: LagLlama, windows: Make) -> None:
    made = gappy(windows(horizon=1))
    seeds = [11, 12, 13, 14, 15]
    got = lag_llama.forecast(made, levels=(0.1, 0.5, 0.9), samples=200, seeds=seeds).values
    tokens = lag_llama.tokenize(made)
    with torch.no_grad():
        answer = lag_llama.network(torch.from_numpy(tokens.arrays["inputs"]))
    for w, seed in enumerate(seeds):
        uniforms = np.random.default_rng(seed).random((200, 1))[:, 0]
        paths = stats.t.ppf(uniforms, *(float(part[w, -1]) for part in answer))
        paths = paths * tokens.arrays["scale"][w] + tokens.arrays["loc"][w]
        np.testing.assert_allclose(got[w, :, 0], np.quantile(paths, (0.1, 0.5, 0.9)), rtol=1e-4)


def test_a_uniform_of_zero_gives_a_finite_value() -> None:
    answer = StudentT(*(torch.tensor([[value]]) for value in (2.0, 0.0, 1.0)))
    drawn = sampling._quantiles_at(answer, np.zeros((1, 1)))
    assert -1e9 < drawn.item() < -1e6


def test_the_loss_is_the_mean_log_likelihood_of_what_is_observed(lag_llama: LagLlama, windows: Make) -> None:
    made = dated(gappy(windows(count=4)))
    made.future[1, 2:5] = np.nan
    dates = torch.from_numpy(window_dates(made, 48).astype(np.int64))
    calendar = torch.from_numpy(official_features(made)).float()[:, 48 - 16 : -1]
    context, future = torch.from_numpy(made.context), torch.from_numpy(made.future)
    scaled = lag_llama._standardise(lag_llama._past(context), torch.ones(4, dtype=torch.float64))
    steps = torch.cat((scaled.steps, scaled.apply(future)), dim=1)
    inputs = features(steps, scaled.static, torch.tensor(LAGS), torch.arange(23, 23 + 16 + 11), calendar)
    with torch.no_grad():
        df, loc, scale = (part.double().numpy() for part in lag_llama.network(inputs))
    data = np.concatenate((made.context[:, -15:], made.future), axis=1).astype(float)
    total, raw, count, logs = 0.0, 0.0, 0, 0.0
    for w in range(4):
        place, spread = float(scaled.loc[w]), float(scaled.scale[w])
        for t in range(15 + 12):
            if not np.isnan(data[w, t]):
                total -= stats.t.logpdf((data[w, t] - place) / spread, df[w, t], loc[w, t], scale[w, t])
                raw -= stats.t.logpdf(data[w, t], df[w, t], place + spread * loc[w, t], spread * scale[w, t])
                logs += np.log(spread)
                count += 1
    assert count == 4 * 27 - 3 - 3
    assert lag_llama.loss(context, future, dates).item() == pytest.approx(total / count, rel=1e-4)
    assert lag_llama.loss(context, future).item() != pytest.approx(total / count, rel=1e-4)  # of nominal dates
    assert raw / count - logs / count == pytest.approx(total / count, rel=1e-6)  # the release's, less the log scale


@pytest.mark.parametrize("missing", ["zero", "median"])
@pytest.mark.parametrize("value", [0.0, 3.0, -1e30, np.nan])
def test_constant_contexts_with_gaps_are_forecast_as_themselves(windows_of: Make, value: float, missing: str) -> None:
    context = np.full((1, 48), value)
    context[0, 40:44] = np.nan
    family = model(missing=missing)
    made = windows_of(context, np.zeros((1, 12)))
    assert all(np.isfinite(layer.states).all() for layer in family.hidden_states(family.tokenize(made)))
    got = family.forecast(made, seeds=[0]).values
    if not np.isnan(value):
        np.testing.assert_allclose(got, value, rtol=1e-6, atol=1e-6)


def test_a_condition_with_history_makes_tokens_of_its_whole_context(windows: Make) -> None:
    plain = model()
    seen, steps = plain.with_condition(32, 23)
    assert (seen.tokens, seen.max_context, steps) == (32, 55, 55)
    assert (plain.tokens, *plain.with_condition(32, 0)) == (16, plain, 32)  # the model of other jobs stays as it was
    made = windows(context=55)
    got, expected = seen.tokenize(made), model(tokens=32).tokenize(made)
    assert got.kinds["decoder"].shape == (5, 32)
    for name, values in expected.arrays.items():
        np.testing.assert_array_equal(got.arrays[name], values)


def test_rope_scaling_stretches_as_far_as_the_condition_asks() -> None:
    seen, _ = model(rope_scaling="linear").with_condition(144, 1092)
    assert seen.rope_factor(30) == (144 + 30) / 16
    assert model().with_condition(144, 1092)[0].rope_factor(30) == 1.0


def test_other_families_see_no_history(bolt: ChronosBolt) -> None:
    assert bolt.with_condition(144, 1092) == (bolt, 144)

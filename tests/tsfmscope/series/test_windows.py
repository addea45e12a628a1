from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsfmscope.errors import DataError
from tsfmscope.series.calendar import season_of
from tsfmscope.series.types import Series, Windows
from tsfmscope.series.windows import last_windows, spread_windows


def _series(values: object, name: str = "a", freq: str = "h", dataset: str = "d") -> Series:
    return Series(dataset, name, np.asarray(values, dtype=np.float32), freq=freq)


def _naively_usable(one: Series, how: dict) -> list[int]:
    steps, usable = len(one.values), []
    for origin in range(1, steps - how["horizon"] + 1):
        past = one.values[max(0, origin - how["context"]) : origin]
        future = one.values[origin : origin + how["horizon"]]
        held = how["held_out"] is None or origin >= int(steps * (1 - how["held_out"]))
        if held and np.sum(~np.isnan(past)) >= how["min_context"] and not np.isnan(future).all():
            usable.append(origin)
    return usable


@st.composite
def _cases(draw: st.DrawFn) -> tuple[list[Series], dict]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    share = draw(st.sampled_from([0.0, 0.2, 0.9]))
    series = []
    for index, steps in enumerate(draw(st.lists(st.integers(0, 60), min_size=1, max_size=6))):
        values = rng.standard_normal(steps)
        values[rng.random(steps) < share] = np.nan
        series.append(_series(values, f"s{index}"))
    context = draw(st.integers(1, 40))
    how = {
        "context": context,
        "horizon": draw(st.integers(1, 20)),
        "min_context": draw(st.integers(1, context)),
        "held_out": draw(st.sampled_from([None, 0.2, 0.5, 1.0])),
    }
    return series, how


@given(_cases(), st.integers(0, 30))
@settings(deadline=None, max_examples=60)
def test_an_earlier_window_is_the_last_of_the_series_cut_short_but_held_out_is_of_the_whole(
    case: tuple[list[Series], dict], earlier: int
) -> None:
    series, how = case
    windows, skipped = last_windows(series, **how, earlier=earlier)
    origins = {one.series: len(one.values) - how["horizon"] - earlier for one in series}
    usable = [one.series for one in series if origins[one.series] in _naively_usable(one, how)]
    assert windows.series == usable
    assert windows.origin.tolist() == [origins[name] for name in usable]
    assert sorted([*usable, *(skip.series for skip in skipped)]) == sorted(origins)
    _check(windows, series, how)


def _check(windows: Windows, series: list[Series], how: dict) -> None:
    by_name = {one.series: one for one in series}
    pairs = list(zip(windows.series, windows.origin.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs), "a window stands twice"
    assert windows.context.dtype == windows.future.dtype == np.float32
    assert windows.context.shape == (len(pairs), how["context"])
    assert windows.future.shape == (len(pairs), how["horizon"])
    for row, (name, origin) in enumerate(pairs):
        one = by_name[name]
        assert origin in _naively_usable(one, how)
        padded = np.concatenate([np.full(how["context"], np.nan), one.values[:origin]])[-how["context"] :]
        np.testing.assert_array_equal(windows.context[row], padded)
        np.testing.assert_array_equal(windows.future[row], one.values[origin : origin + how["horizon"]])


@given(_cases(), st.integers(1, 60))
@settings(deadline=None, max_examples=120)
def test_spread_windows_gives_the_count_as_evenly_as_the_series_allow(case: tuple, count: int) -> None:
    series, how = case
    windows, _ = spread_windows(series, count=count, **how)
    _check(windows, series, how)
    capacity = {one.series: len(_naively_usable(one, how)) for one in series}
    assert len(windows) == min(count, sum(capacity.values()))
    shares = {name: windows.series.count(name) for name in capacity}
    most = max(shares.values())
    assert all(shares[name] in (most, most - 1, capacity[name]) for name in shares)


@given(_cases(), st.integers(1, 60))
@settings(deadline=None, max_examples=120)
def test_a_series_gives_its_last_usable_window_first_and_those_without_are_named(case: tuple, count: int) -> None:
    series, how = case
    windows, skipped = spread_windows(series, count=count, **how)
    ranks = np.zeros(len(windows), dtype=int)
    for one in series:
        rows = [row for row, name in enumerate(windows.series) if name == one.series]
        origins = windows.origin[rows].tolist()
        assert origins == sorted(origins, reverse=True)
        assert not origins or origins[0] == _naively_usable(one, how)[-1]
        ranks[rows] = range(len(rows))
    names = [one.series for one in series]
    places = [(rank, names.index(name)) for rank, name in zip(ranks.tolist(), windows.series, strict=True)]
    assert places == sorted(places), "the last windows of all come first, then the second of all"
    assert [skip.series for skip in skipped] == [one.series for one in series if not _naively_usable(one, how)]


def test_origins_worked_by_hand() -> None:
    windows, _ = spread_windows([_series(np.arange(100.0))], context=20, horizon=10, count=4)
    # full contexts have origins 20..90: 71 of them, at every 71/4 back from 90
    assert windows.origin.tolist() == [90, 73, 55, 37]
    assert windows.season == 24
    np.testing.assert_array_equal(windows.future[0], np.arange(90.0, 100.0))


def test_held_out_futures_lie_in_the_last_fifth() -> None:
    windows, _ = spread_windows([_series(np.arange(100.0))], context=30, horizon=5, count=99, held_out=0.2)
    assert sorted(windows.origin.tolist()) == list(range(80, 96))


@pytest.mark.parametrize(
    ("values", "held_out", "reason"),
    [
        (np.arange(20.0), None, "too short for 16 steps of context and a horizon of 5"),
        (np.arange(22.0), 0.1, "the held-out part is shorter than the horizon of 5"),
        (np.r_[np.arange(30.0), np.full(5, np.nan)], None, "nothing is observed in the future"),
        (np.r_[np.full(30, np.nan), np.arange(20.0)], None, "fewer than 16 observed steps in the context"),
        ([], None, "too short for 16 steps of context and a horizon of 5"),
    ],
)
def test_a_series_without_a_last_window_says_why(values: object, held_out: float | None, reason: str) -> None:
    windows, skipped = last_windows([_series(values)], context=30, horizon=5, held_out=held_out)
    assert (len(windows), skipped) == (0, [("a", reason)])
    assert windows.context.shape == (0, 30)
    assert windows.horizon == 5


def test_futures_that_nobody_observed_and_infinite_series_give_no_window() -> None:
    gap, infinite = np.arange(60.0), np.arange(60.0)
    gap[40:], infinite[0] = np.nan, -np.inf
    windows, skipped = spread_windows([_series(gap, "gap"), _series(infinite, "inf")], context=20, horizon=5, count=99)
    assert sorted(windows.origin.tolist()) == list(range(16, 40))  # at 40 no step of the future is observed
    assert np.isnan(windows.future[0]).sum() == 4
    assert skipped == [("inf", "infinite")]


def test_short_pasts_are_padded_on_the_left_and_constant_ones_kept() -> None:
    windows, _ = spread_windows([_series(np.full(30, 3.0))], context=40, horizon=5, count=1)
    np.testing.assert_array_equal(windows.context[0], np.r_[np.full(15, np.nan), np.full(25, 3.0)])


def test_where_series_are_more_than_windows_they_are_evenly_spaced() -> None:
    series = [_series(np.arange(50.0), f"s{i}") for i in range(10)]
    windows, _ = spread_windows(series, context=20, horizon=5, count=4)
    assert windows.series == ["s0", "s2", "s5", "s7"]


def test_mixed_frequencies_or_data_sets_are_refused() -> None:
    plain = _series(np.arange(50.0), "b")
    for other in (replace(plain, freq="D"), replace(plain, dataset="e"), replace(plain, season=7)):
        with pytest.raises(DataError, match="expected one data set, frequency and season"):
            last_windows([_series(np.arange(50.0)), other], context=20, horizon=5)


@pytest.mark.parametrize(
    "wrong", [{"horizon": 0}, {"min_context": 21}, {"min_context": 0}, {"held_out": 0.0}, {"held_out": 1.5}]
)
def test_arguments_out_of_range_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="expected"):
        last_windows([], **{"context": 20, "horizon": 5, **wrong})
    with pytest.raises(ValueError, match="count: expected at least 1, got 0"):
        spread_windows([], context=20, horizon=5, count=0)


def test_the_season_of_a_series_comes_before_that_of_its_frequency() -> None:
    hourly = _series(np.arange(100.0))
    for one, season in ((hourly, 24), (replace(hourly, season=7), 7), (replace(hourly, season=1), 1)):
        for cut in (last_windows, partial(spread_windows, count=3)):
            assert cut([one], context=20, horizon=10)[0].season == season_of([one]) == season


def test_a_seed_moves_further_origins_between_their_neighbours_and_never_the_last_one() -> None:
    series = [_series(np.arange(400.0))]
    plain, first, same, other = (
        spread_windows(series, context=20, horizon=10, count=6, seed=seed)[0].origin for seed in (None, 1, 1, 2)
    )
    assert first.tolist() == same.tolist() != other.tolist() != plain.tolist()
    assert plain[0] == first[0] == other[0] == 390
    for moved in (first, other):
        assert (moved <= plain).all() and (moved[:-1] > plain[1:]).all()
        assert len(set(moved.tolist())) == 6


def test_where_all_windows_or_series_are_taken_a_seed_changes_nothing() -> None:
    series = [_series(np.arange(40.0))]
    every, seeded = (spread_windows(series, context=20, horizon=10, count=99, seed=seed)[0] for seed in (None, 3))
    assert every.origin.tolist() == seeded.origin.tolist()


def test_a_seed_chooses_among_more_series_than_windows_evenly() -> None:
    series = [_series(np.arange(60.0) + n, f"s{n:02}") for n in range(30)]
    chosen = {seed: spread_windows(series, context=20, horizon=5, count=10, seed=seed)[0].series for seed in range(20)}
    assert len({tuple(names) for names in chosen.values()}) == 3  # a phase of thirds
    for names in chosen.values():
        assert np.unique(np.diff([int(name[1:]) for name in names])).tolist() == [3]

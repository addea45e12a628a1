"""Rank schedules against the size ratios worked out in science.md section 6, and against their definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsfmscope.compression.schedules import flow, guideline

PRINTED = [(3, 0.27), (5, 0.35), (7, 0.40)]


def size_ratio(ranks: list[int], full: int) -> float:
    """Return the mean rank over the full width, the size ratio of Yu et al. 2026, Fig. 7 and Tables 3 and 4."""
    return sum(min(rank, full) for rank in ranks) / (len(ranks) * full)


@pytest.mark.parametrize(("rounding", "origin", "expected"), [
    ("ceiling", 2, [0.086, 0.161, 0.246]),
    ("ceiling", 1, [0.082, 0.151, 0.229]),
    ("power_of_two", 1, [0.073, 0.141, 0.219]),
])  # fmt: skip
def test_size_ratios_at_twelve_layers(rounding: str, origin: int, expected: list[float]) -> None:
    found = [size_ratio(flow(*one, 12, rounding=rounding, origin=origin), 64) for one in PRINTED]  # type: ignore[arg-type]
    assert found == pytest.approx(expected, abs=5e-4)


def test_size_ratios_with_the_released_codes_cross_attention() -> None:
    found = []
    for one in PRINTED:
        own = flow(*one, 12, rounding="power_of_two")
        found.append(size_ratio(own + own + flow(*one, 12, rounding="power_of_two", before=12), 64))
    assert found == pytest.approx([0.090, 0.177, 0.271], abs=5e-4)


@given(st.floats(0.5, 64), st.floats(0, 2), st.integers(1, 24), st.integers(1, 2), st.integers(0, 24))
def test_flow_is_the_rounded_power(first: float, growth: float, depth: int, origin: int, before: int) -> None:
    ranks = flow(first, growth, depth, origin=origin, before=before)
    assert ranks == sorted(ranks)
    for layer, rank in enumerate(ranks):
        exact = first * (layer + before + origin) ** growth
        assert max(1.0, exact) - 1e-6 <= rank < max(1.0, exact + 1) + 1e-6
    powers = flow(first, growth, depth, origin=origin, before=before, rounding="power_of_two")
    for layer, rank in enumerate(powers):
        exact = max(1.0, first * (layer + before + origin) ** growth)
        assert math.log2(rank).is_integer()
        assert max(rank / exact, exact / rank) <= math.sqrt(2) + 1e-6  # the nearest by ratio


def test_guideline_runs_from_the_first_rank_to_the_last() -> None:
    ranks = guideline(16, 256, 12, 8)
    assert (ranks[0], ranks[-1], ranks) == (2, 32, sorted(ranks))
    assert ranks[4] == math.ceil((16 + 240 * math.sqrt(4 / 11)) / 8)
    assert guideline(16, 256, 1, 8) == [2]


@pytest.mark.parametrize("wrong", [{"first": 0.0}, {"depth": 0}, {"origin": 0}, {"before": -1}])
def test_what_is_not_positive_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected positive numbers"):
        flow(**{"first": 3.0, "growth": 0.27, "depth": 2, **wrong})  # type: ignore[arg-type]

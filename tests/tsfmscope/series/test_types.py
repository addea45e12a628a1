"""Series are told apart by their values alone, and data sets that share a series are one source."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tsfmscope.series.types import Series, digests, name_sources

VALUES = np.array([0.0, 1.5, np.nan, 3.0], dtype=np.float32)
FIRST = Series("set", "a", VALUES)


def test_names_frequencies_and_order_do_not_matter() -> None:
    other = replace(FIRST, dataset="copy", series="b", freq="D", season=7)
    second = Series("set", "c", np.arange(5, dtype=np.float32))
    assert digests([FIRST, second]) == digests([second, other]) and len(digests([FIRST, other])) == 1
    assert digests([]) == frozenset()


@pytest.mark.parametrize(
    "values",
    [VALUES.astype(np.float64), np.where(np.isnan(VALUES), -np.nan, VALUES), np.where(VALUES == 0, -0.0, VALUES)],
)
def test_another_type_another_nan_and_minus_zero_are_the_same(values: np.ndarray) -> None:
    assert digests([replace(FIRST, values=values)]) == digests([FIRST])


def test_a_text_file_of_a_float32_column_is_the_same() -> None:
    column = np.array([0.1, 0.7855, np.nan, 1.0], dtype=np.float32)
    text = np.array([float(str(value)) for value in column])
    assert text[0] != column[0]
    assert digests([replace(FIRST, values=text)]) == digests([replace(FIRST, values=column)])


def test_series_that_float32_merges_are_told_apart() -> None:
    series = [replace(FIRST, values=1e9 + np.random.default_rng(seed).random(60)) for seed in (0, 1)]
    assert len(digests(series)) == 2


@pytest.mark.parametrize("values", [VALUES * 2, VALUES[::-1], VALUES[1:], np.nan_to_num(VALUES), VALUES.round()])
def test_other_values_are_another_series(values: np.ndarray) -> None:
    """A rescaled copy counts as other data; the certificate does not look for it."""
    assert digests([replace(FIRST, values=values)]).isdisjoint(digests([FIRST]))


def test_data_sets_that_share_a_series_are_one_source() -> None:
    contents = {"a": "12", "b": "34", "c": "5", "d": "23", "e": "46"}
    sources = name_sources({name: frozenset(series) for name, series in contents.items()})
    assert sources == {"a": "a", "b": "a", "c": "c", "d": "a", "e": "a"}
    assert name_sources({"x": frozenset(), "y": frozenset()}) == {"x": "x", "y": "y"}

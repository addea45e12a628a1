"""Facts that two layers state, because neither may import the other, are the same."""

from __future__ import annotations

from typing import get_args

import numpy as np

from store.schema import TABLES, isotropy_measures
from tsfmscope.compression.options import METHODS, MethodName
from tsfmscope.geometry.measures import MEASURES, measure_states, presets
from tsfmscope.report.plots import compressed as plots


def test_every_name_of_a_compression_method_is_registered_and_has_a_colour() -> None:
    assert get_args(MethodName) == tuple(METHODS)
    assert len({plots.choose_colour(name) for name in (*METHODS, "other")}) == len(METHODS) + 1


def test_every_measure_of_states_has_a_column_and_every_isotropy_measure_is_measured() -> None:
    row = measure_states(np.random.default_rng(0).normal(size=(90, 4)), presets=presets(), seed=0)
    columns = {column.name: column for column in TABLES["geometry"].columns}
    measured = {name for measure in MEASURES for name in (*measure.columns, *measure.others)}
    assert measured <= set(row) <= set(columns)
    assert all(columns[name].nullable for measure in MEASURES for name in measure.columns)
    assert {column.name for column in isotropy_measures()} <= measured

"""Facts that two layers state, because neither may import the other, are the same."""

from __future__ import annotations

from typing import get_args

import numpy as np

from store.schema import TABLES
from store.tables.results import isotropy_measures
from tsfmscope.compression import lems, two_step, whole_model
from tsfmscope.compression.methods.registry import TRUNCATIONS
from tsfmscope.compression.options import CALIBRATED, NARROWING, SEARCHING, Method
from tsfmscope.geometry.measure import measure_states
from tsfmscope.geometry.measures import MEASURES, presets
from tsfmscope.report.charts import compression as plots


def test_the_compression_methods_of_params_are_those_of_the_code_and_of_the_plots() -> None:
    methods = set(get_args(Method.model_fields["method"].annotation))
    assert methods == {*TRUNCATIONS, *two_step.METHODS, lems.METHOD, whole_model.METHOD}
    assert methods == set(plots.METHODS) - {"other"}
    assert {name for name in methods if name not in TRUNCATIONS or TRUNCATIONS[name].reads != "nothing"} == CALIBRATED
    assert {*two_step.METHODS, lems.METHOD} == SEARCHING
    assert methods > set(NARROWING)


def test_every_measure_of_states_has_a_column_and_every_isotropy_measure_is_measured() -> None:
    row = measure_states(np.random.default_rng(0).normal(size=(90, 4)), presets=presets(), seed=0)
    columns = {column.name: column for column in TABLES["geometry"].columns}
    measured = {name for measure in MEASURES for name in (*measure.columns, *measure.others)}
    assert measured <= set(row) <= set(columns)
    assert all(columns[name].null for measure in MEASURES for name in measure.columns)
    assert {column.name for column in isotropy_measures()} <= measured

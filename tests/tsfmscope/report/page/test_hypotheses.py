"""The summary counts the hypotheses by verdict, as the view has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from store.report_queries import load_queries
from tests.population import is_confirming
from tsfmscope.report.page.hypotheses import COLUMNS, describe_hypotheses
from tsfmscope.report.page.summary import summarise
from tsfmscope.report.tables import Answer, ReportTables

HALF = "committed before the 15 data sets of the confirming half were tested"


def make_tests(*verdicts: str, **columns: Any) -> pd.DataFrame:
    """Rows of hypotheses a, b, ... with these verdicts."""
    facts = {"detectable": 0.1, "n_datasets": 15, **columns}
    rows = [{"name": "abcdefgh"[at], "verdict": verdict, **facts} for at, verdict in enumerate(verdicts)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


@pytest.mark.parametrize(
    ("verdicts", "text"),
    [
        (["no effect found"] * 3, f"Of 3 hypotheses, {HALF}, none holds: no test finds an effect."),
        (["holds"], f"Of 1 hypothesis, {HALF}, 1 holds (a)."),
        (["holds", "no effect found", "holds"], "2 hold (a, c) and no effect was found for 1."),
        (["reversed", "no effect found"], "none holds, 1 is reversed (a) and no effect was found for 1."),
        (["reversed", "holds", "reversed", "not tested"], "1 holds (b), 2 are reversed (a, c) and 1 could not be"),
        (["not tested", "not tested"], f"Of 2 hypotheses, {HALF}, none holds and 2 could not be tested."),
    ],
)
def test_verdicts_are_counted_and_effects_are_named(verdicts: list[str], text: str) -> None:
    assert text in describe_hypotheses(make_tests(*verdicts))[0]


def test_the_sensitivity_is_that_of_the_least_sensitive_test_without_an_effect() -> None:
    tests = make_tests("no effect found", "no effect found", "holds", detectable=[0.07, 0.2002, 0.4][0])
    tests["detectable"] = [0.07, 0.2002, 0.4]
    _, sentence = describe_hypotheses(tests)
    assert sentence == (
        "The least sensitive of the tests without an effect finds a correlation of ±0.20 with a probability of 80 %, "
        "and misses smaller ones more often."
    )
    tests["detectable"] = [np.nan, 0.2002, 0.4]
    assert describe_hypotheses(tests)[2] == "For 1 of them, no such size is known."
    assert describe_hypotheses(make_tests("no effect found"))[1].startswith("The test without an effect finds")
    assert len(describe_hypotheses(make_tests("no effect found", detectable=np.nan))) == 1
    assert len(describe_hypotheses(make_tests("holds"))) == 1


@pytest.mark.parametrize(
    ("n_datasets", "text"),
    [
        ([15, 12], "the 12 to 15 data sets of the confirming half were tested"),
        ([1, 1], "the data set of the confirming half was tested"),
        ([np.nan, np.nan], "the confirming half of the data sets was tested"),
    ],
)
def test_the_number_of_data_sets_is_stated_if_it_is_known(n_datasets: list[float], text: str) -> None:
    tests = make_tests("holds", "holds").assign(n_datasets=n_datasets)
    assert text in describe_hypotheses(tests)[0]


def test_the_summary_has_the_verdicts_of_the_view(tables: ReportTables, population: duckdb.DuckDBPyConnection) -> None:
    query = load_queries("page")["hypothesis_tests"]
    frame = population.sql(query.sql).df()
    assert frame["n_datasets"].tolist() == [sum(is_confirming(f"set-{number}") for number in range(10))] * 2
    wanted = population.sql("select * from hypothesis_tests order by name").df()
    pd.testing.assert_frame_equal(frame[["name", "verdict", "detectable"]], wanted[["name", "verdict", "detectable"]])
    parts = summarise(replace(tables, hypothesis_tests=Answer(query.title, query.sql, frame)))
    sentences = next(part.sentences for part in parts if part.name == "isotropy")
    assert [text for text in sentences if "hypothes" in text] == describe_hypotheses(frame)[:1]


def test_nothing_is_said_without_hypotheses(tables: ReportTables) -> None:
    assert describe_hypotheses(make_tests()) == []
    assert not any("hypothes" in sentence for part in summarise(tables) for sentence in part.sentences)

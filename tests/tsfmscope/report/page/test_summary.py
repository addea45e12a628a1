"""The first words say what the numbers say, and what they do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import store
from store.report_queries import load_queries
from tests.population import is_confirming
from tsfmscope.report.page import summary, verdicts
from tsfmscope.report.page.summary import HYPOTHESES, describe_hypotheses, summarise
from tsfmscope.report.tables import Answer, ReportTables, StudyTables

HALF = "committed before the 15 data sets of the confirming half were tested"
LINES = (("a", "encoder", [90, 10, 30]), ("a", "decoder", [10, 99, 50]), ("b", "decoder", [20, 20]), ("c", "x", [7]))


def _words(tables: ReportTables) -> str:
    return " ".join(sentence for part in summarise(tables) for sentence in part.sentences)


def _with(tables: ReportTables, name: str, frame: pd.DataFrame) -> ReportTables:
    return replace(tables, **{name: Answer(name, "select 1", frame)})


def _headline(value: float | None) -> pd.DataFrame:
    row = {
        "measure": "zeta_adjusted_corrected",
        "grouping": "within_dataset",
        "n": 68,
        "n_blocks": 17,
        "spearman": value,
        **dict.fromkeys(("low", "high", "p")),
    }
    return pd.DataFrame([{**row, "grouping": "pooled", "spearman": 0.99}, row, {**row, "measure": "zeta"}])


@pytest.mark.parametrize(("value", "text"), [(-0.25, "correlation of −0.25 (n = 68"), (0.5, "+0.50 (n = 68")])
def test_the_headline_is_the_mean_within_data_sets_with_its_n(value: float, text: str, tables: ReportTables) -> None:
    words = _words(_with(tables, "correlation", _headline(value)))
    assert text in words
    assert "in 17 data sets" in words
    assert "0.99" not in words


def test_where_no_correlation_is_defined_the_headline_says_what_it_needs(tables: ReportTables) -> None:
    words = _words(_with(tables, "correlation", _headline(None)))
    assert "it needs several models on the same data sets" in words
    assert "undefined" not in words


@pytest.mark.parametrize(
    ("models", "text"),
    [
        (1, "With fewer than two models, nothing can be concluded"),
        (2, "With two models nothing can be concluded: they can be ordered in two ways only"),
        (3, "never gives p below 0.17"),
        (4, "never gives p below 0.042"),
        (5, None),
    ],
)
def test_too_few_models_are_said_to_be_too_few(models: int, text: str | None, tables: ReportTables) -> None:
    words = _words(_with(tables, "scope", tables.scope.frame.assign(models=models)))
    assert text in words if text else "nothing can be concluded" not in words


def test_skill_is_of_what_was_trained_here_and_the_sine_of_every_model(tables: ReportTables) -> None:
    frame = tables.skill.frame.copy()
    ratio = [name for name in frame if name not in ("model", "sine_error")]
    frame.loc[0, ratio] = np.nan
    words = _words(_with(tables, "skill", frame))
    first, second = frame["model"][:2]
    (one, other), without = frame["sine_error"][:2], tables.skill.frame["wql_vs_median"][0]
    assert f"below 1 is skill: {second} {frame['wql_vs_median'][1]:.2f}" in words and f"{without:.2f} (" not in words
    assert f"relative to forecasting zero, 0 is exact: {first} {one:.2f}, {second} {other:.2f}" in words
    alone = _words(_with(tables, "skill", frame[:1]))
    assert "below 1 is skill" not in alone and f"0 is exact: {first} {one:.2f}." in alone


def test_small_checkpoints_are_not_the_papers_models(tables: ReportTables) -> None:
    words = _words(tables)
    assert "2 of 3 models are small checkpoints trained by this project (at most 464,128 parameters)" in words
    assert "make profile NAME=paper" in words
    hub = _with(tables, "checkpoints", tables.checkpoints.frame.assign(source="hub"))
    assert "make profile" not in _words(hub)
    every = _with(tables, "checkpoints", tables.checkpoints.frame.assign(source="trained"))
    assert "All models are small" in _words(every)


def test_what_was_left_out_is_counted(tables: ReportTables) -> None:
    assert "Nothing was skipped and no job failed." in _words(tables)
    tables = _with(tables, "skipped", pd.DataFrame({"reason": ["constant", "short"], "n": [1, 186]}))
    assert "187 inputs were skipped, no job failed; the reasons are in run.html." in _words(tables)
    failed = pd.DataFrame({"stage": ["geometry"], "error": ["ValueError"], "example": ["x"], "n": [1]})
    assert "187 inputs were skipped, 1 job failed; the reasons are in run.html." in _words(
        _with(tables, "failures", failed)
    )


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (-0.5, -0.1, "In these data yes: models that are more isotropic by the measure below have lower error."),
        (0.1, 0.5, "In these data no: models that are more isotropic by the measure below have higher error."),
        (-0.5, 0.1, "These data do not answer it: the interval contains 0."),
        (None, None, "These data do not answer it: there is no interval."),
    ],
)
def test_the_first_question_is_answered_by_the_interval_before_its_number(
    low: float | None, high: float | None, text: str, tables: ReportTables
) -> None:
    frame = _headline(-0.25).assign(low=low, high=high)
    enough = _with(tables, "scope", tables.scope.frame.assign(models=5))
    (part,) = [one for one in summarise(_with(enough, "correlation", frame)) if "isotropy predict" in one.question]
    assert part.sentences[0] == text
    few = _words(_with(tables, "correlation", frame))  # two models: nothing can be concluded
    assert text not in few


def test_claims_are_counted_by_paper(tables: ReportTables) -> None:
    study = tables.studies[0]
    verdicts = ("agrees", "differs", "undecided", "not comparable")
    rows = pd.concat([study.published.frame.assign(verdict=verdict) for verdict in verdicts])
    four = replace(study, published=replace(study.published, frame=rows))
    words = _words(replace(tables, studies=(four, four, *tables.studies[1:])))
    assert "Of 8 tests of claims of Shelim et al. 2025, 2 agree, 2 differ, 2 are undecided, 2 cannot be" in words
    assert "Of 1 test of claims of Yu et al. 2026, 1 is undecided" in words


def make_tests(*verdicts: str, **columns: Any) -> pd.DataFrame:
    """Rows of hypotheses a, b, ... with these verdicts."""
    facts = {"detectable": 0.1, "n_datasets": 15, **columns}
    rows = [{"name": "abcdefgh"[at], "verdict": verdict, **facts} for at, verdict in enumerate(verdicts)]
    return pd.DataFrame(rows, columns=list(HYPOTHESES))


@pytest.mark.parametrize(
    ("verdicts", "text"),
    [
        (["no effect"] * 3, f"Of 3 hypotheses, {HALF}, none holds and 3 found to have no effect."),
        (["holds"], f"Of 1 hypothesis, {HALF}, 1 holds (a)."),
        (["holds", "no effect", "holds"], "2 hold (a, c) and 1 found to have no effect."),
        (["reversed", "undecided"], "none holds, 1 is reversed (a) and 1 undecided."),
        (["reversed", "holds", "reversed", "not tested"], "1 holds (b), 2 are reversed (a, c) and 1 could not be"),
        (["not tested", "not tested"], f"Of 2 hypotheses, {HALF}, none holds and 2 could not be tested."),
    ],
)
def test_verdicts_are_counted_and_effects_are_named(verdicts: list[str], text: str) -> None:
    assert text in describe_hypotheses(make_tests(*verdicts))[0]


def test_the_sensitivity_is_that_of_the_least_sensitive_test_without_an_effect() -> None:
    tests = make_tests("undecided", "undecided", "holds", detectable=[0.07, 0.2002, 0.4][0])
    tests["detectable"] = [0.07, 0.2002, 0.4]
    _, sentence = describe_hypotheses(tests)
    assert sentence == (
        "The least sensitive of the tests without an effect finds a correlation of ±0.20 with a probability of 80 %, "
        "and misses smaller ones more often."
    )
    tests["detectable"] = [np.nan, 0.2002, 0.4]
    assert describe_hypotheses(tests)[2] == "For 1 of them, no such size is known."
    assert describe_hypotheses(make_tests("undecided"))[1].startswith("The test without an effect finds")
    assert len(describe_hypotheses(make_tests("undecided", detectable=np.nan))) == 1
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


def inputs(*lines: tuple[str, str, list[int]], epsilon: float = 0.01) -> pd.DataFrame:
    """Ranks of 100 at most, a line a (model, stack): one number a layer."""
    rows = [
        {"model": model, "modality": "series", "stack": stack, "layer": layer, "epsilon": epsilon, "full_rank": 100}
        | {"below_noise_floor": False, "rank": float(rank), "low": rank, "high": rank, "n": 1}
        for model, stack, ranks in lines
        for layer, rank in enumerate(ranks)
    ]
    return pd.DataFrame(rows)


def study(tables: ReportTables, *, claims: pd.DataFrame | None = None, **answers: pd.DataFrame) -> StudyTables:
    one = tables.studies[0]
    published = one.published.frame.iloc[:0] if claims is None else claims
    named = {name: Answer(name, "select 1", frame) for name, frame in answers.items()}
    return replace(one, answers=named, published=replace(one.published, frame=published))


def claim(verdict: str, model: str | None) -> dict[str, Any]:
    row = dict.fromkeys(verdicts.COLUMNS)
    return row | {"claim": summary.GROWTH_CLAIM, "model": model, "verdict": verdict, "quantity": "mean"}


def test_first_and_last_layer_are_medians_over_stacks_of_two_layers_or_more() -> None:
    found = summary.compare_ends(pd.concat([inputs(*LINES), inputs(("a", "encoder", [1, 1, 99]), epsilon=0.1)]))
    assert found == summary.Ends(first=0.2, last=0.3, rises=1, stacks=3, models=2)  # c has one layer alone
    shuffled = inputs(*LINES).sample(frac=1, random_state=3)
    assert summary.compare_ends(shuffled) == found
    assert summary.compare_ends(inputs(("c", "x", [7]))) is None


def test_a_rank_below_roundings_floor_is_left_out() -> None:
    frame = inputs(*LINES)
    frame.loc[(frame["stack"] == "encoder") & (frame["layer"] == 2), "below_noise_floor"] = True
    found = summary.compare_ends(frame)
    assert found is not None and found.last == 0.2  # 10, 50 and 20


def test_growth_is_told_of_the_study_with_most_models(tables: ReportTables) -> None:
    claims = pd.DataFrame([claim("agrees", "a"), claim("agrees", "b"), claim("differs", "c"), claim("undecided", None)])
    wide = study(tables, inputs=inputs(*LINES), weights=inputs(("a", "encoder", [80, 40])), claims=claims)
    narrow = study(tables, inputs=inputs(("z", "encoder", [1, 2])))
    told = summary.describe_growth([narrow, wide])
    assert told[0].endswith("grows with depth in 2 of 3, does not in 1, and is undecided in 0.")
    assert "has 20 % of the full rank, the output of the last 30 % (medians over 3 stacks of 2 models" in told[1]
    assert told[1].endswith("It rises in 1 of 3.")
    assert "goes from 80 % to 40 % of the full rank, and rises in 0 of 1 stacks." in told[2]
    assert summary.describe_growth([study(tables)]) == []
    over = claim("no effect", None) | {"condition": "over families", "n": 8, "measured": -0.01, "p": 0.4}
    told = summary.describe_growth([replace(wide, published=replace(wide.published, frame=pd.DataFrame([over])))])
    assert told[0].startswith("Over 8 families, the slope of the rank of layer inputs along depth is −0.01 of the full")
    assert told[0].endswith("(n = 8; p = 0.4): the claim that it grows shows no effect.")


def test_the_claim_is_worded_as_in_the_file_of_claims() -> None:
    claims = Path(store.__file__).parent.joinpath("published/printed_claims.csv").read_text()
    assert f",{summary.GROWTH_CLAIM}," in claims


@pytest.mark.parametrize(("svd", "kept"), [(1.05, "2 of 2 methods"), (1.06, "1 of 2 methods")])
def test_what_a_quarter_of_the_attention_costs_is_told_by_method(tables: ReportTables, svd: float, kept: str) -> None:
    rows = [("m@svd-8", "svd", 0.125, 9.0), ("m@svd-4", "svd", 0.25, svd), ("m@svd-2", "svd", 0.5, 0.9)]
    rows += [("m@joint-4", "joint", 0.25, 1.0), ("m@none", "activation-aware", 0.25, None)]
    frame = pd.DataFrame(rows, columns=["model", "method", "size", "wql_ratio"])
    frame = frame.assign(whose="measured", family="f", rank_ratio=0.1, mase_ratio=1.0, overlap=1.0, lppl=1.0)
    printed = frame.assign(whose="published", wql_ratio=0.01)
    (told,) = summary.describe_compression([study(tables, compressed=pd.concat([frame, printed]))])
    assert told.startswith("With 25 % of the attention's parameters left, the WQL of m relative to the original is")
    assert f"1 by joint, {svd} by svd; {kept} stay within 5 %." in told
    assert summary.describe_compression([study(tables, compressed=printed)]) == []  # none of ours


def test_theorems_are_counted_as_printed_and_repaired(tables: ReportTables) -> None:
    rows = tables.theory_violations.frame
    three = rows[rows["experiment"].isin(["Theorem 2", "Theorem 3.2"])]
    (told,) = summary.describe_bounds(replace(tables, theory_violations=Answer("bounds", "select 1", three)))
    assert told == (
        "Of the paper's 2 bounds, 1 held as printed at every one of 100 random instances; 1 failed at some. "
        "Of 1 repaired bounds, 1 held at all."
    )

"""The first words say what the numbers say, and what they do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tsfmscope.report.page.summary import summarise
from tsfmscope.report.tables import Answer, ReportTables


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

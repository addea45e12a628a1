"""The section of one study: its plot, and the paper's claims and numbers next to the measured ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tsfmscope.report import rank_tests
from tsfmscope.report.page import verdicts
from tsfmscope.report.page.html_table import build_table
from tsfmscope.report.page.sections import (
    Figure,
    Provenance,
    Section,
    TableBlock,
    embed_figure,
    make_provenance,
)
from tsfmscope.report.plot import Plot, load_plot
from tsfmscope.report.tables import StudyTables, require

ERRORS = (
    "dataset", "condition", "model", "kind", "n_series", "n_windows", "wql", "wql_ratio", "mase", "season",
    "nmse", "nmse_validation",
)  # fmt: skip


def draw_figures(study: StudyTables, models: Sequence[str]) -> tuple[Figure, ...]:
    """Draw the study's figures, each named after the study and its position; empty if nothing can be drawn.

    models: the models of the whole page, which determine the colours.
    """
    figures = load_plot(study.plot).draw(study, models)
    return tuple(
        replace(figure, name=f"{study.name}-{position}", source=f"{study.name}-{figure.name}")
        for position, figure in enumerate(figures)
    )


def build_section(study: StudyTables, models: Sequence[str], notes: Sequence[str]) -> Section:
    """Build the page's section on one study.

    models: the models of the whole page, which determine the colours.
    notes: additional sentences on this study.
    """
    published, plot = require(study.published, verdicts.COLUMNS), load_plot(study.plot)
    lines = (verdicts.count_verdicts(published), *rank_tests.describe_contrasts(study), *notes)
    return Section(
        f"study-{study.name}",
        study.title,
        plot.lead,
        tuple(_list_provenance(study)),
        sum(len(answer.frame) for answer in study.answers.values()),
        tuple(map(embed_figure, draw_figures(study, models))),
        (*_list_errors(study), *plot.tables(study), *_list_tables(study, plot)),
        "This study has no results: none of its jobs has run, or all its series were skipped.",
        kicker=verdicts.cite(study.figure) if study.figure else "",
        claims=(*verdicts.describe_claims(published), *plot.claims(study)),
        notes=tuple(filter(None, lines)),
    )


def _list_errors(study: StudyTables) -> Iterator[TableBlock]:
    """Yield the table of forecast errors of a user's own study, without columns that are empty."""
    if study.errors is not None and len(study.errors.frame):
        frame = require(study.errors, ERRORS).dropna(axis=1, how="all")
        yield TableBlock(f"{study.name}-errors", study.errors.title, build_table(frame))


def _list_tables(study: StudyTables, plot: Plot) -> Iterator[TableBlock]:
    """Yield the tables of printed numbers and of tests by model."""
    published = study.published.frame
    # Printed numbers without a measurement are shown only in the section of all printed numbers.
    measured = published[(published["verdict"] != "not measured") & (published["quantity"] != plot.tabled_quantity)]
    numbers = verdicts.tabulate_numbers(measured).drop(columns=["figure", "condition", "n"], errors="ignore")
    if len(numbers):
        yield TableBlock(f"{study.name}-published", "Printed numbers and ours", build_table(numbers))
    if (tests := rank_tests.tabulate_by_model(study)) is not None:
        yield TableBlock(f"{study.name}-tests", "Growth with depth by model", build_table(tests))


def _list_provenance(study: StudyTables) -> Iterator[Provenance]:
    """Yield SQL and data of the answers that have rows; of all answers of the plot if none has."""
    answers = dict(study.answers)
    if study.rank_tests is not None:
        answers["rank_tests"] = study.rank_tests
    if study.errors is not None:
        answers["errors"] = study.errors
    shown = {name: answer for name, answer in answers.items() if len(answer.frame)} or answers
    if len(study.published.frame):
        shown["published"] = study.published
    for name, answer in shown.items():
        yield make_provenance(f"{study.name}-{name}", answer)

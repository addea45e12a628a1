"""The section of one study: its plot, the paper's claims and numbers next to ours, and tests on ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tsfmscope.report.page import verdicts
from tsfmscope.report.page.sections import Figure, Provenance, Section, TableBlock, build_table, make_provenance
from tsfmscope.report.plots import Plot, load_plot
from tsfmscope.report.style import format_power
from tsfmscope.report.tables import StudyTables, require

if TYPE_CHECKING:
    import pandas as pd

ERRORS = (
    "dataset", "condition", "model", "kind", "n_series", "n_windows", "wql", "wql_ratio", "mase", "season",
    "nmse", "nmse_validation",
)  # fmt: skip
# Columns of the view `rank_tests`.
TESTS = ("measure", "grouping", "block", "statistic", "n", "estimate", "low", "high", "p", "reason")
# Suffix of the measures at the tolerance that sentences report; the rows contain 0.1 and 0.001 too.
REPORTED_TOLERANCE = "@0.01"
# Quantities of the view `rank_tests`, in words.
QUANTITIES = {
    "embedding": "rank of the embedded tokens",
    "attention": "rank of the attention matrices",
    "input slope": "growth of the inputs' rank from the first layer to the last",
    "attention slope": "growth of the attention matrices' rank from the first layer to the last",
    "constant slope": "growth of the inputs' rank for a constant series",
}


def draw_figures(study: StudyTables, models: Sequence[str]) -> tuple[Figure, ...]:
    """Draw the study's figures, each named after the study and its position; empty if nothing can be drawn.

    models: the models of the whole page, which determine the colours.
    """
    figures = load_plot(study.plot).draw(study, models)
    name = study.name
    return tuple(replace(f, name=f"{name}-{at}", source=f"{name}-{f.name}") for at, f in enumerate(figures))


def build_section(study: StudyTables, models: Sequence[str], notes: Sequence[str]) -> Section:
    """Build the page's section on one study.

    models: the models of the whole page, which determine the colours.
    notes: additional sentences on this study.
    """
    published, plot = require(study.published, verdicts.COLUMNS), load_plot(study.plot)
    lines = (verdicts.count_verdicts(published), *describe_contrasts(study), *notes)
    return Section(
        f"study-{study.name}",
        study.title,
        plot.lead,
        tuple(_list_provenance(study)),
        sum(len(answer.frame) for answer in study.answers.values()),
        draw_figures(study, models),
        tuple(_list_tables(study, plot)),
        "This study has no results: none of its jobs has run, or all its series were skipped.",
        kicker=verdicts.cite(study.figure) if study.figure else "",
        claims=(*verdicts.describe_claims(published), *plot.claims(study)),
        notes=tuple(filter(None, lines)),
    )


def _list_tables(study: StudyTables, plot: Plot) -> Iterator[TableBlock]:
    """Yield errors of a user's own study, the tables of the plot, printed numbers, and tests by model."""
    if study.errors is not None and len(study.errors.frame):
        frame = require(study.errors, ERRORS).dropna(axis=1, how="all")
        yield TableBlock(f"{study.name}-errors", study.errors.title, build_table(frame))
    yield from plot.tables(study)
    published = study.published.frame
    # Printed numbers without a measurement are shown only in the section of all printed numbers.
    measured = published[(published["verdict"] != "not measured") & (published["quantity"] != plot.tabled_quantity)]
    numbers = verdicts.tabulate_numbers(measured).drop(columns=["figure", "condition", "n"], errors="ignore")
    if len(numbers):
        yield TableBlock(f"{study.name}-published", "Printed numbers and ours", build_table(numbers))
    if (tests := tabulate_by_model(study)) is not None:
        yield TableBlock(f"{study.name}-tests", "Growth with depth by model", build_table(tests))


def _list_provenance(study: StudyTables) -> Iterator[Provenance]:
    """Yield SQL and data of the answers that have rows; of all answers of the plot if none has."""
    more = {"rank_tests": study.rank_tests, "errors": study.errors}
    answers = {**study.answers, **{name: answer for name, answer in more.items() if answer is not None}}
    shown = {name: answer for name, answer in answers.items() if len(answer.frame)} or answers
    if len(study.published.frame):
        shown["published"] = study.published
    for name, answer in shown.items():
        yield make_provenance(f"{study.name}-{name}", answer)


def describe_contrasts(study: StudyTables) -> list[str]:
    """Return one sentence per test of time series against other data that no claim of the paper covers."""
    claimed = study.published.frame
    differences = claimed.loc[claimed["quantity"] == "difference", "measured"].dropna().tolist()
    return [
        _describe_contrast(row)
        for row in _reported(study, "modality").to_dict("records")
        if not any(math.isclose(row["estimate"], difference, rel_tol=1e-6) for difference in differences)
    ]


def tabulate_by_model(study: StudyTables) -> pd.DataFrame | None:
    """Return a table of the tests of single models.

    None if the study has no tests, or if no claim is folded (see `verdicts.group_claims`): the claims' sentences,
    one per model, then report every test.
    """
    if study.rank_tests is None or not verdicts.group_claims(study.published.frame):
        return None
    rows = _reported(study, "model")
    quantity = [_name_quantity(measure) for measure in rows["measure"]]
    table = rows.assign(model=rows["block"], quantity=quantity).rename(columns={"estimate": "change of the share"})
    columns = ["model", "quantity", "change of the share", "low", "high", "n", "p", "reason"]
    return table[columns].dropna(axis=1, how="all").sort_values(["quantity", "model"]).reset_index(drop=True)


def _reported(study: StudyTables, grouping: str) -> pd.DataFrame:
    """Return the tests of a grouping at the reported tolerance; no rows if the study has no tests."""
    import pandas as pd

    if study.rank_tests is None:
        return pd.DataFrame(columns=list(TESTS))
    tests = require(study.rank_tests, TESTS)
    return tests[(tests["grouping"] == grouping) & tests["measure"].str.endswith(REPORTED_TOLERANCE)]


def _describe_contrast(row: Mapping[Any, Any]) -> str:
    found = f"nothing measured{': ' + str(row['reason']) if verdicts.is_present(row['reason']) else ''}"
    if verdicts.is_present(row["estimate"]):
        found = f"{verdicts.format_number(row['estimate'])}{verdicts.format_evidence(row)}"
    share = f"{_name_quantity(row['measure'])} as a share of the full rank"
    return f"Time series minus other data, {share}, ε = {format_power(-2)}: {found}."


def _name_quantity(measure: str) -> str:
    name = measure.partition("@")[0]
    return QUANTITIES.get(name, name)

"""The section that compares every number printed in the papers with ours."""

from __future__ import annotations

from collections import Counter

from tsfmscope.report.page import verdicts
from tsfmscope.report.page.html_table import build_table
from tsfmscope.report.page.sections import Section, TableBlock, make_provenance
from tsfmscope.report.tables import Answer, ReportTables, require

NAME = "printed"
LEAD = (
    "Every number printed in the papers that a study here reproduces. It agrees if it lies inside our 95 % interval, "
    "and differs if it lies outside. Numbers can be compared only for a released checkpoint of the paper's size and "
    "the paper's own data; the column why names what differs. Filter by a figure, a model or a verdict."
)
INTERVALS = (
    "Intervals: for NMSE 1.96 standard errors over series; for ζ′ 1.96 standard deviations over token samples and "
    "cluster starts; for ratios and overlaps Student's t over data sets, or over seeds if there are several. Without "
    "an interval, its column gives the reason."
)
COLUMNS = ["figure", "number", "model", "published", "ours", "interval", "verdict", "why"]


def is_shown(tables: ReportTables) -> bool:
    """Return whether to show the section of printed numbers.

    True if a study reproduces a paper's figure, or if any printed number has a measured counterpart.
    """
    frame = require(tables.printed, verdicts.COLUMNS)
    return any(study.figure for study in tables.studies) or bool((frame["verdict"] != "not measured").any())


def build_section(answer: Answer) -> Section:
    """Build the section: the table in the order of the figures, a summary, and the runs still needed."""
    frame = require(answer, verdicts.COLUMNS)
    table = verdicts.tabulate_numbers(frame)
    shown = table[[name for name in COLUMNS if name in table]]
    blocks = (TableBlock(NAME, answer.title, build_table(shown)),) if len(shown) else ()
    notes = tuple(
        line
        for line in (verdicts.count_verdicts(frame), INTERVALS, *describe_runs(frame["run"].dropna().tolist()))
        if line
    )
    return Section(
        NAME,
        answer.title,
        LEAD,
        (make_provenance(NAME, answer),),
        len(frame),
        tables=blocks,
        notes=notes if len(frame) else (),
    )


def describe_runs(runs: list[str]) -> list[str]:
    """Return one sentence on the runs that would make numbers comparable, most frequent first.

    runs: the run that each number needs, one entry per number. Empty without runs.
    """
    texts = [f"“{run}” ({n})" for run, n in sorted(Counter(runs).items(), key=lambda pair: (-pair[1], pair[0]))]
    return [f"Runs that would make numbers comparable, with their count: {', '.join(texts)}."] if texts else []

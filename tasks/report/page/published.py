"""The section that compares every number printed in the papers with ours."""

from __future__ import annotations

from collections import Counter

from tsfmscope.tasks.report.page import verdicts
from tsfmscope.tasks.report.page.html_table import html_table
from tsfmscope.tasks.report.page.sections import Section, TableBlock, behind
from tsfmscope.tasks.report.tables import Answer, ReportTables, require

NAME = "printed"
LEAD = (
    "Every number that the papers print and a study of ours is about. It agrees where it lies inside our 95 % "
    "interval, and differs where it lies outside. The two can be compared only on a released checkpoint of the paper's "
    "size and on the paper's own data; why says what is otherwise. Filter by a figure, a model or a verdict."
)
INTERVALS = (
    "Intervals: of NMSE 1.96 standard errors over series, of ζ′ 1.96 standard deviations of its permutation null, of "
    "ratios and overlaps Student's t over data sets, or over seeds where there are several. Where there is none, its "
    "column says why."
)
COLUMNS = ["figure", "number", "model", "published", "ours", "interval", "verdict", "why"]


def is_asked(tables: ReportTables) -> bool:
    """Return whether to show the section of printed numbers.

    True if a study reproduces a paper's figure, or if any printed number has a measured counterpart.
    """
    frame = require(tables.printed, verdicts.COLUMNS)
    return any(study.figure for study in tables.studies) or bool((frame["verdict"] != "not measured").any())


def section(answer: Answer) -> Section:
    """Build the section: the table in the order of the figures, a summary, and the runs still needed."""
    frame = require(answer, verdicts.COLUMNS)
    table = verdicts.numbers(frame)
    shown = table[[name for name in COLUMNS if name in table]]
    listings = (TableBlock(NAME, answer.title, html_table(shown)),) if len(shown) else ()
    notes = tuple(
        line for line in (verdicts.tally(frame), INTERVALS, *remedies(frame["run"].dropna().tolist())) if line
    )
    return Section(
        NAME,
        answer.title,
        LEAD,
        (behind(NAME, answer),),
        len(frame),
        listings=listings,
        notes=notes if len(frame) else (),
    )


def remedies(runs: list[str]) -> list[str]:
    """Return one sentence on the runs that would make numbers comparable, most frequent first.

    runs: the run that each number needs, one entry per number. Empty without runs.
    """
    told = [f"“{what}” ({n})" for what, n in sorted(Counter(runs).items(), key=lambda pair: (-pair[1], pair[0]))]
    return [f"What to run for a comparison, and of how many numbers: {', '.join(told)}."] if told else []

"""Answers to SQL queries, each with its query: inputs of the page, and headline numbers for `dvc metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# File in store/sql/report/metrics -> number of its first columns that are keys of the metric; the other
# columns are its numbers.
KEY_COLUMNS = {
    "compression": 2,
    "correlation": 2,
    "isotropy": 1,
    "published": 0,
    "rank_slope": 2,
    "rows": 0,
    "skill": 1,
    "theory": 1,
}


@dataclass(frozen=True, eq=False)
class Answer:
    """Answer of one query: title, SQL and rows."""

    title: str
    sql: str
    frame: pd.DataFrame


@dataclass(frozen=True, eq=False)
class StudyTables:
    """One study: its name, title and figure as in params.yaml, and its results.

    plot: kind of the study's plot, as in params.yaml.
    conditions: names, in the study's order.
    published: printed numbers and claims, each with its measurement.
    answers: query of the plot -> its answer, in the order of `Plot.queries`.
    rank_tests: tests on ranks, for plots with `Plot.has_rank_tests`.
    errors: forecast error by data set, condition and model, for a study of the user's own.
    """

    name: str
    title: str
    figure: str | None
    plot: str
    conditions: tuple[str, ...]
    published: Answer
    answers: Mapping[str, Answer]
    rank_tests: Answer | None = None
    errors: Answer | None = None

    @property
    def is_own(self) -> bool:
        """Whether the study is the user's own: it reproduces no figure of a paper."""
        return self.figure is None

    def rows(self, query: str, columns: tuple[str, ...]) -> pd.DataFrame:
        """Return the answer to a query of the plot. Raises ValueError if it lacks one of the columns."""
        return require(self.answers[query], columns)


@dataclass(frozen=True, eq=False)
class ReportTables:
    """All answers that the page shows; fields are named after the files in store/sql/report/page.

    study: the study of the main figures.
    profile: profile of the params file, as in `make profile NAME=...`.
    studies: the study of the main figures first, the others in the order of params.yaml.
    notes: additional sentences for the summary.
    """

    study: str
    profile: str
    printed: Answer
    scope: Answer
    correlation: Answer
    population_correlation: Answer
    hypothesis_tests: Answer
    advice: Answer
    nmse_against_isotropy: Answer
    alignment: Answer
    partition: Answer
    lemma1: Answer
    theory_compression: Answer
    theory_sketch: Answer
    theory_flow: Answer
    theory_slopes: Answer
    theory_violations: Answer
    skill: Answer
    mean_skill: Answer
    dataset_skill: Answer
    training: Answer
    models: Answer
    checkpoints: Answer
    skipped: Answer
    failures: Answer
    runs: Answer
    studies: tuple[StudyTables, ...] = ()
    notes: tuple[str, ...] = ()


def order_models(tables: ReportTables) -> list[str]:
    """Return every model in the order that assigns colours and symbols.

    Colours and symbols are few and repeat. The models of the main scatter plot therefore come first, then the
    others. In both groups, models derived from another (with @ in the name) come last.
    """
    main = set(tables.nmse_against_isotropy.frame["model"])
    return sorted(tables.checkpoints.frame["model"], key=lambda name: (name not in main, "@" in name, name))


def require(answer: Answer, columns: tuple[str, ...]) -> pd.DataFrame:
    """Return the answer's rows. Raises ValueError if it lacks one of the columns."""
    missing = [column for column in columns if column not in answer.frame.columns]
    if missing:
        got = ", ".join(map(str, answer.frame.columns))
        raise ValueError(
            f"answer {answer.title!r}: expected columns {', '.join(missing)}, found only {got}; "
            "select them in the query's file in store/sql/report"
        )
    return answer.frame


def nest_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], keys: int) -> dict[str, Any]:
    """Return the rows as nested mappings, keyed by their first `keys` columns.

    Null numbers are left out, and so are mappings that are then empty: `dvc metrics diff` reports numbers
    that appear or disappear, but takes null for a changed value.
    """
    tree: dict[str, Any] = {}
    for row in rows:
        numbers = {name: value for name, value in zip(columns[keys:], row[keys:], strict=True) if value is not None}
        branch = tree
        for name in row[:keys]:
            branch = branch.setdefault(str(name), {})
        branch |= numbers
    return _without_empty(tree)


def _without_empty(tree: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: _without_empty(value) if isinstance(value, Mapping) else value for name, value in tree.items()}
    return {name: value for name, value in kept.items() if value != {}}

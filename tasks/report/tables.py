"""What the page is made from: answers to SQL queries, each with the query that made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Answer:
    """One query's answer: what it is, the SQL that made it, its rows."""

    title: str
    sql: str
    frame: pd.DataFrame


@dataclass(frozen=True, eq=False)
class StudyTables:
    """One study: its name, question and picture as params.yaml has them, and what it found.

    conditions: in the study's order. points, layers and published: columns of `queries.STUDY_QUERIES`; states: those of
    `islands.project`, empty where the study's picture is another; ranks: the answers of `rank_queries`, by name.
    """

    name: str
    title: str
    figure: str | None
    picture: str
    conditions: tuple[str, ...]
    points: Answer
    layers: Answer
    states: Answer
    published: Answer
    ranks: Mapping[str, Answer] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ReportTables:
    """Every answer that the page shows; fields are named as in `queries.QUERIES`, columns are those of its SQL.

    studies: in the order of params.yaml, the study of the main figures first.
    profile: name of the params file's profile, as in `make profile NAME=...`.
    """

    study: str
    profile: str
    printed: Answer
    scope: Answer
    correlation: Answer
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
    training: Answer
    checkpoints: Answer
    skipped: Answer
    failures: Answer
    timeline: Answer
    idle_share: Answer
    runs: Answer
    studies: tuple[StudyTables, ...] = ()
    notes: tuple[str, ...] = field(default=())


def require(answer: Answer, columns: tuple[str, ...]) -> pd.DataFrame:
    """The answer's frame, checked. Raises ValueError naming the columns that it lacks."""
    missing = [column for column in columns if column not in answer.frame.columns]
    if missing:
        got = ", ".join(map(str, answer.frame.columns))
        raise ValueError(f"{answer.title}: got columns {got}; expected {', '.join(missing)} too: mend its SQL")
    return answer.frame

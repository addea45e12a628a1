"""Questions of the page: each has an answer, sections that are open, and sections that a reader opens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tsfmscope.report.page.sections import Section
from tsfmscope.report.page.summary import Part
from tsfmscope.report.plot import load_plot
from tsfmscope.report.tables import StudyTables

OWN = Part("own", "Your own studies", ["Studies of params.yaml that reproduce no figure of a paper."])


@dataclass(frozen=True)
class Question:
    """One question of the page. answer: sentences under the title; name: its id."""

    name: str
    title: str
    answer: tuple[str, ...]
    sections: tuple[Section, ...]


def list_questions(
    parts: Iterable[Part],
    studies: Sequence[tuple[StudyTables, Section]],
    others: Mapping[str, Sequence[Section]],
) -> Iterator[Question]:
    """Yield the questions that have an answer, a study or rows; a user's own studies come first.

    The sections of own studies are open. Of another question only the first section with rows is open.

    parts: questions and answers from the summary.
    studies: every study with its section, in the order of the page.
    others: name of a part -> its sections that belong to no study.
    """
    own = tuple(section for study, section in studies if study.is_own)
    if own:
        yield Question(OWN.name, OWN.question, tuple(OWN.sentences), own)
    for part in parts:
        chosen = [section for study, section in studies if not study.is_own and _topic(study) == part.name]
        sections = [*chosen, *others.get(part.name, ())]
        if part.question and (part.sentences or chosen or any(section.rows for section in sections)):
            yield Question(part.name, part.question, tuple(part.sentences), tuple(_fold(sections)))


def _topic(study: StudyTables) -> str:
    return load_plot(study.plot).topic


def _fold(sections: Sequence[Section]) -> Iterator[Section]:
    """Yield the sections, folded except the first that has rows."""
    opened = False
    for section in sections:
        is_open = not opened and section.rows > 0
        opened = opened or is_open
        yield replace(section, folded=not is_open)

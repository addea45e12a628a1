"""Definition of a plot: what the report shows about a study."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tsfmscope.report import plots
from tsfmscope.report.page.sections import ClaimSentence, Figure, TableBlock
from tsfmscope.report.tables import StudyTables


def _no_tables(study: StudyTables) -> Sequence[TableBlock]:
    return ()


def _no_claims(study: StudyTables) -> Sequence[ClaimSentence]:
    return ()


@dataclass(frozen=True)
class Plot:
    """How the report shows a study; each module of `tsfmscope/report/plots` defines one as `PLOT`.

    lead: text under the title of the study's section.
    queries: name of a file in store/sql/report/study -> the columns that the plot reads.
    draw: yields the figures, given the study and the models of the whole page, which determine the colours.
    The name of a figure is the query that it is drawn from.
    topic: part of the summary that covers the study. Studies of ranks and of compression also show tests on
    ranks.
    tables: returns the plot's own tables.
    claims: returns sentences on claims that the plot checks itself.
    tabled_quantity: quantity whose printed numbers the plot's own tables show.
    """

    lead: str
    queries: Mapping[str, tuple[str, ...]]
    draw: Callable[[StudyTables, Sequence[str]], Iterator[Figure]]
    topic: Literal["isotropy", "rank", "compression"] = "isotropy"
    tables: Callable[[StudyTables], Sequence[TableBlock]] = _no_tables
    claims: Callable[[StudyTables], Sequence[ClaimSentence]] = _no_claims
    tabled_quantity: str | None = None

    @property
    def has_rank_tests(self) -> bool:
        """Whether sections with this plot show tests on ranks."""
        return self.topic != "isotropy"


def load_plot(name: str) -> Plot:
    """Import a plot. Raises ValueError for an unknown name."""
    module = importlib.import_module(f"{plots.__name__}.{plots.check_plot_name(name)}")
    plot: object = getattr(module, "PLOT", None)
    if not isinstance(plot, Plot):
        raise TypeError(f"{module.__file__}: expected PLOT of class Plot, found {plot!r}")
    return plot

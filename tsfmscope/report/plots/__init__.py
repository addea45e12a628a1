"""Plots of studies: each module is one value of `plot` in params.yaml, and its docstring describes the plot.

This file imports no plot, so that reading params.yaml stays fast; `load_plot` does.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tsfmscope.report.page.sections import ClaimSentence, Figure, TableBlock
    from tsfmscope.report.tables import StudyTables


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
    tables: Callable[[StudyTables], Sequence[TableBlock]] = lambda study: ()
    claims: Callable[[StudyTables], Sequence[ClaimSentence]] = lambda study: ()
    tabled_quantity: str | None = None

    @property
    def has_rank_tests(self) -> bool:
        """Whether sections with this plot show tests on ranks."""
        return self.topic != "isotropy"


def load_plot(name: str) -> Plot:
    """Import a plot. Raises ValueError for an unknown name."""
    module = importlib.import_module(f"{__name__}.{check_plot_name(name)}")
    plot: object = getattr(module, "PLOT", None)
    if not isinstance(plot, Plot):
        raise TypeError(f"{module.__file__}: expected PLOT of class Plot, found {plot!r}")
    return plot


def plot_names() -> list[str]:
    """Return the names of all plots, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def check_plot_name(name: str) -> str:
    """Return the name. Raises ValueError for an unknown plot."""
    known = plot_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"unknown plot {name!r}, expected one of {', '.join(known)}{meant}")
    return name


def describe_plot(name: str) -> str:
    """Return the first line of the plot's docstring, without importing the plot."""
    spec = importlib.util.find_spec(f"{__name__}.{check_plot_name(name)}")
    assert spec is not None and spec.origin is not None
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text("utf-8")))
    assert text is not None, f"{spec.origin}: expected a docstring that describes the plot, found none"
    return text.partition("\n")[0].removesuffix(".")

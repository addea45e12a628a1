"""Tests of a population on the exploring half of the data sets, and hypotheses that were committed before."""

from __future__ import annotations

import difflib
import itertools
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from stages.config.bounded_yaml import load_yaml
from stages.config.params import ParamsError
from store import provenance
from tsfmscope.files import read_text
from tsfmscope.statistics.options import SeededOptions
from tsfmscope.statistics.population import across_runs, within_runs
from tsfmscope.statistics.study import tabulate
from tsfmscope.strict import Strict

if TYPE_CHECKING:
    import duckdb

Half = Literal["explored", "confirmed"]
# Half of the data sets -> the view that shows its tests; p is adjusted over the rows of one view.
ANSWERS: dict[Half, str] = {"explored": "population_correlation", "confirmed": "hypothesis_tests"}
Grouping = Literal["across_runs", "inside_families", "across_seeds", "within_runs", "context", "noise", "family"]
# Groupings of pairs of conditions.
PAIRS = ("context", "noise")
# Groups of runs that permutations do not leave, as a function of (family, size).
GROUPS: dict[str, Callable[[str, str], str]] = {
    "across_runs": lambda family, size: "",
    "inside_families": lambda family, size: family,
    "across_seeds": lambda family, size: f"{family} {size}",
}
# Columns that identify the test of a hypothesis in `inference`.
KEY = ("study", "answer", "measure", "grouping", "statistic")
# Error -> the name of its statistic in `inference`.
STATISTICS = {"nmse": "spearman", "wql": "spearman_wql"}
# Bytes of a file of hypotheses.
LARGEST_FILE = 2**20


class Hypothesis(Strict):
    """A claim about the population whose test was decided before its data existed.

    It names one row of `inference`. Those of the answer hypothesis_tests are about the confirming data sets: the
    correlation of isotropy and error, or shares of pairs of conditions.
    """

    name: str = Field(description="short name, unique in the file")
    claim: str = Field(description="the claim in words")
    study: str = Field(description="study of params.yaml")
    answer: Literal["hypothesis_tests", "rank_tests"] = Field(
        "hypothesis_tests", description="view of the test: on the confirming data sets, or of ranks"
    )
    measure: str = Field(description="measure, as in `inference`")
    grouping: Grouping
    error: Literal["nmse", "wql"] | None = Field("nmse", description="error of a correlation")
    statistic: str = Field("", description="statistic, as in `inference`; empty: the correlation with `error`")
    direction: Literal["negative", "positive"] = Field(description="claimed side of what is expected without an effect")
    margin: float | None = Field(
        None, gt=0, description="largest distance from there that counts as no effect; null: no such verdict"
    )

    @property
    def row(self) -> tuple[str, ...]:
        """Values of KEY."""
        return self.study, self.answer, self.measure, self.grouping, self.statistic or STATISTICS[self.error or "nmse"]

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of the table `hypotheses`. A share of pairs is 1/2 without an effect, all else 0."""
        columns = self.model_dump() | {"statistic": self.row[-1], "centre": 0.5 if self.grouping in PAIRS else 0.0}
        return columns | ({"error": None} if self.statistic else {})


class _Unit(NamedTuple):
    """Row of the view population_units."""

    dataset: str
    condition: str
    half: Half
    run: str
    family: str
    size: str
    step: int
    is_final: bool
    validation_loss: float
    isotropy: float | None
    log_nmse: float | None
    log_wql: float | None


def read_hypotheses(path: Path) -> list[Hypothesis]:
    """Read a file of hypotheses. ParamsError, with one line, if it cannot be read or is not valid."""
    try:
        hypotheses = TypeAdapter(list[Hypothesis]).validate_python(load_yaml(read_text(path, LARGEST_FILE)))
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"])) or "whole file"
        raise ParamsError(f"{path}: {location}: {first['msg']}; docs/population.md shows an example") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ParamsError(
            f"{path}: cannot be read ({' '.join(str(error).split())}); docs/population.md shows an example"
        ) from None
    names = [hypothesis.name for hypothesis in hypotheses]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ParamsError(f"{path}: name {twice[0]!r} occurs twice; rename one")
    return hypotheses


def frozen_commit(path: Path) -> dict[str, Any]:
    """Return the commit of a file of hypotheses and its time, as columns of the table `hypotheses`.

    ParamsError if git does not know the file, if it differs from its commit, or if several commits changed it:
    hypotheses that can still change confirm nothing.
    """
    commits = "" if _git("status", "--porcelain", "--", str(path)) else _git("log", "--format=%H %cI", "--", str(path))
    if not commits:
        raise ParamsError(f"{path}: not committed; commit the hypotheses before the confirming half is tested")
    if (count := len(commits.splitlines())) > 1:
        raise ParamsError(f"{path}: changed by {count} commits, expected 1; write other hypotheses to another file")
    commit, time = commits.split()
    return {"commit": commit, "committed": datetime.fromisoformat(time)}


def population_rows(
    connection: duckdb.DuckDBPyConnection, options: SeededOptions, claimed_rows: Collection[tuple[str, ...]]
) -> Iterator[dict[str, Any]]:
    """Yield rows of `inference` of the answers in ANSWERS, from the view population_units.

    The exploring half is tested for every measure, grouping and error; the confirming half for the hypotheses in
    `claimed_rows` alone, which are named by `Hypothesis.row`.
    """
    columns = ", ".join(_Unit._fields)
    statement = f"select study, measure, {columns} from population_units order by all"
    rows = connection.sql(statement).fetchall()
    for (study, measure), group in itertools.groupby(rows, key=lambda row: row[:2]):
        units = [_Unit(*row[2:]) for row in group]
        for block, answer in ANSWERS.items():
            members = [unit for unit in units if unit.half == block]
            for error, grouping in itertools.product(STATISTICS, (*GROUPS, "within_runs")):
                row = {"study": study, "answer": answer, "measure": measure, "grouping": grouping, "block": block}
                row |= {"statistic": STATISTICS[error]}
                if block == "explored" or key_of(row) in claimed_rows:
                    yield row | _test(members, grouping, error, options, study, measure, block)


def key_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values of KEY of a row of `inference`."""
    return tuple(row[name] for name in KEY)


def hypothesis_columns(hypotheses: Sequence[Hypothesis], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the table `hypotheses`, with p adjusted for all of them (Holm 1979, for tests that depend).

    rows: those of `inference`. ParamsError for a hypothesis without a row there, or with several.
    """
    from statsmodels.stats.multitest import multipletests

    tests: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        tests.setdefault(key_of(row), []).append(row)
    for hypothesis in hypotheses:
        if (count := len(tests.get(hypothesis.row, []))) != 1:
            known = sorted({f"{key[0]} {key[2]} {key[3]} {key[4]}" for key in tests if key[1] == hypothesis.answer})
            name = " ".join(hypothesis.row[:1] + hypothesis.row[2:])
            near = ", ".join(difflib.get_close_matches(name, known, 5, 0)) or "none"
            raise ParamsError(
                f"hypothesis {hypothesis.name!r}: expected one test with study, measure, grouping, statistic {name}; "
                f"found {count}; known: {near}"
            )
    found = [tests[hypothesis.row][0].get("p") for hypothesis in hypotheses]
    known = [p for p in found if p is not None]
    adjusted = iter(multipletests(known, method="holm")[1] if known else ())
    return [
        hypothesis.columns | {"p_holm": None if p is None else float(next(adjusted))}
        for hypothesis, p in zip(hypotheses, found, strict=True)
    ]


def _test(units: Sequence[_Unit], grouping: str, error: str, options: SeededOptions, *names: str) -> dict[str, Any]:
    """Return the columns of one test. names: what distinguishes it from others, for its random numbers."""
    key = (*names, grouping, error)
    rows = [
        (f"{unit.dataset} / {unit.condition}", unit.run, unit.step, unit.isotropy, getattr(unit, f"log_{error}"))
        for unit in units
    ]
    families = {unit.run: unit.family for unit in units}
    if grouping == "within_runs":
        with_losses = [(*row, unit.validation_loss) for row, unit in zip(rows, units, strict=True)]
        (_, runs, _), (isotropy, log_error, losses) = tabulate(with_losses, 3)
        return within_runs(isotropy, log_error, losses, [families[run] for run in runs], options)
    last = [(*row[:2], "", *row[3:]) for row, unit in zip(rows, units, strict=True) if unit.is_final]
    (_, runs, _), (isotropy, log_error) = tabulate(last, 2)
    groups = {unit.run: GROUPS[grouping](unit.family, unit.size) for unit in units}
    return across_runs(
        isotropy.reshape(len(isotropy), -1),
        log_error.reshape(len(log_error), -1),
        [families[run] for run in runs],
        [groups[run] for run in runs],
        options,
        *key,
    )


def _git(*arguments: str) -> str:
    """Return the output of git. ParamsError, with what git reports, if it fails."""
    try:
        return provenance.git(Path.cwd(), *arguments)
    except (OSError, subprocess.SubprocessError) as error:
        reason = " ".join((getattr(error, "stderr", None) or str(error)).split())
        raise ParamsError(f"git {arguments[0]}: failed ({reason}); hypotheses must be committed to git") from None

"""Tests of a population: rows of `inference` on the exploring half of the data sets, and hypotheses on the other."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import yaml
from pydantic import Field, TypeAdapter, ValidationError

from tsfmscope.stages.config.bounded_yaml import load_yaml
from tsfmscope.stages.config.params import ParamsError
from tsfmscope.stages.config.strict import Strict
from tsfmscope.tasks.regular_files import read_text
from tsfmscope.tasks.statistics.population import Half, across_runs, half, within_runs
from tsfmscope.tasks.statistics.study import Options

if TYPE_CHECKING:
    import duckdb

# Half of the data sets -> the view that shows its tests; p is adjusted over the rows of one view.
ANSWERS: dict[Half, str] = {"explored": "population_correlation", "confirmed": "hypothesis_tests"}
Grouping = Literal["across_runs", "inside_families", "across_seeds", "within_runs"]
# Groups of runs that permutations do not leave, as a function of (family, size).
GROUPS: dict[str, Callable[[str, str], str]] = {
    "across_runs": lambda family, size: "",
    "inside_families": lambda family, size: family,
    "across_seeds": lambda family, size: f"{family} {size}",
}
# Error -> the name of its statistic in `inference`.
STATISTICS = {"nmse": "spearman", "wql": "spearman_wql"}
# Bytes of a file of hypotheses.
LARGEST_FILE = 2**20


class Hypothesis(Strict):
    """A claim about the population whose test on the confirming half of the data sets was decided beforehand."""

    name: str = Field(description="short name, unique in the file")
    claim: str = Field(description="the claim in words")
    study: str = Field(description="study of params.yaml")
    measure: str = Field(description="isotropy measure")
    grouping: Grouping
    error: Literal["nmse", "wql"] = "nmse"
    direction: Literal["negative", "positive"] = Field(description="claimed sign of the correlation with the error")


class _Unit(NamedTuple):
    dataset: str
    condition: str
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
        raise ParamsError(f"{path}: cannot be read ({' '.join(str(error).split())}); see docs/science.md") from None
    names = [hypothesis.name for hypothesis in hypotheses]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ParamsError(f"{path}: name {twice[0]!r} occurs twice; rename one")
    return hypotheses


def frozen_commit(path: Path) -> str:
    """Return the commit of a file of hypotheses.

    ParamsError if git does not know the file, if it differs from its commit, or if several commits changed it:
    hypotheses that can still change confirm nothing.
    """
    commits = "" if _git("status", "--porcelain", "--", str(path)) else _git("log", "--format=%H", "--", str(path))
    if not commits:
        raise ParamsError(f"{path}: not committed; commit the hypotheses before the confirming half is scored")
    if (count := len(commits.splitlines())) > 1:
        raise ParamsError(f"{path}: changed by {count} commits, expected 1; write other hypotheses to another file")
    return commits


def population_rows(
    connection: duckdb.DuckDBPyConnection, options: Options, hypotheses: Sequence[Hypothesis]
) -> Iterator[dict[str, Any]]:
    """Yield rows of `inference` of the answers in ANSWERS, from the view population_units.

    ParamsError for a hypothesis about a study or a measure that the population does not have.

    The exploring half is scored for every measure, grouping and error; the confirming half for `hypotheses` alone.
    """
    columns = ", ".join(_Unit._fields)
    statement = f"select study, measure, {columns} from population_units order by all"
    asked = {(one.study, one.measure, one.grouping, one.error) for one in hypotheses}
    rows = connection.sql(statement).fetchall()
    known = sorted({row[:2] for row in rows})
    for hypothesis in hypotheses:
        if (hypothesis.study, hypothesis.measure) not in known:
            pairs = ", ".join(f"{study} {measure}" for study, measure in known) or "none"
            raise ParamsError(
                f"hypothesis {hypothesis.name!r}: the population has no study {hypothesis.study!r} with measure "
                f"{hypothesis.measure!r}; known: {pairs}"
            )
    for (study, measure), group in itertools.groupby(rows, key=lambda row: row[:2]):
        units = [_Unit(*row[2:]) for row in group]
        for block, answer in ANSWERS.items():
            members = [unit for unit in units if half(unit.dataset) == block]
            for error, grouping in itertools.product(STATISTICS, (*GROUPS, "within_runs")):
                if block == "confirmed" and (study, measure, grouping, error) not in asked:
                    continue
                columns_of_test = _test(members, grouping, error, options, study, measure, block)
                names = {"study": study, "answer": answer, "measure": measure, "grouping": grouping, "block": block}
                yield {**names, "statistic": STATISTICS[error], **columns_of_test}


def _test(units: Sequence[_Unit], grouping: str, error: str, options: Options, *names: str) -> dict[str, Any]:
    key = (*names, grouping, error)
    if grouping == "within_runs":
        runs = sorted({unit.run for unit in units})
        steps = {run: sorted({unit.step for unit in units if unit.run == run}) for run in runs}
        n_steps = max((len(numbers) for numbers in steps.values()), default=0)
        x, y = _tables(units, error, runs, lambda unit: steps[unit.run].index(unit.step), n_steps)
        validation = np.full((len(runs), n_steps), np.nan)
        for unit in units:
            validation[runs.index(unit.run), steps[unit.run].index(unit.step)] = unit.validation_loss
        return within_runs(x, y, validation, options, *key)
    final = [unit for unit in units if unit.is_final]
    runs = sorted({unit.run for unit in final})
    x, y = _tables(final, error, runs, lambda unit: 0, 1)
    group_by_run = {unit.run: GROUPS[grouping](unit.family, unit.size) for unit in final}
    return across_runs(x[..., 0], y[..., 0], [group_by_run[run] for run in runs], options, *key)


def _tables(
    units: Sequence[_Unit], error: str, runs: Sequence[str], position: Callable[[_Unit], int], n_positions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return isotropy and error as [data set and condition, run, position], NaN where missing."""
    cells = sorted({(unit.dataset, unit.condition) for unit in units})
    rows = {cell: n for n, cell in enumerate(cells)}
    columns = {run: n for n, run in enumerate(runs)}
    x, y = (np.full((len(cells), len(runs), n_positions), np.nan) for _ in range(2))
    for unit in units:
        at = rows[unit.dataset, unit.condition], columns[unit.run], position(unit)
        for table, value in ((x, unit.isotropy), (y, getattr(unit, f"log_{error}"))):
            table[at] = np.nan if value is None else value
    return x, y


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = " ".join((getattr(error, "stderr", None) or str(error)).split())
        raise ParamsError(f"git {arguments[0]}: failed ({reason}); hypotheses must be committed to git") from None
    return done.stdout.strip()

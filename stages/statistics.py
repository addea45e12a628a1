"""Stage statistics: intervals, tests and corrections of studies' correlations and of isotropy advice."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import store
from stages import DATA
from stages.config.blocks import Study
from stages.config.params import Params
from stages.planning.inference import infer
from stages.planning.population_tests import Hypothesis, frozen_commit, hypothesis_columns, read_hypotheses
from stages.planning.sources import tables
from store import catalogue
from store.files import write_rows
from store.saved_results import STATISTICS, find_tables
from tsfmscope.statistics.options import SeededOptions

OUT = Path(DATA, "statistics", "inference.parquet")
STUDIES = OUT.with_name("studies.parquet")
HYPOTHESES = OUT.with_name("hypotheses.parquet")
# Tables from which the statistical units are made.
READ = (
    "datasets",
    "checkpoints",
    "population",
    "compression",
    "fidelity",
    "geometry",
    "partition",
    "spectra",
    "forecasts",
    "validation",
    "study_jobs",
)


def main(params: Params) -> None:
    """Write data/statistics.

    Units and pairs are read from the SQL views, so that statistics and views are about the same rows.
    """
    hypotheses, commit = read_frozen(None if params.population is None else params.population.hypotheses)
    options = SeededOptions(**dict(params.statistics), seed=params.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "units.duckdb")
        write_rows(STUDIES, "studies", [study_row(name, study) for name, study in params.studies.items()])
        read = tables(READ) | {"studies": [STUDIES]}
        catalogue.build(path, read, seed=params.seed)
        # One thread, so that the outputs have the same bytes each time.
        with store.open(path, threads=1) as connection:
            rows = infer(connection, options, hypotheses)
    claims = [row | commit for row in hypothesis_columns(hypotheses, rows)]
    write_rows(HYPOTHESES, "hypotheses", claims)
    write_rows(OUT, "inference", rows)
    tests = sum(row.get("p") is not None for row in rows)
    print(f"statistics: {OUT}: {len(rows)} statistics of {len({row['study'] for row in rows})} studies, {tests} tests")


def infer_saved(folder: Path, hypotheses_file: Path | None, options: SeededOptions) -> list[dict[str, Any]]:
    """Compute the statistics of saved results anew, and replace the tables inference and hypotheses in their folder.

    Return the rows of `inference`. Raises ParamsError for hypotheses that are not frozen or about nothing here,
    QueryError if there are no saved results.
    """
    hypotheses, commit = read_frozen(hypotheses_file)
    sources = {name: paths for name, paths in find_tables(folder).items() if name not in STATISTICS}
    with tempfile.TemporaryDirectory() as scratch:
        catalogue.build(path := Path(scratch, "units.duckdb"), sources, is_checked=False)
        with store.open(path, threads=1) as connection:
            rows = infer(connection, options, hypotheses)
    claims = [row | commit for row in hypothesis_columns(hypotheses, rows)]
    write_rows(folder / "inference.parquet", "inference", rows)
    write_rows(folder / "hypotheses.parquet", "hypotheses", claims)
    return rows


def read_frozen(path: Path | str | None) -> tuple[list[Hypothesis], dict[str, Any]]:
    """Return the hypotheses of a file that git has once, and its commit; none without a file."""
    return (read_hypotheses(Path(path)), frozen_commit(Path(path))) if path is not None else ([], {})


def study_row(name: str, study: Study) -> dict[str, Any]:
    """Return a study's row of the table `studies`."""
    x_axis = json.dumps(study.x_axis, sort_keys=True) if study.x_axis else None
    return {"study": name, "title": study.title, "figure": study.figure, "plot": study.plot, "x_axis": x_axis}

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
from stages.planning.population_tests import STATISTICS, Hypothesis, frozen_commit, read_hypotheses
from stages.planning.sources import tables
from store import catalogue
from store.files import write_rows
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
    hypotheses: list[Hypothesis] = []
    commit = None
    if params.population is not None and params.population.hypotheses is not None:
        path = Path(params.population.hypotheses)
        hypotheses, commit = read_hypotheses(path), frozen_commit(path)
    added = [{"statistic": STATISTICS[claim.error], "commit": commit} for claim in hypotheses]
    claims = [claim.model_dump() | columns for claim, columns in zip(hypotheses, added, strict=True)]
    write_rows(HYPOTHESES, "hypotheses", claims)
    options = SeededOptions(**dict(params.statistics), seed=params.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "units.duckdb")
        write_rows(STUDIES, "studies", [study_row(name, study) for name, study in params.studies.items()])
        read = tables(READ) | {"studies": [STUDIES]}
        catalogue.build(path, read, seed=params.seed)
        # One thread, so that the outputs have the same bytes each time.
        with store.open(path, threads=1) as connection:
            rows = infer(connection, options, hypotheses)
    write_rows(OUT, "inference", rows)
    tests = sum(row.get("p") is not None for row in rows)
    print(f"statistics: {OUT}: {len(rows)} statistics of {len({row['study'] for row in rows})} studies, {tests} tests")


def study_row(name: str, study: Study) -> dict[str, Any]:
    """Return a study's row of the table `studies`."""
    x_axis = json.dumps(study.x_axis, sort_keys=True) if study.x_axis else None
    return {"study": name, "title": study.title, "figure": study.figure, "plot": study.plot, "x_axis": x_axis}

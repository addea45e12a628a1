"""Tests of isotropy against error in a population of trainings, and the path of each training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.report.charts import population
from tsfmscope.report.charts.figures import CORRECTED, NOT_EVENNESS
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plot import Plot
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

TESTS = (
    "half", "measure", "grouping", "error", "rho", "low", "high", "detectable", "p", "p_by", "n_runs", "reason",
)  # fmt: skip
PATHS = (
    "family", "size", "run", "step", "is_final", "parameters", "validation_loss", "isotropy", "nmse", "n_datasets",
)  # fmt: skip
MEASURE = "ζ′ minus its null mean, in the last layer"


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the tests, then the paths; each is left out if it has no value."""
    frame = study.rows("population_tests", TESTS)
    about_headline = frame[frame["measure"] == CORRECTED]
    tests = about_headline[np.isfinite(about_headline["rho"].to_numpy(dtype=float))]
    if len(tests):
        alt = f"Mean rank correlations of isotropy and error: {_list_tests(tests)}."
        others = frame.loc[(frame["measure"] != CORRECTED) & (frame["half"] == "confirmed")]
        caption = _describe_tests(tests, len(about_headline) - len(tests), len(others))
        yield Figure("population_tests", population.draw_tests(tests), alt, caption, "Tests")
    frame = study.rows("population_paths", PATHS)
    values = frame[["isotropy", "nmse"]].to_numpy(dtype=float)
    paths = frame[np.isfinite(values).all(axis=1) & (values[:, 1] > 0)]
    if len(paths):
        families = population.list_families(paths)
        alt = (
            f"Line charts of NMSE against isotropy in training, one panel per family: "
            f"{', '.join(families[: population.PANELS])}; {paths['run'].nunique()} trainings with "
            f"{len(paths)} snapshots."
        )
        caption = _describe_paths(paths, len(frame) - len(paths), len(families))
        yield Figure("population_paths", population.draw_paths(paths), alt, caption, "Paths of the trainings")


def _list_tests(tests: pd.DataFrame) -> str:
    texts = [
        f"{population.name_test(row['grouping'], row['error'])}, {population.HALVES[row['half']][0]} "
        f"{population.describe_test(row)}"
        for row in tests.to_dict("records")
    ]
    return "; ".join(texts)


def _describe_tests(tests: pd.DataFrame, n_undefined: int, n_others: int) -> str:
    """Return the caption of the tests.

    n_undefined: number of tests without estimate. n_others: number of tests of hypotheses about other measures.
    """
    parts = [
        f"Mean rank correlation of isotropy ({MEASURE}) and error over data sets, with its 95 % interval. Left of 0: "
        f"more isotropic models have less error, as Shelim et al. 2025 claim.{NOT_EVENNESS}",
        "Across runs: the last weights of all trainings. Inside families, across seeds: differences between families, "
        "or between architectures, do not count. Within runs: the snapshots of a training at equal validation loss.",
    ]
    if (tests["half"] == "confirmed").any():
        parts.append("Open: the data sets that were kept for confirming hypotheses.")
    if tests["detectable"].notna().any():
        parts.append(
            "Grey: effects that are too small for the test. It finds an effect at the ends of the grey band with a "
            "probability of 80 %, and smaller ones less often; if it finds none, smaller effects remain possible."
        )
    if n_undefined:
        noun, verb = ("test", "has") if n_undefined == 1 else ("tests", "have")
        parts.append(f"{n_undefined} {noun} {verb} no estimate and no row; the CSV has the reasons.")
    if n_others:
        noun, verb = ("hypothesis", "is") if n_others == 1 else ("hypotheses", "are")
        parts.append(f"{n_others} {noun} about other measures {verb} in the CSV only.")
    return " ".join(parts)


def _describe_paths(paths: pd.DataFrame, n_undefined: int, n_families: int) -> str:
    """Return the caption of the paths.

    n_undefined: number of snapshots without values. n_families: number of families with values.
    """
    low, high = int(paths["n_datasets"].min()), int(paths["n_datasets"].max())
    datasets = f"{low} data sets" if low == high else f"{low} to {high} data sets"
    parts = [
        "A line is one training, from its first snapshot (open dot) to its end (filled dot); small dots are snapshots "
        f"in between. Right: more isotropic ({MEASURE}); down: less error. Values are medians over the {datasets} of "
        "the exploring half. Horizontal axes differ between panels."
    ]
    parts += population.describe_limit(population.PANELS, n_families, "families")
    if n_undefined:
        noun, verb = ("snapshot", "has") if n_undefined == 1 else ("snapshots", "have")
        parts.append(f"{n_undefined} {noun} {verb} no values.")
    return " ".join(parts)


PLOT = Plot(
    "Does isotropy go with the error over many trainings, and how do both change in a training? Tables of single "
    "models list only the last weights of each training.",
    {"population_tests": TESTS, "population_paths": PATHS},
    draw,
)

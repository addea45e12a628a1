"""Summary sentences on the hypotheses about a population of trainings: verdicts, and sensitivity of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("name", "verdict", "detectable", "n_datasets")
# Verdicts of the view `hypothesis_tests`.
HOLDS, REVERSED, NO_EFFECT, NOT_TESTED = "holds", "reversed", "no effect found", "not tested"


def describe_hypotheses(tests: pd.DataFrame) -> list[str]:
    """Count the hypotheses by verdict, and report how sensitive the tests without an effect are.

    tests: COLUMNS of the page's query `hypothesis_tests`. Empty if there are no hypotheses. Hypotheses that hold or
    are reversed are named.
    """
    if tests.empty:
        return []
    noun = "hypothesis" if len(tests) == 1 else "hypotheses"
    counts = _count_verdicts(tests)
    without_effect = tests.loc[tests["verdict"] == NO_EFFECT, "detectable"]
    return [
        f"Of {len(tests)} {noun}, committed before {_describe_half(tests['n_datasets'])} tested, {counts}.",
        *_describe_sensitivity(without_effect),
    ]


def _count_verdicts(tests: pd.DataFrame) -> str:
    names = {verdict: sorted(map(str, tests.loc[tests["verdict"] == verdict, "name"])) for verdict in (HOLDS, REVERSED)}
    n_without_effect, n_untested = (int((tests["verdict"] == verdict).sum()) for verdict in (NO_EFFECT, NOT_TESTED))
    if n_without_effect == len(tests):
        return "none holds: no test finds an effect"
    texts = [_name_all(names[HOLDS], "holds", "hold") if names[HOLDS] else "none holds"]
    if names[REVERSED]:
        texts.append(_name_all(names[REVERSED], "is reversed", "are reversed"))
    if n_without_effect:
        texts.append(f"no effect was found for {n_without_effect}")
    if n_untested:
        texts.append(f"{n_untested} could not be tested")
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def _name_all(names: Sequence[str], singular: str, plural: str) -> str:
    """Return the number of hypotheses with its verb and their names, such as `2 hold (a, b)`."""
    return f"{len(names)} {singular if len(names) == 1 else plural} ({', '.join(names)})"


def _describe_half(n_datasets: pd.Series) -> str:
    """Return the confirming half of the data sets with its verb. n_datasets: number of each hypothesis, or missing."""
    known = n_datasets.dropna()
    if known.empty:
        return "the confirming half of the data sets was"
    low, high = int(known.min()), int(known.max())
    if high == 1:
        return "the data set of the confirming half was"
    return f"the {high if low == high else f'{low} to {high}'} data sets of the confirming half were"


def _describe_sensitivity(detectable: pd.Series) -> list[str]:
    """Describe the test that can miss the largest correlation; empty if the sensitivity of no test is known.

    detectable: size of the correlation that each test without an effect finds with a probability of 80 %, or missing.
    """
    known = detectable.dropna()
    if known.empty:
        return []
    tests = "The test" if len(detectable) == 1 else "The least sensitive of the tests"
    sentences = [
        f"{tests} without an effect finds a correlation of ±{known.max():.2f} with a probability of 80 %, and misses "
        "smaller ones more often."
    ]
    if n_unknown := len(detectable) - len(known):
        sentences.append(f"For {n_unknown} of them, no such size is known.")
    return sentences

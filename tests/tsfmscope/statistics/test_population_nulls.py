"""Tests of a population where nothing is there, though families, sizes, seeds and data sets make its units alike.

The dependence is that of the stored population: two thirds of the variance of isotropy and error lie between families,
seeds of one architecture are alike, and all trainings see the same data sets.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tsfmscope.statistics import means, population, study
from tsfmscope.statistics.options import SeededOptions
from tsfmscope.statistics.population import across_runs, within_runs

LEVEL, ALLOWED = 0.05, 0.06
OPTIONS = SeededOptions(permutations=199, bootstrap=2, seed=1)
# Families, sizes, seeds and data sets of the stored population, and of the one of params/confirmation.yaml.
DESIGNS = {"stored": (8, 2, 2, 15), "confirmation": (12, 2, 3, 17)}
# Standard deviations of families, architectures and trainings, and the same by data set; their squares sum to 1 each.
SPREADS = {"family": 0.8, "size": 0.3, "seed": 0.52}


def draw(generator: np.random.Generator, design: tuple[int, int, int, int], difficulty: float = 2.0) -> np.ndarray:
    """One side, [data set, training]: effects of data sets, families, sizes and seeds, alone and together."""
    families, sizes, seeds, datasets = design
    shape = (families, sizes, seeds)

    def effects(*leading: int) -> np.ndarray:
        parts = [
            SPREADS["family"] * generator.normal(size=(*leading, families, 1, 1)),
            SPREADS["size"] * generator.normal(size=(*leading, families, sizes, 1)),
            SPREADS["seed"] * generator.normal(size=(*leading, *shape)),
        ]
        return sum(parts, np.zeros((*leading, *shape))).reshape(*leading, -1)

    side = difficulty * generator.normal(size=(datasets, 1)) + effects() + 0.7 * effects(datasets)
    return side + 0.5 * generator.normal(size=side.shape)


def names(design: tuple[int, int, int, int]) -> tuple[list[str], list[str]]:
    """Family and architecture of every training."""
    families, sizes, seeds, _ = design
    runs = [(f"f{f:02}", f"f{f:02} s{s}") for f in range(families) for s in range(sizes) for _ in range(seeds)]
    return [family for family, _ in runs], [size for _, size in runs]


def p_across(generator: np.random.Generator, design: tuple[int, int, int, int], grouping: str) -> float:
    x, y = (draw(generator, design) for _ in range(2))
    families, sizes = names(design)
    groups = {"across_runs": [""] * len(families), "inside_families": families, "across_seeds": sizes}[grouping]
    return float(across_runs(x, y, families, groups, OPTIONS, "t")["p"])


def p_within(generator: np.random.Generator, design: tuple[int, int, int, int]) -> float:
    """Isotropy goes with the error in each family and data set, but with random sign."""
    families, _ = names(design)
    x = generator.normal(size=(design[3], len(families), 8))
    slopes = draw(generator, design)
    y = 0.5 * slopes[..., None] * x + generator.normal(size=x.shape)
    loss = np.tile(generator.normal(size=x.shape[1:]), (len(x), 1, 1))
    return float(within_runs(x, y, loss, families, OPTIONS)["p"])


def p_share(generator: np.random.Generator, design: tuple[int, int, int, int]) -> float:
    """Which of two conditions is more isotropic depends on the data set and on the training, with random sign."""
    families, _ = names(design)
    change = draw(generator, design)
    answers = np.sign(change).reshape(-1)
    datasets = [f"d{n}" for n in range(len(change)) for _ in families]
    row = study.signs(answers, datasets, families * len(change), OPTIONS, {}, "data sets")
    return float(row["p"])


def p_changes(generator: np.random.Generator, design: tuple[int, int, int, int]) -> float:
    """Changes of isotropy and error from one condition to another, over data sets in each training."""
    x, y = (draw(generator, design).T for _ in range(2))
    row = {"study": "s", "answer": "noise_effect", "measure": "m", "block": "b", "statistic": "changes_spearman"}
    return float(study.changes(x, y, OPTIONS, row)["p"])


def p_family_mean(generator: np.random.Generator, design: tuple[int, int, int, int]) -> float:
    """A slope of each training, averaged over families: the tests of ranks."""
    values = draw(generator, (*design[:3], 1), difficulty=0.0)[0]
    families = np.array(names(design)[0])
    return means.mean(np.array([values[families == family].mean() for family in np.unique(families)])).p


TESTS = {
    "across runs": lambda g, d: p_across(g, d, "across_runs"),
    "inside families": lambda g, d: p_across(g, d, "inside_families"),
    "across seeds": lambda g, d: p_across(g, d, "across_seeds"),
    "within runs": p_within,
    "shares of pairs": p_share,
    "correlation of changes": p_changes,
    "mean over families": p_family_mean,
}


@pytest.fixture(autouse=True)
def no_detectable_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave `detectable` out, which takes three quarters of the time of a test."""
    monkeypatch.setattr(population, "SIMULATIONS", 2)
    monkeypatch.setattr(study.bootstrap, "by_row", lambda *a, **k: study.bootstrap.empty_interval("not asked for"))


def rate(name: str, design: str, draws: int) -> float:
    generator = np.random.default_rng([len(name), len(design)])
    return float(np.mean([TESTS[name](generator, DESIGNS[design]) <= LEVEL for _ in range(draws)]))


@pytest.mark.parametrize("name", TESTS)
def test_a_test_of_a_population_fires_no_more_often_than_it_says(name: str) -> None:
    assert rate(name, "stored", 100) <= stats.binom.ppf(0.999, 100, ALLOWED) / 100


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("name", TESTS)
def test_the_false_positive_rate_of_a_population_is_at_most_0_06(name: str, design: str) -> None:
    found = rate(name, design, 2000)
    print(f"{name}, {design}: {found:.4f}")
    # A rate of exactly 0.06 gives up to 0.076 of 2,000 by chance; the table in bench/results/statistics.md has all.
    assert found <= ALLOWED


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTS)
def test_the_rate_of_400_draws_is_that_of_a_test_at_0_06(name: str) -> None:
    assert rate(name, "confirmation", 400) <= stats.binom.ppf(0.999, 400, ALLOWED) / 400


def test_exchanging_trainings_alone_fires_too_often_so_that_the_null_has_teeth() -> None:
    generator, design = np.random.default_rng(5), DESIGNS["stored"]
    runs = [f"run {n:02}" for n in range(32)]
    sides = [[draw(generator, design) for _ in range(2)] for _ in range(100)]
    found = [across_runs(x, y, runs, [""] * 32, OPTIONS, "t")["p"] <= LEVEL for x, y in sides]
    assert np.mean(found) > 0.1

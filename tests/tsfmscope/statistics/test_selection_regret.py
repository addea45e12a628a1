"""Regret of advice against a slow loop, its invariants, hard cases, and its tests where isotropy says nothing."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.tsfmscope.statistics.simulated import study
from tsfmscope.statistics.options import SeededOptions
from tsfmscope.statistics.permutation import flip_mean
from tsfmscope.statistics.selection_regret import AXES, RULES, arrange_choices, compare, regret, regret_by_dataset

NAN = math.nan
QUICK = SeededOptions(permutations=199, bootstrap=100, seed=1)
Tables = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def slow(tables: Tables, what: str) -> dict[str, list[float]]:
    """Regret of every rule on every data set, one candidate after the other."""
    isotropy, error, earlier, contexts = tables
    datasets, models, conditions = error.shape
    found: dict[str, list[float]] = {rule: [] for rule in RULES}
    for d in range(datasets):
        groups = {
            "model_and_context": [list(itertools.product(range(models), range(conditions)))],
            "model": [[(m, c) for m in range(models)] for c in range(conditions)],
            "context": [[(m, c) for c in range(conditions)] for m in range(models)],
        }[what]
        regrets: dict[str, list[float]] = {rule: [] for rule in RULES}
        for group in groups:
            able = [at for at in group if np.isfinite(isotropy[d][at]) and np.isfinite(error[d][at])]
            if len(able) < 2:
                continue
            longest = max(contexts[d][at] for at in able)
            picked = {
                "advised": [at for at in able if isotropy[d][at] == max(isotropy[d][one] for one in able)],
                "validation": [at for at in able if earlier[d][at] == min(earlier[d][one] for one in able)],
                "largest_context": [at for at in able if contexts[d][at] == longest],
                "chance": able,
            }
            lacking = {
                "validation": any(np.isnan(earlier[d][at]) for at in able),
                "largest_context": all(contexts[d][at] == longest for at in able),
            }
            best = min(error[d][at] for at in able)
            for rule, some in picked.items():
                mean = NAN if lacking.get(rule) else float(np.mean([error[d][at] for at in some])) - best
                regrets[rule].append(mean)
        for rule, some in regrets.items():
            found[rule].append(float(np.mean(some)) if some else NAN)
    return found


@st.composite
def random_tables(draw: st.DrawFn, holes: bool = True) -> Tables:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = tuple(draw(st.integers(1, most)) for most in (5, 4, 3))
    made = [rng.integers(0, draw(st.sampled_from([3, 1000])), size=shape) / 7 for _ in range(3)]
    if holes:
        for table in made:
            table[rng.random(shape) < draw(st.sampled_from([0.0, 0.2, 0.8]))] = NAN
    contexts = np.broadcast_to(rng.choice([64.0, 128.0, 512.0], size=shape[2]), shape)
    return made[0], made[1], made[2], contexts


@given(random_tables(), st.sampled_from(sorted(AXES)))
@settings(deadline=None, max_examples=60)
def test_every_rule_is_the_slow_loop_s_and_no_regret_is_below_0(tables: Tables, what: str) -> None:
    found = regret_by_dataset(*(arrange_choices(table, what) for table in tables))
    for rule, expected in slow(tables, what).items():
        np.testing.assert_allclose(found[rule], expected, atol=1e-12, err_msg=rule)
        assert not (found[rule] < 0).any()


@given(random_tables(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=30)
def test_the_order_of_models_and_conditions_says_nothing(tables: Tables, random: Any) -> None:
    models, conditions = (random.sample(range(n), n) for n in tables[0].shape[1:])
    for what in AXES:
        found, other = (
            regret_by_dataset(*(arrange_choices(table, what) for table in some))
            for some in (tables, [table[:, models][:, :, conditions] for table in tables])
        )
        for rule in RULES:
            np.testing.assert_allclose(found[rule], other[rule], atol=1e-12)


@pytest.mark.parametrize(
    ("score", "error", "expected"),
    [
        ([1.0, 2.0, 3.0], [0.0, 1.0, 5.0], 5.0),
        ([3.0, 3.0, 1.0], [0.0, 1.0, 5.0], 0.5),  # a tie: either
        ([1.0, 2.0], [NAN, 1.0], NAN),  # one candidate is no choice
        ([1.0], [1.0], NAN),
        ([], [], NAN),
        ([NAN, 2.0], [0.0, 1.0], NAN),  # one that cannot be ranked
        ([NAN, 2.0, 1.0], [NAN, 1.0, 0.0], 1.0),  # one that was not scored is none
        ([-np.inf, 2.0], [0.0, 1.0], NAN),
        ([0.0, 0.0], [np.log(1e-6), np.log(1e-6)], 0.0),  # an error of 0 stands at the floor
    ],
)
def test_hard_cases_by_hand(score: list[float], error: list[float], expected: float) -> None:
    np.testing.assert_equal(float(regret(np.array(score), np.array(error))), expected)


def rows_of(tables: Tables, options: SeededOptions = QUICK) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["grouping"], row["statistic"]): row for row in compare(*tables, options, ("s", "zeta"))}


def gaussian_tables(shape: tuple[int, int, int], seed: int = 0) -> Tables:
    rng = np.random.default_rng(seed)
    contexts = np.broadcast_to(np.linspace(100, 500, shape[2]), shape)
    return rng.normal(size=shape), rng.normal(size=shape), rng.normal(size=shape), contexts


def test_what_cannot_be_chosen_has_no_rows_and_what_a_rule_lacks_a_reason() -> None:
    groupings = {
        shape: {what for what, _ in rows_of(gaussian_tables(shape))} for shape in ((6, 3, 2), (6, 3, 1), (6, 1, 2))
    }
    assert groupings == {(6, 3, 2): set(AXES), (6, 3, 1): {"model"}, (6, 1, 2): {"context"}}
    assert not rows_of(gaussian_tables((6, 1, 1))) and not rows_of(gaussian_tables((0, 0, 0)))
    rows = rows_of((*gaussian_tables((6, 3, 1))[:2], np.full((6, 3, 1), NAN), np.full((6, 3, 1), 100.0)))
    for rule, why in (("validation", "earlier window"), ("largest_context", "one context")):
        for statistic in (f"regret_{rule}", f"advised_less_{rule}"):
            row = rows["model", statistic]
            assert row["n"] == 0 and math.isnan(row["estimate"]) and why in row["reason"]


def test_an_adviser_that_knows_the_error_beats_chance_and_one_that_knows_nothing_does_not() -> None:
    tables = gaussian_tables((20, 5, 2))
    known, unknown = rows_of((-tables[1], *tables[1:])), rows_of(tables)
    for what in AXES:
        row = known[what, "advised_less_chance"]
        assert row["high"] < 0 and row["p"] == pytest.approx(1 / 200)
        assert unknown[what, "advised_less_chance"]["p"] > 0.05
        assert known[what, "regret_advised"]["estimate"] == 0
    models = "model", "advised_less_chance_models"
    assert known[models]["p"] < 0.05 < unknown[models]["p"]


def test_flips_are_all_of_them_where_they_are_few_and_scipy_s_p() -> None:
    values = np.random.default_rng(2).normal(0.4, size=11)
    found = flip_mean(values, permutations=9999, generator=np.random.default_rng(0))
    peer = stats.permutation_test((values,), np.sum, permutation_type="samples", n_resamples=np.inf)
    assert found.p == pytest.approx(peer.pvalue) and found.smallest == 2 / 2**11
    assert found.description == "all 2^11 sign flips"
    many = flip_mean(values, permutations=999, generator=np.random.default_rng(0))
    assert many.p == pytest.approx(peer.pvalue, abs=0.06) and many.description == "999 random sign flips"
    assert flip_mean(np.zeros(4), permutations=99, generator=np.random.default_rng(0)).p == 1


def fires(statistic: str, n: int, **kind: float) -> float:
    """Share of nulls in which a difference from chance has p <= 0.05."""
    generator, hits = np.random.default_rng(5), 0
    for seed in range(n):
        x, y = study(generator, **kind)  # type: ignore[arg-type]
        rows = rows_of((x, y, y, np.ones_like(y)), SeededOptions(permutations=199, bootstrap=2, seed=seed))
        hits += rows["model", statistic]["p"] <= 0.05
    return hits / n


def test_p_fires_no_more_often_than_it_says_and_flips_take_a_taste_for_a_model_for_skill() -> None:
    n = 150
    allowed = stats.binom.ppf(0.999, n, 0.06) / n
    assert fires("advised_less_chance", n, quality=0.0, shared=2.0) <= allowed
    assert fires("advised_less_chance_models", n, quality=1.0, shared=2.0) <= allowed
    assert fires("advised_less_chance", n, quality=1.0, shared=2.0) > allowed  # why p_models stands beside it

"""Appendix J's experiments against the formulas written out, and slopes against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import orth

from tasks.job import Job, Task
from tasks.theory import bounds, points
from tsfmscope.theory import experiments
from tsfmscope.theory.attention_theorems import project
from tsfmscope.theory.experiments import EXPERIMENTS, STATEMENTS, instance
from tsfmscope.theory.instances import BoundCheck, attend, exponential_values, orthonormal, split, tightest_case

RNG = np.random.default_rng


def slope(rows: list[dict]) -> float:
    fitted = [row for row in rows if row.get("fitted", True)]
    return float(np.polyfit(np.log([row["x"] for row in fitted]), np.log([row["y"] for row in fitted]), 1)[0])


def test_errors_in_the_basis_of_the_vocabulary_are_those_of_the_projected_matrices() -> None:
    left, right, values = orthonormal(RNG(0), 6, 6), orthonormal(RNG(1), 30, 6), exponential_values(6, 5.0)
    query, key, value = 3 * RNG(2).standard_normal((3, 6, 6))
    found = experiments.projected_errors(left, values, right, query.T @ key, value, [1, 3, 6])
    inputs, heads = (left * values) @ right.T, split(1, query, key, value)
    for rank, error in zip((1, 3, 6), found, strict=True):
        difference = attend(inputs, heads) - attend(inputs, project(heads, left[:, :rank]))
        assert error == pytest.approx(np.linalg.norm(difference), abs=1e-12)


def test_blocks_of_columns_do_not_change_the_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = experiments.compression_by_rank(0, width=8, columns=50, points=4)
    monkeypatch.setattr(experiments, "BLOCK", 7)
    parts = experiments.compression_by_rank(0, width=8, columns=50, points=4)
    np.testing.assert_allclose([row["y"] for row in whole], [row["y"] for row in parts], rtol=1e-10)


def test_the_error_under_a_uniform_softmax_is_its_closed_form() -> None:
    """W_Q = 0 and W_V = I: every column of the output is the mean of X, and the error √(Σ_{j>d̃} σ_j²)/√N for V = I."""
    values, nothing, identity = exponential_values(16, 5.0), np.zeros((16, 16)), np.eye(16)
    ranks = list(range(1, 16))
    found = experiments.projected_errors(identity, values, identity, nothing, identity, ranks)
    tails = [math.sqrt(np.square(values[rank:]).sum() / 16) for rank in ranks]
    np.testing.assert_allclose(found, tails, rtol=1e-12)


def test_only_the_first_half_of_the_ranks_is_fitted() -> None:
    rows = experiments.compression_by_rank(0, width=16, columns=32, points=15)
    assert [row["setting"]["rank"] for row in rows] == list(range(1, 16))
    assert [row["setting"]["rank"] for row in rows if row["fitted"]] == list(range(1, 9))
    np.testing.assert_allclose([row["x"] for row in rows], exponential_values(16, 5.0)[1:])


def test_the_distance_of_eq_30_is_the_one_written_out() -> None:
    width, tokens = 20, 35
    values = exponential_values(width, 6.0)
    left, right = orthonormal(RNG(3), width, width), orthonormal(RNG(4), tokens, width)
    inputs = (left * values) @ right.T
    matrix = experiments.sketch(RNG(5), width, 6, 5)
    basis = orth(inputs.T @ matrix.T)
    expected = np.linalg.norm(basis @ basis.T @ inputs.T - inputs.T, 2)
    assert experiments.sketch_error(values, (matrix @ left).T) == pytest.approx(expected, rel=1e-7)
    assert experiments.sketch_error(values, left.T) == 0.0  # as many rows as dimensions: nothing is lost


def test_a_sketch_of_the_leading_directions_loses_the_next_singular_value() -> None:
    values = exponential_values(12, 4.0)
    assert experiments.sketch_error(values, np.eye(12)[:, :3]) == pytest.approx(values[3], rel=1e-7)


def test_sparse_rows_have_as_many_entries_as_asked_for_wherever_they_stand() -> None:
    matrix = experiments.sketch(RNG(6), 32, 8, 4)
    assert (np.count_nonzero(matrix, axis=1) == 4).all()
    assert len({tuple(np.flatnonzero(row)) for row in matrix}) > 1


def test_scores_are_bounded_or_spread_as_they_say() -> None:
    inputs, matrices = RNG(7).standard_normal((8, 30)) / 10, RNG(8).standard_normal((3, 8, 8))
    for count in (1, 2, 4):
        tame = experiments.scale_heads(matrices, count, inputs, "bounded")
        size = 8 // count
        norms = np.linalg.norm(np.swapaxes(tame.query, 1, 2) @ tame.key, 2, axis=(1, 2))
        np.testing.assert_allclose(norms, math.sqrt(size))
        wide = experiments.scale_heads(matrices, count, inputs, "spread")
        scores = np.swapaxes(wide.query @ inputs, 1, 2) @ (wide.key @ inputs) / math.sqrt(size)
        np.testing.assert_allclose(scores.std(axis=(1, 2)), experiments.SPREAD)
        np.testing.assert_allclose(np.linalg.norm(wide.value, 2, axis=(1, 2)), 1.0)


SMALL = {
    "rank": {"width": 16, "columns": 32, "points": 5},
    "width": {"widths": [8, 16], "columns": 32, "kept": 4},
    "sketch": {"width": 64, "kept": 2, "heads": [1, 4, 16], "spectra": True},
    "flow": {"width": 16, "columns": 32, "heads": [1, 4], "spectra": True},
    "repeated": {},
    "rates": {},
}


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_an_experiment_is_the_same_for_its_seed_and_another_for_the_next(name: str) -> None:
    once, again = (EXPERIMENTS[name](0, **SMALL[name]) for _ in range(2))
    assert once == again
    assert once != EXPERIMENTS[name](1, **SMALL[name])


def test_j2_holds_no_error_below_the_best_of_its_rank() -> None:
    rows = EXPERIMENTS["sketch"](0, **SMALL["sketch"])
    held = [row for row in rows if "bound" in row]
    assert len(held) == 6 and all(row["holds"] for row in held)
    assert slope([row for row in rows if row["experiment"] == "J.2 sparse"]) > 0.5


def test_entries_answer_rows_that_name_what_makes_them_again() -> None:
    spec = {"statement": "Theorem 3.2", "seed": 2, "first": 5, "count": 3}
    rows = bounds(Job(Task("theory_bounds", 1, "x:y"), spec), None, None).rows
    assert [(row["instance"], row["form"]) for row in rows] == [
        (n, f) for n in (5, 6, 7) for f in ("printed", "repaired")
    ]
    assert {row["seed"] for row in rows} == {2}
    spec = {"experiment": "repeated", "seed": 1, "options": {}}
    found = points(Job(Task("theory_points", 1, "x:y"), spec), None, None).rows
    assert {row["kind"] for row in found} == {"point"}
    assert slope(found) == pytest.approx(0.5, abs=1e-9)


COUNT = 100
HOLD = {
    "Theorem 1.1", "Theorem 1.1 quasimatrix", "Theorem 1.2", "Theorem 1.2 quasimatrix", "Theorem 2",
    "Theorem 4 eq. 5", "Theorem 4 eq. 6", "Theorem 6.1",
}  # fmt: skip


@pytest.fixture(scope="module")
def checks() -> dict[tuple[str, str], list[BoundCheck]]:
    """(part, form) -> its sides at the first instances of every statement."""
    sides: dict[tuple[str, str], list[BoundCheck]] = {}
    for statement in STATEMENTS:
        for number in range(COUNT):
            for part, side in instance(statement, 0, number):
                sides.setdefault((part, side.form), []).append(side)
    return sides


def test_every_statement_gives_each_part_once_an_instance(checks: dict) -> None:
    assert {len(sides) for sides in checks.values()} == {COUNT}
    assert {part for part, form in checks if form == "printed"} >= HOLD


def test_what_is_proved_holds_as_printed_or_as_repaired(checks: dict) -> None:
    proved = {key: sides for key, sides in checks.items() if key[1] == "repaired" or key[0] in HOLD}
    assert {part for part, _ in proved} == {part for part, _ in checks}
    assert {key: [s for s in sides if not s.holds] for key, sides in proved.items()} == {key: [] for key in proved}


def test_bounds_of_all_statements_are_not_idle(checks: dict) -> None:
    """Largest shares that the first instances use up; a bound a thousand times too lenient would show here."""
    for key, sides in checks.items():
        assert max(side.ratio for side in sides) > 0.01, key


@pytest.mark.parametrize("part", sorted(HOLD))
def test_a_bound_that_is_wrong_by_enough_is_caught(part: str, checks: dict) -> None:
    worst = max(checks[part, "printed"], key=lambda side: side.ratio)
    factor = 0.9 * worst.ratio if worst.side == "upper" else 1.1 / worst.ratio
    wrong = BoundCheck(worst.form, worst.side, worst.x, worst.y, worst.bound * factor, worst.floor)
    assert worst.holds and not wrong.holds


CAUSES = {  # printed statements fail only where the step of the proof that is wrong matters
    "Theorem 3.1": lambda s: s["most"] > 1000,
    "Theorem 5": lambda s: s["most"] > 1000,
    "Theorem 3.2": lambda s: s["length"] > 4 * s["width"] + 1,
    "Corollary 2": lambda s: s["largest_w"] > 1,
    "Corollary 1 lower": lambda s: s["width"] // s["heads"] <= s["heads"] - 2,
    "Theorem 6.2": lambda s: s["heads"] == 1,
}


@pytest.mark.parametrize("part", sorted(CAUSES))
def test_what_is_printed_fails_somewhere_and_only_for_its_cause(part: str, checks: dict) -> None:
    failing = [side for side in checks[part, "printed"] if not side.holds]
    assert failing
    assert [side.setting for side in failing if not CAUSES[part](side.setting)] == []


def test_corollary_1_is_off_by_one_where_h_plus_1_divides_k_or_k_plus_1(checks: dict) -> None:
    failing = [side for side in checks["Corollary 1 upper", "printed"] if not side.holds]
    assert failing
    for side in failing:
        k, heads = int(side.x), side.setting["heads"]
        assert k % (heads + 1) in (0, heads)


def test_an_instance_is_the_same_from_its_seed_and_number_and_others_differ() -> None:
    for statement in STATEMENTS:
        once, again = list(instance(statement, 3, 17)), list(instance(statement, 3, 17))
        assert once == again
        assert once != list(instance(statement, 4, 17))
        assert once != list(instance(statement, 3, 18))


def test_an_unknown_statement_is_named_with_the_list() -> None:
    with pytest.raises(ValueError, match=r"statement: got 'Theorem 7', expected one of Theorem 1\.1, "):
        list(instance("Theorem 7", 0, 0))


@pytest.mark.parametrize(
    ("side", "y", "bound", "floor", "holds"),
    [
        ("upper", 1.0, 1.0, 0.0, True),
        ("upper", 1.0 + 1e-8, 1.0, 0.0, False),
        ("upper", 2e-15, 0.0, 1e-14, True),
        ("lower", 1.0, 1.0, 0.0, True),
        ("lower", 1.0 - 1e-8, 1.0, 0.0, False),
        ("lower", 0.0, 1e-15, 1e-14, True),
        ("upper", float("nan"), 1.0, 0.0, False),
        ("lower", float("nan"), 1.0, 0.0, False),
    ],
)
def test_both_sides_are_compared_beyond_rounding_only(
    side: str, y: float, bound: float, floor: float, holds: bool
) -> None:
    assert BoundCheck("printed", side, 1.0, y, bound, floor).holds is holds  # type: ignore[arg-type]


def test_the_tightest_place_is_the_one_with_the_largest_share_above_rounding() -> None:
    x, y, bound = np.arange(1, 5), np.array([1.0, 3.0, 2.0, 1e-16]), np.array([2.0, 4.0, 1.9, 1e-17])
    one = tightest_case("printed", "upper", x, y, bound, floor=1e-15, setting={})
    assert (one.x, one.y, one.bound, one.setting["places"]) == (3.0, 2.0, 1.9, 3)
    low = tightest_case("printed", "lower", x, y, bound, floor=1e-15, setting={})
    assert (low.x, low.ratio) == (1.0, 2.0)

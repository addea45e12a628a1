"""Every statement holds where it is proved, fails where a step of its proof does, and can be seen to fail."""

from __future__ import annotations

import numpy as np
import pytest

from tsfmscope.theory.bound_check import BoundCheck, tightest_case
from tsfmscope.theory.statements import STATEMENTS, instance

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
    one = tightest_case("printed", "upper", x, y, bound, floor=1e-15)
    assert (one.x, one.y, one.bound, one.setting["places"]) == (3.0, 2.0, 1.9, 3)
    low = tightest_case("printed", "lower", x, y, bound, floor=1e-15)
    assert (low.x, low.ratio) == (1.0, 2.0)

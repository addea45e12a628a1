"""Halving of what trials report is exact across kills, wherever they fall."""

from __future__ import annotations

from pathlib import Path

import pytest

from tsfmscope.tasks.sweep.asha import PersistentAsha
from tsfmscope.tasks.sweep.halving import Halving

HALVING = Halving(most=20, grace=5, reduction=2)
ROWS = [  # as they come: of a, b and c every 5 steps, with losses
    ("a", 5, 2.0), ("b", 5, 3.0), ("a", 10, 1.9), ("c", 5, 1.0), ("c", 10, 2.5), ("a", 15, 1.8), ("d", 5, 1.5),
]  # fmt: skip
DECIDED = ["CONTINUE", "STOP", "CONTINUE", "CONTINUE", "STOP", "CONTINUE", "CONTINUE"]


def hear(judge: PersistentAsha, rows: list[tuple[str, int, float]]) -> list[str]:
    return [judge.hear(key, {"step": step, "loss": loss, "time_total_s": 1.0}) for key, step, loss in rows]


def test_a_trial_goes_on_while_it_is_among_the_better_half_of_those_that_came(tmp_path: Path) -> None:
    judge = PersistentAsha(HALVING, tmp_path / "heard")
    assert hear(judge, ROWS) == DECIDED
    assert judge.stopped == {"b", "c"}


@pytest.mark.parametrize("killed", range(len(ROWS) + 1))
def test_a_kill_after_any_row_changes_no_decision(killed: int, tmp_path: Path) -> None:
    first = hear(PersistentAsha(HALVING, tmp_path / "heard"), ROWS[:killed])
    with (tmp_path / "heard").open("a") as file:
        file.write('{"key": "a", "st')  # of a row that was being written
    judge = PersistentAsha(HALVING, tmp_path / "heard")
    again = hear(judge, ROWS[:killed])  # as jobs that go on say it
    assert [judge.knows(key) for key in "abcd"] == [key in {row[0] for row in ROWS[:killed]} for key in "abcd"]
    assert first + hear(judge, ROWS[killed:]) == DECIDED
    assert set(again) <= {"CONTINUE", "STOP"} and judge.stopped == {"b", "c"}
    assert PersistentAsha(HALVING, tmp_path / "heard").stopped == {"b", "c"}


def test_a_trial_that_was_stopped_is_stopped_by_whatever_it_says_again(tmp_path: Path) -> None:
    hear(PersistentAsha(HALVING, tmp_path / "heard"), ROWS)
    judge = PersistentAsha(HALVING, tmp_path / "heard")
    assert hear(judge, [("b", 5, 3.0), ("b", 10, 0.0)]) == ["STOP", "STOP"]
    assert hear(judge, [("a", 5, 2.0)]) == ["CONTINUE"]


def test_trials_are_compared_within_their_group(tmp_path: Path) -> None:
    rows = [("lucky", 5, 1.0), ("worse", 5, 1.5), ("unlucky", 5, 2.0), ("better", 5, 1.9)]
    groups = {"lucky": "0", "worse": "0", "unlucky": "1", "better": "1"}
    for _ in range(2):  # and once more from what was written
        judge = PersistentAsha(HALVING, tmp_path / "heard", groups)
        hear(judge, rows)
        assert judge.stopped == {"worse"}
    assert PersistentAsha(HALVING, tmp_path / "heard").stopped > {"worse"}


def test_a_result_without_the_measure_decides_nothing(tmp_path: Path) -> None:
    judge = PersistentAsha(HALVING, tmp_path / "heard")
    assert judge.hear("a", {"step": 5}) == "CONTINUE" and not judge.knows("a")

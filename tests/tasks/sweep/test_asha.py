"""PersistentAsha makes the same decisions after a kill at any row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.sweep.asha import PersistentAsha
from tasks.sweep.halving import Halving

HALVING = Halving(most=20, grace=5, reduction=2)
ROWS = [  # key, step and loss of each report, in order of time
    ("a", 5, 2.0), ("b", 5, 3.0), ("a", 10, 1.9), ("c", 5, 1.0), ("c", 10, 2.5), ("a", 15, 1.8), ("d", 5, 1.5),
]  # fmt: skip
DECISIONS = ["CONTINUE", "STOP", "CONTINUE", "CONTINUE", "STOP", "CONTINUE", "CONTINUE"]


def report(scheduler: PersistentAsha, rows: list[tuple[str, int, float]]) -> list[str]:
    return [scheduler.report(key, {"step": step, "loss": loss, "time_total_s": 1.0}) for key, step, loss in rows]


def test_a_trial_continues_while_it_is_in_the_better_half_of_the_reports(tmp_path: Path) -> None:
    scheduler = PersistentAsha(HALVING, tmp_path / "heard")
    assert report(scheduler, ROWS) == DECISIONS
    assert scheduler.stopped_keys == {"b", "c"}


@pytest.mark.parametrize("killed", range(len(ROWS) + 1))
def test_a_kill_after_any_row_changes_no_decision(killed: int, tmp_path: Path) -> None:
    first = report(PersistentAsha(HALVING, tmp_path / "heard"), ROWS[:killed])
    with (tmp_path / "heard").open("a") as file:
        file.write('{"key": "a", "st')  # an incomplete row
    scheduler = PersistentAsha(HALVING, tmp_path / "heard")
    again = report(scheduler, ROWS[:killed])  # jobs that continue report their rows again
    assert [scheduler.has_rows(key) for key in "abcd"] == [key in {row[0] for row in ROWS[:killed]} for key in "abcd"]
    assert first + report(scheduler, ROWS[killed:]) == DECISIONS
    assert set(again) <= {"CONTINUE", "STOP"} and scheduler.stopped_keys == {"b", "c"}
    assert PersistentAsha(HALVING, tmp_path / "heard").stopped_keys == {"b", "c"}


def test_a_trial_that_was_stopped_stays_stopped_whatever_it_reports(tmp_path: Path) -> None:
    report(PersistentAsha(HALVING, tmp_path / "heard"), ROWS)
    scheduler = PersistentAsha(HALVING, tmp_path / "heard")
    assert report(scheduler, [("b", 5, 3.0), ("b", 10, 0.0)]) == ["STOP", "STOP"]
    assert report(scheduler, [("a", 5, 2.0)]) == ["CONTINUE"]


def test_trials_are_compared_within_their_group(tmp_path: Path) -> None:
    rows = [("lucky", 5, 1.0), ("worse", 5, 1.5), ("unlucky", 5, 2.0), ("better", 5, 1.9)]
    groups = {"lucky": "0", "worse": "0", "unlucky": "1", "better": "1"}
    for _ in range(2):  # the second scheduler replays the log
        scheduler = PersistentAsha(HALVING, tmp_path / "heard", groups)
        report(scheduler, rows)
        assert scheduler.stopped_keys == {"worse"}
    assert PersistentAsha(HALVING, tmp_path / "heard").stopped_keys > {"worse"}


def test_a_result_without_the_metric_decides_nothing(tmp_path: Path) -> None:
    scheduler = PersistentAsha(HALVING, tmp_path / "heard")
    assert scheduler.report("a", {"step": 5}) == "CONTINUE" and not scheduler.has_rows("a")

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from tasks.sweep.progress import Progress, Rate, show, usage

MOMENT = Progress(planned=100, reused=20, done=29, failed=1, running=2, rate=0.5, seconds_left=100.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_names_every_count_and_the_time_left() -> None:
    assert MOMENT.remaining == 50
    assert str(MOMENT) == "50/100 jobs (20 from before), 1 failed, 2 running, 0.5/s, 1:40 left"
    assert str(Progress(9, 0, 0, 0, 1, 0.0, None)) == "0/9 jobs, 1 running, 0/s"
    assert str(Progress(9, 0, 1, 0, 1, 0.001, 7384.0)).endswith(", 2:03:04 left")
    long = Progress(9, 0, 1, 0, 1, 0.001, 7384.0, longest=("baseline auto-arima", 65.0))
    assert str(long).endswith(", 2:03:04 left (baseline auto-arima for 1:05)")
    assert "auto-arima" not in str(Progress(9, 0, 1, 0, 1, 0.001, 7384.0, longest=("baseline auto-arima", 5.0)))


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ({}, ""),
        ({"10.0.0.1": (1, 2)}, ""),
        ({"10.0.0.2": (3, 4), "10.0.0.1": (4, 4)}, "; busy actors: 10.0.0.1 4/4, 10.0.0.2 3/4"),
        (
            {f"n{n:02}": (n % 5, 4) for n in range(12)},
            "; busy actors: 21/48 on 12 nodes, least n00 0/4, n05 0/4, n10 0/4, n01 1/4, n06 1/4, n11 1/4",
        ),
    ],
)
def test_a_line_tells_the_use_of_each_node_where_there_are_several(nodes: dict, told: str) -> None:
    assert str(replace(MOMENT, nodes=nodes)) == f"{MOMENT}{told}"


def test_use_is_counted_by_node() -> None:
    assert usage([("b", True), ("a", False), ("b", False), ("b", True)]) == {"a": (0, 1), "b": (2, 3)}
    assert usage([]) == {}


def test_without_a_terminal_lines_come_seldom_but_the_last_always() -> None:
    stream = io.StringIO()
    with show("geometry", stream) as report:
        for _ in range(5):
            report(MOMENT)
        report(Progress(100, 20, 79, 1, 0, 0.5, 0.0))
    assert stream.getvalue().splitlines() == [
        "geometry: 50/100 jobs (20 from before), 1 failed, 2 running, 0.5/s, 1:40 left",
        "geometry: 100/100 jobs (20 from before), 1 failed, 0 running, 0.5/s, 0:00 left",
    ]


def test_on_a_terminal_a_bar_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    stream = Terminal()
    with show("geometry", stream) as report:
        report(MOMENT)
    assert "geometry" in stream.getvalue() and "50/100 jobs" in stream.getvalue()


def test_on_a_terminal_several_nodes_have_a_row_of_their_own_and_one_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    drawn = []
    for nodes in ({"a": (1, 2)}, {"a": (1, 2), "b": (2, 2)}):
        stream = Terminal()
        with show("geometry", stream) as report:
            report(replace(MOMENT, nodes=nodes))
        drawn.append(stream.getvalue())
    assert "busy actors" not in drawn[0]
    rows = drawn[1].splitlines()
    assert ["50/100 jobs" in row or "busy actors: a 1/2, b 2/2" in row for row in rows[-3:-1]] == [True, True]
    assert not any("jobs" in row and "busy actors" in row for row in rows)


def test_the_rate_is_that_of_the_last_while() -> None:
    rate = Rate(window_seconds=10)
    values = [rate.update(finished, now=float(second)) for second, finished in enumerate([0, 1, 2, 3])]
    assert values == [0.0, 1.0, 1.0, 1.0]
    for second in range(4, 40):
        last = rate.update(3 + 5 * (second - 3), now=float(second))
    assert last == pytest.approx(5.0)


def test_a_clock_that_stands_still_gives_no_rate() -> None:
    rate = Rate()
    assert [rate.update(n, now=1.0) for n in (0, 5)] == [0.0, 0.0]

"""One thread makes, another uses: in order, at the same time, and what goes wrong on either side is raised."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any

import pytest

from tsfmscope.tasks.producer_consumer import ProducerConsumer, consume

WHERE: ContextVar[str] = ContextVar("WHERE")


def doubled(made: Iterable[int]) -> Iterator[int]:
    return (2 * n for n in made)


def three(give: Callable[[int], None]) -> None:
    for n in range(3):
        give(n)


@pytest.mark.parametrize("take", [list, lambda feed: consume(list, feed), lambda feed: consume(list, feed.then(iter))])
def test_all_that_is_made_is_used_in_order(take: Callable[[ProducerConsumer[int, int]], list[int]]) -> None:
    assert take(ProducerConsumer(three, doubled)) == [0, 2, 4]
    assert take(ProducerConsumer(lambda give: None, doubled)) == []


def test_what_is_no_feed_is_used_here() -> None:
    assert consume(lambda made: (list(made), threading.get_ident()), [1, 2]) == ([1, 2], threading.get_ident())


def test_what_was_made_is_used_before_the_next_is() -> None:
    seen: list[int] = []
    arrived = threading.Event()

    def work(give: Callable[[int], None]) -> None:
        give(1)
        assert arrived.wait(30), "the first was not used while the work went on"
        give(2)

    def use(made: Iterable[int]) -> int:
        for n in made:
            seen.append(n)
            arrived.set()
        return threading.get_ident()

    assert consume(use, ProducerConsumer(work, doubled)) != threading.get_ident()
    assert seen == [2, 4]


def test_the_work_is_done_in_the_callers_thread_and_both_see_its_context() -> None:
    WHERE.set("here")
    threads: list[int] = []

    def work(give: Callable[[str], None]) -> None:
        threads.append(threading.get_ident())
        give(WHERE.get())

    assert consume(lambda made: [*made, WHERE.get()], ProducerConsumer(work, iter)) == ["here", "here"]
    assert threads == [threading.get_ident()]


@pytest.mark.parametrize("error", [MemoryError("no room"), KeyboardInterrupt(), SystemExit(3)])
def test_when_the_work_fails_its_user_ends_first_and_the_error_is_the_works(error: BaseException) -> None:
    ended: list[str] = []

    def work(give: Callable[[int], None]) -> None:
        give(1)
        raise error

    def use(made: Iterable[int]) -> None:
        try:
            for _ in made:
                pass
        finally:
            ended.append("cleaned up")

    with pytest.raises(type(error)) as raised:
        consume(use, ProducerConsumer(work, doubled))
    assert raised.value is error
    assert ended == ["cleaned up"]


def test_when_its_user_fails_the_work_ends_early_with_the_users_error() -> None:
    failed = threading.Event()
    made: list[int] = []

    def work(give: Callable[[int], None]) -> None:
        for n in range(10**6):
            give(n)
            made.append(n)
            failed.wait(30)

    def use(items: Iterable[int]) -> None:
        next(iter(items))
        failed.set()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        consume(use, ProducerConsumer(work, doubled))
    assert len(made) < 10**6


def test_an_error_after_the_last_is_raised_too() -> None:
    def use(made: Iterable[int]) -> None:
        list(made)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        consume(use, ProducerConsumer(three, doubled))


def interrupted(moment: int) -> tuple[bool, list[list[int]]]:
    """Raise at that line of `Feed.into`, of those that it comes to; whether there was one, and what was used whole."""
    left, whole = moment, list[list[int]]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code is not ProducerConsumer.into.__code__:
            return None
        left -= event == "line"
        if not left:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        consume(lambda made: whole.append(list(made)), ProducerConsumer(three, doubled))
    except KeyboardInterrupt:
        return True, whole
    finally:
        sys.settrace(before)
    return False, whole


@pytest.mark.timeout(60)
def test_what_a_signal_raises_between_any_two_lines_ends_both_sides_and_no_half_passes_for_a_whole() -> None:
    moment = 1
    while (answer := interrupted(moment))[0]:
        assert answer[1] in ([], [[0, 2, 4]]), moment
        moment += 1
    assert answer[1] == [[0, 2, 4]] and moment > 6

"""What one thread makes and another uses: a dump is written while the forward pass that fills it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")
Used = TypeVar("Used")
Answer = TypeVar("Answer")

_END = object()


class Feed(Generic[Made, Used]):
    """An iterable of what `then` makes of the things that `work` hands to its argument one by one.

    Iterating over it does one after the other in this thread. `used` lets another use them while this one works on:
    what is computed stays in the thread whose settings, memory and device it was meant for, and is the same to the bit.
    """

    def __init__(
        self, work: Callable[[Callable[[Made], None]], object], then: Callable[[Iterable[Made]], Iterator[Used]]
    ) -> None:
        self._work, self._then = work, then

    def __iter__(self) -> Iterator[Used]:
        made: list[Made] = []
        self._work(made.append)
        return self._then(made)

    def then(self, make: Callable[[Iterable[Used]], Iterator[Answer]]) -> Feed[Made, Answer]:
        """The same with what `make` makes of what this one answers, also in the thread that uses it."""
        return Feed(self._work, lambda made: make(self._then(made)))

    def into(self, use: Callable[[Iterable[Used]], Answer]) -> Answer:
        """What `use` answers, called in a second thread while this one works. What either raises is raised here."""
        queue: SimpleQueue[object] = SimpleQueue()
        with ThreadPoolExecutor(1, "feed") as pool:
            try:
                answer = pool.submit(copy_context().run, use, self._then(_taken(queue)))
                self._work(lambda made: _hand_over(queue, made, answer))
                queue.put(_END)
            finally:  # a signal may raise anywhere in the above
                queue.put(_Stopped())  # which nobody takes after the end; else what stands half written goes
            return answer.result()


def used(use: Callable[[Iterable[Used]], Answer], made: Iterable[Used]) -> Answer:
    """What `use` answers, of a Feed while it is made."""
    return made.into(use) if isinstance(made, Feed) else use(made)


class _Stopped(Exception):
    """There will be no more, though this is not the end."""


def _hand_over(queue: SimpleQueue[object], made: object, answer: Future[Answer]) -> None:
    if answer.done():
        answer.result()  # raises what went wrong there, rather than work on for nobody
    queue.put(made)


def _taken(queue: SimpleQueue[object]) -> Iterator[Any]:
    while (made := queue.get()) is not _END:
        if isinstance(made, _Stopped):
            raise made
        yield made

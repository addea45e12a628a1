"""Producer and consumer in two threads.

For example, an activation file is written while the forward pass still computes its states.
"""

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


class ProducerConsumer(Generic[Made, Used]):
    """Producer/consumer pair: `work(emit)` produces items, `then(items)` transforms them.

    Iterating over it runs one after the other in this thread. `into` runs the consumer in a second thread
    while this thread produces. The producer always stays in the calling thread, with its settings, memory and
    device, so both ways give the same result to the bit.
    """

    def __init__(
        self, work: Callable[[Callable[[Made], None]], object], then: Callable[[Iterable[Made]], Iterator[Used]]
    ) -> None:
        self._work, self._then = work, then

    def __iter__(self) -> Iterator[Used]:
        made: list[Made] = []
        self._work(made.append)
        return self._then(made)

    def then(self, make: Callable[[Iterable[Used]], Iterator[Answer]]) -> ProducerConsumer[Made, Answer]:
        """Append a second transformation, which runs in the consumer's thread as well."""
        return ProducerConsumer(self._work, lambda made: make(self._then(made)))

    def into(self, use: Callable[[Iterable[Used]], Answer]) -> Answer:
        """Run `use` on the items in a second thread while this one produces, and return its result.

        An exception of either thread is raised here.
        """
        queue: SimpleQueue[object] = SimpleQueue()
        with ThreadPoolExecutor(1, "feed") as pool:
            try:
                answer = pool.submit(copy_context().run, use, self._then(_taken(queue)))
                self._work(lambda made: _hand_over(queue, made, answer))
                queue.put(_END)
            finally:
                # A signal may raise anywhere in the block above. After a normal end nobody reads this
                # item; otherwise it stops the consumer, and a half-written file is removed.
                queue.put(_Stopped())
            return answer.result()


def used(use: Callable[[Iterable[Used]], Answer], made: Iterable[Used]) -> Answer:
    """Return `use(made)`; for a ProducerConsumer, `use` runs while the items are produced."""
    return made.into(use) if isinstance(made, ProducerConsumer) else use(made)


class _Stopped(Exception):
    """The producer stopped early, so no more items follow."""


def _hand_over(queue: SimpleQueue[object], made: object, answer: Future[Answer]) -> None:
    if answer.done():
        # Raises the consumer's exception here, because nobody would read further items.
        answer.result()
    queue.put(made)


def _taken(queue: SimpleQueue[object]) -> Iterator[Any]:
    while (made := queue.get()) is not _END:
        if isinstance(made, _Stopped):
            raise made
        yield made

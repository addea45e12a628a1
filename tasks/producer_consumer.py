"""Producer and consumer in two threads.

For example, an activation file is written while the forward pass still computes its states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Output = TypeVar("Output")
Answer = TypeVar("Answer")

_END = object()


class ProducerConsumer(Generic[Item, Output]):
    """Producer/consumer pair: `work(emit)` produces items, `then(items)` transforms them.

    Iterating over it runs one after the other in this thread. `into` runs the consumer in a second thread
    while this thread produces. The producer always runs in the calling thread, with its settings, memory and
    device, so both ways give bitwise equal results.
    """

    def __init__(
        self, work: Callable[[Callable[[Item], None]], object], then: Callable[[Iterable[Item]], Iterator[Output]]
    ) -> None:
        self._work, self._then = work, then

    def __iter__(self) -> Iterator[Output]:
        items: list[Item] = []
        self._work(items.append)
        return self._then(items)

    def then(self, make: Callable[[Iterable[Output]], Iterator[Answer]]) -> ProducerConsumer[Item, Answer]:
        """Append a second transformation, which runs in the consumer's thread as well."""
        return ProducerConsumer(self._work, lambda items: make(self._then(items)))

    def into(self, use: Callable[[Iterable[Output]], Answer]) -> Answer:
        """Run `use` on the items in a second thread while this one produces, and return its result.

        An exception of either thread is raised here.
        """
        queue: SimpleQueue[object] = SimpleQueue()
        with ThreadPoolExecutor(1, "consumer") as pool:
            try:
                answer = pool.submit(copy_context().run, use, self._then(_iterate_queue(queue)))
                self._work(lambda item: _put_item(queue, item, answer))
                queue.put(_END)
            finally:
                # A signal may raise anywhere in the block above. After a normal end nobody reads this
                # item; otherwise it stops the consumer, and a half-written file is removed.
                queue.put(_Stopped())
            return answer.result()


def consume(use: Callable[[Iterable[Output]], Answer], items: Iterable[Output]) -> Answer:
    """Return `use(items)`; for a ProducerConsumer, `use` runs while the items are produced."""
    return items.into(use) if isinstance(items, ProducerConsumer) else use(items)


class _Stopped(Exception):
    """The producer stopped early, so no more items follow."""


def _put_item(queue: SimpleQueue[object], item: object, answer: Future[Answer]) -> None:
    if answer.done():
        # Raises the consumer's exception here, because nobody would read further items.
        answer.result()
    queue.put(item)


def _iterate_queue(queue: SimpleQueue[object]) -> Iterator[Any]:
    while (item := queue.get()) is not _END:
        if isinstance(item, _Stopped):
            raise item
        yield item

"""Blocks of work on as many threads as BLAS was given, each with a BLAS of one thread."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Spread(Protocol):
    """Results of a function over items, in their order; as `map`."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]: ...


@contextmanager
def crew() -> Iterator[Spread]:
    """A `map` that runs on the threads that BLAS was given (OMP_NUM_THREADS and the like), BLAS itself on one.

    BLAS's own threads wait for each other in every product: with both cores of a machine shared, blocks of distances
    took five times as long on two of them as on one. numpy's passes between the products run in parallel as well.
    What a function answers must not depend on the other items; then no result depends on the number of threads.
    """
    blas = _blas()
    threads = max((library.num_threads for library in blas.lib_controllers), default=1)
    if threads < 2:
        yield map
        return
    with blas.limit(limits=1), ThreadPoolExecutor(threads) as pool:
        yield functools.partial(_in_order, pool, threads)


@functools.cache
def _blas() -> Any:
    """Controller of the BLAS libraries; looking for them takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _in_order(pool: ThreadPoolExecutor, threads: int, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """At most one result more than there are threads waits to be taken."""
    left = iter(items)
    waiting: deque[Future[R]] = deque(pool.submit(function, item) for item in itertools.islice(left, threads + 1))
    while waiting:
        result = waiting.popleft().result()
        waiting.extend(pool.submit(function, item) for item in itertools.islice(left, 1))
        yield result

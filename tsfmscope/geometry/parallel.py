"""Thread pool with as many threads as BLAS was given; BLAS itself runs on one thread inside it."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

import numpy as np

T = TypeVar("T")
R = TypeVar("R")

# Rows per task of a thread. The number is fixed, so that sums do not depend on the number of
# threads.
CHUNK = 2048
# Entries of an array for which more than one thread does not pay.
SMALL = 2**18


class ParallelMap(Protocol):
    """Function like `map`: it applies a function to items and yields the results in order."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]: ...


def chunks(n: int) -> list[slice]:
    """Split n rows into the slices that threads process."""
    return [slice(begin, begin + CHUNK) for begin in range(0, n, CHUNK)]


@contextmanager
def blas_workers() -> Iterator[ParallelMap]:
    """Yield a parallel `map` on as many threads as BLAS was given, and limit BLAS to one.

    The number of threads is BLAS's own (OMP_NUM_THREADS and the like); with one thread, `map` itself is
    yielded. BLAS's own threads wait for each other in every product: when other work shared both cores of a
    machine, blocks of distances took five times as long on two BLAS threads as on one. numpy's passes between
    the products run in parallel as well. The result for an item must not depend on the other items; then no
    result depends on the number of threads.
    """
    blas = thread_controller("blas")
    threads = max((library.num_threads for library in blas.lib_controllers), default=1)
    if threads < 2:
        yield map
        return
    with blas.limit(limits=1), ThreadPoolExecutor(threads) as pool:
        yield functools.partial(_in_order, pool, threads)


@contextmanager
def one_thread_if_small(rows: np.ndarray) -> Iterator[None]:
    """Limit BLAS to one thread inside the context if the array has at most SMALL entries.

    BLAS threads spin while they wait for the next product. With two threads, all measures of 12 layers of at most
    89 rows of width 64 took 4.3 s of processor time, and 1.6 s with one.
    """
    with thread_controller("blas").limit(limits=1) if rows.size <= SMALL else nullcontext():
        yield


@functools.cache
def thread_controller(kind: str) -> Any:
    """Return the controller of the libraries of a kind, "blas" or "openmp", cached: finding them takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    # scipy has a BLAS of its own, which the controller finds only once it is loaded.
    importlib.import_module("scipy.linalg")
    return ThreadpoolController().select(user_api=kind)


def _in_order(pool: ThreadPoolExecutor, threads: int, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield results in order; at most one result more than the number of threads is in progress or waiting."""
    left = iter(items)
    waiting: deque[Future[R]] = deque(pool.submit(function, item) for item in itertools.islice(left, threads + 1))
    while waiting:
        result = waiting.popleft().result()
        waiting.extend(pool.submit(function, item) for item in itertools.islice(left, 1))
        yield result

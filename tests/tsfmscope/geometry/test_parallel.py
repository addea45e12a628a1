"""Work on several threads, in order, with the same results on any number of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from tsfmscope.geometry.clusters import choose_clusters
from tsfmscope.geometry.parallel import CHUNK, blas_workers, chunks, thread_controller
from tsfmscope.geometry.spectrum import log_isotropy


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """BLAS with as many threads, which is what crew() goes by."""
    with threadpool_limits(request.param, user_api="blas"):
        yield request.param


def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    def slow_first(item: int) -> int:
        time.sleep(0.02 if item == 0 else 0.0)
        return item * item

    with blas_workers() as spread:
        assert list(spread(slow_first, range(20))) == [item * item for item in range(20)]


def test_blas_has_one_thread_inside_and_its_own_number_again_outside(threads: int) -> None:
    def seen(_: int) -> list[int]:
        return [library.num_threads for library in thread_controller("blas").lib_controllers]

    with blas_workers() as spread:
        assert {tuple(one) for one in spread(seen, range(4))} == {(1,) * len(seen(0))}
    assert seen(0) == [threads] * len(seen(0))


def test_the_work_runs_on_as_many_threads_as_blas_had(threads: int) -> None:
    barrier = threading.Barrier(threads, timeout=30)
    with blas_workers() as spread:
        names = set(spread(lambda _: (barrier.wait(), threading.current_thread().name)[1], range(threads)))
    assert len(names) == threads


def test_few_results_wait_while_the_first_is_not_taken() -> None:
    done = []
    with threadpool_limits(2, user_api="blas"), blas_workers() as spread:
        results = spread(lambda item: done.append(item) or item, range(100))
        assert next(results) == 0
        time.sleep(0.05)
        assert len(done) <= 5


@pytest.mark.parametrize("n", [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK - 1])
def test_chunks_cover_every_row_once(n: int) -> None:
    assert np.concatenate([np.arange(n)[part] for part in chunks(n)] or [[]]).tolist() == list(range(n))


def test_an_error_of_one_item_is_raised(threads: int) -> None:
    def broken(item: int) -> int:
        if item == 3:
            raise ValueError("item 3")
        return item

    with pytest.raises(ValueError, match="item 3"), blas_workers() as spread:
        list(spread(broken, range(10)))


@pytest.mark.parametrize(("rows", "width"), [(5000, 40), (64, 1024), (400, 1024)])
def test_clusters_and_isotropy_have_the_same_bits_on_one_and_on_two_threads(rows: int, width: int) -> None:
    rng = np.random.default_rng(0)
    states = rng.standard_normal((rows, width)) + 3 * rng.standard_normal((4, width))[rng.integers(4, size=rows)]
    found = []
    for count in (1, 2):
        with threadpool_limits(count, user_api="blas"):
            found.append((choose_clusters(states, seed=1), log_isotropy(states)))
    (one, given), (two, same) = found
    assert one.labels.tobytes() == two.labels.tobytes()
    assert (one.silhouettes, one.inertias, given) == (two.silhouettes, two.inertias, same)

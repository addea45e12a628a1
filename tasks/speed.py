"""Seconds of a work on a core or on a GPU, from four rates: products, other values, calls, weights read.

`CORE` was fitted on 2026-11-27 to processor seconds of the states and forecasts of 21 models of 0.1 to 205 million
parameters, of one thread of an AMD EPYC; docs/paper_scale.md has the differences. Its rate of reading weights was
measured on 2026-11-28 with both cores of an AMD EPYC busy: a product of 4 to 128 rows takes 0.75 ns per weight and
0.028 ns per weight and row, within 10 %.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from tsfmscope.tasks.geometry.dimension import is_wide


@dataclass(frozen=True)
class Work:
    """Work of a device, in four parts whose seconds add up.

    multiply_adds: of matrix products. values: values that the other operations write. calls: blocks that are run, each
    of which costs time however few its tokens are. reads: weights that are read from memory, once in each pass and
    each step of a forecast; in a pass of few tokens, reading takes longer than the products.
    """

    multiply_adds: float = 0.0
    values: float = 0.0
    calls: float = 0.0
    reads: float = 0.0

    def __add__(self, added: Work) -> Work:
        """Return the sum of two works."""
        return Work(
            self.multiply_adds + added.multiply_adds,
            self.values + added.values,
            self.calls + added.calls,
            self.reads + added.reads,
        )

    def __mul__(self, times: float) -> Work:
        """Return the work done several times."""
        return Work(times * self.multiply_adds, times * self.values, times * self.calls, times * self.reads)


@dataclass(frozen=True)
class Speed:
    """Speed of a device: multiply-adds, values and weights that are read per second, and seconds of a call.

    memory: bytes of a GPU's memory; None for a core.
    """

    name: str
    multiply_adds: float
    values: float
    call: float
    reads: float
    memory: float | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether this is the speed of a GPU."""
        return self.memory is not None

    def seconds(self, work: Work) -> float:
        """Return the seconds that a work takes."""
        products = work.multiply_adds / self.multiply_adds + work.reads / self.reads
        return products + work.values / self.values + work.calls * self.call


# The core on which the constants were fitted.
CORE = Speed("core", multiply_adds=36e9, values=6.5e8, call=1.7e-3, reads=1.3e9)


class Gpu(NamedTuple):
    """Published numbers of a GPU: float32 operations per second without tensor cores, bytes per second, bytes."""

    operations: float
    bandwidth: float
    memory: float


# NVIDIA's data sheets: A100 80GB SXM, H100 SXM, H200 SXM, L40S, L4. Products are in float32, the precision of the
# pipeline, for which torch uses no tensor cores by default.
GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        "a100": Gpu(19.5e12, 2039e9, 80e9),
        "h100": Gpu(67e12, 3350e9, 80e9),
        "h200": Gpu(67e12, 4800e9, 141e9),
        "l40s": Gpu(91.6e12, 864e9, 48e9),
        "l4": Gpu(30.3e12, 300e9, 24e9),
    }
)
# Shares of the published numbers that are assumed to be reached, bytes of traffic per value, and seconds of the about
# 30 kernels of a block. No GPU was available to measure them.
EFFICIENCY, BYTES_PER_VALUE, BYTES_OF_WEIGHT, GPU_CALL = 0.5, 16, 4, 3e-4


def gpu_speed(name: str) -> Speed:
    """Return the assumed speed of a GPU of `GPUS`."""
    gpu = GPUS[name]
    return Speed(
        name,
        multiply_adds=EFFICIENCY * gpu.operations / 2,
        values=EFFICIENCY * gpu.bandwidth / BYTES_PER_VALUE,
        call=GPU_CALL,
        reads=EFFICIENCY * gpu.bandwidth / BYTES_OF_WEIGHT,
        memory=gpu.memory,
    )


# Shape of the measured product, [row, in] x [in, out].
ROWS, INNER, OUTER = 1024, 512, 2048
# Rows of the product that measures how fast weights are read, and number of matrices of 16 MB that it reads in turn, so
# that they do not stay in the caches.
FEW_ROWS, N_MATRICES = 4, 4
# More threads than this are not measured, since each has matrices of its own.
MOST_THREADS = 16


def measure_core(seconds: float = 0.5, threads: int = 1) -> Speed:
    """Measure products of many and of few rows, each for some seconds, and return the speed of a core.

    threads: number of cores that multiply at the same time, since they share caches, memory and, as hyper-threads, the
    arithmetic units. The other rates are those of `CORE` by the ratio of products. Processor time counts, so that other
    programs on the machine change the result little.
    """
    import torch

    def measure(_: int) -> tuple[float, float]:
        matrices = [torch.ones(2 * INNER, 2 * OUTER) for _ in range(N_MATRICES)]
        rows, matrix, few = torch.ones(ROWS, INNER), torch.ones(INNER, OUTER), torch.ones(FEW_ROWS, 2 * INNER)
        return (
            _seconds_of(lambda: torch.mm(rows, matrix), seconds),
            _seconds_of(lambda: [torch.mm(few, matrix) for matrix in matrices], seconds),
        )

    count = min(threads, MOST_THREADS)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(count) as pool:
            measured = list(pool.map(measure, range(count)))
    finally:
        torch.set_num_threads(before)
    product, few_rows = (sum(column) / count for column in zip(*measured, strict=True))
    return speed_of(ROWS * INNER * OUTER / product, few_rows / (4 * INNER * OUTER * N_MATRICES))


def speed_of(multiply_adds: float, few_rows: float) -> Speed:
    """Return the speed of a core from its multiply-adds per second, and its seconds per weight for FEW_ROWS rows.

    At least half of the latter is reading, whatever the noise of the two measurements.
    """
    ratio = multiply_adds / CORE.multiply_adds
    reading = max(few_rows - FEW_ROWS / multiply_adds, few_rows / 2)
    return Speed("this machine", multiply_adds, CORE.values * ratio, CORE.call / ratio, 1 / reading)


def _seconds_of(work: Callable[[], object], seconds: float) -> float:
    """Return the mean processor seconds of a work that is repeated for some seconds."""
    count, start = 0, time.thread_time()
    while (elapsed := time.thread_time() - start) < seconds:
        work()
        count += 1
    return elapsed / count


class GeometryDraws(NamedTuple):
    """Draws of the measures of a layer: `restarts`, `permutations` and `repeats` of the block `geometry`."""

    restarts: int
    permutations: int
    repeats: int


def geometry_seconds(tokens: int, width: int, core: Speed, draws: GeometryDraws, *, with_cai: bool) -> float:
    """Return the seconds of the measures of one layer; `k_max` is taken as 10.

    with_cai: with the measures of Cai et al. The formula was fitted on 2026-11-28 to 52 measurements on random states
    in four clusters, of fourteen shapes from 32 x 64 to 16,384 x 256 and two or four choices of draws each. Predictions
    differ from these measurements by -35 % to +30 %.
    """
    restarts, permutations, repeats = draws
    values = tokens * width
    seconds = 0.005 + 0.0095 * restarts + 7.4e-6 * restarts * tokens + 2.15e-8 * permutations * values
    seconds += 0.037 * repeats + 2.75e-7 * values + 6.3e-11 * tokens * values
    if not is_wide(tokens, width):
        seconds += 7.4e-11 * (width * values + 9 * width**3)
    if with_cai:
        seconds += 0.043 + 3.9e-7 * values
    return seconds * CORE.multiply_adds / core.multiply_adds


def geometry_bytes(tokens: int, width: int) -> float:
    """Return the memory of a process that measures a layer: packages, and 52 bytes per value."""
    return 240e6 + 52.0 * tokens * width

"""Singular values: our streamed QR against torch on the stacked matrix, and our weights against weightwatcher's.

    python -m bench.spectra [--quick] [--rows 10000000 [--width 1024]]

Tall matrices: blocks of 2,048 rows whose stack [N, 1024] has known singular values, from 1 to 1e-12 with even
steps of the logarithm. `ours` folds each block into R as it is made; `torch` is torch.linalg.svdvals of the
stack. With --rows only ours runs, on that many rows: 10 million of 1024, 2.1e13 operations, take a quarter of
an hour on one core.

Weights: the matrices of one block of a base-shape T5. `ours` is tsfmscope.ranks.spectrum.singular_values.
`weightwatcher` is its public WeightWatcher.get_ESD of every layer (`uv pip install --group bench` installs
the package). `its SVD` is the line of it that does the work, scipy.linalg.svd of the matrix in float64, which
runs without the package too.

Each run is a process of its own, on as many threads as the environment allows. Times do not include the
making of the blocks. `cpu` is processor time, which other load on the machine changes less, and from which
`speedup` is computed. Memory is the process's peak above its size before the first block, the making of the
blocks included. Errors are the largest |σ - known| / σ_1; for weights, the known values are
torch.linalg.svdvals in float64, which uses another LAPACK than scipy.

The last line is JSON: speedup (torch's time over ours, on the stack), speedup_weights (that of get_ESD, null
without it), peak_mb (of ours, the most), peak_mb_torch, max_relative_error (of ours, the worst).
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from bench.memory import MIB, peak, resident_bytes
from tsfmscope.ranks.spectrum import singular_values
from tsfmscope.ranks.tall import TallQR

WIDTH, HEIGHT = 1024, 2048
# rows of the stack, 1 GiB, which LAPACK copies
STACKED = 131_072
# sizes that only ours runs; the second shows how errors grow with the rows
LONG = [(1_048_576, WIDTH), (10_000_000, 64)]
QUICK = (16_384, [(65_536, WIDTH), (1_000_000, 64)])
# smallest singular value over the largest
LEAST = 1e-12
# matrices of t5-base
SHAPES = {"q": (768, 768), "k": (768, 768), "v": (768, 768), "o": (768, 768), "mlp": (3072, 768)}


class Measurement(NamedTuple):
    """Measurements of one process; `wall` and `cpu` are elapsed and processor time in seconds."""

    wall: float
    cpu: float
    peak_mb: float
    error: float


class Clock:
    """Sum of elapsed and processor time, in seconds, of the code inside `with`."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def __enter__(self) -> None:
        self._begun = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter() - self._begun[0]
        self.cpu += time.process_time() - self._begun[1]


def true_values(width: int) -> np.ndarray:
    """Return the singular values of the stacked blocks."""
    return np.geomspace(1, LEAST, width)


def blocks(rows: int, width: int) -> Iterator[np.ndarray]:
    """Yield blocks [HEIGHT, width], with `rows` rows in all, whose stack has the singular values `true_values`.

    Block b is c_b Q H_b R, where Q has orthonormal columns, R is diag(true_values) times a rotation, H_b is a
    reflection that makes blocks differ, and the c_b² sum to 1. A last, shorter block is c_b H_b R, with
    `width` rows and then zeros. ValueError if a last, shorter block would have fewer than `width` rows.
    """
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.standard_normal((width, width)))[0]
    r = true_values(width)[:, None] * rotation
    q = np.linalg.qr(rng.standard_normal((HEIGHT, width)))[0]
    base = q @ r
    count = -(-rows // HEIGHT)
    weights = rng.uniform(0.1, 1.0, count)
    weights /= np.linalg.norm(weights)
    for number, weight in enumerate(weights):
        direction = rng.standard_normal(width)
        direction /= np.linalg.norm(direction)
        left = q if rows - number * HEIGHT >= HEIGHT else np.eye(rows - number * HEIGHT, width)
        if left is not q and len(left) < width:
            raise ValueError(f"rows: got {rows}, expected no rest, or one of at least {width}, over {HEIGHT}")
        block = base.copy() if left is q else left @ r
        block -= np.outer(2 * (left @ direction), direction @ r)
        block *= weight
        yield block


def tall_ours(rows: int, width: int) -> Measurement:
    """Measure our QR, which adds one block after the other."""
    # First calls load libraries.
    TallQR.of([np.eye(3)]).singular_values()
    before, clock, qr = resident_bytes(), Clock(), TallQR(width)
    for block in blocks(rows, width):
        with clock:
            qr.add(block)
    with clock:
        values = qr.singular_values()
    return Measurement(clock.wall, clock.cpu, (peak() - before) / MIB, float(np.abs(values - true_values(width)).max()))


def tall_torch(rows: int, width: int) -> Measurement:
    """Measure torch on the whole stack."""
    import torch

    torch.linalg.svdvals(torch.eye(3, dtype=torch.float64))
    before, clock, n_rows = resident_bytes(), Clock(), 0
    stack = torch.empty((rows, width), dtype=torch.float64)
    for block in blocks(rows, width):
        stack[n_rows : n_rows + len(block)] = torch.from_numpy(block)
        n_rows += len(block)
    with clock:
        values = torch.linalg.svdvals(stack).numpy()
    return Measurement(clock.wall, clock.cpu, (peak() - before) / MIB, float(np.abs(values - true_values(width)).max()))


def weights() -> dict[str, np.ndarray]:
    """Return float32 matrices whose spectra decay like those of trained weights."""
    rng = np.random.default_rng(0)
    return {
        name: (rng.standard_normal((rows, columns)) * np.geomspace(1, 0.01, columns)).astype(np.float32)
        for name, (rows, columns) in SHAPES.items()
    }


def weights_by(values: Callable[[dict[str, np.ndarray], Clock], dict[str, np.ndarray]]) -> Measurement:
    """Measure the function `values` on every matrix; errors are relative to torch, with another LAPACK."""
    import torch

    matrices = weights()
    expected = {
        name: torch.linalg.svdvals(torch.from_numpy(matrix).double()).numpy() for name, matrix in matrices.items()
    }
    # First calls load libraries.
    values({"warm": matrices["q"][:64, :64]}, Clock())
    before, clock = resident_bytes(), Clock()
    results = values(matrices, clock)
    errors = [float(np.abs(results[name] - matrix).max() / matrix[0]) for name, matrix in expected.items()]
    return Measurement(clock.wall, clock.cpu, (peak() - before) / MIB, max(errors))


def weights_ours(matrices: dict[str, np.ndarray], clock: Clock) -> dict[str, np.ndarray]:
    with clock:
        return {name: singular_values(matrix) for name, matrix in matrices.items()}


def weights_scipy(matrices: dict[str, np.ndarray], clock: Clock) -> dict[str, np.ndarray]:
    """Compute singular values like weightwatcher 0.7.7's RMT_Util.py: svd_vals of `W.astype(float)`, sorted."""
    from scipy import linalg

    with clock:
        values_by_name = {name: linalg.svd(matrix.astype(float), compute_uv=False) for name, matrix in matrices.items()}
        return {name: np.sort(values)[::-1] for name, values in values_by_name.items()}


def weights_weightwatcher(matrices: dict[str, np.ndarray], clock: Clock) -> dict[str, np.ndarray]:
    """Return the square roots of the eigenvalues that weightwatcher returns."""
    import torch

    logging.disable(logging.CRITICAL)
    import weightwatcher

    layers = torch.nn.ModuleDict(
        {name: torch.nn.Linear(*matrix.shape[::-1], bias=False) for name, matrix in matrices.items()}
    )
    for name, matrix in matrices.items():
        layers[name].weight.data = torch.from_numpy(matrix)
    with clock:
        watcher = weightwatcher.WeightWatcher(model=layers)
        densities = {name: watcher.get_ESD(layer=name) for name in matrices}
    return {name: np.sqrt(np.sort(eigenvalues)[::-1]) for name, eigenvalues in densities.items()}


SIDES: dict[str, Callable[[int, int], Measurement]] = {
    "ours": tall_ours,
    "torch": tall_torch,
    "weights ours": lambda rows, width: weights_by(weights_ours),
    "weights its SVD": lambda rows, width: weights_by(weights_scipy),
    "weights weightwatcher": lambda rows, width: weights_by(weights_weightwatcher),
}


def measure(side: str, rows: int = 0, width: int = WIDTH) -> Measurement:
    """Measure one side in a process of its own, and print its line of the table."""
    command = [sys.executable, "-m", "bench.spectra", "--side", side, "--rows", str(rows), "--width", str(width)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    result = Measurement(**json.loads(lines[-1]))
    size = f"{rows} x {width}" if rows else f"{len(SHAPES)} matrices"
    print(
        f"{side:22s} {size:>17s} {result.wall:9.2f} {result.cpu:9.2f} {result.peak_mb:9.1f} {result.error:9.1e}",
        flush=True,
    )
    return result


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows; under a minute")
    parser.add_argument("--rows", type=int, help="ours alone on so many rows, and nothing else")
    parser.add_argument("--width", type=int, default=WIDTH, help="columns of these rows")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(SIDES[options.side](options.rows, options.width)._asdict()))
        return
    print(f"{'side':22s} {'size':>17s} {'wall s':>9s} {'cpu s':>9s} {'peak MB':>9s} {'error':>9s}")
    if options.rows:
        measure("ours", options.rows, options.width)
        return
    stacked, long = QUICK if options.quick else (STACKED, LONG)
    theirs, ours = measure("torch", stacked), [measure("ours", stacked)]
    ours += [measure("ours", *size) for size in long]
    weighed, bare = measure("weights ours"), measure("weights its SVD")
    watcher = measure("weights weightwatcher") if find_spec("weightwatcher") else None
    print(f"its SVD over ours, of weights: {bare.cpu / weighed.cpu:.2f}")
    print(json.dumps({
        "speedup": round(theirs.cpu / ours[0].cpu, 2),
        "speedup_weights": watcher and round(watcher.cpu / weighed.cpu, 2),
        "peak_mb": round(max(result.peak_mb for result in ours), 1),
        "peak_mb_torch": round(theirs.peak_mb, 1),
        "max_relative_error": max(result.error for result in [*ours, weighed]),
    }))  # fmt: skip


if __name__ == "__main__":
    main()

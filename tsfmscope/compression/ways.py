"""Ways to run one model, each in a process of its own.

Threads, memory and compiled code of one way are then no other's. A process reads requests from its standard input and
writes answers to its standard output, both as pickles.
"""

from __future__ import annotations

import math
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from jaxtyping import Float

from tsfmscope.compression.budget import MedianRatio, median_ratio
from tsfmscope.compression.onnx_forecaster import MODEL, OnnxForecaster, open_session
from tsfmscope.errors import HealthError, ModelError
from tsfmscope.models.types import Forecast
from tsfmscope.process_memory import peak_bytes_since_start
from tsfmscope.series.catalog import Modality
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    from tsfmscope.models.base import Forecaster

# How a process runs the checkpoint of its folder.
Runtime = Literal["torch", "package", "compiled", "int8", "onnx"]
# Largest numbers of series in one forecast, and of threads.
BATCHES, THREADS = (1, 8, 64), (1, 2)
# Seconds of one measurement: shorter forecasts are repeated.
LEAST_SECONDS = 0.02
# Rounds, in each of which every way is measured once; fewer where they would take more seconds than this, but six, from
# which on the interval of a ratio has 95 %.
ROUNDS, LEAST_ROUNDS, MOST_SECONDS = 11, 6, 30.0
# Seconds until a way must have made its first forecast, of one series; compiling code takes long.
START_SECONDS = 300.0
# File of what a process writes to standard error.
ERRORS = "errors"
# Series of the forecast whose memory is measured.
MEASURED = 8


class Way(NamedTuple):
    """One way to run a model.

    folder: checkpoint, or ONNX model, that its process loads. usage: what a user runs, in words; None: `tsfmscope
    forecast FOLDER`, so that the folder is what a user wants.
    """

    name: str
    runtime: Runtime
    folder: Path
    usage: str | None = None


class WayError(ModelError):
    """Error in the process of a way: its text is the reason why the way is left out."""


class WayProcess:
    """Process that runs one way; it forecasts as a model does.

    start_seconds: of loading, and of the first forecast of one series. peak_bytes: of the process's memory during a
    forecast of MEASURED series, and before.
    """

    modality: ClassVar[Modality] = "series"

    def __init__(self, way: Way, windows: Windows) -> None:
        """Start the process and forecast; windows: those of every timed forecast. WayError if the way fails."""
        self.way, self.name, self.failed = way, way.name, False
        # What the process writes to standard error, and the code that it compiles.
        self._folder = Path(tempfile.mkdtemp(prefix="tsfmscope-"))
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1",
            # Code is compiled in the process itself, whose seconds are measured.
            "TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(self._folder),
        }  # fmt: skip
        with (self._folder / ERRORS).open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                env=environment,
                # Ctrl-C reaches this process only, which then closes the other's input.
                start_new_session=True,
            )  # fmt: skip
        limit = threading.Timer(START_SECONDS, self._process.kill)
        limit.start()
        began = time.monotonic()
        try:
            self.start_seconds = float(self._ask(way, windows))
            self.peak_bytes = int(self._ask("measure memory"))
        except BaseException as error:
            self.close()
            if isinstance(error, WayError) and time.monotonic() - began >= START_SECONDS:
                raise WayError(f"no forecast within {START_SECONDS:.0f} s") from None
            raise
        finally:
            limit.cancel()

    def with_condition(self, context: int, history: int) -> tuple[Self, int]:
        """Return this model and the context: a model that reads further back finds missing steps there."""
        return self, context

    def forecast(self, windows: Windows, *, levels: Sequence[float], samples: int, seeds: Sequence[int]) -> Forecast:
        """Return quantiles of the horizon as `Forecaster.forecast` does. HealthError if it fails."""
        try:
            values = self._ask("forecast", windows, levels, samples, seeds)
        except WayError as error:
            raise HealthError(f"{self.name}: {error}") from None
        return Forecast(values, tuple(levels))

    def set_threads(self, threads: int) -> None:
        """Set the number of threads of the next forecasts."""
        self._ask("set threads", threads)

    def seconds(self, batch: int, repeats: int) -> float:
        """Return the mean seconds of `repeats` forecasts of `batch` series."""
        return float(self._ask("time", batch, repeats))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, *request: Any) -> Any:
        """Return the process's answer. Raises WayError with the reason if it failed or ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
            answer, error = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            self.failed = True
            self._process.kill()
            status = self._process.wait()
            raise WayError(f"its process ended with status {status}{self._last_error()}") from None
        if error:
            self.failed = True
            raise WayError(error)
        return answer

    def _last_error(self) -> str:
        """Return the last line that the process wrote to its standard error; empty without one."""
        lines = (self._folder / ERRORS).read_text("utf-8", "replace").splitlines()
        return next((f" ({line.strip()[:200]})" for line in reversed(lines) if line.strip()), "")


class Measured(NamedTuple):
    """Seconds of forecasts by way, number of threads and batch, [round], each in the same rounds."""

    seconds: Mapping[tuple[str, int, int], Float[np.ndarray, " round"]]

    def settings(self) -> list[tuple[int, int]]:
        """Return the numbers of threads and batches, in the order of the measurement."""
        return list(dict.fromkeys((threads, batch) for _, threads, batch in self.seconds))

    def ratio(self, way: str, base: str, threads: int, batch: int) -> MedianRatio:
        """Return the ratio of two ways in one setting."""
        return median_ratio(self.seconds[base, threads, batch], self.seconds[way, threads, batch])

    def mean_ratio(self, way: str, base: str) -> MedianRatio:
        """Return the ratio of two ways over all settings: the geometric mean of each round."""
        rounds = min(map(len, self.seconds.values()))
        of_base, of_way = (
            np.exp(np.mean([np.log(self.seconds[name, *setting][:rounds]) for setting in self.settings()], axis=0))
            for name in (base, way)
        )
        return median_ratio(of_base, of_way)


def measure_ways(
    processes: Sequence[WayProcess], threads: Sequence[int], show: Callable[[int, int], None]
) -> tuple[Measured, dict[str, str]]:
    """Time forecasts of all ways in turn, by number of threads and batch; the first way is the base.

    show: called with the number of settings that are done, and of all. Returns the seconds, and the reasons of ways
    that failed meanwhile, by name; their processes are closed. Raises WayError if the base fails.
    """
    reasons: dict[str, str] = {}
    while True:
        left = [process for process in processes if process.name not in reasons]
        try:
            return _measure(left, threads, show), reasons
        except WayError as error:
            process = next(process for process in left if process.failed)
            if process is left[0]:
                raise
            process.close()
            reasons[process.name] = str(error)


def _measure(processes: Sequence[WayProcess], threads: Sequence[int], show: Callable[[int, int], None]) -> Measured:
    """Time all ways, none of which may fail."""
    seconds: dict[tuple[str, int, int], np.ndarray] = {}
    rng = np.random.default_rng(0)
    settings = [(count, batch) for count in threads for batch in BATCHES]
    for done, (count, batch) in enumerate(settings):
        show(done, len(settings))
        repeats: list[int] = []
        expected = 0.0
        for process in processes:
            process.set_threads(count)
            # The first forecast of a batch compiles code or fills caches.
            process.seconds(batch, 1)
            once = process.seconds(batch, 1)
            repeats.append(max(1, math.ceil(LEAST_SECONDS / max(once, 1e-6))))
            expected += once * repeats[-1]
        rounds = min(ROUNDS, max(LEAST_ROUNDS, int(MOST_SECONDS / expected)))
        taken = np.empty((len(processes), rounds))
        for number in range(rounds):
            # In another order each time, since the way before may leave the processor slower or faster.
            for index in rng.permutation(len(processes)).tolist():
                taken[index, number] = processes[index].seconds(batch, repeats[index])
        seconds |= {(process.name, count, batch): row for process, row in zip(processes, taken, strict=True)}
    for process in processes:
        process.set_threads(1)
    return Measured(seconds)


def main() -> None:
    """Answer the requests of standard input until it is closed."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What packages print must not mix with the answers.
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    runner: _Runner | None = None
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        try:
            if runner is None:
                began = time.perf_counter()
                runner = _Runner(*request)
                answer: Any = time.perf_counter() - began
            else:
                answer = runner.answer(*request)
            reply: tuple[Any, str | None] = (answer, None)
        except Exception as error:  # packages of every family may raise anything
            reply = (None, " ".join(f"{type(error).__name__}: {error}".split())[:200])
        pickle.dump(reply, answers)
        answers.flush()


class _Runner:
    """Model of a process, which answers its requests."""

    def __init__(self, way: Way, windows: Windows) -> None:
        self.way, self.windows = way, windows
        self.model = _load(way)
        self._forecast(1)

    def answer(self, request: str, *arguments: Any) -> Any:
        if request == "set threads":
            return self._set_threads(*arguments)
        if request == "time":
            batch, repeats = arguments
            began = time.perf_counter()
            for _ in range(repeats):
                self._forecast(batch)
            return (time.perf_counter() - began) / repeats
        if request == "measure memory":
            self._forecast(MEASURED)
            return peak_bytes_since_start()
        windows, levels, samples, seeds = arguments
        return self.model.forecast(windows, levels=levels, samples=samples, seeds=seeds).values

    def _set_threads(self, threads: int) -> None:
        if isinstance(self.model, OnnxForecaster):
            os.environ["OMP_NUM_THREADS"] = str(threads)
            self.model.session = open_session(self.way.folder / MODEL)
        else:
            import torch

            torch.set_num_threads(threads)

    def _forecast(self, batch: int) -> None:
        rows = [row % len(self.windows) for row in range(batch)]
        self.model.forecast(self.windows.take(rows), levels=(0.1, 0.5, 0.9), samples=20, seeds=list(range(batch)))


def _load(way: Way) -> Forecaster | OnnxForecaster | _Package:
    if way.runtime == "onnx":
        return OnnxForecaster.load(way.folder)
    import torch

    from tsfmscope.models.references import load_family, resolve

    torch.set_num_threads(1)
    model: Any = load_family(resolve(way.folder), "cpu")
    if way.runtime == "package":
        return _Package(model.stock_model())
    if way.runtime == "compiled":
        model.network.compile()
    if way.runtime == "int8":
        from torch.ao.quantization import quantize_dynamic

        model.network = quantize_dynamic(model.network.eval(), {torch.nn.Linear}, dtype=torch.qint8)
    forecaster: Forecaster = model
    return forecaster


class _Package:
    """Pipeline of the package chronos that draws sample paths."""

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline

    def forecast(self, windows: Windows, *, levels: Sequence[float], samples: int, seeds: Sequence[int]) -> Forecast:
        import torch

        torch.manual_seed(seeds[0])
        quantiles, _ = self.pipeline.predict_quantiles(
            torch.from_numpy(windows.context), windows.horizon, quantile_levels=list(levels), num_samples=samples
        )
        return Forecast(np.moveaxis(quantiles.numpy(), -1, 1), tuple(levels))


if __name__ == "__main__":
    main()

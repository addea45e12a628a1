"""Seconds and memory of the ways to run a model, over those of the same forecast by torch.

    python -m bench.faster [--quick] [--models NAME ...] [--threads N ...]

The ways are those of `tsfmscope compress --faster`. Each way is a process of its own; all of them forecast the same
windows, of 500 steps and a horizon of 24, in turn. A name of WIDE is a released shape with random weights; narrower
heads and few bits, which need calibration, are left out there. Losses are not measured here: `bench.bits`, `tsfmscope
certify`.
`--quick`: two ways of one model.

Last line JSON: by model and way, the ratio by threads and batch, memory_mb and start_seconds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.forecast_case import SHAPES
from tsfmscope.compression import ways
from tsfmscope.compression.export import save
from tsfmscope.compression.ways import Way
from tsfmscope.functions import faster
from tsfmscope.functions.load import load, make_case
from tsfmscope.functions.smallest import TIMED, search_series
from tsfmscope.models.registry import family_class

QUICK = "chronos-bolt-mini"
WIDE = {"chronos-bolt, base": ("chronos-bolt", "base"), "chronos-bolt, small": ("chronos-bolt", "small")}
MODELS = (
    *("chronos-bolt-mini", "chronos-2-mini", "patchtst-mini", "timesfm-mini", "timesfm-2.5-mini", "moirai-2-mini"),
    *("toto-2-mini", "patchtst-fm-mini", "ttm-mini", "flowstate-mini", *WIDE),
)
CALIBRATED = ("ONNX few bits", "narrower heads", "ONNX narrower heads")


class Writer(faster._Writer):
    """Writes the ways of one model that are asked for."""

    only: Sequence[str] = ()
    without: tuple[str, ...] = ()

    def ways(self) -> dict[str, Callable[[], Way]]:
        """Return name -> function that writes a way."""
        found = super().ways()
        return {name: way for name, way in found.items() if name in (self.only or found) and name not in self.without}


def measure(name: str, threads: Sequence[int], only: Sequence[str]) -> dict[str, dict[str, float]]:
    """Measure the ways of one model, print a line for each, and return them."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if name in WIDE:
            family, shape = WIDE[name]
            made = family_class(family).new(SHAPES[family][shape], seed=0)
            (folder / "made").mkdir()
            save(made, folder / "made")
            del made
            model = load(folder / "made", family=family)
        else:
            model = load(name)
        timed = next(item for item in search_series(None, 0) if item.name == TIMED)
        case = make_case(model, timed, context=None, horizon=None, seed=0)
        writer = Writer(model, case, case.horizon, folder)
        writer.only = only
        writer.without = CALIBRATED if name in WIDE else ()
        processes, reasons = faster._start_ways(writer)
        try:
            measured, failed = ways.measure_ways(processes, threads, lambda *_: None)
            reasons |= failed
            processes = [process for process in processes if process.name not in failed]
        finally:
            for process in processes:
                process.close()
    rows = {}
    for process in processes:
        ratios = {
            f"{count}x{batch}": measured.ratio(process.name, processes[0].name, count, batch)
            for count, batch in measured.settings()
        }
        cells = "".join(f"  {ratio.ratio:5.2f} ({ratio.low:.2f} to {ratio.high:.2f})" for ratio in ratios.values())
        memory = process.peak_bytes / 1e6
        print(f"{name:20s} {process.name:20s}{cells}  {memory:6.0f} MB {process.start_seconds:6.1f} s", flush=True)
        rows[process.name] = {key: round(ratio.ratio, 3) for key, ratio in ratios.items()}
        rows[process.name] |= {"memory_mb": round(memory), "start_seconds": round(process.start_seconds, 2)}
    for way, reason in reasons.items():
        print(f"{name:20s} {way:20s}  not measured: {reason}", flush=True)
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"torch and ONNX of {QUICK}, one thread")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--ways", nargs="+", default=[], help="torch and others; default: all")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--series", nargs="+", type=int, default=ways.BATCHES)
    options = parser.parse_args()
    ways.BATCHES = tuple(options.series)
    threads = [1] if options.quick else options.threads
    settings = [f"{count}x{batch}" for count in threads for batch in ways.BATCHES]
    print(f"{'':41s}" + "".join(f"  {setting:20s}" for setting in settings) + " (threads x series)")
    measure_one: Callable[[str], dict[str, Any]] = partial(
        measure, threads=threads, only=("torch", "ONNX") if options.quick else options.ways
    )
    print(json.dumps({name: measure_one(name) for name in ((QUICK,) if options.quick else options.models)}))


if __name__ == "__main__":
    main()

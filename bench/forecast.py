"""CPU seconds of `ts.forecast` and of the package's own `predict_df`, on the same checkpoint and table.

    python -m bench.forecast [--quick]

The table has 5,000 series of 200 days (quick: 500) and a horizon of 24. Both run in this process on one thread; the
medians of three runs are compared. `file` is ours from a CSV file to a CSV file; the peer has a DataFrame and returns
one. CPU seconds are those of all threads.

Last line JSON: the CPU seconds, and the ratio of `frame` to the peer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import tsfmscope as ts
from tsfmscope.models.references import CHECKPOINTS

MODEL, STEPS, HORIZON = "chronos-bolt-mini", 200, 24
LEVELS = [level / 10 for level in range(1, 10)]


def make_table(count: int) -> pd.DataFrame:
    """Return a long table of random walks."""
    values = np.random.default_rng(0).standard_normal((count, STEPS)).cumsum(axis=1) + 50
    times = pd.date_range("2024-01-01", periods=STEPS)
    ids = np.repeat([f"s{number}" for number in range(count)], STEPS)
    return pd.DataFrame({"item_id": ids, "timestamp": np.tile(times, count), "target": values.round(3).ravel()})


def cpu_seconds(run: Callable[[], object]) -> float:
    """Return the CPU seconds of one run."""
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> None:
    """Measure, and print the table."""
    from chronos import BaseChronosPipeline

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="500 series")
    count = 500 if parser.parse_args().quick else 5000
    torch.set_num_threads(1)
    table = make_table(count)
    model, pipeline = ts.load(MODEL), BaseChronosPipeline.from_pretrained(CHECKPOINTS / MODEL)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.csv")
        table.to_csv(path, index=False)
        runs: dict[str, Callable[[], object]] = {
            "ours, frame": lambda: ts.forecast(model, table, horizon=HORIZON),
            "ours, file": lambda: ts.forecast(model, path, horizon=HORIZON).save(Path(folder, "forecast.csv")),
            "predict_df": lambda: pipeline.predict_df(table, prediction_length=HORIZON, quantile_levels=LEVELS),
        }
        seconds = {name: statistics.median(cpu_seconds(run) for _ in range(3)) for name, run in runs.items()}
    print(f"{count:,} series of {STEPS} steps, horizon {HORIZON}, {MODEL}, one thread")
    for name, value in seconds.items():
        print(f"{name:12} {value:6.2f} CPU s, {value / seconds['predict_df']:.2f} of predict_df")
    print(json.dumps({**seconds, "ratio": seconds["ours, frame"] / seconds["predict_df"]}))


if __name__ == "__main__":
    main()

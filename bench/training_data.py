"""CPU time of training batches against CPU time of training steps, one core: is the data pipeline the bottleneck?

Batches are drawn from Parquet shards (TSMixup 0.9, KernelSynth 0.1), read one row group at a time, and from a
pool in memory. Steps are of Chronos-T5 shapes with the published batch: 32 windows of context 512 and horizon
64. Time is the process' own CPU time, so that ratios hold on a busy machine. The last line is JSON: `share`,
the CPU time of a streamed batch over that of its step, by shape; `windows_per_s` of the stream.

    python -m bench.training_data [--series 2000] [--steps 3]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from store.dumps import write_dump
from tsfmscope.series.synthetic.shards import CorpusOptions, shard_tables
from tsfmscope.training.corpora import Corpus
from tsfmscope.training.initialization import start
from tsfmscope.training.parallel import Share
from tsfmscope.training.pretraining import _draw, _step
from tsfmscope.training.shard_corpus import GROUP_STEPS, StreamedCorpus

COMMON = {"context_length": 512, "prediction_length": 64, "n_tokens": 4096}
# the shape of params/compression.yaml, and amazon/chronos-t5-tiny
SHAPES = {
    "toy": {"d_model": 64, "d_ff": 128, "d_kv": 32, "num_heads": 2, "num_layers": 4, "num_decoder_layers": 4},
    "tiny": {"d_model": 256, "d_ff": 1024, "d_kv": 64, "num_heads": 4, "num_layers": 4, "num_decoder_layers": 4},
}
RECIPE: dict[str, Any] = {
    "family": "chronos-t5", "batch_steps": 32 * 576, "learning_rate": 1e-3, "contexts": [512], "futures": [],
    "horizon": 64, "min_past": 60, "seed": 0,
}  # fmt: skip


def shard(folder: Path, series: int) -> None:
    options = CorpusOptions(seed=0, length=1024, max_kernels=5, tsmixup=0.9, pool=1000)
    tables = shard_tables(options, range(series), [], for_gluonts=False)
    write_dump(folder, "dumps/corpus/000000.parquet", tables)


def cpu(work: Callable[[int], Any], steps: range) -> float:
    """Return the CPU seconds per step, without the first step."""
    work(steps[0])
    started = time.process_time()
    for step in steps[1:]:
        work(step)
    return (time.process_time() - started) / (len(steps) - 1)


def batch(corpus: Any, step: int) -> Any:
    names = ("contexts", "horizon", "min_past")
    return corpus.batch(step, steps=RECIPE["batch_steps"], futures=[64], **{name: RECIPE[name] for name in names})


def training_step(shape: str, corpus: StreamedCorpus) -> Callable[[int], Any]:
    """Return the optimizer step of a new model of a shape, as a function of the step's number."""
    model, alone = start(RECIPE | {"config": SHAPES[shape] | COMMON}), Share()
    optimizer = torch.optim.AdamW(model.network.train().parameters(), lr=1e-3)
    forward, draw = alone.loss(model), partial(_draw, corpus, RECIPE, model.dated)
    return lambda step: _step(forward, draw, RECIPE, step, optimizer, alone)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer series and shapes; under a minute")
    parser.add_argument("--series", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    series, steps, shapes = (500, 1, ("toy",)) if options.quick else (options.series, options.steps, tuple(SHAPES))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        shard(Path(name), series)
        streamed = StreamedCorpus(Path(name), seed=0)
        # Whole groups of steps, so that each includes the reading of its row group.
        turns = range(0, 1 + 8 * GROUP_STEPS)
        seconds_by_kind = {"streamed": cpu(lambda step: batch(streamed, step), turns)}
        pooled = Corpus(pool=200, length=1024, mixture={"kernelsynth": 0.1, "tsmixup": 0.9}, seed=0)
        seconds_by_kind["pool"] = cpu(lambda step: batch(pooled, step), range(33))
        print(
            ", ".join(
                f"{kind}: {1000 * seconds:.2f} ms of CPU a batch of 32" for kind, seconds in seconds_by_kind.items()
            )
        )
        share = {}
        for shape in shapes:
            seconds = cpu(training_step(shape, streamed), range(1, steps + 2))
            share[shape] = seconds_by_kind["streamed"] / seconds
            print(f"{shape}: {seconds:.2f} s of CPU a step, of which its batch {100 * share[shape]:.2f} %")
    print(json.dumps({"share": share, "windows_per_s": 32 / seconds_by_kind["streamed"]}))


if __name__ == "__main__":
    main()

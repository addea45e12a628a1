"""Stage embeddings against the bare forward pass: tokens a second, the dump's writing included.

    python -m bench.embedding [--quick] [--device cuda]

Of each family the committed checkpoint, which is too small for its forward pass to cost anything, and a released shape
with random weights, both fed the exchange rate of TSFM_LENS_DATA or ../shared/data, else sunspots. `bare` is the
family's own forward pass without hooks and without a head, on the windows that the job runs, in its batches. `ours` is
the whole job as a worker does it but for Ray: reads the token dump, runs on one thread, keeps its sample of every layer
and, in a second thread while the last batch runs, checks and writes the dump, BLAKE3 included. They take turns in this
process with the settings of malloc that a worker has; the medians are compared (`cpu`: of processor time of all
threads, which is what counts where no core is free, and which other load on the machine moves less). `flush` is
what the driver takes to force such a dump to the disk, before it stores the row; `flushed` is the share if the worker
waited for that. `keep` tells how many tokens a stack keeps: those of params/paper.yaml (LARGE; fewer of the Chronos
families, whose forward pass takes seconds as it is), those of the default parameters, or all. Released shapes are what
the paper's profile runs, so its jobs decide; smaller ones tell what a job costs whatever its size, about 8 ms. Then the
rates by batch that PASS_TOKENS in tasks/models/embed.py was chosen from, and what a float16 store changes in every
measure of the geometry. Last line JSON: min_forward_share (least share over the families, released shapes, jobs of the
paper's size), of these also with the flush and of processor time, the same of the default sample, of all tokens kept
and of the checkpoints, the least rate at the chosen batch over the best, and the largest change by float16.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from bench.float16 import half_changes
from bench.geometry import ROOT, real_series
from bench.memory import MIB, held, peak
from store.dumps import read_table, write_job_dump
from store.files import sync
from tasks.feeding import used
from tasks.models.base import Family
from tasks.models.capture import even_batches
from tasks.models.embed import KINDS, embed, kept_rows, pass_windows, run_windows, sample_seed, window_tokens
from tasks.models.registry import family_class
from tasks.models.tokenize import IDENTITY, tokenize
from tasks.models.types import Tokens, tokens_from_table
from tasks.series.tables import series_table
from tasks.series.types import Series
from tasks.sweep.cluster import MEMORY
from tasks.sweep.jobs import PLACE, Job, Place, Task, place

CONTEXT, HORIZON = 500, 64
ROWS = {"chronos-bolt": 512}  # of every stack; its decoder has one row a window, so that 2,048 would be as many windows
DEFAULT = 2048  # of the other families: tokens.rows and embeddings.rows of the default parameters
LARGE = {"patchtst": 16_384, "moirai": 16_384, "lag-llama": 16_384}  # of params/paper.yaml
QUICK, QUICK_LARGE = 128, {"chronos-t5": 512, "moirai": 2048} | dict.fromkeys(("patchtst", "lag-llama"), 16_384)
EVERY = 10**9  # rows that no dump has
T5 = {"d_model": 384, "d_ff": 1536, "d_kv": 64, "num_heads": 8, "num_layers": 4, "num_decoder_layers": 4}
T5 |= {"context_length": 512, "prediction_length": 64}
RELEASED: dict[str, dict[str, Any]] = {
    "chronos-t5": {**T5, "n_tokens": 4096},  # amazon/chronos-t5-mini
    "chronos-bolt": T5,  # amazon/chronos-bolt-mini
    "patchtst": {  # Nie et al. 2023, section 4.1: three layers of width 128, 16 heads
        "d_model": 128, "ffn_dim": 256, "num_hidden_layers": 3, "num_attention_heads": 16,
        "context_length": 512, "prediction_length": 64,
    },
    "moirai": {"d_model": 384, "num_layers": 6, "patch_sizes": [8, 16, 32, 64, 128]},  # Salesforce/moirai-1.0-R-small
    "lag-llama": {"context_length": 32, "n_layer": 8, "n_head": 9, "n_embd_per_head": 16},  # the released one
}  # fmt: skip
HEADER = (
    f"{'family':12s} {'shape':10s} {'windows':>7s} {'tokens':>7s} {'batch':>5s} {'keep':>5s} {'rows':>7s}"
    f" {'dump MB':>7s} {'bare tok/s':>10s} {'ours tok/s':>10s} {'share':>6s} {'cpu':>6s}"
    f" {'flush ms':>8s} {'flushed':>7s} {'bare MB':>7s} {'our MB':>7s}"
)
CITED = ("zeta", "zeta_token", "zeta_adjusted", "log_isotropy_scaled", "isoscore_star")  # of the last line


class Cost(NamedTuple):
    """Seconds of wall clock and of processor."""

    wall: float
    cpu: float


class Share(NamedTuple):
    """What of the bare rate is left to us."""

    wall: float
    cpu: float
    flushed: float


def series() -> list[Series]:
    """The exchange rate where its file is at hand, else the longest of the bundled series."""
    sets = {found[0].dataset: found for found in real_series()}
    return sets.get("exchange_rate") or max(sets.values(), key=lambda found: len(found[0].values))


def models(device: str) -> Iterator[tuple[str, str, Family]]:
    """Family, shape, model: the committed checkpoints, then the released shapes."""
    for name in RELEASED:
        yield name, "nano", family_class(name).load(ROOT / "checkpoints" / f"{name}-nano", device=device)
    for name, config in RELEASED.items():
        model = family_class(name).new(config, seed=0)
        model.network.to(device)
        yield name, f"d={model.width}, {'+'.join(map(str, model.layers.values()))}", model


def token_dump(family: Family, rows: int, out: Path) -> Job:
    """Write the token dump that stage tokens would, and answer the job of stage embeddings that reads it."""
    cell = dict.fromkeys(IDENTITY) | {"model": family.name, "dataset": "d", "condition": "c", "context": CONTEXT}
    cell |= {"noise": 0.0}
    spec = {**cell, "horizon": HORIZON, "min_context": 16, "held_out": None, "seed": 0, "rows": rows}
    spec["format"] = "arrow"
    job = Job(Task("tokenize", 1, "m:f"), spec)
    result = tokenize(job, series_table(series()), family)
    assert result.dump is not None
    path = write_job_dump(out / "tokens", job, result.dump)["path"]
    return Job(
        Task("embed", 2, "m:f"),
        {**cell, "rows": rows, "batch": None, "store_dtype": "float32", "format": "arrow"},
        inputs={f"tokens/{path}": ""},
    )


def bare(family: Family, tokens: Tokens, batch: int) -> None:
    """The forward pass and nothing else."""
    forward = family._pass(tokens).forward
    with torch.inference_mode():
        for part in even_batches(len(tokens), batch):
            forward(part)
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def ours(family: Family, job: Job, out: Path) -> Mapping[str, Any]:
    """The job: what stands on the disk and in the row of `dumps` afterwards."""
    result = embed(job, read_table(out, job), family)
    assert result.dump is not None
    write = partial(write_job_dump, out / "embeddings", job)
    return {**result.rows[0], **used(write, result.dump)}


def costs(work: Callable[[], object]) -> Cost:
    """What a call takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def growth(work: Callable[[], object]) -> float:
    """MiB by which the process grows in a call, at its largest (Linux with glibc)."""
    before = held()
    work()
    return (peak() - before) / MIB


def compare(family: Family, rows: int, keep: int, out: Path, repeats: int) -> tuple[str, Share]:
    """A line of the table: bare and ours in turns. rows: that every stack has at least; keep: of them at most."""
    job = token_dump(family, rows, out)
    job = Job(job.task, {**job.spec, "rows": keep}, job.inputs)
    tokens = tokens_from_table(read_table(out, job))
    run = tokens.take(run_windows(tokens, kept_rows(tokens, KINDS, keep, sample_seed(job))))
    batch, worked = pass_windows(tokens, place().device), len(run) * window_tokens(run)
    grown, my_grown = growth(lambda: bare(family, run, batch)), growth(lambda: ours(family, job, out))
    row = ours(family, job, out)
    theirs, mine, flushes = [], [], []
    dump = out / "embeddings" / row["path"]
    for _ in range(repeats):
        dump.unlink()  # a sweep writes a dump once: freeing what it would replace is none of its work
        theirs.append(costs(lambda: bare(family, run, batch)))
        mine.append(costs(lambda: ours(family, job, out)))
        flushes.append(costs(lambda: (sync(dump), sync(dump.parent))))
    wall, cpu = (statistics.median(column) for column in zip(*theirs, strict=True))
    my_wall, my_cpu = (statistics.median(column) for column in zip(*mine, strict=True))
    flush = statistics.median(cost.wall for cost in flushes)
    share = Share(wall / my_wall, cpu / my_cpu, wall / (my_wall + flush))
    line = (
        f"{len(run):7d} {worked:7d} {batch:5d} {'all' if keep == EVERY else keep:>5} {row['rows']:7d}"
        f" {row['bytes'] / 1e6:7.1f} {worked / wall:10.0f} {worked / my_wall:10.0f} {share.wall:6.3f} {share.cpu:6.3f}"
        f" {1e3 * flush:8.1f} {share.flushed:7.3f} {grown:7.0f} {my_grown:7.0f}"
    )
    return line, share


def rates(family: Family, tokens: Tokens, seconds: float, rounds: int) -> tuple[list[str], float]:
    """Lines of the bare rate by batch from one window to all, and the chosen batch's rate over the best.

    Batches take turns too, each for as many windows as `seconds` allow, so many rounds; the best counts, since other
    load can only slow.
    """
    chosen, each = min(pass_windows(tokens, place().device), len(tokens)), window_tokens(tokens)
    sizes = sorted({chosen, *(2**n for n in range(len(tokens).bit_length()) if 2**n <= len(tokens))})
    found = dict.fromkeys(sizes, 0.0)
    for _ in range(rounds):
        for size in sizes:
            done, began = 0, time.perf_counter()
            while done + size <= len(tokens) and (not done or time.perf_counter() - began < seconds):
                bare(family, tokens.take(np.arange(done, done + size)), size)
                done += size
            found[size] = max(found[size], done * each / (time.perf_counter() - began))
    best = max(found.values())
    share = found[chosen] / best
    return [f"{'*' if n == chosen else ''}{n * each}: {rate / best:.2f}" for n, rate in found.items()], share


def main() -> None:
    """Run the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="128 rows, fewer repeats and tables; under a minute")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for a GPU")
    options = parser.parse_args()
    PLACE.set(Place(options.device))
    torch.set_num_threads(1)
    libc = ctypes.CDLL(None)  # parameters as in glibc's malloc.h
    assert libc.mallopt(-3, int(MEMORY["MALLOC_MMAP_THRESHOLD_"])) == 1
    assert libc.mallopt(-1, int(MEMORY["MALLOC_TRIM_THRESHOLD_"])) == 1
    folder_for_dumps = ROOT / ".bench"  # on the repository's disk, as the dumps of a run: /tmp may be memory
    folder_for_dumps.mkdir(exist_ok=True)
    with threadpool_limits(1), tempfile.TemporaryDirectory(dir=folder_for_dumps) as folder:
        result = _run(Path(folder), options.quick, options.device)
    print(json.dumps(result))


def _run(out: Path, quick: bool, device: str) -> dict[str, float]:
    """Print the tables; the figures of the last line."""
    repeats, seconds, rounds = (3, 0.02, 1) if quick else (7, 0.5, 3)
    shares: dict[str, list[Share]] = {}
    chosen: list[tuple[str, list[str], float]] = []
    changes: dict[str, dict[str, float]] = {}
    print(HEADER, flush=True)
    for name, shape, family in models(device):
        nano = shape == "nano"
        rows = QUICK if quick else ROWS.get(name, DEFAULT)
        large = (QUICK_LARGE if quick else LARGE).get(name, rows)
        cases = {"_nano" if nano else "_default": (rows, rows)} if nano or not quick else {}
        cases |= {} if quick else {"_nano_all_kept" if nano else "_all_kept": (rows, EVERY)}
        cases |= {} if nano else {"": (large, large)}
        for case, (asked, keep) in cases.items():
            line, share = compare(family, asked, keep, out, repeats)
            shares.setdefault(case, []).append(share)
            print(f"{name:12s} {shape:10s} {line}", flush=True)
        tokens = tokens_from_table(read_table(out, job := token_dump(family, rows, out)))
        if nano or not quick:
            chosen.append((f"{name:12s} {shape:10s}", *rates(family, tokens, seconds, rounds)))
        if nano:
            changes[name] = half_changes(family, tokens, kept_rows(tokens, KINDS, rows, sample_seed(job)))
    print("\nbare rate over the best by tokens of a forward pass, * the chosen")
    for name, line, _ in chosen:
        print(name, "  ".join(line))
    print(f"\n{'largest change by float16':27s}", *(f"{name:>13s}" for name in changes))
    for measure in next(iter(changes.values())):
        print(f"{measure:27s}", *(f"{found[measure]:13.1e}" for found in changes.values()), flush=True)
    least = {case: Share(*map(min, zip(*found, strict=True))) for case, found in shares.items()}
    return {
        **{f"min_forward_share{case}": round(share.wall, 3) for case, share in sorted(least.items())},
        "min_forward_share_flushed": round(least[""].flushed, 3),
        "min_forward_share_cpu": round(least[""].cpu, 3),
        "min_rate_of_chosen_batch": round(min(ratio for _, _, ratio in chosen), 3),
        "max_change_by_float16": max(max(found[name] for name in CITED) for found in changes.values()),
    }


if __name__ == "__main__":
    main()

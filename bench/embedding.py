"""Stage embeddings compared with the bare forward pass: tokens per second, with the writing of activation files.

    python -m bench.embedding [--quick] [--device cuda]

Models: the committed checkpoint of each family, whose forward pass is too small to cost anything, and a
released shape with random weights. Both read the exchange rate of TSFMSCOPE_DATA or ../shared/data, else
sunspots.

`bare` is the family's own forward pass without hooks and without a head, on the windows of the job, in its
batches. `ours` is the whole job as a worker does it, without Ray: it reads the tokens, runs on one
thread, keeps its sample of every layer, and checks and writes the activation file, BLAKE3 included. Both take
turns in this process, with a worker's settings of malloc, and their medians are compared. `cpu` compares
processor time of all threads, which matters where no core is free, and which other load on the machine changes
less. `flush` is the time in which the driver forces such a file to
the disk before it stores the row; `flushed` is the share if the worker waited for that. `keep` is the number
of tokens that a stack keeps: that of params/paper.yaml (LARGE; fewer for the Chronos families, whose forward
pass takes seconds anyway), that of the default parameters, or all. The paper's profile runs released shapes,
so its jobs decide; smaller ones show the fixed cost of a job, about 8 ms.

Further tables: the rates by batch from which PASS_TOKENS in tasks/embeddings.py was chosen, and the changes
that a float16 store makes in every measure of the geometry.

Last line JSON: min_forward_share (least share over the families, for released shapes and jobs of the paper's
size), the same with the flush and for processor time, the same for the default sample, for all tokens kept
and for the checkpoints, the least rate at the chosen batch over the best rate, and the largest change by
float16.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from bench.float16 import half_changes
from bench.geometry import ROOT, real_series
from bench.memory import MIB, peak, resident_bytes
from store.dumps import read_table, write_job_dump
from store.files import sync
from tasks.embeddings import EmbedSpec, embed, sample_seed
from tasks.job import EXECUTION_CONTEXT, ExecutionContext, Job, Task, current_context
from tasks.parts import CellIdentity, ModelSource, WindowOptions
from tasks.sweep.cluster import MEMORY
from tasks.tokens import TokensSpec, tokenize
from tsfmscope.models.base import Family
from tsfmscope.models.common.capture import KINDS, even_batches, kept_rows, pass_windows, run_windows, window_tokens
from tsfmscope.models.registry import family_class
from tsfmscope.models.types import Tokens, tokens_from_table
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series

CONTEXT, HORIZON = 500, 64
# rows of every stack; Bolt's decoder has one row per window, so 2,048 rows would need 2,048 windows
ROWS = {"chronos-bolt": 512}
# rows of the other families: tokens.rows and embeddings.rows of the default parameters
DEFAULT = 2048
# rows in params/paper.yaml
LARGE = {"patchtst": 16_384, "moirai": 16_384, "lag-llama": 16_384}
QUICK, QUICK_LARGE = 128, {"chronos-t5": 512, "moirai": 2048} | dict.fromkeys(("patchtst", "lag-llama"), 16_384)
# more rows than any dump has
EVERY = 10**9
T5 = {"d_model": 384, "d_ff": 1536, "d_kv": 64, "num_heads": 8, "num_layers": 4, "num_decoder_layers": 4}
T5 |= {"context_length": 512, "prediction_length": 64}
RELEASED: dict[str, dict[str, Any]] = {
    # amazon/chronos-t5-mini
    "chronos-t5": {**T5, "n_tokens": 4096},
    # amazon/chronos-bolt-mini
    "chronos-bolt": T5,
    # Nie et al. 2023, section 4.1: three layers of width 128, 16 heads
    "patchtst": {
        "d_model": 128, "ffn_dim": 256, "num_hidden_layers": 3, "num_attention_heads": 16,
        "context_length": 512, "prediction_length": 64,
    },
    # Salesforce/moirai-1.0-R-small
    "moirai": {"d_model": 384, "num_layers": 6, "patch_sizes": [8, 16, 32, 64, 128]},
    # the released checkpoint
    "lag-llama": {"context_length": 32, "n_layer": 8, "n_head": 9, "n_embd_per_head": 16},
}  # fmt: skip
HEADER = (
    f"{'family':12s} {'shape':10s} {'windows':>7s} {'tokens':>7s} {'batch':>5s} {'keep':>5s} {'rows':>7s}"
    f" {'dump MB':>7s} {'bare tok/s':>10s} {'ours tok/s':>10s} {'share':>6s} {'cpu':>6s}"
    f" {'flush ms':>8s} {'flushed':>7s} {'bare MB':>7s} {'our MB':>7s}"
)
# measures that max_change_by_float16 in the last line covers
CITED = ("zeta", "zeta_token", "zeta_adjusted", "log_isotropy_scaled", "isoscore_star")


class Cost(NamedTuple):
    """Elapsed seconds (`wall`) and processor seconds (`cpu`)."""

    wall: float
    cpu: float


class Share(NamedTuple):
    """Our rate over the bare rate: by elapsed time, processor time, and elapsed time with the flush."""

    wall: float
    cpu: float
    flushed: float


def series() -> list[Series]:
    """Return the exchange rate if its file exists, else the data set whose first series is longest."""
    sets = {group[0].dataset: group for group in real_series()}
    return sets.get("exchange_rate") or max(sets.values(), key=lambda group: len(group[0].values))


def models(device: str) -> Iterator[tuple[str, str, Family]]:
    """Yield family, shape and model: first the committed checkpoints, then the released shapes."""
    for name in RELEASED:
        yield name, "mini", family_class(name).load(ROOT / "tsfmscope" / "checkpoints" / f"{name}-mini", device=device)
    for name, config in RELEASED.items():
        model = family_class(name).new(config, seed=0)
        model.network.to(device)
        yield name, f"d={model.width}, {'+'.join(map(str, model.layers.values()))}", model


def token_dump(family: Family, rows: int, out: Path) -> Job:
    """Write the token dump of stage tokens; return the job of stage embeddings that reads it."""
    cell = CellIdentity(
        model=family.name, base_model=None, size_parameter=None, size_rule=None, dataset="d", condition="c",
        context=CONTEXT, noise=0.0,
    )  # fmt: skip
    source = ModelSource(family=family.name, ref="-")
    windows = WindowOptions(horizon=HORIZON, min_context=16, held_out=None, seed=0)
    spec = TokensSpec(**dict(cell), **dict(source), **dict(windows), rows=rows, format="arrow")
    job = Job(Task("tokenize", 1, "m:f"), spec.to_dict())
    result = tokenize(job, series_table(series()), family)
    assert result.dump is not None
    path = write_job_dump(out / "tokens", job, result.dump)["path"]
    embed_spec = EmbedSpec(
        **dict(cell), **dict(source), rows=rows, batch=None, store_dtype="float32", seed=0, format="arrow"
    )
    return Job(Task("embed", 2, "m:f"), embed_spec.to_dict(), inputs={f"tokens/{path}": ""})


def bare(family: Family, tokens: Tokens, batch: int) -> None:
    """Run the forward pass and nothing else."""
    forward = family._pass(tokens).forward
    with torch.inference_mode():
        for part in even_batches(len(tokens), batch):
            forward(part)
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def run_ours(family: Family, job: Job, out: Path) -> Mapping[str, Any]:
    """Run the job, write its dump, and return its row of `dumps`."""
    result = embed(job, read_table(out, job), family)
    assert result.dump is not None
    return {**result.rows[0], **write_job_dump(out / "embeddings", job, result.dump)}


def costs(work: Callable[[], object]) -> Cost:
    """Return the cost of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def growth(work: Callable[[], object]) -> float:
    """Return the peak growth of the process during a call, in MiB (Linux with glibc)."""
    before = resident_bytes()
    work()
    return (peak() - before) / MIB


def compare(family: Family, rows: int, keep: int, out: Path, repeats: int) -> tuple[str, Share]:
    """Measure bare and ours in turns; return a line of the table and the shares.

    rows: least number of rows of every stack in the dump of tokens. keep: greatest number of rows that a
    stack keeps.
    """
    job = token_dump(family, rows, out)
    job = Job(job.task, {**job.spec, "rows": keep}, job.inputs)
    tokens = tokens_from_table(read_table(out, job))
    run = tokens.take(run_windows(tokens, kept_rows(tokens, KINDS, keep, sample_seed(job))))
    batch, worked = pass_windows(tokens, current_context().device), len(run) * window_tokens(run)
    bare_growth, our_growth = growth(lambda: bare(family, run, batch)), growth(lambda: run_ours(family, job, out))
    row = run_ours(family, job, out)
    bare_costs, our_costs, flushes = [], [], []
    dump = out / "embeddings" / row["path"]
    for _ in range(repeats):
        # A sweep writes a dump once, so the time must not include the replacement of an old file.
        dump.unlink()
        bare_costs.append(costs(lambda: bare(family, run, batch)))
        our_costs.append(costs(lambda: run_ours(family, job, out)))
        flushes.append(costs(lambda: (sync(dump), sync(dump.parent))))
    wall, cpu = (statistics.median(column) for column in zip(*bare_costs, strict=True))
    my_wall, my_cpu = (statistics.median(column) for column in zip(*our_costs, strict=True))
    flush = statistics.median(cost.wall for cost in flushes)
    share = Share(wall / my_wall, cpu / my_cpu, wall / (my_wall + flush))
    line = (
        f"{len(run):7d} {worked:7d} {batch:5d} {'all' if keep == EVERY else keep:>5} {row['rows']:7d}"
        f" {row['bytes'] / 1e6:7.1f} {worked / wall:10.0f} {worked / my_wall:10.0f} {share.wall:6.3f} {share.cpu:6.3f}"
        f" {1e3 * flush:8.1f} {share.flushed:7.3f} {bare_growth:7.0f} {our_growth:7.0f}"
    )
    return line, share


def rates(family: Family, tokens: Tokens, seconds: float, rounds: int) -> tuple[list[str], float]:
    """Return lines with the bare rate by batch size, and the chosen batch's rate over the best.

    Batch sizes, from one window to all, take turns for `rounds` rounds, each for as many windows as `seconds`
    allow. The best round counts, since other load can only slow the others.
    """
    chosen_size, each = min(pass_windows(tokens, current_context().device), len(tokens)), window_tokens(tokens)
    sizes = sorted({chosen_size, *(2**n for n in range(len(tokens).bit_length()) if 2**n <= len(tokens))})
    rate_by_size = dict.fromkeys(sizes, 0.0)
    for _ in range(rounds):
        for size in sizes:
            n_done, began = 0, time.perf_counter()
            while n_done + size <= len(tokens) and (not n_done or time.perf_counter() - began < seconds):
                bare(family, tokens.take(np.arange(n_done, n_done + size)), size)
                n_done += size
            rate_by_size[size] = max(rate_by_size[size], n_done * each / (time.perf_counter() - began))
    best = max(rate_by_size.values())
    share = rate_by_size[chosen_size] / best
    return [
        f"{'*' if n == chosen_size else ''}{n * each}: {rate / best:.2f}" for n, rate in rate_by_size.items()
    ], share


def main() -> None:
    """Run the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="128 rows, fewer repeats and tables; under a minute")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for a GPU")
    options = parser.parse_args()
    EXECUTION_CONTEXT.set(ExecutionContext(options.device))
    torch.set_num_threads(1)
    # The numbers of the parameters are those of glibc's malloc.h.
    libc = ctypes.CDLL(None)
    assert libc.mallopt(-3, int(MEMORY["MALLOC_MMAP_THRESHOLD_"])) == 1
    assert libc.mallopt(-1, int(MEMORY["MALLOC_TRIM_THRESHOLD_"])) == 1
    # On the repository's disk, like the dumps of a run, since /tmp may be in memory.
    folder_for_dumps = ROOT / ".bench"
    folder_for_dumps.mkdir(exist_ok=True)
    with threadpool_limits(1), tempfile.TemporaryDirectory(dir=folder_for_dumps) as folder:
        result = _run(Path(folder), options.quick, options.device)
    print(json.dumps(result))


def _run(out: Path, quick: bool, device: str) -> dict[str, float]:
    """Print the tables; return the values of the last line."""
    repeats, seconds, rounds = (3, 0.02, 1) if quick else (7, 0.5, 3)
    shares: dict[str, list[Share]] = {}
    rates_by_model: list[tuple[str, list[str], float]] = []
    changes: dict[str, dict[str, float]] = {}
    print(HEADER, flush=True)
    for name, shape, family in models(device):
        mini = shape == "mini"
        rows = QUICK if quick else ROWS.get(name, DEFAULT)
        large = (QUICK_LARGE if quick else LARGE).get(name, rows)
        cases = {"_mini" if mini else "_default": (rows, rows)} if mini or not quick else {}
        cases |= {} if quick else {"_mini_all_kept" if mini else "_all_kept": (rows, EVERY)}
        cases |= {} if mini else {"": (large, large)}
        for case, (rows_of_case, keep) in cases.items():
            line, share = compare(family, rows_of_case, keep, out, repeats)
            shares.setdefault(case, []).append(share)
            print(f"{name:12s} {shape:10s} {line}", flush=True)
        tokens = tokens_from_table(read_table(out, job := token_dump(family, rows, out)))
        if mini or not quick:
            rates_by_model.append((f"{name:12s} {shape:10s}", *rates(family, tokens, seconds, rounds)))
        if mini:
            changes[name] = half_changes(family, tokens, kept_rows(tokens, KINDS, rows, sample_seed(job)))
    print("\nbare rate over the best by tokens of a forward pass, * the chosen")
    for name, line, _ in rates_by_model:
        print(name, "  ".join(line))
    print(f"\n{'largest change by float16':27s}", *(f"{name:>13s}" for name in changes))
    for measure in next(iter(changes.values())):
        print(f"{measure:27s}", *(f"{row[measure]:13.1e}" for row in changes.values()), flush=True)
    least = {case: Share(*map(min, zip(*shares_of_case, strict=True))) for case, shares_of_case in shares.items()}
    return {
        **{f"min_forward_share{case}": round(share.wall, 3) for case, share in sorted(least.items())},
        "min_forward_share_flushed": round(least[""].flushed, 3),
        "min_forward_share_cpu": round(least[""].cpu, 3),
        "min_rate_of_chosen_batch": round(min(ratio for _, _, ratio in rates_by_model), 3),
        "max_change_by_float16": max(max(row[name] for name in CITED) for row in changes.values()),
    }


if __name__ == "__main__":
    main()

"""A small model against a large one in few bits, at equal bytes: trained from scratch, or distilled.

    python -m bench.small_models distil FOLDER [--steps N] [--seed N]
    python -m bench.small_models score FOLDER ... [--quick] [--groups report ...] [--corpus FOLDER] [--out FILE]

The large model is BASE, in few bits at SHARE of its bytes (`tsfmscope compress`). A small model has the config SMALL;
in eight bits, one scale per row, its file has the same bytes. Trained from scratch: by the recipe of BASE, with another
config and seed; recipe.json of each folder of docs/results/compression/small has it. `distil` trains SMALL from random
weights to the quantiles of BASE: mean absolute error of the scaled quantiles, on new random series in each step
(those of healing).

`score` prints, by model and group of data sets (`bench.skill`), the geometric mean of the ratios of WQL to BASE in
float32, its 95 % interval (Student's t over data sets) and the worst set, then the ratio of each small model to BASE
in few bits, paired. `--quick`: two windows a set. Last line JSON.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from bench.bits import COUNT, ROOT, WINDOWS, load, scores
from bench.skill import corpus_parts, cut_windows, guided_parts, spread_parts
from tsfmscope.compression import bits
from tsfmscope.compression.calibration import synthetic_windows
from tsfmscope.compression.export import file_bytes, save
from tsfmscope.compression.options import Method, Ranks
from tsfmscope.models import registry
from tsfmscope.models.base import Family
from tsfmscope.models.common.layers import compression_entries
from tsfmscope.models.registry import family_class
from tsfmscope.training.healing import _Batches, _Distance, _train
from tsfmscope.training.pretraining import Average

BASE, SHARE = "timesfm-2.5-mini", 0.18
# Changes of the config of BASE.
SMALL = {"hidden_size": 48, "intermediate_size": 224, "head_dim": 12}
CONTEXT, HORIZON, SETS = 512, 64, 8
STEPS, BATCH, LEARNING_RATE, DECAY = 10_000, 40, 2e-3, 0.999


def distil(folder: Path, steps: int, seed: int) -> None:
    """Train a small model to the quantiles of BASE, and save it in float32."""
    teacher = load(BASE)
    family = family_class(teacher.name)
    config = json.loads((ROOT / "tsfmscope" / "checkpoints" / BASE / "recipe.json").read_text())["recipe"]["config"]
    student = family.new(config | SMALL, seed=seed)
    windows = [synthetic_windows(2, CONTEXT, HORIZON, seed=(seed, 0))]
    draw, distance = _Batches(teacher, windows, seed), _Distance(student, teacher)
    average = Average(student.network, DECAY)
    parameters = list(student.network.parameters())
    for step in _train(parameters, lambda step: distance(draw(step, BATCH), step), steps, LEARNING_RATE):
        average.update(step)
        if step % 250 == 0:
            with torch.no_grad():
                print(f"step {step} of {steps}: distance {float(distance(draw(0, 64), 0)):.4f}", flush=True)
    average.swap()
    folder.mkdir(parents=True)
    save(student, folder)
    facts = {"distilled_from": BASE, "config": config | SMALL, "steps": steps, "batch": BATCH, "seed": seed}
    (folder / "recipe.json").write_text(json.dumps(facts | {"learning_rate": LEARNING_RATE}, indent=1) + "\n")


def in_eight_bits(folder: Path) -> Family:
    """Return a small model in eight bits."""
    model = registry.family_class(str(registry.family_of_folder(folder))).load(folder)
    if model.compression is None:
        bits.round_network(model.network, 8)
        bits.store_vectors_in_halves(model.network)
        entries = compression_entries(model.attentions())
        model.compression = {"method": "svd", "ranks": {"share": 1.0}, "bits": 8, **entries}
    return model


def summarize(logs: np.ndarray) -> dict[str, float]:
    """Return the mean ratio, its interval and the largest one."""
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    mean, low, high, worst = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half, logs.max()]).tolist()
    return {"ratio": mean, "low": low, "high": high, "worst": worst, "sets": len(logs)}


def score(options: argparse.Namespace) -> None:
    """Print the table."""
    parts = [part for group in options.groups
             for part in (guided_parts() if group == "guided" else corpus_parts(options.corpus, group))]  # fmt: skip
    pairs = list(spread_parts(cut_windows(parts), 2 if options.quick else COUNT))
    base = load(BASE)
    before, full = scores(base, pairs), file_bytes(base)
    count = 8 if options.quick else WINDOWS
    plan = bits.measure(base, [synthetic_windows(count, CONTEXT, HORIZON, seed=(0, n)) for n in range(SETS)])
    plan.apply(base, Method(method="whole-model", ranks=Ranks(bytes=SHARE)))
    models = {f"{BASE}, few bits": base} | {folder.name: in_eight_bits(folder) for folder in options.folders}
    rows: list[dict[str, Any]] = []
    for name, model in models.items():
        with tempfile.TemporaryDirectory() as folder:
            save(model, Path(folder))
            size = sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))
        rows += [
            {"model": name, "share": size / full, "group": group, "dataset": dataset,
             "log": float(np.log(loss / before[group, dataset][0]))}
            for (group, dataset), (loss, _, _) in scores(model, pairs).items() if before[group, dataset][0]
        ]  # fmt: skip
    found = []
    for group in options.groups:
        logs = {
            name: np.array([row["log"] for row in rows if (row["model"], row["group"]) == (name, group)])
            for name in models
        }
        for name in models:
            share = next(row["share"] for row in rows if row["model"] == name)
            of_base, paired = summarize(logs[name]), summarize(logs[name] - logs[f"{BASE}, few bits"])
            found.append({"model": name, "group": group, "share": share, "of_base": of_base, "of_few_bits": paired})
            cells = [
                f"{one['ratio']:.4f} [{one['low']:.4f}, {one['high']:.4f}] worst {one['worst']:.3f}"
                for one in (of_base, paired)
            ]
            print(f"{name:34s} {group:7s} {share:.3f}  {cells[0]}  over few bits {cells[1]}", flush=True)
    if options.out:
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    print(json.dumps(found))


def main() -> None:
    """Distil, or score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    distilling = commands.add_parser("distil")
    distilling.add_argument("folder", type=Path)
    distilling.add_argument("--steps", type=int, default=STEPS)
    distilling.add_argument("--seed", type=int, default=0)
    scoring = commands.add_parser("score")
    scoring.add_argument("folders", type=Path, nargs="+")
    scoring.add_argument("--quick", action="store_true", help="two windows a set, few calibration windows")
    scoring.add_argument("--groups", nargs="+", default=["guided"], help="guided, tune, report")
    scoring.add_argument("--corpus", type=Path, default=ROOT.parent / "shared" / "corpus", help="folder of the corpus")
    scoring.add_argument("--out", type=Path, help="CSV file of the rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "distil":
        distil(options.folder, options.steps, options.seed)
    else:
        score(options)


if __name__ == "__main__":
    main()

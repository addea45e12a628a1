"""Pretraining of small checkpoints with their family's own loss: seeded, logged, resumable after a kill."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.compression.corpus import AnyCorpus, recipe_corpus
from tasks.compression.parallel import Loss, Share, shared
from tasks.compression.starting import start
from tasks.errors import ModelError
from tasks.models.folders import share
from tasks.models.registry import SNAPSHOTS
from tasks.sweep.jobs import Job, Result, place, report

if TYPE_CHECKING:
    import torch

    from tasks.models.base import Family

PROGRESS = "progress.jsonl"  # a training's log while it runs, and for good where it was stopped


def pretrain(job: Job, folder: Path, model: None) -> Result:
    """Train the model that job.spec["recipe"] describes and save it under `folder`.

    The state is written every recipe["save_every"] steps under a temporary name and renamed, so a killed run loses at
    most those steps. Rows: step, loss (mean since the last row), learning rate; they stand in training.json too.
    recipe.json, with the recipe and the job's key, comes last: a folder that has it is whole. The weights after each
    step of recipe["snapshots"] stand in snapshots/step-N, a checkpoint folder each (`registry.snapshots`).
    job.spec["embedding"], if any: folder and key of the checkpoint whose embedding is taken over.
    Where `place()` has several processes, they share every batch: `parallel`.
    """
    recipe = job.spec["recipe"]
    with shared(job.spec, folder) as share:
        family, rows, seen = take_part(job.spec, folder, share)
    rows = [{"model": job.spec["model"], **row} for row in rows]
    _write(family, folder)
    for name in ("state.pt", PROGRESS):
        (folder / name).unlink(missing_ok=True)
    (folder / "training.json").write_text(json.dumps(rows, indent=0) + "\n")
    (folder / "recipe.json").write_text(json.dumps({"key": job.key, "recipe": recipe}, indent=2) + "\n")
    return Result(rows, tokens=seen)


def take_part(spec: Mapping[str, Any], folder: Path, share: Share) -> tuple[Family, list[dict[str, Any]], int]:
    """A process's part of a training: the trained family, and what `_train` answers; only the first process writes."""
    recipe = spec["recipe"]
    family = start(recipe, _embedding(spec.get("embedding")))
    corpus = recipe_corpus(recipe)
    if corpus.modality != family.modality:
        raise ValueError(f"mixture {recipe['mixture']}: got {corpus.modality}, {family.name} reads {family.modality}")
    family.network.to(place().device)
    rows, seen = _train(family, corpus, recipe, folder, share)
    return family, rows, seen


def _write(family: Family, folder: Path) -> None:
    """A checkpoint that any loader, and every user whom the umask lets, reads."""
    from tasks.compression.shared_factors import multiplied_out

    multiplied_out(family).save(folder)
    share(folder)


def _embedding(said: Mapping[str, str] | None) -> Path | None:
    """The checkpoint whose embedding is taken over. ModelError where another lies there than the job's key covers."""
    if said is None:
        return None
    path = Path(said["folder"], "recipe.json")
    key = json.loads(path.read_text())["key"] if path.exists() else None
    if key != said["key"]:
        raise ModelError(f"{path}: got the checkpoint of job {key}, expected {said['key']}; run `make retry`")
    return path.parent


def _train(
    family: Family, corpus: AnyCorpus, recipe: Mapping[str, Any], folder: Path, share: Share
) -> tuple[list[dict[str, Any]], int]:
    """Rows of all steps, those before a kill among them, and the observed values that this run trained on."""
    import torch

    network = family.network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=recipe["learning_rate"], weight_decay=recipe["weight_decay"])
    steps = recipe["steps"]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps, recipe["warm_up"]))
    rows = _resume(folder, network, optimizer, schedule)
    for row in rows:
        if share.first and row["step"] % recipe["save_every"] == 0:
            report(row)  # once more: who watches may have been killed before it wrote down the first time
    first, seen = rows[-1]["step"] if rows else 0, 0
    if share.first and not first:
        _snapshot(family, recipe, 0, folder)
    losses: list[float] = []
    forward = share.loss(family)
    started = time.monotonic()
    for step in range(first + 1, steps + 1):
        loss, values = _step(forward, corpus, recipe, step, optimizer, share)
        losses.append(loss)
        seen += values
        schedule.step()
        if not share.first:
            continue
        _snapshot(family, recipe, step, folder)
        if step % recipe["log_every"] == 0 or step == steps:
            rows.append({"step": step, "loss": float(np.mean(losses)), "learning_rate": schedule.get_last_lr()[0]})
            losses.clear()
            _progress(folder, rows[-1], steps, (time.monotonic() - started) / (step - first))
            if step % recipe["save_every"] == 0:
                _save(folder, network, optimizer, schedule, rows)
                report(rows[-1])
    network.eval()
    return rows, seen


def _step(
    forward: Loss,
    corpus: AnyCorpus,
    recipe: Mapping[str, Any],
    step: int,
    optimizer: torch.optim.Optimizer,
    share: Share,
) -> tuple[float, int]:
    """The loss of a step, and the observed values of its batch: of all processes."""
    import torch

    past, future = corpus.batch(
        step,
        steps=recipe["batch_steps"],
        contexts=recipe["contexts"],
        futures=recipe["futures"] or [recipe["horizon"]],
        horizon=recipe["horizon"],
        min_past=recipe["min_past"],
    )
    seen = sum(np.count_nonzero(~np.isnan(part)) for part in (past, future))
    past, future, weight = share.part(past, future)
    # dropout: a resumed run repeats an unbroken one, and no process drops what another does
    torch.manual_seed(recipe["seed"] * 1_000_003 + step + (share.rank << 40))
    with _precision(recipe.get("precision", "float32")):
        loss = forward(torch.from_numpy(past), torch.from_numpy(future)) * weight
    mean = float(share.mean(loss))
    if not math.isfinite(mean):
        raise FloatingPointError(f"loss at step {step} is {mean}; lower learning_rate {recipe['learning_rate']}")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_([one for group in optimizer.param_groups for one in group["params"]], 1.0)
    optimizer.step()
    return mean, int(seen)


def _precision(name: str) -> contextlib.AbstractContextManager[Any]:
    """float32, or products of matrices in bfloat16 while weights and optimiser stay in float32."""
    import torch

    if name == "float32":
        return contextlib.nullcontext()
    return torch.autocast(torch.device(place().device).type, getattr(torch, name))


def _rate(step: int, steps: int, warm_up: int) -> float:
    """Linear warm-up, then linear decay to zero."""
    return min((step + 1) / warm_up, 1.0) * max(0.0, 1.0 - step / steps) if warm_up else max(0.0, 1.0 - step / steps)


def _snapshot(family: Family, recipe: Mapping[str, Any], step: int, folder: Path) -> None:
    """Keep the weights where the recipe asks for them after this step; a run that goes on writes them once more."""
    if step not in recipe.get("snapshots", ()):
        return
    kept = folder / SNAPSHOTS / f"step-{step}"
    making = kept.with_name(f"making-{kept.name}")
    for old in (making, kept):
        shutil.rmtree(old, ignore_errors=True)
    making.mkdir(parents=True)
    _write(family, making)
    making.rename(kept)  # so that a folder of this name is whole


def _save(folder: Path, network: Any, optimizer: Any, schedule: Any, rows: list[dict[str, Any]]) -> None:
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    state = {
        "network": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "rows": rows,
    }
    torch.save(state, folder / "state.tmp")
    os.replace(folder / "state.tmp", folder / "state.pt")


def _resume(folder: Path, network: Any, optimizer: Any, schedule: Any) -> list[dict[str, Any]]:
    import torch

    path = folder / "state.pt"
    if not path.exists():
        return []
    state = torch.load(path, weights_only=True, map_location=place().device)
    network.load_state_dict(state["network"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    rows: list[dict[str, Any]] = state["rows"]
    return rows


def _progress(folder: Path, row: Mapping[str, Any], steps: int, seconds_per_step: float) -> None:
    """A file that `python -m store status` and a person with `tail` can read while a training runs."""
    folder.mkdir(parents=True, exist_ok=True)
    left = (steps - row["step"]) * seconds_per_step
    line = {**row, "steps": steps, "steps_per_s": 1 / seconds_per_step, "seconds_left": left}
    with (folder / PROGRESS).open("a") as file:
        file.write(json.dumps(line) + "\n")

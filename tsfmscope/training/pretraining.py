"""Pretraining of small checkpoints with their family's own loss: seeded, logged, resumable.

The module is also the program of the further processes that share a training; `parallel.start_processes` starts them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope.errors import ModelError
from tsfmscope.models.common.checkpoint_folder import SNAPSHOTS, share, verify_sums, write_recipe
from tsfmscope.training.corpora import AnyCorpus, BatchShape, recipe_corpus
from tsfmscope.training.initialization import start
from tsfmscope.training.options import Recipe
from tsfmscope.training.parallel import Loss, Share, destroy_group, start_processes

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.base import Family

# Log of a running training. It is deleted at the end, and remains if the training is stopped.
PROGRESS = "progress.jsonl"
# File of a checkpoint with the facts of its training.
RUN_RECORD = "training_run.json"
# Called with a row of the training after its state was saved.
Report = Callable[[Mapping[str, Any]], None]


class TrainingResult(NamedTuple):
    """Rows (step, loss, learning_rate) of a training, and the number of observed values of this run."""

    rows: list[dict[str, Any]]
    n_values: int


class RunRecord(NamedTuple):
    """Facts of all runs of a training: a stopped training that continues has several.

    n_values: observed values that the steps have read. seconds: wall-clock time of the steps. Both are None if an
    earlier version made some of the steps, as it did not record them.
    """

    n_values: int | None = 0
    seconds: float | None = 0.0
    processors: tuple[str, ...] = ()
    torch_versions: tuple[str, ...] = ()

    def extend(self, n_values: int, seconds: float, device: str) -> RunRecord:
        """Return the record with the steps that this process made on a torch device added."""
        import torch

        return RunRecord(
            None if self.n_values is None else self.n_values + n_values,
            None if self.seconds is None else self.seconds + seconds,
            tuple(dict.fromkeys((*self.processors, processor_name(device)))),
            tuple(dict.fromkeys((*self.torch_versions, str(torch.__version__)))),
        )


def processor_name(device: str) -> str:
    """Return the name of the accelerator that a torch device stands for, or of the processor for cpu."""
    import torch

    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        # There is no /proc outside Linux; the short name is sufficient.
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


class Average:
    """Exponential moving average of a network's floating-point weights and buffers.

    decay: factor of the average at each step, less in the first steps. None: nothing is averaged, and every
    method does nothing.
    """

    def __init__(self, network: torch.nn.Module, decay: float | None) -> None:
        self._decay = decay
        # The network's tensors by name, detached but in the same memory; a shared tensor once.
        by_memory: dict[int, tuple[str, torch.Tensor]] = {}
        for name, tensor in () if decay is None else network.state_dict().items():
            if tensor.is_floating_point():
                by_memory.setdefault(tensor.data_ptr(), (name, tensor))
        self._current = dict(by_memory.values())
        self.weights = {name: weight.clone() for name, weight in self._current.items()}

    def update(self, step: int) -> None:
        """Take the weights after step `step` (from 1) into the average."""
        if self._decay is None:
            return
        decay = min(self._decay, (1 + step) / (10 + step))
        for name, current in self._current.items():
            self.weights[name].lerp_(current, 1 - decay)

    def load(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take over a stored average."""
        for name, weight in self.weights.items():
            weight.copy_(weights[name])

    def swap(self) -> None:
        """Exchange the network's weights and the average; a second call undoes it."""
        for name, current in self._current.items():
            kept = current.clone()
            current.copy_(self.weights[name])
            self.weights[name].copy_(kept)


def rate(step: int, steps: int, warm_up: float, schedule: str | None) -> float:
    """Return the factor of the learning rate at a step: a decay to 0 at `steps`, times a linear warm-up.

    The decay is half a cosine if `schedule` is "cosine", else a line. warm_up: number of steps of the warm-up; 0: none.
    """
    part = min(1.0, step / steps)
    decay = (1 + math.cos(math.pi * part)) / 2 if schedule == "cosine" else 1.0 - part
    return min((step + 1) / warm_up, 1.0) * decay if warm_up else decay


def pretrain(
    recipe: Recipe,
    folder: Path,
    *,
    model: str,
    key: str,
    embedding: Mapping[str, str] | None = None,
    device: str = "cpu",
    processes: int = 1,
    report: Report = lambda row: None,
) -> TrainingResult:
    """Train a model by a recipe (a block of checkpoints.recipes) and save it under `folder`.

    The training state is written every recipe.save_every steps, under a temporary name that is then
    renamed. A killed run therefore loses at most those steps. Rows contain step, loss (mean since the
    previous row) and learning rate; training.json contains them too. training_run.json contains the `RunRecord`.
    recipe.json, with the recipe and the key, is written last: a folder that has it is complete. The weights after
    each step of recipe.snapshots are saved in snapshots/step-N, one checkpoint folder each (`registry.snapshots`).
    Several processes share every batch (see `parallel`).

    Args:
        recipe: the recipe.
        folder: the checkpoint's folder; a stopped run continues there.
        model: name of the model, which every row contains.
        key: key of the job, for recipe.json.
        embedding: `folder` and `key` of the checkpoint whose embedding is copied.
        device: torch device of the first process.
        processes: number of processes: one per GPU, or on CPUs.
        report: called with a row after its state was saved; it may end the training with an exception. A training
            that continues first reports all earlier rows again, in order.
    """
    with start_processes(recipe, embedding, folder, device=device, processes=processes) as share:
        family, rows, n_values, run = take_part(recipe, embedding, folder, share, report)
    rows = [{"model": model, **row} for row in rows]
    _write(family, folder)
    for name in ("state.pt", PROGRESS):
        (folder / name).unlink(missing_ok=True)
    (folder / "training.json").write_text(json.dumps(rows, indent=0) + "\n")
    (folder / RUN_RECORD).write_text(json.dumps(run._asdict(), indent=2) + "\n", encoding="utf-8")
    write_recipe(folder, {"key": key, "recipe": recipe.to_dict()})
    return TrainingResult(rows, n_values)


def take_part(
    recipe: Recipe, embedding: Mapping[str, str] | None, folder: Path, share: Share, report: Report = lambda row: None
) -> tuple[Family, list[dict[str, Any]], int, RunRecord]:
    """Train as one of the processes; return the family, all rows, this run's observed values and the record.

    Only the first process writes files. ValueError if the corpus and the family differ in modality.
    """
    family = start(recipe, _embedding_folder(embedding))
    corpus = recipe_corpus(recipe)
    if corpus.modality != family.modality:
        raise ValueError(f"mixture {recipe.mixture}: got {corpus.modality}, {family.name} reads {family.modality}")
    family.network.to(share.device)
    return family, *_train(family, corpus, recipe, folder, share, report)


def _write(family: Family, folder: Path) -> None:
    """Write a checkpoint that any loader can read; file permissions follow the umask."""
    from tsfmscope.compression.schedules import merge_factors

    merge_factors(family).save(folder)
    share(folder)


def _embedding_folder(source: Mapping[str, str] | None) -> Path | None:
    """Return the folder of the checkpoint whose embedding is copied, or None.

    ModelError if the folder contains another checkpoint than the one that the job's key covers.
    """
    if source is None:
        return None
    path = Path(source["folder"], "recipe.json")
    key = json.loads(path.read_text())["key"] if path.exists() else None
    if key != source["key"]:
        raise ModelError(f"{path}: got the checkpoint of job {key}, expected {source['key']}; run `make retry`")
    verify_sums(path.parent)
    return path.parent


def _train(
    family: Family, corpus: AnyCorpus, recipe: Recipe, folder: Path, share: Share, report: Report
) -> tuple[list[dict[str, Any]], int, RunRecord]:
    """Return the rows of all steps, also before a kill, the observed values of this run, and the record."""
    import torch

    network, steps = family.network.train(), recipe.all_steps
    average = Average(network, recipe.averaging)
    state, rows, earlier = _stored_state(folder, share.device)
    optimizer, schedule = _optimizer(network, recipe, is_second=bool(rows) and rows[-1]["step"] > recipe.steps)
    stateful: dict[str, Any] = {"network": network, "optimizer": optimizer, "schedule": schedule}
    if rows:
        for name, part in stateful.items():
            part.load_state_dict(state[name])
        average.load(state["average"])
    for row in rows:
        if share.first and row["step"] % recipe.save_every == 0:
            # Reported again: the watcher may have been killed before it recorded the first report.
            report(row)
    first, n_values = rows[-1]["step"] if rows else 0, 0
    if share.first and not first:
        _snapshot(family, recipe, 0, folder, average)
    losses: list[float] = []
    forward, shape = share.loss(family), BatchShape.of(recipe)
    start_time = time.monotonic()
    for step in range(first + 1, steps + 1):
        if step == recipe.steps + 1:
            # The second part starts from the weights that the first would save.
            average.swap()
            average = Average(network, recipe.averaging)
            optimizer, schedule = _optimizer(network, recipe, is_second=True)
            stateful |= {"optimizer": optimizer, "schedule": schedule}
        batch = corpus.batch(step, shape).parts(dated=family.dated)
        loss, values = _step(forward, batch, recipe, step, optimizer, share)
        losses.append(loss)
        n_values += values
        schedule.step()
        average.update(step if step <= recipe.steps else step - recipe.steps)
        if not share.first:
            continue
        _snapshot(family, recipe, step, folder, average)
        if step % recipe.log_every == 0 or step == steps:
            rows.append({"step": step, "loss": float(np.mean(losses)), "learning_rate": schedule.get_last_lr()[0]})
            losses.clear()
            # `tsfmscope status` reads this log during a training.
            folder.mkdir(parents=True, exist_ok=True)
            per_step = (time.monotonic() - start_time) / (step - first)
            left = {"steps": steps, "steps_per_s": 1 / per_step, "seconds_left": (steps - step) * per_step}
            with (folder / PROGRESS).open("a") as file:
                file.write(json.dumps(rows[-1] | left) + "\n")
            if step % recipe.save_every == 0:
                run = earlier.extend(n_values, time.monotonic() - start_time, share.device)
                # The rename comes last, so that a killed run leaves no part of a state.
                states = {name: part.state_dict() for name, part in stateful.items()}
                log = {"average": average.weights, "rows": rows, "run": run._asdict()}
                torch.save(states | log, folder / "state.tmp")
                os.replace(folder / "state.tmp", folder / "state.pt")
                report(rows[-1])
    run = earlier.extend(n_values, time.monotonic() - start_time, share.device) if first < steps else earlier
    average.swap()
    network.eval()
    return rows, n_values, run


def _step(
    forward: Loss, batch: list[np.ndarray], recipe: Recipe, step: int, optimizer: torch.optim.Optimizer, share: Share
) -> tuple[float, int]:
    """Make one optimizer step; return its loss and its number of observed values, both over all processes.

    batch: the arrays that `forward` reads. FloatingPointError if the loss is not finite.
    """
    import torch

    n_values = sum(np.count_nonzero(~np.isnan(part)) for part in batch[:2])
    *parts, weight = share.part(*batch)
    # Dropout's seed: a resumed run repeats an uninterrupted one, and processes drop other units.
    torch.manual_seed(recipe.seed * 1_000_003 + step + (share.rank << 40))
    low = None if recipe.precision == "float32" else getattr(torch, recipe.precision)
    # Autocast changes matrix products only; weights stay float32.
    with torch.autocast(torch.device(share.device).type, low) if low else contextlib.nullcontext():
        loss = forward(*map(torch.from_numpy, parts)) * weight
    mean = float(share.mean(loss))
    if not math.isfinite(mean):
        raise FloatingPointError(f"loss at step {step} is {mean}; lower learning_rate {recipe.learning_rate}")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    return mean, int(n_values)


def _snapshot(family: Family, recipe: Recipe, step: int, folder: Path, average: Average) -> None:
    """Save the weights if the recipe lists this step; a resumed run replaces what it wrote before."""
    if step not in recipe.snapshots:
        return
    final = folder / SNAPSHOTS / f"step-{step}"
    temporary = final.with_name(f"making-{final.name}")
    for old in (temporary, final):
        shutil.rmtree(old, ignore_errors=True)
    temporary.mkdir(parents=True)
    average.swap()
    _write(family, temporary)
    average.swap()
    # The rename comes last, so that a folder of the final name is always complete.
    temporary.rename(final)


def _stored_state(folder: Path, device: str) -> tuple[dict[str, Any], list[dict[str, Any]], RunRecord]:
    """Return the stored state of a training, if there is one, with its rows and its record."""
    import torch

    path = folder / "state.pt"
    if not path.exists():
        return {}, [], RunRecord()
    state = torch.load(path, weights_only=True, map_location=device)
    # States of earlier versions have no record.
    run = RunRecord(**state["run"]) if "run" in state else RunRecord(n_values=None, seconds=None)
    return state, state["rows"], run


def _optimizer(
    network: torch.nn.Module, recipe: Recipe, *, is_second: bool
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """Return the optimizer and the schedule of the learning rate of a part of the training."""
    import torch

    part, steps = (
        (recipe.then, recipe.all_steps - recipe.steps) if is_second and recipe.then else (recipe, recipe.steps)
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=part.learning_rate, weight_decay=recipe.weight_decay)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: rate(step, steps, recipe.warm_up, recipe.schedule)
    )


def main() -> None:
    """Take part in the training that standard input's first line describes; end when the input is closed."""
    request = json.loads(sys.stdin.readline())

    def end_with_the_first() -> None:
        # Not sys.stdin: Python needs its lock at exit.
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=end_with_the_first, daemon=True).start()
    ready, sys.stdout = sys.stdout, sys.stderr
    print("ready", file=ready, flush=True)
    share = Share(request["device"], request["rank"], request["of"], request["meeting"])
    take_part(Recipe.model_validate(request["recipe"]), request["embedding"], Path(request["folder"]), share)
    destroy_group()


if __name__ == "__main__":
    main()

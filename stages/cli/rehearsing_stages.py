"""Rehearsal of the profile `paper`: all stages on released layouts with random weights, and what `plan` predicts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml

from tsfmscope import store
from tsfmscope.stages.cli.rehearsing import OFFLINE, run_step
from tsfmscope.stages.config.params import ParamsError
from tsfmscope.store.files import atomic
from tsfmscope.tasks.errors import RehearsalError
from tsfmscope.tasks.local_hub import LocalHub, Repository, serving
from tsfmscope.tasks.rehearsal.layouts import LAYOUTS, Layout

if TYPE_CHECKING:
    from tsfmscope.stages.cli.inspection import Watch

PROFILE = Path("params/paper.yaml")
# One method each of those that the profile has at seven sizes.
METHODS = ("svd-0.237", "joint-0.237", "aware-0.237", "both-0.237", "epsilon-0.1", "share-0.237")
# Model of the profile -> the released layout that takes its place in the quick form: the smallest of its family.
SMALLEST: Mapping[str, str] = {
    "chronos-t5-base": "chronos-t5-tiny",
    "chronos-bolt-base": "chronos-bolt-tiny",
    "moirai-small": "moirai-small",
    "lag-llama": "lag-llama",
    "lag-llama-rope": "lag-llama",
}
# Data sets that calibrate compressed models, those of them that the profile keeps.
CALIBRATION = ("seasonality-1", "trend-1", "english")
# Kept tokens of a layer, and sample paths of a forecast.
ROWS, SAMPLES = 64, 4
TEXT_DATASET, TEXT_CONDITION = "english", "text-512"
# Seconds between two readings of the workers' memory.
READING = 0.5
# Lines of `dvc repro` that are printed if it fails.
LAST = 40


def reduced_profile(block: dict[str, Any], *, quick: bool) -> dict[str, Any]:
    """Return the profile with one series per data set, few tokens and sample paths, and smaller settings elsewhere.

    All studies and conditions are kept. quick: with the models of SMALLEST and PatchTST only, and without text.
    """
    layouts = {name: name for name in block["models"] if name in LAYOUTS} | {"lag-llama-rope": "lag-llama"}
    layouts = dict(SMALLEST) if quick else layouts
    # PatchTST has no layout: its checkpoint is of this project.
    models = {name: model for name, model in block["models"].items() if name in layouts or name == "patchtst"}
    for name, layout in layouts.items():
        models[name]["ref"] = f"hub:{LAYOUTS[layout].repository}"
    for study in block["studies"].values():
        if study["models"] != "all":
            study["models"] = [name for name in study["models"] if _is_kept(name, models)]
    if quick:
        _drop_text(block)
    datasets = block["datasets"] | {"max_series": 1}
    compression = block["compression"]
    calibrated = [name for name in CALIBRATION if name in datasets["sets"]]
    compression |= {"methods": {name: compression["methods"][name] for name in METHODS}}
    compression["calibration"] |= {"datasets": calibrated, "windows": 4}
    compression["fidelity"] |= {"windows": 4}
    heads = block["heads"] | {"rows": ROWS, "lemma": {"tokens": [2], "windows": 1, "layers": "ends"}}
    smaller = {"tokens": {"rows": ROWS}, "embeddings": {"rows": ROWS}, "geometry": {"rows": ROWS, "cai": "last"}}
    smaller |= {"kernelsynth": {"series": 1}, "statistics": {"permutations": 999}, "heads": heads}
    smaller |= {"forecasts": block["forecasts"] | {"samples": SAMPLES}}
    smaller |= {"checkpoints": block["checkpoints"] | {"skill": {"samples": SAMPLES}}}
    kept = {name: value for name, value in block.items() if name != "resources"}  # those are of GPUs
    return kept | smaller | {"models": models, "datasets": datasets, "theory": {"seeds": 2, "instances": 20}}


def _is_kept(model: str, models: Mapping[str, Any]) -> bool:
    base, at, method = model.partition("@")
    return base in models and (not at or method in METHODS)


def _drop_text(block: dict[str, Any]) -> None:
    del block["datasets"]["sets"][TEXT_DATASET], block["conditions"][TEXT_CONDITION]
    for study in block["studies"].values():
        for key, text in (("datasets", TEXT_DATASET), ("conditions", TEXT_CONDITION)):
            if study[key] != "all":
                study[key] = [name for name in study[key] if name != text]


def rehearse_stages(folder: Path, seed: int, watch: Watch, *, quick: bool) -> dict[str, Any]:
    """Run every stage of the reduced profile in a clone of the repository in the current folder.

    Returns `stages`, one row per stage with wall-clock seconds, those of its jobs and the largest resident memory of a
    worker; `costs`, one row per predicted stage and model with what was predicted and measured; and `failures`, the
    number of failed jobs. The folder keeps weights, clone and results, and a second call continues.
    Raises ParamsError if the current folder is no checkout, and RehearsalError if a stage fails.
    """
    if not PROFILE.is_file() or not Path(".git").exists():
        raise ParamsError(f"--stages: expected a git checkout with {PROFILE} in the current folder; go there first")
    run = _Run(folder.resolve(), watch)
    block = reduced_profile(yaml.safe_load(PROFILE.read_text()), quick=quick)
    run.clone(block)
    with _served(block, run.folder / "hub", seed, watch) as endpoint:
        predicted = run.predict(endpoint)
        run.repro(endpoint)
    rows = run.stage_rows(predicted)
    return {"stages": rows, "costs": run.cost_rows(predicted), "failures": len(run.sql("select * from failures"))}


@contextmanager
def _served(block: Mapping[str, Any], folder: Path, seed: int, watch: Watch) -> Iterator[str]:
    """Write the released layouts of a profile that are not there yet, serve them, and yield the hub's address."""
    references = {model["ref"].removeprefix("hub:") for model in block["models"].values()}
    layouts = [layout for layout in LAYOUTS.values() if layout.repository in references]
    with serving(LocalHub()) as hub:
        for n_done, layout in enumerate(layouts):
            watch(f"{layout.name}: writing", n_done, len(layouts))
            hub.repositories[layout.repository] = Repository.of_folder(_written(layout, folder, seed))
        yield hub.endpoint


def _written(layout: Layout, folder: Path, seed: int) -> Path:
    """Return the folder with the files of a release, written once."""
    files, finished = folder / layout.name, folder / f"{layout.name}-{seed}.done"
    if not finished.exists():
        run_step("write", layout.name, files, seed, {})
        finished.touch()
    return files


class _Run:
    """A clone of the repository where `dvc repro` runs."""

    def __init__(self, folder: Path, watch: Watch) -> None:
        self.folder = folder
        self.repository = folder / "repository"
        self._watch = watch
        self._stages_file = folder / "stages.json"
        # Stage -> wall-clock seconds and the largest memory of a worker, of this and of former calls.
        self._stages: dict[str, dict[str, float]] = {}
        with suppress(OSError, ValueError):
            self._stages = json.loads(self._stages_file.read_text())

    def clone(self, block: Mapping[str, Any]) -> None:
        """Clone the current commit, and put a profile in the place of its params.yaml."""
        if not self.repository.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._stages = {}
            subprocess.run(["git", "clone", "--quiet", ".", str(self.repository)], check=True)
        (self.repository / "params.yaml").write_text(yaml.safe_dump(dict(block), sort_keys=False))

    def predict(self, endpoint: str) -> list[dict[str, Any]]:
        """Return the rows that `tsfmscope plan --costs` predicts."""
        command = [sys.executable, "-m", "tsfmscope", "plan", "--costs", "--json"]
        done = subprocess.run(command, cwd=self.repository, env=self._environment(endpoint), capture_output=True)
        if done.returncode:
            raise RehearsalError(f"tsfmscope plan in {self.repository}: {done.stderr.decode()}")
        rows: list[dict[str, Any]] = json.loads(done.stdout)["costs"]["rows"]
        return rows

    def repro(self, endpoint: str) -> None:
        """Run `dvc repro`. Raises RehearsalError with its last lines if it fails."""
        process = subprocess.Popen(
            [sys.executable, "-m", "dvc", "repro"],
            cwd=self.repository,
            env=self._environment(endpoint),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        lines = []
        try:
            for line, stage in self._stages_of(process):
                lines.append(line)
                self._watch(f"{stage}: {line.strip()}"[:100], len(self._stages), 0)
        except BaseException:
            # DVC and its stage, which stores what is done.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            process.wait()
            raise
        if process.wait():
            raise RehearsalError(f"dvc repro in {self.repository} failed; its last lines:\n{''.join(lines[-LAST:])}")

    def _stages_of(self, process: subprocess.Popen[str]) -> Iterator[tuple[str, str]]:
        """Yield the lines of `dvc repro` with the name of the running stage, and keep the time of each stage."""
        stage, start = "", 0.0
        assert process.stdout is not None
        with _watched_memory() as memory:
            for line in process.stdout:
                if line.startswith("Running stage '"):
                    self._keep(stage, start, memory)
                    stage, start = line.split("'")[1], time.monotonic()
                yield line, stage
            if not process.wait():
                self._keep(stage, start, memory)

    def _keep(self, stage: str, start: float, memory: list[int]) -> None:
        largest = max(memory, default=0)
        memory.clear()
        if stage:
            self._stages[stage] = {"wall": time.monotonic() - start, "memory": largest}
            with atomic(self._stages_file) as temporary:
                temporary.write_text(json.dumps(self._stages))

    def _environment(self, endpoint: str) -> dict[str, str]:
        left_out = (*OFFLINE, "PYTHONPATH", "RAY_ADDRESS")
        inherited = {key: value for key, value in os.environ.items() if key not in left_out}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        hub = {"HF_ENDPOINT": endpoint, "HF_HOME": str(self.folder / "cache"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        return inherited | hub | {"PATH": path, "RAY_USAGE_STATS_ENABLED": "0"}

    def sql(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query to the results."""
        with store.open(self.repository / "data" / "results.duckdb") as connection:
            rows: list[dict[str, Any]] = connection.sql(query).to_arrow_table().to_pylist()
        return rows

    def stage_rows(self, predicted: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return one row per stage; predictions are None for stages that `plan` does not predict."""
        timed = self.sql(
            "select stage, count(*) as jobs, sum(seconds + load_seconds) as seconds from timings group by all"
        )
        jobs = {row.pop("stage"): row for row in timed}
        rows = []
        for stage, numbers in self._stages.items():
            costs = [row for row in predicted if row["stage"] == stage]
            row = {"stage": stage} | numbers | jobs.get(stage, {"jobs": 0, "seconds": 0.0})
            row["seconds_predicted"] = sum(cost["seconds"] for cost in costs) if costs else None
            row["memory_predicted"] = max(cost["peak_bytes"] for cost in costs) if costs else None
            rows.append(row)
        return rows

    def cost_rows(self, predicted: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return one row per predicted stage and model; the row of a model has its compressed ones too."""
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for cost in predicted:
            base, _, _ = cost["model"].partition("@")
            row = rows.setdefault((cost["stage"], base), {"stage": cost["stage"], "model": base})
            for name in ("seconds", "rows", "bytes"):
                row[f"{name}_predicted"] = row.get(f"{name}_predicted", 0) + cost[name]
        for query in (
            "select stage, subject as model, sum(seconds + load_seconds) as seconds from timings group by all",
            "select kind as stage, coalesce(base_model, model) as model, sum(rows)::bigint as rows, "
            "sum(bytes)::bigint as bytes from dumps group by all",
        ):
            for measured in self.sql(query):
                rows.get((measured.pop("stage"), measured.pop("model")), {}).update(measured)
        return list(rows.values())


@contextmanager
def _watched_memory() -> Iterator[list[int]]:
    """Yield a list to which a thread adds the resident memory of Ray's workers, in bytes."""
    found: list[int] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(READING):
            infos = [process.info for process in psutil.process_iter(["name", "memory_info"])]
            workers = [info for info in infos if (info["name"] or "").startswith("ray::") and info["memory_info"]]
            found.extend(info["memory_info"].rss for info in workers)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()

"""Rehearsal of the profile `paper`: all stages on released layouts with random weights, and what `plan` predicts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml

from tsfmscope import store
from tsfmscope.stages.cli.rehearsed_profile import reduced_profile
from tsfmscope.stages.cli.rehearsing import OFFLINE, SMALL, layout_key, run_step
from tsfmscope.stages.config.params import ParamsError
from tsfmscope.store.files import atomic
from tsfmscope.tasks.errors import RehearsalError
from tsfmscope.tasks.local_hub import LocalHub, Repository, serving
from tsfmscope.tasks.rehearsal.layouts import LAYOUTS, Layout
from tsfmscope.tasks.sweep.signals import exit_on_signal

if TYPE_CHECKING:
    from tsfmscope.stages.cli.inspection import Watch

PROFILE = "params/paper.yaml"
# Copies of the weights on the disk: the files of the releases, the hub's cache, and about two for the results, which
# include compressed models.
COPIES_ON_DISK = 4
SECONDS_BETWEEN_READINGS = 1.0
# Lines of `dvc repro` that are printed if it fails.
LAST_LINES = 40


def rehearse_stages(folder: Path, seed: int, watch: Watch, *, quick: bool) -> dict[str, Any]:
    """Run every stage of the reduced profile in a clone of the current commit of the current folder.

    Returns `stages`, one row per stage with wall-clock seconds, those of its jobs and the largest resident memory of a
    process; `costs`, one row per predicted stage and model with what was predicted and measured; `not_predicted`, model
    or data set -> why `plan` could not predict it; and `failures`, the number of failed jobs. The folder keeps weights,
    clone and results, and a second call continues.
    Raises ParamsError if the current folder is no checkout or the folder has another rehearsal, RehearsalError if the
    disk is too small or a stage fails.
    """
    if not Path(PROFILE).is_file() or not Path(".git").exists():
        raise ParamsError(f"--stages: expected a git checkout with {PROFILE} in the current folder; go there first")
    block = reduced_profile(yaml.safe_load(_git("show", f"HEAD:{PROFILE}")), quick=quick)
    references = {model["ref"].removeprefix("hub:") for model in block["models"].values()}
    layouts = [layout for layout in LAYOUTS.values() if layout.repository in references]
    commit = _git("rev-parse", "HEAD").strip()
    clone = _Clone(folder.resolve(), {"commit": commit, "seed": seed, "quick": quick})
    clone.make(block)
    _check_disk(clone.folder, layouts)
    costs = clone.predict()
    with _served(layouts, clone.folder / "hub", seed, watch) as endpoint:
        clone.repro(endpoint, watch)
    originals = {name: model.get("base_model") or name for name, model in block["models"].items()}
    (failed,) = clone.sql("select count(*) as n from failures")
    return {
        "stages": clone.stage_rows(costs["rows"]),
        "costs": clone.cost_rows(costs["rows"], originals),
        "not_predicted": costs["unknown"],
        "failures": failed["n"],
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RehearsalError(f"git {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


def _check_disk(folder: Path, layouts: list[Layout]) -> None:
    """Raise RehearsalError if the disk is too small for the models whose files are not there yet."""
    missing = [layout for layout in layouts if not (folder / "hub" / layout.name).exists()]
    needed = 4 * COPIES_ON_DISK * sum(layout.checks.parameters or SMALL for layout in missing)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RehearsalError(
            f"{folder}: needs about {needed / 1e9:.0f} GB, {free / 1e9:.0f} GB are free; free some of the disk, name "
            "another --folder, or take --quick"
        )


@contextmanager
def _served(layouts: list[Layout], folder: Path, seed: int, watch: Watch) -> Iterator[str]:
    """Write the released files that are not there yet, serve them, and yield the hub's address."""
    with serving(LocalHub()) as hub:
        for n_done, layout in enumerate(layouts):
            watch(f"{layout.name}: writing", n_done, len(layouts))
            hub.repositories[layout.repository] = Repository.of_folder(_write_files(layout, folder, seed))
        yield hub.endpoint


def _write_files(layout: Layout, folder: Path, seed: int) -> Path:
    """Return the folder with the files of a release, written once."""
    files, key_file, key = folder / layout.name, folder / f"{layout.name}.key", layout_key(layout, seed)
    if not key_file.exists() or key_file.read_text() != key:
        shutil.rmtree(files, ignore_errors=True)
        run_step("write", layout.name, files, seed, {})
        key_file.write_text(key)
    return files


class _Clone:
    """A clone of the repository in a folder, where `dvc repro` runs.

    run: commit, seed and form of the rehearsal, which are the same in every call with this folder.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        self.folder = folder
        self._run = dict(run)
        self._repository = folder / "repository"
        self._stages_file = folder / "stages.json"
        # Stage -> wall-clock seconds and largest memory, of all calls until it is over, and whether it is over.
        self._stages: dict[str, dict[str, Any]] = {}

    def make(self, block: Mapping[str, Any]) -> None:
        """Clone the current commit, once, and put a profile in the place of its params.yaml.

        Raises ParamsError if the folder has another rehearsal, or a clone or weights of something else.
        """
        run_file, incomplete = self.folder / "run.json", self.folder / "incomplete"
        if not run_file.exists():
            for path in (self._repository, incomplete, self.folder / "hub"):
                if path.exists():
                    raise ParamsError(f"--folder {self.folder}: has {path.name}, but no rehearsal; name another folder")
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic(run_file) as temporary:
                temporary.write_text(json.dumps(self._run))
        elif (stored := json.loads(run_file.read_text())) != self._run:
            raise ParamsError(
                f"--folder {self.folder}: has the rehearsal of {stored}, expected {self._run}; name another folder, or "
                "delete this one"
            )
        if not self._repository.exists():
            shutil.rmtree(incomplete, ignore_errors=True)
            _git("clone", "--quiet", ".", str(incomplete))
            (incomplete / "params.yaml").write_text(yaml.safe_dump(dict(block), sort_keys=False))
            incomplete.rename(self._repository)
        with suppress(OSError, ValueError):
            self._stages = json.loads(self._stages_file.read_text())

    def predict(self) -> dict[str, Any]:
        """Return the costs that `tsfmscope plan` predicts, offline."""
        command = [sys.executable, "-m", "tsfmscope", "plan", "--costs", "--json"]
        environment = self._environment({"HF_HUB_OFFLINE": "1"})
        done = subprocess.run(command, cwd=self._repository, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RehearsalError(f"tsfmscope plan in {self._repository}: {done.stderr}")
        costs: dict[str, Any] = json.loads(done.stdout)["costs"]
        return costs

    def repro(self, endpoint: str, watch: Watch) -> None:
        """Run `dvc repro` with the hub at `endpoint`. Raises RehearsalError with its last lines if it fails."""
        lines: deque[str] = deque(maxlen=LAST_LINES)
        total = len(yaml.safe_load((self._repository / "dvc.yaml").read_text())["stages"])
        with exit_on_signal(lambda: "what is done is stored; run the same command again to go on"):
            process = subprocess.Popen(
                [sys.executable, "-m", "dvc", "repro"],
                cwd=self._repository,
                env=self._environment({"HF_ENDPOINT": endpoint}),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            try:
                with closing(self._lines_of(process)) as running:
                    for stage, line in running:
                        lines.append(line)
                        watch(f"{stage}: {line.strip()}"[:100], len(self._stages), total)
            finally:
                _end(process)
        if process.returncode:
            raise RehearsalError(f"dvc repro in {self._repository} failed; its last lines:\n{''.join(lines)}")

    def _lines_of(self, process: subprocess.Popen[str]) -> Generator[tuple[str, str]]:
        """Yield the running stage and each line of `dvc repro`, and store the time of each stage."""
        stage, start = "", 0.0
        assert process.stdout is not None
        with _sampled_memory(process.pid) as memory:
            try:
                for line in process.stdout:
                    if line.startswith("Running stage '"):
                        self._store_stage(stage, start, memory, is_over=True)
                        stage, start = line.split("'")[1], time.monotonic()
                    yield stage, line
                process.wait()
            finally:
                self._store_stage(stage, start, memory, is_over=process.poll() == 0)

    def _store_stage(self, stage: str, start: float, memory: list[int], *, is_over: bool) -> None:
        """Add seconds and memory to those of the stage's former calls, unless it was over."""
        largest, memory[0] = memory[0], 0
        if not stage:
            return
        former = self._stages.get(stage, {"is_over": True})
        if former["is_over"]:
            former = {"wall": 0.0, "memory": 0}
        wall, largest = former["wall"] + time.monotonic() - start, max(former["memory"], largest)
        self._stages[stage] = {"wall": wall, "memory": largest, "is_over": is_over}
        with atomic(self._stages_file) as temporary:
            temporary.write_text(json.dumps(self._stages))

    def _environment(self, added: Mapping[str, str]) -> dict[str, str]:
        left_out = (*OFFLINE, "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "PYTHONPATH", "RAY_ADDRESS")
        inherited = {key: value for key, value in os.environ.items() if key not in left_out}
        if data := inherited.get("TSFMSCOPE_DATA"):
            inherited["TSFMSCOPE_DATA"] = str(Path(data).expanduser().resolve())
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        own = {"HF_HOME": str(self.folder / "cache"), "HF_HUB_DISABLE_PROGRESS_BARS": "1", "PATH": path}
        return inherited | own | dict(added)

    def sql(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query to the results."""
        with store.open(self._repository / "data" / "results.duckdb") as connection:
            rows: list[dict[str, Any]] = connection.sql(query).to_arrow_table().to_pylist()
        return rows

    def stage_rows(self, predicted: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return one row per stage; None where `plan` predicts nothing or no process was read."""
        timed = self.sql(
            "select stage, count(*) as jobs, sum(seconds + load_seconds) as seconds from timings group by all"
        )
        jobs = {row.pop("stage"): row for row in timed}
        rows = []
        for stage, numbers in self._stages.items():
            costs = [row for row in predicted if row["stage"] == stage]
            row = {"stage": stage, "wall": numbers["wall"], "memory": numbers["memory"] or None}
            row |= jobs.get(stage, {"jobs": None, "seconds": None})
            row["seconds_predicted"] = sum(cost["seconds"] for cost in costs) if costs else None
            row["memory_predicted"] = max(cost["peak_bytes"] for cost in costs) if costs else None
            rows.append(row)
        return rows

    def cost_rows(self, predicted: list[dict[str, Any]], originals: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return one row per predicted stage and original model, with the sums of all models made from it.

        originals: model of params.yaml -> the model it is made from, or itself.
        """
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for cost in predicted:
            model = originals[cost["model"].partition("@")[0]]
            row = rows.setdefault((cost["stage"], model), {"stage": cost["stage"], "model": model})
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


def _end(process: subprocess.Popen[str]) -> None:
    """Stop DVC and its stage if they still run, and wait; a second Ctrl-C kills them."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        with suppress(KeyboardInterrupt):
            # Reads what is left, so that the process does not wait for a full pipe.
            process.communicate()
            return


@contextmanager
def _sampled_memory(pid: int) -> Iterator[list[int]]:
    """Yield a list with the largest resident memory, in bytes, of a process below `pid`, read once a second."""
    largest = [0]
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(SECONDS_BETWEEN_READINGS):
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        largest[0] = max(largest[0], child.memory_info().rss)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield largest
    finally:
        ended.set()
        thread.join()

"""Rehearsal of released models: random weights in the published layout, served, loaded and measured, one by one."""

from __future__ import annotations

import difflib
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tsfmscope.stages.config.params import ParamsError
from tsfmscope.store.files import atomic
from tsfmscope.tasks.errors import ModelError
from tsfmscope.tasks.local_hub import LocalHub, Repository, serving
from tsfmscope.tasks.rehearsal.layouts import LAYOUTS, QUICK, Layout

if TYPE_CHECKING:
    from tsfmscope.stages.cli.inspection import Watch

STEPS = "tsfmscope.tasks.rehearsal.steps"
# Variables that would keep a process from the local hub.
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN")
# Packages whose versions the stored rows belong to, where they are installed.
PACKAGES = ("tsfmscope", "torch", "transformers", "chronos-forecasting", "uni2ts")
# Seconds of a model that do not depend on its size, in parameters: two processes import torch and the package.
PARAMETERS_OF_START = 400e6
# Memory of a process without weights, and copies of the weights while a model is loaded.
BYTES_OF_PROCESS, COPIES_IN_MEMORY = 10**9, 2
# Copies of the weights on the disk: the files of the release, and the hub's cache.
COPIES_ON_DISK = 2
# Model without a published number of parameters: more than Lag-Llama has, with moments.
SMALL = 8e6
# Characters of a process's messages that are printed if it ends without a document.
LAST = 600


def choose_models(models: Sequence[str], *, quick: bool) -> tuple[str, ...]:
    """Return the models to rehearse: the named ones, or the smallest of each family, or all.

    Raises ParamsError for an unknown name, with similar ones, and for names together with `quick`.
    """
    if models and quick:
        raise ParamsError("--quick: got names of models too; leave out the names or the option")
    for name in models:
        if name not in LAYOUTS:
            near = difflib.get_close_matches(name, LAYOUTS, 2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(LAYOUTS)}"
            raise ParamsError(f"MODEL: got {name!r}, which has no published layout here; {hint}")
    return tuple(dict.fromkeys(models)) or (QUICK if quick else tuple(LAYOUTS))


def rehearse_models(names: Sequence[str], folder: Path, seed: int, watch: Watch) -> list[dict[str, Any]]:
    """Rehearse models one by one and return one row per model.

    A row that a former run stored in the folder is returned as it is, if the layout, the seed and the versions of the
    packages are the same and the model did not fail. The row of a model that fails has the status `failed` and a
    reason. The weights of a model are deleted when its row is stored, and after an interruption.
    Raises ParamsError if the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParamsError(f"--folder {folder}: cannot be made ({error.strerror}); name another folder") from None
    rows = {name: row for name in names if (row := stored_row(folder, LAYOUTS[name], seed)) is not None}
    missing = [name for name in names if name not in rows]
    with serving(LocalHub()) as server:
        show = _with_time_left(watch, missing, len(rows), len(names))
        for name in missing:
            rows[name] = _rehearse(LAYOUTS[name], folder, seed, server, show)
            show(name, "stored")
            with atomic(_row_file(folder, name)) as temporary:
                temporary.write_text(json.dumps(rows[name], indent=2) + "\n")
    return [rows[name] for name in names]


def stored_row(folder: Path, layout: Layout, seed: int) -> dict[str, Any] | None:
    """Return the row that a former run stored; None if it failed, or for another layout, seed or package version."""
    try:
        row = json.loads(_row_file(folder, layout.name).read_text())
    except (OSError, ValueError):
        return None
    same = isinstance(row, dict) and row.get("key") == layout_key(layout, seed) and row.get("status") == "passed"
    return row if same else None


def _rehearse(layout: Layout, folder: Path, seed: int, server: LocalHub, show: Any) -> dict[str, Any]:
    """Return the row of a model."""
    row: dict[str, Any] = {"model": layout.name, "family": layout.family, "repository": layout.repository}
    row |= {"layout_sources": list(layout.sources), "layout_unknown": layout.unknown}
    row |= {"key": layout_key(layout, seed), "seed": seed, "packages": _versions()}
    try:
        with _empty_folder(folder / "work") as work:
            _check_room(layout, work)
            files, cache = work / "files", work / "cache"
            show(layout.name, "writing")
            row |= run_step("write", layout.name, files, seed, {})
            server.repositories[layout.repository] = Repository.of_folder(files)
            show(layout.name, "loading and measuring")
            row |= run_step("inspect", layout.name, cache, seed, {"HF_ENDPOINT": server.endpoint})
    except (ModelError, OSError) as error:
        return row | {"status": "failed", "reason": str(error)}
    finally:
        server.repositories.pop(layout.repository, None)
    return row | {"status": "passed", "reason": None}


def run_step(step: str, name: str, folder: Path, seed: int, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run a step of a model in a process of its own and return its document.

    environment: further variables of the process. Raises ModelError with the reason that the process states, or with
    its last messages. The process is ended with this one.
    """
    inherited = {key: value for key, value in os.environ.items() if key not in OFFLINE}
    command = [sys.executable, "-m", STEPS, step, name, str(folder), str(seed)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, "HF_HUB_DISABLE_PROGRESS_BARS": "1", **environment},
    )
    try:
        output, messages = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    try:
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise ModelError(_describe_end(step, process.returncode, messages)) from None
    if "error" in found:
        raise ModelError(str(found["error"]))
    return found


def _describe_end(step: str, code: int, messages: str) -> str:
    if code < 0:
        return (
            f"step {step}: its process was ended by signal {-code}, as the system does when memory is short; "
            "stop other programs, or leave the model out"
        )
    return f"step {step}: its process ended with code {code} and no result; its last messages: {messages[-LAST:]}"


def _check_room(layout: Layout, folder: Path) -> None:
    """Raise ModelError if the disk or the memory is too small for a model."""
    size = 4 * (layout.checks.parameters or SMALL)
    needs = {
        "disk": (COPIES_ON_DISK * size, shutil.disk_usage(folder).free, "free some of it, or name another --folder"),
        "memory": (
            BYTES_OF_PROCESS + COPIES_IN_MEMORY * size,
            psutil.virtual_memory().available,
            "stop other programs, or leave the model out",
        ),
    }
    for name, (needed, free, fix) in needs.items():
        if free < needed:
            raise ModelError(f"{name}: needs about {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free; {fix}")


@contextmanager
def _empty_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder, without what an ended run left there, and delete it at the end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _row_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def layout_key(layout: Layout, seed: int) -> str:
    """Return a digest of all that the files and the row of a release depend on, besides the machine."""
    text = json.dumps([asdict(layout), seed, _versions()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _versions() -> dict[str, str | None]:
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _with_time_left(watch: Watch, names: Sequence[str], n_stored: int, total: int) -> Any:
    """Return a function of a model and a step that shows them with the rate and the time left.

    The time left is estimated from the parameters of the models that are done and left.
    """
    costs = {name: PARAMETERS_OF_START + (LAYOUTS[name].checks.parameters or SMALL) for name in names}
    start = time.monotonic()

    def show(name: str, step: str) -> None:
        n_done = list(names).index(name) + (step == "stored")
        done = sum(costs[other] for other in names[:n_done])
        seconds = time.monotonic() - start
        text = f"{name}: {step}"
        if done:
            left = timedelta(seconds=round(seconds / done * (sum(costs.values()) - done)))
            text += f", {60 * n_done / seconds:.1f} models/min, {left} left"
        watch(text, n_stored + n_done, total)

    return show

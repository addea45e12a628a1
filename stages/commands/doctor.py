"""Command `tsfmscope doctor` of a checkout: the checks of the library, then Ray, git, DVC, params, data and results."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from stages.commands import RESULTS
from stages.config.bounded_yaml import LOADER
from stages.config.params import PARAMS_FILE, ParamsError, load
from stages.planning import dvc_folder
from tsfmscope.cli.doctor import print_checks
from tsfmscope.cli.output import Json
from tsfmscope.extras import install_command
from tsfmscope.functions.doctor import Check
from tsfmscope.functions.doctor import doctor as check_library
from tsfmscope.series.data_sets import DATA_VARIABLE

# Beginnings of the lines that git writes where two branches differ.
CONFLICT = ("<<<<<<< ", "=======", ">>>>>>> ")
# Seconds to wait for a connection to a Ray cluster's port.
ANSWER_S = 2.0


def doctor(as_json: Json = False) -> None:
    """Check what is installed, and print how to fix it.

    \b
    tsfmscope doctor
    tsfmscope doctor --json

    Checked are packages, families, GPUs, Ray, DVC, params.yaml, data, memory and disk. Exit code 1 if
    something that every run needs is missing. Families and GPUs are optional.
    """
    print_checks(lambda: [*check_library(), *check_tools(), *check_workspace()], as_json)


def check_tools() -> Iterator[Check]:
    """Yield checks of Ray and its cluster, git and DVC."""
    yield _cluster(os.environ.get("RAY_ADDRESS", ""))
    if shutil.which("git") is None:
        yield Check("git", "note", "not on PATH", "install git: DVC and the record of runs need it")
    else:
        version = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False).stdout
        yield Check("git", "ok", version.strip().removeprefix("git version "))
    dvc = shutil.which("dvc", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if dvc is None:
        yield Check("dvc", "note", "no such command next to python or on PATH", install_command("pipeline"))
    elif not Path(".dvc").is_dir():
        yield Check("dvc", "note", "this folder is no DVC repository", "run in a checkout for `dvc repro`")
    else:
        yield Check("dvc", "ok", f"{importlib.metadata.version('dvc')}, a repository")
        yield from _check_dvc_files()


def _check_dvc_files() -> Iterator[Check]:
    """Yield one check per file of DVC that `dvc repro` cannot read."""
    if not dvc_folder.is_rwlock_readable():
        fix = "`make repro` deletes it and continues; so does deleting it by hand while no `dvc` runs"
        yield Check("dvc", "missing", f"{dvc_folder.RWLOCK} is unreadable: a dvc was killed", fix)
    for name in ("dvc.lock", "dvc.yaml"):
        try:
            lines = Path(name).read_text().splitlines()
        except FileNotFoundError:
            continue
        conflict = next((number for number, line in enumerate(lines, 1) if line.startswith(CONFLICT)), None)
        if conflict is not None:
            fix = f"`git checkout --ours {name}` (or --theirs), then `dvc repro`"
            yield Check(name, "missing", f"line {conflict} is a marker of a merge conflict", fix)
            continue
        try:
            yaml.load("\n".join(lines), LOADER)
        except yaml.YAMLError as error:
            yield Check(name, "missing", f"not YAML: {' '.join(str(error).split())}", f"`git checkout {name}`")


def _cluster(address: str) -> Check:
    """Return the check of Ray: whether the cluster that RAY_ADDRESS names listens, if one is named."""
    if importlib.util.find_spec("ray") is None:
        return Check("ray", "note", "not installed", install_command("pipeline"))
    if not address:
        return Check(
            "ray", "ok", f"{_version('ray')}; jobs run on a cluster of their own, unless resources.address names one"
        )
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_S).close()
    except (OSError, ValueError) as error:
        fix = "`ray start --head`, or unset RAY_ADDRESS"
        return Check("ray", "note", f"RAY_ADDRESS {address}: nothing listens there ({error})", fix)
    return Check("ray", "ok", f"{_version('ray')}; a cluster listens at {address}")


def check_workspace() -> Iterator[Check]:
    """Yield checks of this folder's params, data and results."""
    if not Path(PARAMS_FILE).exists():
        yield Check(
            PARAMS_FILE,
            "note",
            "not in this folder",
            "models are those of the package; run in a checkout for the pipeline",
        )
    else:
        try:
            params = load()
        except ParamsError as error:
            yield Check(PARAMS_FILE, "missing", "not valid", str(error))
        else:
            yield Check(PARAMS_FILE, "ok", f"{len(params.models)} models, {len(params.studies)} studies")
            root = params.data_root
            if root is None or not root.is_dir():
                why = "not set" if root is None else f"{root} is no folder"
                yield Check("data root", "note", why, f"set {DATA_VARIABLE} or datasets.root for series of your own")
            else:
                yield Check("data root", "ok", str(root))
            has_results = RESULTS.exists()
            yield Check("results", "ok" if has_results else "note", str(RESULTS) if has_results else "none",
                        "" if has_results else "`dvc repro` makes them")  # fmt: skip


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"

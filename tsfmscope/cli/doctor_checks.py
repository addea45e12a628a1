"""Checks of `tsfmscope doctor`: packages, families, devices, Ray, DVC, params, data, memory and disk.

The checks change nothing.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import yaml

from stages.config import DATA_VARIABLE
from stages.config.bounded_yaml import LOADER
from stages.config.defaults import PACKAGE, PROJECT, version
from stages.config.params import PARAMS_FILE, ParamsError, load
from stages.planning import dvc_folder
from tsfmscope.cli.options import RESULTS
from tsfmscope.defaults import PRECISION
from tsfmscope.errors import ModelError
from tsfmscope.extras import EXTRAS, install_command
from tsfmscope.models import registry

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# GB of memory and of disk: measured need of the default run, with a margin.
LEAST_GB = 4.0
# Instructions that multiply bfloat16, by torch's names; the last is Arm's.
BFLOAT16 = ("amx_bf16", "avx512_bf16", "bf16")
# Beginnings of the lines that git writes where two branches differ.
CONFLICT = ("<<<<<<< ", "=======", ">>>>>>> ")
# Seconds to wait for a connection to a Ray cluster's port.
ANSWER_S = 2.0


class Check(NamedTuple):
    """Result of one check.

    state: "missing" if every run needs it and it is not there; "note" for information, including optional
    parts that are not there. fix: what the user can do about it.
    """

    name: str
    state: Literal["ok", "note", "missing"]
    value: str
    fix: str = ""


def checks() -> Iterator[Check]:
    """Yield every check; packages and families come first."""
    yield Check(PACKAGE, "ok", version())
    yield Check("python", "ok", sys.version.split()[0])
    yield from check_packages()
    yield from check_families()
    yield from check_devices()
    yield from check_tools()
    yield from check_workspace()


def check_packages() -> Iterator[Check]:
    """Yield a check per unmet requirement, or one check if all are met; then a check per extra."""
    requirements = _requirements("")
    wrong = _unmet(requirements)
    for requirement, installed in wrong.items():
        fix = f"uv pip install '{requirement.name}{requirement.specifier}'"
        yield Check(f"package {requirement.name}", "missing", installed or "not installed", fix)
    if not wrong:
        yield Check("packages", "ok", f"all {len(requirements)} that {PACKAGE} needs")
    for extra in sorted(set(EXTRAS.values())):
        requirements = _requirements(extra)
        if wrong := _unmet(requirements):
            lacking = ", ".join(f"{r.name} {installed or ''}".strip() for r, installed in wrong.items())
            yield Check(f"extra {extra}", "note", f"lacks {lacking}", install_command(extra))
        else:
            yield Check(f"extra {extra}", "ok", f"all {len(requirements)} packages")


def _unmet(requirements: Iterable[Requirement]) -> dict[Requirement, str | None]:
    """Return the requirements that are not met, with the installed version; None if there is none."""
    versions: dict[Requirement, str | None] = {}
    for requirement in requirements:
        try:
            installed = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            installed = None
        if installed is None or not requirement.specifier.contains(installed, prereleases=True):
            versions[requirement] = installed
    return versions


def _requirements(extra: str) -> list[Requirement]:
    """Return what the package ("") or an extra needs, from pyproject.toml in a checkout, else from the metadata."""
    from packaging.requirements import Requirement

    if PROJECT.is_file():
        project = tomllib.loads(PROJECT.read_text())["project"]
        texts = project["optional-dependencies"].get(extra, []) if extra else project["dependencies"]
        requirements = [Requirement(text) for text in texts]
    else:
        requirements = [Requirement(text) for text in importlib.metadata.requires(PACKAGE) or []]
        requirements = [r for r in requirements if ("extra" in str(r.marker)) == bool(extra)]
    return [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": extra})]


def check_families() -> Iterator[Check]:
    """Yield one check per family, ours or an installed package's: whether its class can be imported."""
    for name, module in sorted(registry.families().items()):
        origin = "" if name in registry.FAMILIES else f" of {module.partition(':')[0].partition('.')[0]}"
        try:
            family = registry.family_class(name)
            registry.check_packages(name)
            yield Check(f"family {name}", "ok", f"reads {family.modality}{origin}")
        except ModelError as error:
            reason, _, fix = str(error).partition("; ")
            yield Check(f"family {name}", "note", reason, fix)
        # A package of somebody else may raise anything on import.
        except Exception as error:
            yield Check(f"family {name}", "note", f"{type(error).__name__}: {error}", "fix or uninstall its package")


def check_devices() -> Iterator[Check]:
    """Yield checks of the GPUs that torch finds, of the cores, and of bfloat16 on the CPU."""
    import torch

    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        yield Check(f"cuda:{index}", "ok", f"{facts.name}, {facts.total_memory / 2**30:.0f} GiB")
    if not torch.cuda.is_available():
        built = torch.version.cuda
        fix = "check its driver" if built else "for one, install a torch built for CUDA"
        build = f"built for CUDA {built}" if built else "built for CPUs alone"
        yield Check("GPU", "note", f"none; torch {torch.__version__} is {build}", f"models run on the CPU; {fix}")
    yield Check("cores", "ok", f"{len(os.sched_getaffinity(0))}, torch uses {torch.get_num_threads()}")
    # torch 2.8 does not have this function.
    if hasattr(torch.cpu, "get_capabilities"):
        capabilities = torch.cpu.get_capabilities()
        instructions = ", ".join(name for name in BFLOAT16 if capabilities.get(name))
        advice = "" if instructions else f"on this CPU `options: {{{PRECISION}: bfloat16}}` is slower than float32"
        yield Check(
            "bfloat16", "ok" if instructions else "note", instructions or "the CPU has no instructions for it", advice
        )


def check_tools() -> Iterator[Check]:
    """Yield checks of Ray and its cluster, git and DVC."""
    yield _cluster(os.environ.get("RAY_ADDRESS", ""))
    if shutil.which("git") is None:
        yield Check("git", "note", "not on PATH", "install git: DVC and the record of runs need it")
    else:
        yield Check("git", "ok", _output_of("git", "--version").removeprefix("git version "))
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
    """Yield checks of this folder's params, data and results, and of the free memory and disk."""
    import psutil

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
    for name, free in (("memory", psutil.virtual_memory().available), ("disk", shutil.disk_usage(".").free)):
        gigabytes = free / 1e9
        low = gigabytes < LEAST_GB
        fix = f"the default run needs about {LEAST_GB:g} GB" if low else ""
        yield Check(name, "note" if low else "ok", f"{gigabytes:.0f} GB free", fix)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

"""`doctor`: checks of packages, families, devices, memory and disk. They change nothing."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from tsfmscope.defaults import PRECISION
from tsfmscope.errors import ModelError
from tsfmscope.extras import EXTRAS, PACKAGE, PROJECT, install_command, version
from tsfmscope.models import registry

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# GB of memory and of disk: measured need of the default run, with a margin.
LEAST_GB = 4.0
# Instructions that multiply bfloat16, by torch's names; the last is Arm's.
BFLOAT16 = ("amx_bf16", "avx512_bf16", "bf16")


class Check(NamedTuple):
    """Result of one check.

    state: "missing" if every run needs it and it is not there; "note" for information, including optional
    parts that are not there. fix: what the user can do about it.
    """

    name: str
    state: Literal["ok", "note", "missing"]
    value: str
    fix: str = ""


def doctor() -> list[Check]:
    """Check what is installed; packages and families come first.

    Returns:
        One check each, with its `state`, `value` and, where something is to be done, `fix`.
    """
    first = [Check(PACKAGE, "ok", version()), Check("python", "ok", sys.version.split()[0])]
    return [*first, *check_packages(), *check_families(), *check_devices(), *check_room()]


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
        state: Literal["ok", "note"] = "ok" if instructions else "note"
        yield Check("bfloat16", state, instructions or "the CPU has no instructions for it", advice)


def check_room() -> Iterator[Check]:
    """Yield checks of the free memory and disk."""
    import psutil

    for name, free in (("memory", psutil.virtual_memory().available), ("disk", shutil.disk_usage(".").free)):
        gigabytes = free / 1e9
        low = gigabytes < LEAST_GB
        fix = f"the default run needs about {LEAST_GB:g} GB" if low else ""
        yield Check(name, "note" if low else "ok", f"{gigabytes:.0f} GB free", fix)

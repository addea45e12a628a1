"""Entry points through which other packages add families: what they are called, whose they are, what code is theirs."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Collection, Iterator
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from tasks.errors import ModelError

GROUP = "tsfm_lens.families"  # of entry points in a package's metadata: NAME = "module:Class"


@functools.cache
def entries() -> dict[str, tuple[EntryPoint, ...]]:
    """Name -> the entry points of installed packages that have it; more than one where packages disagree."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=GROUP):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def entry_of(name: str, built_in: Collection[str]) -> EntryPoint | None:
    """The entry point of a family of another package, None where there is none. ModelError for a name taken twice."""
    claims = entries().get(name, ())
    packages = " and ".join(map(package, claims))
    if claims and name in built_in:
        raise ModelError(
            f"family {name}: package {packages} names a family of its own so, but it is built in; rename the entry "
            "point there, or uninstall the package"
        )
    if len(claims) > 1:
        raise ModelError(f"family {name}: packages {packages} both name a family so; uninstall one of them")
    return claims[0] if claims else None


def code(entry: EntryPoint) -> str:
    """NAME VERSION SHA256 of the package, over the code under its top-level module; imports nothing.

    ModelError where the module is not there.
    """
    top = entry.module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise ModelError(f"{described(entry)}: module {top!r} is missing; install that package again")
    digest = hashlib.sha256()
    for name, path in sorted(_files(spec)):
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return f"{package(entry)} {digest.hexdigest()}"


def codes() -> dict[str, list[str]]:
    """Name -> `code` of each package that adds a family of that name, or what keeps it from being read."""
    found: dict[str, list[str]] = {}
    for name, claims in entries().items():
        for entry in claims:
            try:
                found.setdefault(name, []).append(code(entry))
            except ModelError as error:
                found.setdefault(name, []).append(str(error))
    return found


def described(entry: EntryPoint) -> str:
    """Family, package and class, as a message begins with."""
    return f"family {entry.name} of package {package(entry)} ({entry.value})"


def package(entry: EntryPoint) -> str:
    """Name and version of the package of an entry point."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "without a name"


def _files(spec: ModuleSpec) -> Iterator[tuple[str, Path]]:
    """Name inside the module and path of each file of its code."""
    if spec.submodule_search_locations is None:
        yield spec.name, Path(spec.origin or "")
        return
    suffixes = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)
    for folder in map(Path, spec.submodule_search_locations):
        found = (path for path in folder.rglob("*") if path.name.endswith(suffixes))
        yield from ((path.relative_to(folder).as_posix(), path) for path in found)

"""Entry points through which other packages add families: names, packages, and digests of their code."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Collection, Iterator
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from tsfmscope.errors import ModelError

# Group of entry points in a package's metadata; each entry is NAME = "module:Class".
GROUP = "tsfmscope.families"


@functools.cache
def entries() -> dict[str, tuple[EntryPoint, ...]]:
    """Return name -> the entry points of installed packages that have it.

    There is more than one where packages use the same name.
    """
    entries_by_name: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=GROUP):
        entries_by_name[entry.name] = (*entries_by_name.get(entry.name, ()), entry)
    return entries_by_name


def entry_of(name: str, built_in: Collection[str]) -> EntryPoint | None:
    """Return the entry point of another package's family, None where there is none.

    ModelError where two packages use the name, or where the family is built in too.
    """
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
    """Return NAME VERSION SHA256 of the package of an entry point; imports nothing.

    The digest covers the code files under the package's top-level module. ModelError where that module is
    missing.
    """
    top = entry.module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise ModelError(f"{describe(entry)}: module {top!r} is missing; install that package again")
    digest = hashlib.sha256()
    for name, path in sorted(_files(spec)):
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return f"{package(entry)} {digest.hexdigest()}"


def codes() -> dict[str, list[str]]:
    """Return name -> `code` of each package that adds a family of that name.

    Where a package's code cannot be read, the error message stands in its place.
    """
    codes_by_name: dict[str, list[str]] = {}
    for name, claims in entries().items():
        for entry in claims:
            try:
                codes_by_name.setdefault(name, []).append(code(entry))
            except ModelError as error:
                codes_by_name.setdefault(name, []).append(str(error))
    return codes_by_name


def describe(entry: EntryPoint) -> str:
    """Return family, package and class, as the beginning of an error message."""
    return f"family {entry.name} of package {package(entry)} ({entry.value})"


def package(entry: EntryPoint) -> str:
    """Return the name and version of the package of an entry point."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "without a name"


def _files(spec: ModuleSpec) -> Iterator[tuple[str, Path]]:
    """Yield the name inside the module and the path of each file of its code."""
    if spec.submodule_search_locations is None:
        yield spec.name, Path(spec.origin or "")
        return
    suffixes = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)
    for folder in map(Path, spec.submodule_search_locations):
        paths = (path for path in folder.rglob("*") if path.name.endswith(suffixes))
        yield from ((path.relative_to(folder).as_posix(), path) for path in paths)

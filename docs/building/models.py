"""Table of docs/models.md: published facts of every family, and what was run; `python -m docs.building.models`."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from tsfmscope.models.facts import APACHE, Released
from tsfmscope.models.registry import FAMILIES, family_class

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "models.md"
# Lines that `tsfmscope verify` printed.
VERIFIED = ROOT / "docs" / "verified.csv"
# Rows that `python -m tests.rehearsal.rehearse` writes.
REHEARSED = ROOT / "docs" / "rehearsed.json"
HEADINGS = (
    *("family", "released checkpoints", "licence: code / weights", "the network is that of", "compared with"),
    *("small checkpoint here", "released layouts that load", "released weights run"),
)


def table() -> str:
    """Return the table in Markdown, one row per family."""
    verified, rehearsed = read_verified(), read_rehearsed()
    rows = [HEADINGS, ("---",) * len(HEADINGS), *(_row(name, verified, rehearsed) for name in FAMILIES)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def read_verified() -> list[dict[str, str]]:
    """Return the lines of docs/verified.csv as rows."""
    with VERIFIED.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_rehearsed() -> list[dict[str, Any]]:
    """Return the rows of docs/rehearsed.json."""
    rows: list[dict[str, Any]] = json.loads(REHEARSED.read_text("utf-8"))
    return rows


def with_table(page: str) -> str:
    """Return the page with the table in place of its own. Raises ValueError for a page without one."""
    changed, n = re.subn(r"(?m)^\| family \| released checkpoints .*\n(?:\|.*\n)+", lambda _: table(), page, count=1)
    if not n:
        raise ValueError(f"{PAGE}: expected a table that begins with '| family | released checkpoints'; restore it")
    return changed


def _row(family: str, verified: list[dict[str, str]], rehearsed: list[dict[str, Any]]) -> tuple[str, ...]:
    cls = family_class(family)
    facts, package = cls.released, cls.package
    return (
        f"`{family}`",
        ", ".join(f"`{name}`" for name in _short(facts.checkpoints)) or "none known",
        f"{APACHE} / {facts.license or '–'}",
        package.name if package and package.has_our_network else "this project",
        package.name if package else "–",
        ", ".join(f"`{folder.name}`" for folder in _committed(family)) or "–",
        _describe_rehearsal(facts, rehearsed),
        "; ".join(_describe(row) for row in verified if row["checkpoint"] in facts.checkpoints) or _without(facts),
    )


def _describe_rehearsal(facts: Released, rehearsed: list[dict[str, Any]]) -> str:
    """Return how many released layouts load, and numbers of the largest.

    These are its parameters, the seconds to load it, the seconds of the states of one window, and the peak memory.
    """
    loaded = [row for row in rehearsed if row["repository"] in facts.checkpoints and row["status"] == "passed"]
    if not loaded:
        return _without(facts)
    largest = max(loaded, key=lambda row: row["parameters"])
    return (
        f"{len(loaded)} of {len(facts.checkpoints)}; {largest['parameters'] / 1e6:,.1f} M: "
        f"{largest['seconds_load']:.1f} s, {largest['seconds_states']:.1f} s, {largest['peak_bytes'] / 1e9:.1f} GB"
    )


def _without(facts: Released) -> str:
    return "not yet" if facts.checkpoints else "–"


def _describe(row: dict[str, str]) -> str:
    """Return what was run of a released checkpoint."""
    total = int(row["passed"]) + int(row["failed"])
    costs = (
        f", loads in {row['load_seconds']} s ({row['load_peak_gb']} GB), one forecast {row['forecast_seconds']} s "
        f"(context {row['context']}, horizon {row['horizon']})"
        if row["load_seconds"]
        else ""
    )
    return f"`{row['checkpoint']}` {row['date']}: {row['passed']} of {total} checks{costs}"


def _committed(family: str) -> Iterator[Path]:
    """Yield the folders of the family's committed checkpoints."""
    return (
        folder
        for size in ("mini", "nano")
        if (folder := ROOT / "tsfmscope" / "checkpoints" / f"{family}-{size}").is_dir()
    )


def _short(checkpoints: tuple[str, ...]) -> Iterator[str]:
    """Yield ORG/NAME-{a, b} for checkpoints that differ after the last hyphen, else each as it is."""
    for start, group in groupby(checkpoints, key=lambda name: name.rpartition("-")[0]):
        ends = [name.rpartition("-")[2] for name in group]
        yield f"{start}-{{{', '.join(ends)}}}" if len(ends) > 1 else f"{start}-{ends[0]}".lstrip("-")


def main() -> None:
    """Write the table into the page."""
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()

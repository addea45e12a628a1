"""`python -m stages corpus`: a corpus for pretraining in a folder, shard by shard over all cores, resumable.

No stage of the pipeline reads it; it is for those who train.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.params import ParamsError
from stages.sweeping import Planned, account, run_and_finish
from store.files import fingerprint, write_text
from store.out import Out
from tasks.errors import DataError
from tasks.series.loading import opened
from tasks.series.shards import LAW_FILE, REAL_PREFIX
from tasks.sweep.cluster import Resources
from tasks.sweep.jobs import Job, Task

TASK = Task("shard", 1, "tasks.series.shards:write_shard", "tasks.series.shards:load_real", table="dumps")


def make(folder: Path, law: Mapping[str, Any], series: int, resources: Resources) -> int:
    """Write `series` series under `folder`/dumps; answers how many jobs failed.

    law: seed, length, max_kernels, tsmixup, pool, real, shard (series a file), format. A folder that holds a corpus of
    another law, or of more series, is left as it is: ParamsError.
    """
    _readable(law["real"])
    folder.mkdir(parents=True, exist_ok=True)
    _same_law(folder / LAW_FILE, {**law, "series": series})
    with Out(folder, tables=["dumps"], companion=folder / "timings", stage="corpus", status=folder / ".status") as out:
        summary = run_and_finish(out, plan(law, series), resources, _nothing, seed=law["seed"])
        account(out, summary, 0.0)
    return summary.failed


def plan(law: Mapping[str, Any], series: int) -> Iterator[Planned]:
    """One job a shard; all that a shard depends on is in its spec, so more series keep those that there are."""
    shared = {name: value for name, value in law.items() if name != "shard"}
    inputs = {name: fingerprint(Path(name)) for name in law["real"] if not name.startswith(REAL_PREFIX)}
    for number, first in enumerate(range(0, series, law["shard"])):
        count = min(law["shard"], series - first)
        spec = {"dataset": "corpus", "shard": number, "first": first, "count": count, **shared}
        yield Planned(Job(TASK, spec, inputs, group="real"))


def _readable(real: Iterable[str]) -> None:
    """ParamsError, before anything is written, for a file that holds no real series."""
    for name in real:
        if not name.startswith(REAL_PREFIX):
            try:
                opened(Path(name)).close()
            except DataError as error:
                raise ParamsError(f"--real {name}: {error}") from None


def _nothing(job: Job) -> None:
    return None


def _same_law(path: Path, law: Mapping[str, Any]) -> None:
    if path.exists():
        former = json.loads(path.read_text())
        for name, value in former.items():
            if name != "series" and law[name] != value:
                raise ParamsError(
                    f"{path.parent} holds a corpus with {name} {value!r}, asked for {law[name]!r}; "
                    "name another folder, or ask for the same"
                )
        if former["series"] > law["series"]:
            raise ParamsError(
                f"{path.parent} holds a corpus of {former['series']} series, asked for {law['series']}; "
                "ask for at least as many, or name another folder"
            )
    write_text(path, json.dumps(law, indent=2) + "\n")

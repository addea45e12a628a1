"""Generation of a corpus for pretraining, for `tsfmscope corpus`.

Shards are generated in parallel, and an interrupted run can be resumed. No stage of the pipeline reads the
corpus unless a recipe names its folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.config.params import ParamsError
from stages.planning.sweeping import PlannedJob, account, read_nothing, run_and_finish
from store.files import fingerprint, write_text
from store.stage_store import StageStore
from tasks.corpus import ShardSpec
from tasks.job import Job, Task
from tasks.sweep.cluster import Resources
from tasks.sweep.engine import Summary
from tsfmscope.errors import DataError
from tsfmscope.files import check_writable, read_text
from tsfmscope.series.files.sources import open_series_file
from tsfmscope.series.synthetic.shards import CORPUS_FILE, REAL_PREFIX

# Bytes of the file with a corpus' specification; ours has a few hundred.
LARGEST_SPEC = 2**20
# Options that are newer than the first corpora, with the value that applies where the file has no entry. The
# value is never written: a training's key contains the fingerprint of the file, which must stay as it is.
DEFAULTS = {"source": "kernelsynth"}
TASK = Task("shard", 1, "tasks.corpus:write_shard", "tasks.corpus:load_real", table="dumps")


def make(folder: Path, corpus_spec: Mapping[str, Any], series: int, resources: Resources) -> Summary:
    """Write `series` series under `folder`/dumps and return the numbers of jobs.

    corpus_spec: the specification of the corpus, with the keys seed, length, max_kernels, tsmixup, pool, real, shard
    (series per file), format, and perhaps those of DEFAULTS.
    Raises ParamsError, and leaves the folder unchanged, if it contains a corpus of another specification or
    of more series, if it cannot be written, or if a file of `real` contains no real series.
    Raises TooManyFailures if any job failed.
    """
    for name in corpus_spec["real"]:
        if not name.startswith(REAL_PREFIX):
            try:
                open_series_file(Path(name)).close()
            except DataError as error:
                raise ParamsError(f"--real {name}: {error}") from None
    check_writable(folder)
    folder.mkdir(exist_ok=True)
    _check_same_spec(folder / CORPUS_FILE, {**corpus_spec, "series": series})
    with StageStore(
        folder, tables=["dumps"], companion=folder / "timings", stage="corpus", status=folder / ".status"
    ) as out:
        summary = run_and_finish(out, plan(corpus_spec, series), resources, read_nothing, seed=corpus_spec["seed"])
        account(out, summary, 0.0)
    return summary


def plan(corpus_spec: Mapping[str, Any], series: int) -> Iterator[PlannedJob]:
    """Yield one job per shard.

    The spec of a job contains everything that its shard depends on, so a corpus with more series keeps
    existing shards.
    """
    shared = {name: value for name, value in corpus_spec.items() if name != "shard"} | {"dataset": "corpus"}
    inputs = {name: fingerprint(Path(name)) for name in corpus_spec["real"] if not name.startswith(REAL_PREFIX)}
    for number, first in enumerate(range(0, series, corpus_spec["shard"])):
        count = min(corpus_spec["shard"], series - first)
        spec = ShardSpec.model_validate({"shard": number, "first": first, "count": count, **shared})
        yield PlannedJob(Job(TASK, spec.to_dict(), inputs, group="real"))


def _check_same_spec(path: Path, corpus_spec: Mapping[str, Any]) -> None:
    if path.exists():
        try:
            former = DEFAULTS | dict(json.loads(read_text(path, LARGEST_SPEC)))
        except (OSError, ValueError, TypeError) as error:
            raise ParamsError(f"{path}: cannot be read ({error}); name another folder") from None
        requested = {**DEFAULTS, **corpus_spec}
        for name, value in former.items():
            if name != "series" and requested[name] != value:
                raise ParamsError(
                    f"{path.parent} contains a corpus with {name} {value!r}, requested {requested[name]!r}; "
                    "name another folder, or request the same value"
                )
        if former["series"] > corpus_spec["series"]:
            raise ParamsError(
                f"{path.parent} contains a corpus of {former['series']} series, requested {corpus_spec['series']}; "
                "request at least as many, or name another folder"
            )
    entries = {name: value for name, value in corpus_spec.items() if (name, value) not in DEFAULTS.items()}
    write_text(path, json.dumps(entries, indent=2) + "\n")

"""A sweeping stage's out, which is its store: rows and dump files by job, resumable, pruned and compacted at the end.

<root>/<table>/part-*.parquet   while the stage runs; 00000.parquet and so on once it has finished
<root>/dumps/...                dump files, written by workers
<root>/failures, <root>/studies as tables
<companion>/timings, runs       wall clock, outside the promise that the same content gives the same bytes

Where a `place` is given, all of this lies there, and root and companion hold a manifest of it each (`store.manifests`).
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store import dumps, files, outcomes, published
from store.errors import DamagedPart
from store.keys import Keys
from store.lock import Lock
from store.parts import Parts
from store.places import Folders, Place
from store.schema import arrow_schema, table, to_arrow

logger = logging.getLogger(__name__)
CHECKS = 8  # dumps looked at together; botocore keeps ten connections
Record = Mapping[str, Any]


class Out:
    """The out of one stage, held by one driver: `with Out(...) as out`.

    root: the DVC out; tables: the keyed tables in it; companion: the folder of timings and runs. `status` holds locks
    and damaged files, by default `.status` beside the root. Raises StoreBusy where another driver holds the stage.
    """

    def __init__(
        self,
        root: Path,
        *,
        tables: Sequence[str],
        companion: Path,
        stage: str,
        status: Path | None = None,
        place: Place | None = None,
    ) -> None:
        if not tables or any(not table(name).keyed for name in tables):
            raise ValueError(f"tables {list(tables)}: expected at least one, each with a job_key (others: Out.write)")
        self.root, self.companion, self.stage = Path(root).absolute(), Path(companion).absolute(), stage
        self.status = Path(status).absolute() if status else self.root.parent / ".status"
        self._lock = Lock(self.status / f"{stage}.lock")
        self._place = place or Folders(self.root, self.companion, self._lock)
        self.tables = {name: Parts(self._place.folder(name), arrow_schema(name)) for name in tables}
        self.failures = Parts(self._place.folder("failures"), arrow_schema("failures"), key="key", latest=True)
        timings, runs = (self._place.folder(name, companion=True) for name in ("timings", "runs"))
        self.timings = Parts(timings, arrow_schema("timings"), key="key", latest=True)
        self.runs = Parts(runs, arrow_schema("runs"), key="stage")
        self._damaged = self.status / "damaged" / stage
        self._stored, self._given_up = Keys(), Keys()
        self._dumps: dict[str, tuple[str, int, str]] = {}  # key -> path, bytes, fingerprint
        self._started = datetime.now(UTC)
        self._clock = time.monotonic()
        self._done = 0
        self._beside: set[str] = set()  # tables that belong to no job, as written by this run
        self._finished = False

    def __enter__(self) -> Self:
        published.expect(self.root, self._place.uri, self.tables)
        with ExitStack() as held:
            if self._place.uri:  # the lock that `python -m store status` looks at
                self._lock.acquire()
                held.callback(self._lock.release)
            self._place.acquire()
            held.callback(self._place.release)
            self._open()
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    # -- the engine's port --------------------------------------------------------------------------------------------
    def missing(self, keys: Sequence[str], *, retry_failed: bool = False) -> list[str]:
        """The keys without stored rows, in the same order; a job whose dump file is gone or damaged is missing.

        A stored failure counts as done unless it was of the machine (column `transient`) or `retry_failed`.
        """
        self._verify_dumps(keys)
        done = self._stored.holds(keys)
        if not retry_failed:
            done |= self._given_up.holds(keys)
        return [key for key, has in zip(keys, done, strict=True) if not has]

    def given_up(self, keys: Sequence[str]) -> int:
        """How many of the keys have a failure that was not transient, and no rows."""
        return int((self._given_up.holds(keys) & ~self._stored.holds(keys)).sum())

    def append(self, records: Sequence[Record]) -> None:
        """Store what jobs answered, as one atomic part a table, once the disk has their dumps. Stored are passed over.

        A record has key, task, spec, rows or an error, timing, and table (which does not matter where the out has one
        table). Rows that do not fit the schema are a failure of their job. ValueError for both, or neither, of the two.
        """
        self._place.check()
        unique = {record["key"]: record for record in records}
        held = self._stored.holds(list(unique))
        fresh = [record for record, has in zip(unique.values(), held, strict=True) if not has]
        found: dict[str, list[Record]] = defaultdict(list)
        failed: list[Record] = []
        for record in fresh:
            if bool(record["rows"]) == bool(record["error"]):
                raise ValueError(f"record of job {record['key']}: expected either rows or an error")
            if record["error"]:
                failed.append(outcomes.failure_row(self.stage, record, record["error"]))
                continue
            found[self._table_of(record)].append(record)
        tables = {name: outcomes.fitting(self.stage, name, some, failed) for name, some in found.items()}
        if fresh:
            self.timings.append(to_arrow("timings", [outcomes.timing_row(self.stage, record) for record in fresh]))
        if failed:
            self.failures.append(to_arrow("failures", failed))
            self._given_up.add(row["key"] for row in failed if not row["transient"])
        for name, rows in tables.items():
            if len(rows):
                self._store(name, rows)
        for parts in (self.timings, self.failures):
            parts.tidy()

    @property
    def check(self) -> Callable[[Mapping[str, str]], None]:
        """`files.check` of inputs named relative to the working directory of the driver; picklable."""
        return partial(files.check, Path.cwd())

    @property
    def write_dump(self) -> Callable[[dumps.JobLike, Iterable[pa.Table]], dict[str, Any]]:
        """`dumps.write_job_dump` into this out; picklable."""
        return partial(dumps.write_job_dump, self._place.dumps)

    # -- rows that come another way ------------------------------------------------------------------------------------
    def adopt(self, name: str, key: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Store the rows of a job that was done elsewhere, such as a training whose checkpoint is kept in git."""
        if not self._stored.holds([key])[0]:
            self._store(name, to_arrow(name, [{**row, "job_key": key} for row in rows]))

    def forget(self, keys: Sequence[str]) -> None:
        """Drop the rows of jobs, which are missing from then on."""
        for parts in self.tables.values():
            parts.drop(keys)
        self._stored.remove(keys)

    # -- the end of a run ---------------------------------------------------------------------------------------------
    def write(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace a table that belongs to no job (skipped, studies), rows in the order given."""
        Parts(self._place.folder(name), arrow_schema(name)).replace([to_arrow(name, rows)])
        self._beside.add(name)
        if self._finished:
            self._publish()

    def finish(
        self,
        current: np.ndarray | Iterable[str],
        studies: Iterable[tuple[str, str | np.ndarray]] = (),
        run: Mapping[str, Any] | None = None,
    ) -> dict[str, int]:
        """Drop what is not current, compact the rest, write studies (study, key or keys) and the row of this run.

        An iterator gives studies in their order, a study's keys ascending in any number of arrays. run: seed, cpus,
        gpus and, where there are accelerators, hardware.
        Answers jobs, done, reused, failed. Raises DamagedPart where a stored part turns out unreadable; the next run
        redoes its jobs.
        """
        self._place.check()
        keys = Keys(current)
        del current
        self._stored = Keys()  # learnt anew below: the keys of a million jobs are not held more often than need be
        for parts in (*self.tables.values(), self.timings):
            self._compact(parts, keys)
        self._stored = self._keys_of_tables()
        kept = self._stored.holds(keys.sorted)
        self._compact(self.failures, Keys(keys.sorted[~kept]))
        with_rows, jobs = int(kept.sum()), len(keys)
        del keys
        self._write_studies(studies)
        self._prune_dumps()
        counts = {"jobs": jobs, "done": self._done, "failed": jobs - with_rows, "reused": with_rows - self._done}
        self._write_run(counts | dict(run or {}))
        self._finished = True
        self._publish()
        return counts

    def failed(self) -> pa.Table:
        """The stored failures, the last of each job that has no rows."""
        rows = self.failures.read()
        last = {key: n for n, key in enumerate(rows["key"].to_pylist())}
        rows = rows.take(pa.array(sorted(last.values()), pa.int64()))
        return rows.filter(pa.array(~self._stored.holds(rows["key"])))

    # -- inside -------------------------------------------------------------------------------------------------------
    def _open(self) -> None:
        """Mend what a killed run left, then learn what is stored."""
        self._place.open()
        for parts in (everything := (*self.tables.values(), self.failures, self.timings, self.runs)):
            parts.recover(self._damaged)
        try:
            self._learn()
        except (pa.ArrowInvalid, OSError) as error:  # a spoilt page behind a sound footer: Arrow gives no errno
            if self._place.uri and isinstance(error, OSError) and error.errno is not None:
                raise  # a file server that does not answer now
            if not [bad for one in everything for bad in one.recover(self._damaged, whole=True)]:
                raise
            self._learn()

    def _learn(self) -> None:
        """What is stored, and what need not be tried again."""
        self._stored = self._keys_of_tables()
        rows = self.failed()
        self._given_up = Keys(rows.filter(pc.invert(rows["transient"]))["key"].to_pylist())
        if "dumps" in self.tables:
            self._remember_dumps(self.tables["dumps"].read())

    def _publish(self) -> None:
        """Where rows lie elsewhere, leave in the out what DVC versions and later stages follow."""
        if self._place.uri:
            published.publish(self.root, self._place, (*self.tables, "failures", *self._beside), self._stored)
            published.publish(self.companion, self._place, ("timings", "runs"))

    def _keys_of_tables(self) -> Keys:
        found = [parts.keys() for parts in self.tables.values()]
        return Keys(found[0] if len(found) == 1 else np.concatenate(found))

    def _store(self, name: str, rows: pa.Table) -> None:
        if name == "dumps":
            self._place.sync(rows["path"].to_pylist())
        self.tables[name].append(rows)
        keys = set(rows["job_key"].to_pylist())
        self._stored.add(keys)
        self._done += len(keys)
        if name == "dumps":
            self._remember_dumps(rows)
        self.tables[name].tidy()

    def _table_of(self, record: Record) -> str:
        if len(self.tables) == 1:
            return next(iter(self.tables))
        if record["table"] not in self.tables:
            raise ValueError(f"record of job {record['key']}: table {record['table']!r}, expected {list(self.tables)}")
        return str(record["table"])

    def _remember_dumps(self, rows: pa.Table) -> None:
        columns = (rows[name].to_pylist() for name in ("job_key", "path", "bytes", "fingerprint"))
        self._dumps |= {key: (path, size, sha) for key, path, size, sha in zip(*columns, strict=True)}

    def _verify_dumps(self, keys: Iterable[str]) -> None:
        """Forget the rows of dumps that are not what they were, so that their jobs run again."""
        held = [key for key in keys if key in self._dumps]
        with ThreadPoolExecutor(CHECKS) as pool:  # each is read whole, or asked for of the object store
            faulty = list(pool.map(lambda key: self._is_faulty(*self._dumps[key]), held))
        if bad := [key for key, is_faulty in zip(held, faulty, strict=True) if is_faulty]:
            self.tables["dumps"].drop(bad)
            self._stored.remove(bad)
            for key in bad:
                del self._dumps[key]

    def _is_faulty(self, path: str, size: int, fingerprint: str) -> bool:
        fault, file = self._place.fault(path, size, fingerprint), self._place.dumps / path
        if fault == "gone":
            logger.warning("dump %s is gone; its job runs again", file)
        elif fault:
            logger.warning(
                "dump %s is %s (expected %d bytes, fingerprint %s); its job runs again", file, fault, size, fingerprint
            )
        return bool(fault)

    def _compact(self, parts: Parts, keep: Keys) -> None:
        if bad := parts.compact(keep, self._damaged):
            names = ", ".join(map(str, bad))
            raise DamagedPart(f"{self.stage}: parts could not be read and were set aside: {names}; run the stage again")

    def _prune_dumps(self) -> None:
        """Delete dump files that no row names."""
        self._place.prune(set(self.tables["dumps"].read()["path"].to_pylist()) if "dumps" in self.tables else set())

    def _write_studies(self, studies: Iterable[tuple[str, str | np.ndarray]]) -> None:
        self._beside.add("studies")
        Parts(self._place.folder("studies"), arrow_schema("studies")).replace(outcomes.of_studies(self.stage, studies))

    def _write_run(self, facts: Mapping[str, Any]) -> None:
        seconds = time.monotonic() - self._clock
        row = outcomes.run_row(self.stage, self.root, self._started, seconds) | dict(facts)
        former = self.runs.read()
        self.runs.replace([pa.concat_tables([former, to_arrow("runs", [row])]).sort_by("started")])

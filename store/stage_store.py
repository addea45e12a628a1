"""Store of a stage that runs many jobs.

It contains rows and dump files by job. A run can be resumed, and its end prunes and compacts the store.

<root>/<table>/part-*.parquet   rows while the stage runs; 00000.parquet and so on once it has finished
<root>/dumps/...                dump files, written by workers
<root>/failures, <root>/study_jobs tables of the same form
<companion>/timings, runs       wall-clock times, for which the same content need not give the same bytes

If other `folders` are given, such as shared ones, all of this is stored there, and root and companion each
contain a manifest of it (`store.manifests`).
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from store import dumps, files, job_rows, stage_outputs
from store.errors import DamagedPart
from store.lock import Lock
from store.schema import arrow_schema, table, to_arrow
from store.stage_folders import StageFolders
from store.table_parts import TableParts

logger = logging.getLogger(__name__)
# Dumps verified in parallel.
CHECKS = 8
Record = Mapping[str, Any]


class StageStore:
    """Output store of one stage, held by one driver: `with StageStore(...) as store`.

    root: the DVC out. tables: names of its tables with a job_key. companion: folder of timings and runs.
    status: folder of locks and damaged files, by default `.status` next to the root. folders: where rows,
    dumps and wall-clock times are stored instead of root and companion.

    Raises ValueError if `tables` is empty or contains a table without job_key. Entering raises StoreBusy if
    another driver holds the stage.
    """

    def __init__(
        self,
        root: Path,
        *,
        tables: Sequence[str],
        companion: Path,
        stage: str,
        status: Path | None = None,
        folders: StageFolders | None = None,
    ) -> None:
        if not tables or any(not table(name).keyed for name in tables):
            raise ValueError(
                f"tables {list(tables)}: expected at least one, each with a job_key (others: StageStore.write)"
            )
        self.root, self.companion, self.stage = Path(root).absolute(), Path(companion).absolute(), stage
        self.status = Path(status).absolute() if status else self.root.parent / ".status"
        self._lock = Lock(self.status / f"{stage}.lock")
        self._is_elsewhere = folders is not None
        self._folders = folders or StageFolders(self.root, self.companion, self._lock)
        self.tables = {name: TableParts(self._folders.root / name, arrow_schema(name)) for name in tables}
        failures, timings = self._folders.root / "failures", self._folders.companion / "timings"
        self.failures = TableParts(failures, arrow_schema("failures"), key="key", latest=True)
        self.timings = TableParts(timings, arrow_schema("timings"), key="key", latest=True)
        self.runs = TableParts(self._folders.companion / "runs", arrow_schema("runs"), key="stage")
        self._damaged = self.status / "damaged" / stage
        # Keys of jobs with stored rows, and with a failure that is not transient.
        self._stored: set[str] = set()
        self._permanent: set[str] = set()
        # Job key -> path, bytes and fingerprint of its dump.
        self._dumps: dict[str, tuple[str, int, str]] = {}
        self._started = datetime.now(UTC)
        self._clock = time.monotonic()
        self._done = 0
        # Tables that belong to no job and that this run has written.
        self._other_tables: set[str] = set()
        self._finished = False

    def __enter__(self) -> Self:
        stage_outputs.check_location(self.root, self._folders.root if self._is_elsewhere else None, self.tables)
        with ExitStack() as resources:
            # `tsfmscope status` checks this lock, also if the rows are stored elsewhere.
            if self._is_elsewhere:
                self._lock.acquire()
                resources.callback(self._lock.release)
            self._folders.acquire()
            resources.callback(self._folders.release)
            self._open()
            self._held = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    # -- interface for the engine -------------------------------------------------------------------------------------
    def missing(self, keys: Sequence[str], *, retry_failed: bool = False) -> list[str]:
        """Return the keys without stored rows, in the same order.

        A job whose dump file is gone or damaged is missing. A job with a stored failure counts as done,
        unless the failure was caused by the machine (column `transient`) or `retry_failed` is set.
        """
        self._verify_dumps(keys)
        failed = set() if retry_failed else self._permanent
        return [key for key in keys if key not in self._stored and key not in failed]

    def permanent_failures(self, keys: Sequence[str]) -> int:
        """Return how many of the keys have no rows and a failure that is not transient."""
        return sum(key in self._permanent and key not in self._stored for key in keys)

    def append(self, records: Sequence[Record]) -> None:
        """Store the results of jobs as one atomic part per table, after syncing their dumps to the disk.

        A record has key, task, spec, timing, rows or an error, and table (ignored if the out has only one
        table). Records whose keys have stored rows are ignored. Rows that do not fit the schema are stored as
        a failure of their job. Raises ValueError if a record has both rows and an error, or neither.
        """
        self._folders.check()
        unique = {record["key"]: record for record in records}
        fresh = [record for key, record in unique.items() if key not in self._stored]
        by_table: dict[str, list[Record]] = defaultdict(list)
        failed: list[Record] = []
        for record in fresh:
            if bool(record["rows"]) == bool(record["error"]):
                raise ValueError(f"record of job {record['key']}: expected either rows or an error")
            if record["error"]:
                failed.append(job_rows.failure_row(self.stage, record, record["error"]))
                continue
            by_table[self._table_of(record)].append(record)
        tables = {name: job_rows.convert_rows(self.stage, name, some, failed) for name, some in by_table.items()}
        if fresh:
            self.timings.append(to_arrow("timings", [job_rows.timing_row(self.stage, record) for record in fresh]))
        if failed:
            self.failures.append(to_arrow("failures", failed))
            self._permanent.update(row["key"] for row in failed if not row["transient"])
        for name, rows in tables.items():
            if len(rows):
                self._store(name, rows)
        for parts in (self.timings, self.failures):
            parts.merge_small()

    @property
    def check(self) -> Callable[[Mapping[str, str]], None]:
        """Function `files.check` for inputs named relative to the driver's working directory; picklable."""
        return partial(files.check, Path.cwd())

    @property
    def write_dump(self) -> Callable[[dumps.JobLike, Iterable[pa.Table]], dict[str, Any]]:
        """Function `dumps.write_job_dump` for this out; picklable."""
        return partial(dumps.write_job_dump, self._folders.root)

    # -- rows from other sources --------------------------------------------------------------------------------------
    def adopt(self, name: str, key: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Store the rows of a job that was done elsewhere, such as a training whose checkpoint is in git.

        Does nothing if rows of this key are stored already.
        """
        if key not in self._stored:
            self._store(name, to_arrow(name, [{**row, "job_key": key} for row in rows]))

    def forget(self, keys: Sequence[str]) -> None:
        """Delete the rows of jobs, which are missing from then on."""
        for parts in self.tables.values():
            parts.drop(keys)
        self._stored.difference_update(keys)

    # -- the end of a run ---------------------------------------------------------------------------------------------
    def write(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace all rows of a table that belongs to no job (such as skipped); rows keep the given order."""
        TableParts(self._folders.root / name, arrow_schema(name)).replace([to_arrow(name, rows)])
        self._other_tables.add(name)
        if self._finished:
            self._publish()

    def finish(
        self,
        current: Iterable[str],
        studies: Mapping[str, Iterable[str]] = MappingProxyType({}),
        run: Mapping[str, Any] | None = None,
    ) -> dict[str, int]:
        """Delete rows of jobs that are not current, compact the rest, write studies and the row of this run.

        current: keys of all current jobs. studies: study -> keys of its jobs. run: seed, cpus, gpus and, if
        there are accelerators, hardware.

        Returns the numbers of jobs: jobs, done, failed, reused. Raises DamagedPart if a stored part cannot be
        read; the next run repeats its jobs.
        """
        self._folders.check()
        keys = set(current)
        self._stored &= keys
        for parts in (*self.tables.values(), self.timings):
            self._compact(parts, keys)
        self._compact(self.failures, keys - self._stored)
        jobs, with_rows = len(keys), len(self._stored)
        self._write_studies(studies)
        self._prune_dumps()
        counts = {"jobs": jobs, "done": self._done, "failed": jobs - with_rows, "reused": with_rows - self._done}
        self._write_run(counts | dict(run or {}))
        self._finished = True
        self._publish()
        return counts

    def failed(self) -> pa.Table:
        """Return the stored failures of jobs without rows, the last failure of each job."""
        rows = self.failures.read()
        last = {key: n for n, key in enumerate(rows["key"].to_pylist())}
        rows = rows.take(pa.array(sorted(last.values()), pa.int64()))
        return rows.filter(pa.array([key not in self._stored for key in rows["key"].to_pylist()], pa.bool_()))

    # -- inside -------------------------------------------------------------------------------------------------------
    def _open(self) -> None:
        """Recover from a killed run, then read which jobs are stored."""
        self._folders.open()
        for parts in (*self.tables.values(), self.failures, self.timings, self.runs):
            parts.recover(self._damaged)
        self._read_keys()

    def _read_keys(self) -> None:
        """Read the keys of jobs with stored rows or permanent failures, and the list of dumps."""
        self._stored = set()
        for parts in self.tables.values():
            self._stored |= parts.keys()
        rows = self.failed()
        self._permanent = set(rows.filter(pc.invert(rows["transient"]))["key"].to_pylist())
        if "dumps" in self.tables:
            self._remember_dumps(self.tables["dumps"].read())

    def _publish(self) -> None:
        """If rows are stored elsewhere, write the manifests that DVC versions and later stages follow."""
        if self._is_elsewhere:
            names = (*self.tables, "failures", *self._other_tables)
            stage_outputs.publish(self.root, self._folders.root, names, self._stored)
            stage_outputs.publish(self.companion, self._folders.companion, ("timings", "runs"))

    def _store(self, name: str, rows: pa.Table) -> None:
        if name == "dumps":
            self._folders.sync(rows["path"].to_pylist())
        self.tables[name].append(rows)
        keys = set(rows["job_key"].to_pylist())
        self._stored |= keys
        self._done += len(keys)
        if name == "dumps":
            self._remember_dumps(rows)
        self.tables[name].merge_small()

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
        """Delete the rows of dumps that are gone or damaged, so that their jobs run again."""
        with_dump = [key for key in keys if key in self._dumps]
        # In parallel, because each dump is read completely.
        with ThreadPoolExecutor(CHECKS) as pool:
            faulty = list(pool.map(lambda key: self._is_faulty(*self._dumps[key]), with_dump))
        if bad := [key for key, is_faulty in zip(with_dump, faulty, strict=True) if is_faulty]:
            self.tables["dumps"].drop(bad)
            self._stored.difference_update(bad)
            for key in bad:
                del self._dumps[key]

    def _is_faulty(self, path: str, size: int, fingerprint: str) -> bool:
        fault, file = self._folders.fault(path, size, fingerprint), self._folders.root / path
        if fault == "gone":
            logger.warning("dump %s is gone; its job runs again", file)
        elif fault:
            logger.warning(
                "dump %s is %s (expected %d bytes, fingerprint %s); its job runs again", file, fault, size, fingerprint
            )
        return bool(fault)

    def _compact(self, parts: TableParts, keep: AbstractSet[str]) -> None:
        if bad := parts.compact(keep, self._damaged):
            names = ", ".join(map(str, bad))
            raise DamagedPart(
                f"{self.stage}: parts could not be read and were quarantined: {names}; run the stage again"
            )

    def _prune_dumps(self) -> None:
        """Delete dump files that no row names."""
        self._folders.prune(set(self.tables["dumps"].read()["path"].to_pylist()) if "dumps" in self.tables else set())

    def _write_studies(self, studies: Mapping[str, Iterable[str]]) -> None:
        self._other_tables.add("study_jobs")
        TableParts(self._folders.root / "study_jobs", arrow_schema("study_jobs")).replace(
            job_rows.study_tables(self.stage, studies)
        )

    def _write_run(self, facts: Mapping[str, Any]) -> None:
        seconds = time.monotonic() - self._clock
        row = job_rows.run_row(self.stage, self.root, self._started, seconds) | dict(facts)
        former = self.runs.read()
        self.runs.replace([pa.concat_tables([former, to_arrow("runs", [row])]).sort_by("started")])

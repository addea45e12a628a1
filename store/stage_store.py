"""Store of a stage that runs many jobs.

It contains rows and dump files by job. A run can be resumed, and its end prunes and compacts the store.

<root>/<table>/part-*.parquet   rows while the stage runs; 00000.parquet and so on once it has finished
<root>/dumps/...                dump files, written by workers
<root>/failures, <root>/study_jobs tables of the same form
<companion>/timings, runs       wall-clock times, for which the same content need not give the same bytes
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from store import dumps, files, stage_outputs
from store.errors import DamagedPart
from store.lock import Lock
from store.schema import arrow_schema, to_arrow
from store.table_parts import TableParts
from tsfmscope.files import sync

logger = logging.getLogger(__name__)
# Dumps verified in parallel.
CHECKS = 8
Record = Mapping[str, Any]


class StageStore:
    """Output store of one stage, held by one driver: `with StageStore(...) as store`.

    root: the DVC out. tables: names of its tables with a job_key. companion: folder of timings and runs.
    status: folder of locks and damaged files, by default `.status` next to the root.

    Entering raises StoreBusy if another driver holds the stage.
    """

    def __init__(
        self, root: Path, *, tables: Sequence[str], companion: Path, stage: str, status: Path | None = None
    ) -> None:
        self.root, self.companion, self.stage = Path(root).absolute(), Path(companion).absolute(), stage
        self.status = Path(status).absolute() if status else self.root.parent / ".status"
        self._lock = Lock(self.status / f"{stage}.lock")
        self.tables = {name: TableParts(self.root / name, arrow_schema(name)) for name in tables}
        self.failures = TableParts(self.root / "failures", arrow_schema("failures"), key="key", latest=True)
        self.timings = TableParts(self.companion / "timings", arrow_schema("timings"), key="key", latest=True)
        self.runs = TableParts(self.companion / "runs", arrow_schema("runs"), key="stage")
        self._damaged = self.status / "damaged" / stage
        # Keys of jobs with stored rows, and with a failure that is not transient.
        self._stored: set[str] = set()
        self._permanent: set[str] = set()
        # Job key -> path, bytes and fingerprint of its dump.
        self._dumps: dict[str, tuple[str, int, str]] = {}
        self._started = datetime.now(UTC)
        self._clock = time.monotonic()
        self._done = 0

    def __enter__(self) -> Self:
        self._lock.acquire()
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

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
        a failure of their job.
        """
        unique = {record["key"]: record for record in records}
        fresh = [record for key, record in unique.items() if key not in self._stored]
        by_table: dict[str, list[Record]] = defaultdict(list)
        failed: list[Record] = []
        for record in fresh:
            if record["error"]:
                failed.append(stage_outputs.failure_row(self.stage, record, record["error"]))
                continue
            by_table[record["table"] if len(self.tables) > 1 else next(iter(self.tables))].append(record)
        tables = {name: stage_outputs.convert_rows(self.stage, name, some, failed) for name, some in by_table.items()}
        if fresh:
            self.timings.append(to_arrow("timings", [stage_outputs.timing_row(self.stage, record) for record in fresh]))
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
        return partial(dumps.write_job_dump, self.root)

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
        TableParts(self.root / name, arrow_schema(name)).replace([to_arrow(name, rows)])

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
        keys = set(current)
        self._stored &= keys
        for parts in (*self.tables.values(), self.timings):
            self._compact(parts, keys)
        self._compact(self.failures, keys - self._stored)
        jobs, with_rows = len(keys), len(self._stored)
        study_jobs = TableParts(self.root / "study_jobs", arrow_schema("study_jobs"))
        study_jobs.replace(stage_outputs.study_tables(self.stage, studies))
        self._prune_dumps()
        counts = {"jobs": jobs, "done": self._done, "failed": jobs - with_rows, "reused": with_rows - self._done}
        seconds = time.monotonic() - self._clock
        row = stage_outputs.run_row(self.stage, self.root, self._started, seconds) | counts | dict(run or {})
        rows = pa.concat_tables([self.runs.read(), to_arrow("runs", [row])])
        self.runs.replace([rows.sort_by("started")])
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
        for folder in (self.root, self.companion):
            with files.translate_full_disk(folder):
                folder.mkdir(parents=True, exist_ok=True)
                files.remove_temporary(folder)
        for parts in (*self.tables.values(), self.failures, self.timings, self.runs):
            parts.recover(self._damaged)
        self._stored = set()
        for parts in self.tables.values():
            self._stored |= parts.keys()
        rows = self.failed()
        self._permanent = set(rows.filter(pc.invert(rows["transient"]))["key"].to_pylist())
        if "dumps" in self.tables:
            self._remember_dumps(self.tables["dumps"].read())

    def _store(self, name: str, rows: pa.Table) -> None:
        if name == "dumps":
            # Dumps, then their folders, are forced to the disk before rows name them.
            dumps_here = [path for name in rows["path"].to_pylist() if (path := self.root / name).is_file()]
            for path in [*dumps_here, *sorted({path.parent for path in dumps_here})]:
                sync(path)
        self.tables[name].append(rows)
        keys = set(rows["job_key"].to_pylist())
        self._stored |= keys
        self._done += len(keys)
        if name == "dumps":
            self._remember_dumps(rows)
        self.tables[name].merge_small()

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
        """Return whether a dump is gone or damaged. The size is compared first."""
        file = self.root / path
        if not file.is_file():
            logger.warning("dump %s is gone; its job runs again", file)
            return True
        if file.stat().st_size == size and files.fingerprint(file) == fingerprint:
            return False
        logger.warning(
            "dump %s is damaged (expected %d bytes, fingerprint %s); its job runs again", file, size, fingerprint
        )
        return True

    def _compact(self, parts: TableParts, keep: AbstractSet[str]) -> None:
        if bad := parts.compact(keep, self._damaged):
            names = ", ".join(map(str, bad))
            raise DamagedPart(
                f"{self.stage}: parts could not be read and were quarantined: {names}; run the stage again"
            )

    def _prune_dumps(self) -> None:
        """Delete dump files that no row names, and folders that become empty.

        The Parquet files directly in `dumps` are the rows of the table `dumps`, so they stay.
        """
        named = set(self.tables["dumps"].read()["path"].to_pylist()) if "dumps" in self.tables else set()
        folder = self.root / "dumps"
        rows = set(folder.glob("*.parquet"))
        # In reverse order, a folder comes after its contents.
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path not in rows and path.relative_to(self.root).as_posix() not in named:
                path.unlink()

"""Parts that a disk has spoilt: named, quarantined, their jobs done again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import faulty
import pyarrow.parquet as pq
import pytest
from launcher import Launcher
from matrix import Row, count_repeated, numbers, rows_of, verdict

from tsfmscope.store import files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def unreadable(path: Path) -> None:
    path.write_bytes(b"not Parquet at all " * 50)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def spoilt(path: Path, column: str) -> None:
    """A byte of a page of the column turned over; the footer stays sound."""
    group = pq.read_metadata(path).row_group(0)
    (chunk,) = [c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column]
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start + chunk.total_compressed_size - 2] ^= 0xFF
    path.write_bytes(bytes(data))


DAMAGE: dict[str, Callable[[Path], None]] = {
    "unreadable": unreadable,
    "truncated": truncate,
    "empty": empty,
    "a damaged page of keys": lambda path: spoilt(path, "job_key"),
    "a damaged page of values": lambda path: spoilt(path, "loss"),
}


def job_calls(log: Path) -> list[dict[str, Any]]:
    return [{"kind": "learn", "numbers": list(range(30)), "log_path": str(log)}]


def six_parts(root: Path, log: Path) -> list[Path]:
    """A store of six parts of five jobs each, as a driver leaves that was killed before it compacted them."""
    jobs = faulty.make_jobs(job_calls(log))
    with faulty.open_store(root) as out:
        for start in range(0, len(jobs), 5):
            out.append([faulty.make_record(job) for job in jobs[start : start + 5]])
        return out.tables["training"].files()


def test_a_damaged_part_is_named_and_set_aside_and_its_jobs_run_again(
    tmp_path: Path, launcher: Launcher, enter: Callable[[Row], None]
) -> None:
    log = tmp_path / "log"
    parts = six_parts(tmp_path, log)
    lost_keys = {
        name: set(files.read_parquet(part)["job_key"].to_pylist()) for name, part in zip(DAMAGE, parts, strict=False)
    }
    for damage, part in zip(DAMAGE.values(), parts, strict=False):
        damage(part)
    driver = launcher.run(tmp_path, job_calls(log))
    said = driver.errors.read_text()
    aside = sorted(path.name for path in (tmp_path / ".status/damaged/faults").iterdir())
    ran = [key for key, _ in numbers(log, "run")]
    end = verdict(tmp_path, faulty.expected_rows(faulty.make_jobs(job_calls(log))))
    rows = rows_of(tmp_path, "training")
    sound = set(rows) - {key for keys in lost_keys.values() for key in keys}
    for name, part in zip(DAMAGE, parts, strict=False):
        named = f"{part} is damaged; quarantined as" in said and f"training-{part.stem}.damaged" in aside
        again = len(lost_keys[name] & set(ran) & set(rows))
        note = f"named and quarantined; its {again} jobs ran again, those of other parts did not"
        fault = f"a part with {name}" if " " in name else f"{'an' if name[0] in 'eu' else 'a'} {name} part"
        doubled = end.doubled + count_repeated(sorted(sound), ran) + (len(ran) - len(set(ran)))
        lost = end.missing + len(lost_keys[name]) - again
        enter(Row(fault, 1, int(named), lost, doubled, note))

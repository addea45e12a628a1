"""A disk that is too small for results.duckdb: one line that says so, and nothing left on it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store import catalogue, files
from store.errors import StoreFull

MEBIBYTE = 2**20
JOBS = 1000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of two mebibytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={2 * MEBIBYTE}", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk needs the right to mount one: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def sources(tmp_path: Path, row: Callable[..., dict[str, Any]]) -> dict[str, list[Path]]:
    """Spectra of more bytes than the disk holds."""
    values = [100 - i * 0.37 for i in range(100)]
    spectra = [
        row("spectra", job_key=str(n), layer=n, n_rows=100, singular_values=[n + one for one in values])
        for n in range(JOBS)
    ]
    files.write_rows(tmp_path / "spectra.parquet", "spectra", spectra)
    studies = [{"study": "s", "stage": "spectra", "job_key": str(n)} for n in range(JOBS)]
    files.write_rows(tmp_path / "study_jobs.parquet", "study_jobs", studies)
    return {name: [tmp_path / f"{name}.parquet"] for name in ("spectra", "study_jobs")}


@pytest.mark.parametrize("left", [0, 100_000, MEBIBYTE])
def test_a_full_disk_is_one_line_and_the_former_catalogue_stays(
    small: Path, sources: dict[str, list[Path]], left: int
) -> None:
    path = small / "results.duckdb"
    path.write_bytes(b"the former one")
    (small / "ballast").write_bytes(b"x" * (2 * MEBIBYTE - 4096 - left))
    with pytest.raises(StoreFull) as raised:
        catalogue.build(path, sources)
    said = str(raised.value)
    assert "\n" not in said
    assert f"cannot write {path}: No space left on device. Free some of that disk" in said
    assert sorted(one.name for one in small.iterdir()) == ["ballast", "results.duckdb"]
    assert path.read_bytes() == b"the former one"

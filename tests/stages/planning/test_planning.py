"""What is planned with is verified first: DVC does not see damage that leaves a file's time of change as it was."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from stages.planning import planning
from store import dumps
from store.errors import DamagedFile
from store.files import fingerprint, write_parquet, write_rows
from tsfmscope.series.tables import series_table
from tsfmscope.series.types import Series


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(content)


def test_a_damaged_series_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("data/kernelsynth/series/linear-2.parquet")
    write_parquet(path, series_table([Series("linear-2", "s", np.arange(50, dtype=np.float32))]))
    assert planning.file_inputs(path) == {path.as_posix(): fingerprint(path)}
    flip(path)
    with pytest.raises(DamagedFile, match=rf"{path}: damaged: expected BLAKE3"):
        planning.file_inputs(path)


def test_a_damaged_dump_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("data/tokens")
    job = SimpleNamespace(spec={"model": "m", "dataset": "d", "condition": "c", "format": "arrow"}, inputs={})
    facts = dumps.write_job_dump(out, job, [pa.table({"x": [1, 2]})])
    cell = {"model": "m", "dataset": "d", "condition": "c", "context": 8, "noise": 0.0}
    kept = {"kind": "tokens", "width": 1, "dtype": "int64", "n_windows": 1, "batch": 1, "job_key": "k"}
    write_rows(out / "dumps" / "00000.parquet", "dumps", [{**cell, **kept, **facts}])
    assert [row["path"] for row in planning.dumps("tokens")] == ["dumps/m/d/c.arrow"]
    flip(out / facts["path"])
    with pytest.raises(DamagedFile, match=rf"{out}/dumps/m/d/c.arrow: damaged: expected BLAKE3 {facts['fingerprint']}"):
        planning.dumps("tokens")

"""Fuzzing led by coverage (atheris, libFuzzer) of what reads others' files.

    python -m tests.fuzz TARGET [--seconds N] [--corpus FOLDER]

A reader answers, or raises the one error that it says; anything else stops the run with the input that did it, which
lies beside the corpus. Inputs that reach new code are added to the corpus, a temporary folder by default.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import atheris

with atheris.instrument_imports(include=["yaml", "tsfmscope.stages", "tsfmscope.tasks.series", "tsfmscope.store"]):
    from tsfmscope import store
    from tsfmscope.stages.config import params
    from tsfmscope.store import catalogue, render
    from tsfmscope.tasks.series.files import parquet, user_files

from tsfmscope.store.errors import StoreError
from tsfmscope.tasks.errors import DataError, ModelError

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(tempfile.mkdtemp())
MOST = 4096  # bytes of an input


def own_file(suffix: str) -> Callable[[bytes], None]:
    """One's own table."""

    def read(data: bytes) -> None:
        path = HERE / f"a{suffix}"
        path.write_bytes(data)
        with suppress(DataError):
            user_files.load_own(path, name="mine")

    return read


def series(data: bytes) -> None:
    """A data set's Parquet."""
    (HERE / "a.parquet").write_bytes(data)
    with suppress(DataError):
        parquet.load_parquet(HERE / "a.parquet")


def profile(data: bytes) -> None:
    """params.yaml."""
    (HERE / "params.yaml").write_bytes(data)
    with suppress(params.ParamsError):
        params.load(HERE / "params.yaml")


def checkpoint(data: bytes) -> None:
    """A config.json beside weights that are none."""
    from tsfmscope.tasks.models.common import checkpoint_folder

    (HERE / "model").mkdir(exist_ok=True)
    (HERE / "model" / "model.safetensors").write_bytes(b"")
    (HERE / "model" / "config.json").write_bytes(data)
    with suppress(ModelError):
        checkpoint_folder.read_config(HERE / "model", "totem")


def statement(data: bytes) -> None:
    """SQL: what is asked neither changes the database nor leaves a file."""
    path = HERE / "sql" / "results.duckdb"
    if not path.exists():
        path.parent.mkdir()
        catalogue.build(path, {})
    before = path.stat()
    with store.open(path) as connection, suppress(StoreError):
        for rows in store.query.statements(connection, data.decode(errors="replace")):
            if rows.num_rows < 1000:
                for form in ("csv", "json", "markdown"):
                    render.render(rows, form, terminal=True)
                assert all(len(line) == rows.num_columns for line in render.cells(rows)), data
    after = path.stat()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size), data
    assert list(path.parent.iterdir()) == [path], data


@atheris.instrument_func
def planted(data: bytes) -> None:
    """Finds its way to an error behind three comparisons, or this whole file is of no use."""
    if len(data) > 2 and data[0] == ord("b") and data[1] == ord("u") and data[2] == ord("g"):
        raise AssertionError("planted")


class Target(NamedTuple):
    """seeds: inputs to begin with; words: what libFuzzer may put in."""

    read: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    words: tuple[str, ...] = ()


def _sets() -> list[bytes]:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = {"item_id": ["a"], "start": [pd.Timestamp(0)], "freq": ["D"], "target": [[1.0, 2.0]]}
    pq.write_table(pa.table(table), HERE / "seed.parquet", compression="none")
    return [(HERE / "seed.parquet").read_bytes()]


TABLE = b"unique_id;ds;y\nx;2024-01-01;1,5\nx;2024-01-02;\n"
TARGETS = {
    "csv": Target(own_file(".csv"), lambda: [TABLE, b"a,b\n1,2\n", b"date\ta\n2024-01-01\t1\n"], ("item_id", "ds")),
    "csv.gz": Target(own_file(".csv.gz"), lambda: [gzip.compress(TABLE)]),
    "parquet": Target(series, _sets),
    "params": Target(
        profile,
        lambda: [(ROOT / "params" / "smoke.yaml").read_bytes()[:MOST], b"a: &a [*a]"],
        ("!!python/object/apply:", "<<: ", "&a ", "*a"),
    ),
    "config": Target(checkpoint, lambda: [(ROOT / "checkpoints" / "totem-nano" / "config.json").read_bytes()]),
    "sql": Target(
        statement,
        lambda: [b"select * from geometry", b"copy runs to 'a'", b"select 1 as a, 'infinity'::date as a, [{'x': 2}]"],
        ("copy ", "attach '", "install ", "load ", "set ", "export database 'a'", "read_csv('", "pragma "),
    ),
    "planted": Target(planted, lambda: [b"b"]),
}


def main() -> None:
    """Never returns: libFuzzer leaves the process, with 0 where nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="a folder that keeps what was found to reach new code")
    asked = parser.parse_args()
    target, corpus = TARGETS[asked.target], asked.corpus or HERE / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for index, seed in enumerate(target.seeds()):
        (corpus / f"seed-{index}").write_bytes(seed)
    options = [f"-max_total_time={asked.seconds}", f"-max_len={MOST}", "-rss_limit_mb=3000", "-timeout=20"]
    options.append(f"-artifact_prefix={corpus.resolve().parent}/")
    if target.words:
        (HERE / "words").write_text("".join(f'"{word}"\n' for word in target.words))
        options.append(f"-dict={HERE / 'words'}")
    atheris.Setup([sys.argv[0], *options, str(corpus)], target.read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

"""What a terminal shows of rows: the ends of a large table, the whole of a small one, and no command to it."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest
from rich.cells import cell_len

from store.render import box

WIDE = pa.table({f"column_{n:02d}": [n, -n] for n in range(40)})


def test_a_table_too_wide_for_a_terminal_shows_its_first_and_last_columns_and_their_number() -> None:
    lines = box(WIDE, 80).splitlines()
    assert max(map(len, lines)) <= 80
    words = lines[1].strip("│").split("│")
    assert words[0].strip() == "column_00"
    assert words[-1].strip() == "column_39"
    assert [word.strip() for word in words].count("…") == 1
    assert f"40 columns ({len(words) - 1} shown)" in lines[-1]


def test_a_pipe_gets_every_column_in_one_line_however_wide() -> None:
    wide = pa.table({"text": ["x" * 3000], "other": ["y z"]})
    for rows, cells in ((WIDE, ["0", "39"]), (wide, ["x" * 3000, "y z"])):
        line = box(rows).splitlines()[4]
        assert {cell.strip() for cell in line.split("│")} >= set(cells)


def test_a_terminal_shows_the_first_and_last_rows_and_a_pipe_all() -> None:
    rows = pa.table({"n": range(1500)})
    numbers = [line.strip("│ ") for line in box(rows, 200).splitlines() if line.startswith("│")]
    assert numbers == ["n", "int64", *map(str, range(20)), "·", "·", "·", *map(str, range(1480, 1500))]
    numbers = [line.strip("│ ") for line in box(rows).splitlines() if line.startswith("│")]
    assert numbers == ["n", "int64", *map(str, range(1500))]


@pytest.mark.parametrize("n_columns", range(1, 12))
def test_no_line_is_wider_than_the_terminal(n_columns: int) -> None:
    rows = pa.table({f"名{n}": ["a b " * n, "x" * 5 * n] for n in range(n_columns)})
    assert max(map(cell_len, box(rows, 80).splitlines())) <= 80


def test_no_rows_are_said_to_be_none() -> None:
    for rows in (pa.table({"n": pa.array([], pa.int64())}), pa.table({})):
        assert box(rows).splitlines()[-1].strip() == box(rows, 80).splitlines()[-1].strip() == "0 rows"


def test_fifteen_thousand_rows_are_written_within_seconds() -> None:
    rows = pa.table({f"column_{n}": np.random.default_rng(n).normal(size=15_000) for n in range(50)})
    began = time.process_time()
    assert sum(line.startswith("│") for line in box(rows).splitlines()) == 15_000 + 2 * 2
    assert time.process_time() - began < 20

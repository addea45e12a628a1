from __future__ import annotations

import io
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tsfmscope.errors import DataError
from tsfmscope.series.files.sources import load_bundled
from tsfmscope.series.tables import SCHEMA, list_values, series_table, table_series
from tsfmscope.series.types import Series

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


@st.composite
def _series(draw: st.DrawFn) -> Series:
    return Series(
        dataset=draw(st.text(max_size=5)),
        series=draw(st.text(max_size=5)),
        values=draw(hnp.arrays(np.float32, st.integers(0, 20), elements=FLOATS)),
        domain=draw(st.text(max_size=3)),
        freq=draw(st.sampled_from(["", "h"])),
        start=draw(st.none() | st.just(datetime(1700, 1, 1, 0, 30))),
        kernel=draw(st.none() | st.text(max_size=5)),
        seed=draw(st.none() | st.integers(-(2**63), 2**63 - 1)),
        provenance=draw(st.text(max_size=3)),
        season=draw(st.none() | st.integers(1, 2**31 - 1)),
    )


@given(st.lists(_series(), max_size=5))
@settings(deadline=None, max_examples=30)
def test_series_survive_the_table_and_the_file(series: list[Series]) -> None:
    sink = io.BytesIO()
    pq.write_table(series_table(series), sink)
    found = table_series(pq.read_table(sink))
    assert len(found) == len(series)
    for one, other in zip(series, found, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
        assert other.values.dtype == np.float32
        for field in set(SCHEMA.names) - {"values"}:
            assert getattr(one, field) == getattr(other, field)


def test_the_columns_are_those_of_the_series_table() -> None:
    table = series_table(load_bundled("macrodata"))
    assert table.schema == SCHEMA
    assert table.column_names == [
        "dataset", "series", "domain", "freq", "start", "values", "kernel", "seed", "provenance", "season",
    ]  # fmt: skip
    assert table["series"].to_pylist()[:2] == ["realgdp", "realcons"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (series_table([]).drop_columns(["seed"]), "column 'seed': expected int64, got none"),
        (
            series_table([]).set_column(5, "values", pa.array([], pa.list_(pa.int64()))),
            "column 'values': expected list<.*float>, got list<.*int64>",
        ),
    ],
)
def test_a_table_of_another_schema_is_refused(table: pa.Table, message: str) -> None:
    with pytest.raises(DataError, match=message):
        table_series(table)


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float16())])
def test_lists_of_any_float_type_sliced_and_chunked_are_read(kind: pa.DataType) -> None:
    rows = [[9.0], [1.0, None, 3.0], None, [], [4.0]]
    chunk = pa.array(rows, kind)[1:]
    found = list_values(pa.chunked_array([chunk, chunk[:1]]))
    expected = [[1, np.nan, 3], [], [], [4], [1, np.nan, 3]]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, np.array(other, dtype=np.float32))

"""Damage that a footer does not show."""

from __future__ import annotations

import io

import pyarrow.parquet as pq


def spoilt(content: bytes, column: str) -> bytes:
    """A Parquet file with one bit of the last page of a column flipped."""
    group = pq.read_metadata(io.BytesIO(content)).row_group(0)
    (chunk,) = [c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column]
    data = bytearray(content)
    data[(chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 2] ^= 1
    return bytes(data)

"""Headline numbers for `dvc metrics` and `dvc exp show`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# File in store/sql/report/metrics -> number of its first columns that are keys of the metric; the other
# columns are its numbers.
KEY_COLUMNS = {
    "compression": 2,
    "correlation": 2,
    "isotropy": 1,
    "published": 0,
    "rank_slope": 2,
    "rows": 0,
    "skill": 1,
    "theory": 1,
}


def nest_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], keys: int) -> dict[str, Any]:
    """Return the rows as nested mappings, keyed by their first `keys` columns.

    Null numbers are left out, and so are mappings that are then empty: `dvc metrics diff` reports numbers
    that appear or disappear, but takes null for a changed value.
    """
    tree: dict[str, Any] = {}
    for row in rows:
        numbers = {name: value for name, value in zip(columns[keys:], row[keys:], strict=True) if value is not None}
        branch = tree
        for name in row[:keys]:
            branch = branch.setdefault(str(name), {})
        branch |= numbers
    return _without_empty(tree)


def _without_empty(tree: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: _without_empty(value) if isinstance(value, Mapping) else value for name, value in tree.items()}
    return {name: value for name, value in kept.items() if value != {}}

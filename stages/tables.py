"""Stage tables: results.duckdb, with every table and view, for SQL."""

from __future__ import annotations

from pathlib import Path

from stages import DATA
from stages.config.params import Params
from stages.planning.sources import sources
from store import catalogue

OUT = Path(DATA, "results.duckdb")


def main(params: Params) -> None:
    """Rebuild the catalogue; it gets its name only if no check of the schema or of store/sql/checks returns rows."""
    catalogue.build(OUT, sources(), seed=params.seed)
    size = f"{OUT.stat().st_size / 1e6:.1f} MB"
    print(f'tables: {OUT}: {size}; query it: tsfmscope sql "select * from correlation"')

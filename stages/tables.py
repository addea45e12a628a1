"""results.duckdb: every table and view, for SQL."""

from __future__ import annotations

from pathlib import Path

from stages import DATA
from stages.params import Params
from stages.sources import sources
from store import catalogue

OUT = Path(DATA, "results.duckdb")


def main(params: Params) -> None:
    """Build the catalogue anew; it takes its name only when every check of store/sql/checks came back empty."""
    catalogue.build(OUT, sources(), seed=params.seed)
    print(f'tables: {OUT}: {OUT.stat().st_size / 1e6:.1f} MB; ask it: python -m store "select * from correlation"')

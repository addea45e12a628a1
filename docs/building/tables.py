"""Page docs/tables.md: every table, view and check of the results; `python -m docs.building.tables`."""

from __future__ import annotations

from pathlib import Path

from store import reference_docs
from store.schema import TABLES

PAGE = Path(__file__).parents[1] / "tables.md"


def main() -> None:
    """Write the page."""
    PAGE.write_text(reference_docs.tables(list(TABLES.values())), "utf-8")


if __name__ == "__main__":
    main()

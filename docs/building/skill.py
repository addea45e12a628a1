"""Table of skill in docs/models.md, from docs/results/skill.csv; `python -m docs.building.skill`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tsfmscope.forecasting.skill import group_skill, interval, read_rows

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "models.md"
# Rows that `python -m bench.skill` wrote.
ROWS = ROOT / "docs" / "results" / "skill.csv"
# Rows that are no checkpoint of this repository.
NAMES = {
    "auto-theta": "AutoTheta",
    "seasonal-naive": "probabilistic seasonal naive",
    "gluonts-naive": "point seasonal naive with GluonTS's season",
    "chronos-bolt-350k": "a Chronos-Bolt of 344,640 parameters that others trained",
}
GROUPS = ("guided", "report")
# Most series per data set in bench/skill.py, but for slow models.
SERIES = 64


def table(means: Sequence[dict[str, Any]]) -> str:
    """Return the table in Markdown, one row per forecaster, by the mean WQL on the report sets."""
    cells = {(row["model"], row["group"]): row for row in means}
    models = dict.fromkeys(row["model"] for row in means)
    counts = [max((row["n_datasets"] for row in means if row["group"] == group), default=0) for group in GROUPS]
    titles = [f"{name}, {n} {group} sets" for name in ("WQL", "MAE") for group, n in zip(GROUPS, counts, strict=True)]
    head = ["forecaster", *titles, "worst report set, WQL"]
    lines = [head, ["---"] * len(head)]
    last = {"wql": float("inf")}
    for model in sorted(models, key=lambda model: cells.get((model, "report"), last)["wql"]):
        rows = [cells.get((model, group)) for group in GROUPS]
        worst = rows[1]
        lines.append(
            [
                f"{NAMES.get(model, f'`{model}`')}{_limit([row for row in rows if row])}",
                *(interval(row, name) if row else "–" for name in ("wql", "mae") for row in rows),
                f"`{worst['worst']}` {worst['worst_wql']:.2f}" if worst else "–",
            ]
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _limit(rows: Sequence[dict[str, Any]]) -> str:
    """Return the number of series per set where it is below SERIES."""
    series = max(row["series"] for row in rows)
    return "" if series == SERIES else f" (at most {series} series per set)"


def with_table(page: str) -> str:
    """Return the page with the table in place of its own. Raises ValueError for a page without one."""
    text = table(group_skill(read_rows(ROWS)))
    changed, n = re.subn(r"(?m)^\| forecaster \| WQL, .*\n(?:\|.*\n)+", lambda _: text, page, count=1)
    if not n:
        raise ValueError(f"{PAGE}: expected a table that begins with '| forecaster | WQL,'; restore it")
    return changed


def main() -> None:
    """Write the table into the page."""
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()

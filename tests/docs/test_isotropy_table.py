"""The tables of what the isotropy measures see (docs/findings/isotropy_measures.md), recomputed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.isotropy_measures import CASES, COLUMNS, SEEN, TITLE, measure

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "findings" / "isotropy_measures.md"
# Conclusions that ζ′ minus its null mean does not allow.
CONCLUDED = re.compile(
    r"(looks?|nearly|these states are|the states are) isotropic|indistinguishable from isotropic|\(0: isotropic|"
    r"0 is more isotropic|nearer to isotropic",
    re.IGNORECASE,
)
DRAWS = 3


def printed(title: str) -> dict[str, list[str]]:
    """Return the cells of a table of the page by the first one of their line; title: beginning of the table's head."""
    text = PAGE.read_text("utf-8")
    assert title in text, f"{PAGE.name} has no table with the head {title}"
    lines = [row.strip("|").split("|") for row in text.split(title)[1].split("\n\n")[0].splitlines()[2:]]
    return {cells[0].strip(): [cell.strip().replace("−", "-") for cell in cells[1:]] for cells in lines}


def numbers(name: str) -> dict[str, float]:
    """Return the numbers of a line of the second table by column; percentages as shares."""
    cells = dict(zip(COLUMNS, printed(TITLE)[name], strict=True))
    return {key: float(cell.rstrip(" %")) / (100 if "%" in cell else 1) for key, cell in cells.items()}


def test_the_page_lists_every_kind_of_states_and_every_case() -> None:
    assert list(printed(TITLE)) == list(SEEN)
    assert list(printed("| isotropic states | layers")) == list(CASES)


@pytest.mark.parametrize("name", SEEN)
def test_the_table_of_the_page_is_what_the_functions_give(name: str) -> None:
    on_page, here = numbers(name), measure(SEEN[name], DRAWS)
    assert here["isoscore"].mean() == pytest.approx(on_page["isoscore"], abs=0.08)
    assert here["dimension_share"].mean() == pytest.approx(on_page["dimension_share"], abs=0.05)
    around = max(0.003, 0.7 * abs(on_page["corrected"]))
    for column in ("corrected", "excess"):
        assert here[column].mean() == pytest.approx(on_page[column], abs=around), column
    for column in ("permuted", "directions"):
        if on_page[column] in (0, 1):
            assert here[column].mean() == on_page[column], column


def test_the_false_positives_on_the_page_hold_the_level() -> None:
    shares = {
        name: [float(cell) for cell in cells[1:]] for name, cells in printed("| isotropic states | layers").items()
    }
    assert max(directions for _, directions in shares.values()) <= 0.06
    assert shares["log-normal norms, s.d. 0.5"][0] == 1


def test_the_measure_orders_two_kinds_of_states_against_isoscore() -> None:
    few, many = numbers("Gaussian, eigenvalues 1/j²"), numbers("isotropic directions, log-normal norms with s.d. 1")
    assert few["isoscore"] < many["isoscore"]
    assert few["dimension_share"] < many["dimension_share"]
    assert few["corrected"] < many["corrected"]


def test_no_page_or_text_calls_states_isotropic_by_this_measure() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/findings").glob("*.md")]
    # docs/tables.md is made from the texts in store.
    pages = [page for page in pages if page.name != "tables.md"]
    folders, suffixes = ("stages", "tasks", "store", "tsfmscope"), (".py", ".yaml", ".sql")
    code = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    for path in [*pages, *code]:
        found = CONCLUDED.search(path.read_text("utf-8"))
        assert found is None, f"{path.relative_to(ROOT)}: {found[0] if found else ''}"
    assert CONCLUDED.search("within two standard deviations of 0, the states look isotropic")

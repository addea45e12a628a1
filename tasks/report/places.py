"""Where a data set stands in the isotropy paper's figures: panel, panel's letter, Dataset 1 or Dataset 2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tasks.series.catalog import CATALOG

# Panels a, b, c ... of Figs. 3, 5, 6 and of Figs. 7, 8. Section 5.2 calls retail "Figure 7 e", so that retail comes
# before transport, as in the text of section 5 and not as in Table 3.
SYNTHETIC = ("linear", "seasonality", "trend", "non-linear", "stochastic")
REAL = ("energy", "nature", "finance", "healthcare", "retail", "transport")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NO_DOMAIN = "other"


def panels(domains: Iterable[str]) -> dict[str, str]:
    """Domain -> the title of its panel, in the paper's order, others after, by name.

    A figure of synthetic or of real domains alone has the paper's letters even where a panel is lacking.
    """
    named = {domain or NO_DOMAIN for domain in domains}
    known = [domain for domain in (*SYNTHETIC, *REAL) if domain in named]
    ordered = known + sorted(named - set(known))
    papers: Sequence[str] = ordered
    for group in (SYNTHETIC, REAL):
        if named <= set(group):
            papers = group
    return {domain: f"{_letter(papers.index(domain))} · {domain}" for domain in ordered}


def numbers(domains: Mapping[str, str]) -> dict[str, int]:
    """Data set -> its number in its domain, from data set -> domain.

    The paper's own data sets keep the paper's 1 and 2; others take, in alphabetical order, the numbers that are free.
    """
    found: dict[str, int] = {}
    for domain in sorted(set(domains.values())):
        names = sorted(name for name, of in domains.items() if of == domain)
        printed = {name: _printed(name, domain) for name in names}
        taken = {number for number in printed.values() if number}
        free = (number for number in range(1, len(names) + len(taken) + 1) if number not in taken)
        found |= {name: number or next(free) for name, number in printed.items()}
    return found


def _printed(name: str, domain: str) -> int:
    """The number at the end of the catalogue's `paper`; 0 outside the paper's list, or in a domain of one's own."""
    entry = CATALOG.get(name)
    if entry is None or entry.paper is None or entry.domain != domain:
        return 0
    return int(entry.paper.rpartition("-")[2])


def _letter(place: int) -> str:
    return LETTERS[place] if place < len(LETTERS) else str(place + 1)

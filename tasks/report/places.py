"""Where a data set stands in the isotropy paper's figures: panel, panel's letter, Dataset 1 or Dataset 2."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

# Panels a, b, c ... of Figs. 3, 5, 6 and of Figs. 7, 8. Section 5.2 calls retail "Figure 7 e", so that retail comes
# before transport, as in the text of section 5 and not as in Table 3.
SYNTHETIC = ("linear", "seasonality", "trend", "non-linear", "stochastic")
REAL = ("energy", "nature", "finance", "healthcare", "retail", "transport")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NO_DOMAIN = "other"
PRINTED = re.compile(r"-(\d+)$")  # the number in the paper's name of a data set, such as finance-1


def panels(domains: Iterable[str], *, of_paper: bool = True) -> dict[str, str]:
    """Domain -> the letter of its panel, in the paper's order, others after, by name.

    A figure of synthetic or of real domains alone has the paper's letters even where a panel is lacking; one that is
    not of_paper, as a study of one's own, has a, b, c ...
    """
    named = set(domains)
    known = [domain for domain in (*SYNTHETIC, *REAL) if domain in named]
    ordered = known + sorted(named - set(known))
    papers: Sequence[str] = ordered
    for group in (SYNTHETIC, REAL):
        if of_paper and named <= set(group):
            papers = group
    return {domain: _letter(papers.index(domain)) for domain in ordered}


def numbers(domains: Mapping[str, str], papers: Mapping[str, str | None]) -> dict[str, int]:
    """Data set -> its number in its domain.

    domains: data set -> domain. papers: data set -> the paper's name for it, such as finance-1, where it has one: its
    number is kept. Others take, in alphabetical order, the numbers that are free.
    """
    found: dict[str, int] = {}
    for domain in sorted(set(domains.values())):
        names = sorted(name for name, of in domains.items() if of == domain)
        for name in names:
            match = PRINTED.search(papers.get(name) or "")
            if match and int(match[1]) not in (found.get(other) for other in names):
                found[name] = int(match[1])
        taken = {found[name] for name in names if name in found}
        free = (number for number in range(1, 2 * len(names) + 1) if number not in taken)
        found |= {name: next(free) for name in names if name not in found}
    return found


def _letter(place: int) -> str:
    return LETTERS[place] if place < len(LETTERS) else str(place + 1)

"""Position of a data set in the figures of Shelim et al. 2025: panel, letter and number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

# Panels a, b, c ... of Figs. 3, 5 and 6 (synthetic) and of Figs. 7 and 8 (real). Section 5.2 calls
# retail "Figure 7 e", so retail precedes transport, as in the text of section 5 and unlike Table 3.
SYNTHETIC = ("linear", "seasonality", "trend", "non-linear", "stochastic")
REAL = ("energy", "nature", "finance", "healthcare", "retail", "transport")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NO_DOMAIN = "other"
# Matches the number in the paper's name of a data set, such as finance-1.
PRINTED = re.compile(r"-(\d+)$")


def assign_letters(domains: Iterable[str], *, of_paper: bool = True) -> dict[str, str]:
    """Return domain -> letter of its panel: the paper's domains in its order, then others by name.

    of_paper: whether the figure reproduces one of the paper. If it has only synthetic or only real domains,
    its panels then have the paper's letters, even where a panel is missing. Any other figure has a, b, c ...
    without gaps.
    """
    named = set(domains)
    known = [domain for domain in (*SYNTHETIC, *REAL) if domain in named]
    ordered = known + sorted(named - set(known))
    papers: Sequence[str] = ordered
    for group in (SYNTHETIC, REAL):
        if of_paper and named <= set(group):
            papers = group
    return {domain: _letter(papers.index(domain)) for domain in ordered}


def assign_numbers(domains: Mapping[str, str], papers: Mapping[str, str | None]) -> dict[str, int]:
    """Return data set -> its number in its domain, from 1.

    domains: data set -> domain. papers: data set -> the paper's name for it, such as finance-1, or None. The
    number in the paper's name is kept; if several data sets claim it, the first by name gets it. The others
    take the free numbers in alphabetical order.
    """
    numbers: dict[str, int] = {}
    for domain in sorted(set(domains.values())):
        names = sorted(name for name, of in domains.items() if of == domain)
        for name in names:
            match = PRINTED.search(papers.get(name) or "")
            if match and int(match[1]) not in (numbers.get(other) for other in names):
                numbers[name] = int(match[1])
        taken = {numbers[name] for name in names if name in numbers}
        free = (number for number in range(1, 2 * len(names) + 1) if number not in taken)
        numbers |= {name: next(free) for name in names if name not in numbers}
    return numbers


def _letter(position: int) -> str:
    return LETTERS[position] if position < len(LETTERS) else str(position + 1)

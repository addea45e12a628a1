"""What a paper says beside what was measured: a claim as a sentence, printed numbers as a table and one line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "claim", "source", "model", "dataset", "condition", "quantity", "published", "published_text", "measured",
    "low", "high", "n", "p", "comparable", "verdict", "why",
)  # fmt: skip
VERDICTS = {  # as the view `published_vs_measured` names them, and as a count of them reads
    "agrees": ("agrees", "agree"),
    "differs": ("differs", "differ"),
    "undecided": ("is undecided", "are undecided"),
    "not comparable": ("cannot be compared", "cannot be compared"),
}
QUANTITIES = {  # statistics of the table `inference`, in words
    "spearman": "mean ρ of isotropy with error",
    "agreement": "share of pairs for which that holds",
    "more_isotropic": "share of pairs in which the second is the more isotropic",
    "more_error": "share of pairs in which the second has more error",
    "nmse": "NMSE",
    "zeta_adjusted": "ζ′",
}


class Said(NamedTuple):
    """A sentence, and the verdict that it ends with, as a word for CSS."""

    verdict: str
    text: str


def claims(published: pd.DataFrame) -> list[Said]:
    """A sentence a claim of which only the direction is printed."""
    rows = published[published["published"].isna()].to_dict("records")
    return [Said(str(row["verdict"]).replace(" ", "-"), sentence(row)) for row in rows]


def sentence(row: Mapping[Hashable, Any]) -> str:
    """What the paper says, what was measured, and the verdict with its reason. Raises ValueError for no known verdict.

    Example: The paper (section 5.1): isotropy is lower … (share < 0.5). Here: share = 0.4 (95 % interval 0.2 to 0.6;
    n = 10; p = 0.3): undecided, because p is above 0.05.
    """
    if row["verdict"] not in VERDICTS:
        raise ValueError(f"verdict: got {row['verdict']!r}, expected one of {', '.join(VERDICTS)}")
    source = f" ({row['source']})" if _there(row["source"]) else ""
    quantity = QUANTITIES.get(row["quantity"], str(row["quantity"]).replace("_", " "))
    printed = f" ({quantity} {row['published_text'].replace('-', '−')})" if _there(row["published_text"]) else ""
    where = [str(row[name]) for name in ("model", "dataset", "condition") if _there(row[name])]
    here = f"Here{' (' + ', '.join(where) + ')' if where else ''}: "
    here += f"{number(row['measured'])}{_sure(row)}" if _there(row["measured"]) else "nothing measured"
    because = (
        f", because {row['why']}" if _there(row["why"]) and row["verdict"] in ("undecided", "not comparable") else ""
    )
    return f"The paper{source}: {_lower(str(row['claim']))}{printed}. {here}: {row['verdict']}{because}."


def numbers(published: pd.DataFrame) -> pd.DataFrame:
    """The printed numbers beside ours, reasons in short, without columns that hold nothing."""
    rows = published[published["published"].notna()]
    shown = ["source", "model", "dataset", "condition", "quantity", "published_text", "measured", "interval"]
    shown += ["n", "p", "verdict", "why"]
    between: Sequence[Any] = [
        f"{number(low)} to {number(high)}" if _there(low) and _there(high) else None
        for low, high in zip(rows["low"], rows["high"], strict=True)
    ]
    words = rows["quantity"].replace(QUANTITIES)
    short: Sequence[Any] = ["; ".join(_reasons(why)) if _there(why) else None for why in rows["why"]]
    table = rows.assign(interval=between, quantity=words, why=short)[shown].rename(
        columns={"published_text": "published", "measured": "ours"}
    )
    return table.dropna(axis=1, how="all").reset_index(drop=True)


def tally(published: pd.DataFrame) -> str:
    """One line that sums up the printed numbers; empty without any."""
    rows = published[published["published"].notna()]
    if rows.empty:
        return ""
    able = rows[rows["comparable"].astype(bool)]
    text = f"{len(able)} of {_count(len(rows), 'printed number')} can be compared"
    if len(able):
        found = Counter(able["verdict"])
        text += ": " + ", ".join(f"{found[v]} {words[found[v] != 1]}" for v, words in VERDICTS.items() if found[v])
    whys = [why for why in rows[~rows["comparable"].astype(bool)]["why"] if _there(why)]
    reasons = Counter(reason for why in whys for reason in _reasons(why))
    told = [f"{why} ({n})" for why, n in sorted(reasons.items(), key=_most)]
    if not told:
        return text + "."
    return text + (". The others: " if len(able) else ": ") + ", ".join(told) + "."


def _reasons(why: str) -> list[str]:
    """The reasons in short: what follows a colon is detail, and may hold anything."""
    return why.partition(":")[0].split("; ")


def number(value: float) -> str:
    """Three significant figures at most, a true minus sign."""
    return f"{float(value):.3g}".replace("-", "−")


def _sure(row: Mapping[Hashable, Any]) -> str:
    parts = []
    if _there(row["low"]) and _there(row["high"]):
        parts.append(f"95 % interval {number(row['low'])} to {number(row['high'])}")
    if _there(row["n"]):
        parts.append(f"n = {int(row['n']):,}")
    if _there(row["p"]):
        parts.append(f"p = {float(row['p']):.2g}")
    return f" ({'; '.join(parts)})" if parts else ""


def _there(value: Any) -> bool:
    missing = value is None or str(value) in ("", "<NA>") or (isinstance(value, float) and math.isnan(value))
    return not missing


def _lower(text: str) -> str:
    """Without a capital at the start and a stop at the end, to stand inside a sentence."""
    text = text.strip().removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _most(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"

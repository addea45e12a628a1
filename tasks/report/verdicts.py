"""What a paper says beside what was measured: a claim as a sentence, printed numbers as a table and one line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "figure", "claim", "source", "model", "dataset", "condition", "quantity", "published", "published_text", "measured",
    "low", "high", "n", "p", "comparable", "verdict", "why", "note", "run",
)  # fmt: skip
VERDICTS = {  # as the view `published_vs_measured` names them, and as a count of them reads
    "agrees": ("agrees", "agree"),
    "differs": ("differs", "differ"),
    "undecided": ("is undecided", "are undecided"),
    "not comparable": ("cannot be compared", "cannot be compared"),
    "not measured": ("was not measured", "were not measured"),
}
SYMBOLS = {"zeta_adjusted": "ζ′", "nmse": "NMSE"}  # in names of printed numbers
QUANTITIES = {  # statistics of the table `inference`, in words
    "spearman": "mean ρ of isotropy with error",
    "agreement": "share of pairs for which that holds",
    "more_isotropic": "share of pairs in which the second is the more isotropic",
    "more_error": "share of pairs in which the second has more error",
    "nmse": "NMSE",
    "zeta_adjusted": "ζ′",
    "mean": "mean change of the share of the most possible rank",
    "difference": "difference of mean shares of the most possible rank",
    "trend": "slope against log₂ of what varies",
    "log WQL mean": "mean log of the WQL of the one over the other's",
    "log WQL over 1.05 mean": "mean log of the ratio of WQL to 1.05 of the original's",
    "overlap trend": "slope of the overlap against log₂ of the share left",
}


CLAIM = ("claim", "source", "quantity", "published_text")  # what makes rows one claim
FEW = 3  # models whose verdicts on a claim are a sentence each; more are one sentence together


class Said(NamedTuple):
    """A sentence, and the verdict that it ends with, as a word for CSS."""

    verdict: str
    text: str


def claims(published: pd.DataFrame) -> list[Said]:
    """A sentence a claim of which only the direction is printed; one for all where it is tested of many models."""
    rows = published[published["published"].isna()]
    many, told = folded(published), set()
    said = []
    for row in rows.to_dict("records"):
        key = tuple(str(row[name]) for name in CLAIM)
        if key not in many:
            said.append(Said(str(row["verdict"]).replace(" ", "-"), sentence(row)))
        elif key not in told:
            told.add(key)
            said.append(_of_many(many[key]))
    return said


def folded(published: pd.DataFrame) -> dict[tuple[str, ...], list[dict[Hashable, Any]]]:
    """Claims of which only the direction is printed and that more models than FEW were tested for, and their rows."""
    found: dict[tuple[str, ...], list[dict[Hashable, Any]]] = {}
    for row in published[published["published"].isna() & published["model"].notna()].to_dict("records"):
        found.setdefault(tuple(str(row[name]) for name in CLAIM), []).append(row)
    return {key: rows for key, rows in found.items() if len(rows) > FEW}


def _of_many(rows: Sequence[Mapping[Hashable, Any]]) -> Said:
    """One sentence for all models of a claim: how many agree, and each one's number.

    Example: The paper (section 4): rank grows with depth (mean > 0). Of 4 models here 3 agree (a 0.2, b 0.1, c 0.3),
    1 is undecided (d 0.01).
    """
    for row in rows:
        _known(row)
    parts = []
    for verdict, words in VERDICTS.items():
        chosen = [row for row in rows if row["verdict"] == verdict]
        named = [f"{row['model']} {number(row['measured']) if there(row['measured']) else '–'}" for row in chosen]
        if chosen:
            parts.append(f"{len(chosen)} {words[len(chosen) != 1]} ({', '.join(named)})")
    verdicts = {str(row["verdict"]) for row in rows}
    verdict = verdicts.pop().replace(" ", "-") if len(verdicts) == 1 else "undecided"
    return Said(verdict, f"{_says(rows[0])} Of {len(rows)} models here {', '.join(parts)}.")


def sentence(row: Mapping[Hashable, Any]) -> str:
    """What the paper says, what was measured, and the verdict with its reason. Raises ValueError for no known verdict.

    Example: The paper (section 5.1): isotropy is lower … (share < 0.5). Here: share = 0.4 (95 % interval 0.2 to 0.6;
    n = 10; p = 0.3): undecided, because p is above 0.05.
    """
    _known(row)
    where = [str(row[name]) for name in ("model", "dataset", "condition") if there(row[name])]
    here = f"Here{' (' + ', '.join(where) + ')' if where else ''}: "
    here += f"{number(row['measured'])}{sure(row)}" if there(row["measured"]) else "nothing measured"
    because = (
        f", because {row['why']}" if there(row["why"]) and row["verdict"] in ("undecided", "not comparable") else ""
    )
    return f"{_says(row)} {here}: {row['verdict']}{because}."


def _known(row: Mapping[Hashable, Any]) -> None:
    if row["verdict"] not in VERDICTS:
        raise ValueError(f"verdict: got {row['verdict']!r}, expected one of {', '.join(VERDICTS)}")


def _says(row: Mapping[Hashable, Any]) -> str:
    """What the paper says, where, and what would show it."""
    source = f" ({row['source']})" if there(row["source"]) else ""
    quantity = QUANTITIES.get(row["quantity"], str(row["quantity"]).replace("_", " "))
    printed = f" ({quantity} {row['published_text'].replace('-', '−')})" if there(row["published_text"]) else ""
    return f"The paper{source}: {_lower(str(row['claim']))}{printed}."


def numbers(published: pd.DataFrame) -> pd.DataFrame:
    """The printed numbers beside ours, reasons in short, without columns that hold nothing."""
    rows = published[published["published"].notna()]
    shown = ["figure", "number", "model", "dataset", "condition", "published_text", "measured", "interval"]
    shown += ["n", "verdict", "why"]
    told: Sequence[Any] = [_interval(row) for row in rows.to_dict("records")]
    short: Sequence[Any] = ["; ".join(_reasons(why)) if there(why) else None for why in rows["why"]]
    names: Sequence[Any] = [_symbols(str(claim)) for claim in rows["claim"]]
    printed = rows["published_text"].str.replace("-", "−")
    table = rows.assign(number=names, interval=told, why=short, published_text=printed)[shown].rename(
        columns={"published_text": "published", "measured": "ours"}
    )
    return table.dropna(axis=1, how="all").reset_index(drop=True)


def tally(published: pd.DataFrame) -> str:
    """A line or two that sum up the printed numbers; empty without any. A number may stand beside several models."""
    rows = published[published["published"].notna()]
    if rows.empty:
        return ""
    rest = rows[rows["verdict"] == "not measured"]
    rows = rows.drop(rest.index)
    missing = f" {_count(len(rest), 'printed number')} {VERDICTS['not measured'][len(rest) != 1]} here."
    if rows.empty:
        return missing.strip()
    able = rows[rows["comparable"].astype(bool)]
    text = f"{len(able)} of {_count(len(rows), 'printed number')} beside ours can be compared"
    if len(able):
        found = Counter(able["verdict"])
        text += ": " + ", ".join(f"{found[v]} {words[found[v] != 1]}" for v, words in VERDICTS.items() if found[v])
    whys = [why for why in rows[~rows["comparable"].astype(bool)]["why"] if there(why)]
    reasons = Counter(reason for why in whys for reason in _reasons(why))
    told = [f"{why} ({n})" for why, n in sorted(reasons.items(), key=_most)]
    if told:
        text += (". The others: " if len(able) else ": ") + ", ".join(told)
    return text + "." + (missing if len(rest) else "")


def _interval(row: Mapping[Hashable, Any]) -> str | None:
    """Its ends, or in a few words why there is none."""
    if there(row["low"]) and there(row["high"]):
        return f"{number(row['low'])} to {number(row['high'])}"
    return str(row["note"]).replace("no interval:", "none:").replace("-", "−") if there(row["note"]) else None


def _symbols(text: str) -> str:
    for name, symbol in SYMBOLS.items():
        text = text.replace(name, symbol)
    return text


def _reasons(why: str) -> list[str]:
    """The reasons in short: what follows a colon is detail, and may hold anything."""
    return why.partition(":")[0].split("; ")


def number(value: float) -> str:
    """Three significant figures at most, a true minus sign."""
    return f"{float(value):.3g}".replace("-", "−")


def sure(row: Mapping[Hashable, Any]) -> str:
    """Interval, n and p in brackets, as far as they are there."""
    parts = []
    if there(row["low"]) and there(row["high"]):
        parts.append(f"95 % interval {number(row['low'])} to {number(row['high'])}")
    if there(row["n"]):
        parts.append(f"n = {int(row['n']):,}")
    if there(row["p"]):
        parts.append(f"p = {float(row['p']):.2g}")
    return f" ({'; '.join(parts)})" if parts else ""


def there(value: Any) -> bool:
    """Whether a value is one: neither null nor NaN nor empty."""
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

"""Table of verdicts at the top of the page: claim, answer, effect and link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tsfmscope.report.page.verdicts import (
    COLUMNS,
    QUANTITIES,
    cite,
    format_number,
    group_claims,
    is_present,
    list_counts,
    name_subject,
)
from tsfmscope.report.tables import StudyTables, require


@dataclass(frozen=True)
class Verdict:
    """One row of the table, as shown. verdict: CSS class. section: id of the section with the figure."""

    claim: str
    source: str
    verdict: str
    answer: str
    effect: str
    n: str
    section: str


def list_verdicts(studies: Sequence[StudyTables]) -> Iterator[Verdict]:
    """Yield one row per claim of each study, in their order; a claim tested on many models is one row.

    Rows name their subject, and their study where several studies test the claim, so that no two rows read the same.
    """
    frames = [require(study.published, COLUMNS) for study in studies]
    n_studies = Counter(claim for frame in frames for claim in frame.loc[frame["published"].isna(), "claim"].unique())
    for study in studies:
        frame = require(study.published, COLUMNS)
        claims: dict[tuple[str, ...], list[Mapping[Hashable, Any]]] = {}
        many = group_claims(frame)
        for position, row in enumerate(frame[frame["published"].isna()].to_dict("records")):
            key = tuple(str(row[name]) for name in ("claim", "source", "quantity", "published_text"))
            claims.setdefault(key if key in many else (*key, str(position)), []).append(row)
        for rows in claims.values():
            study_note = f"study {study.name}" if n_studies[rows[0]["claim"]] > 1 else ""
            yield _row(rows, f"study-{study.name}", study_note)


def _row(rows: Sequence[Mapping[Hashable, Any]], section: str, study_note: str) -> Verdict:
    first = rows[0]
    paper = cite(str(first["figure"])).partition(",")[0]
    verdicts = [str(row["verdict"]) for row in rows]
    claim = str(first["claim"])
    if subject := ", ".join(filter(None, [name_subject(first) if len(rows) == 1 else "", study_note])):
        claim = f"{claim} ({subject})"
    common = verdicts[0] if len(set(verdicts)) == 1 else "undecided"
    return Verdict(
        claim,
        f"{paper}, {first['source']}" if is_present(first["source"]) else paper,
        common.replace(" ", "-"),
        verdicts[0] if len(rows) == 1 else list_counts(verdicts),
        _effect(first) if len(rows) == 1 else f"{len(rows)} models, each in its section",
        f"{int(first['n']):,}" if len(rows) == 1 and is_present(first["n"]) else "",
        section,
    )


def _effect(row: Mapping[Hashable, Any]) -> str:
    """Return the measured value with its interval, in words and numbers."""
    if not is_present(row["measured"]):
        return ""
    quantity = QUANTITIES.get(row["quantity"], str(row["quantity"]).replace("_", " "))
    text = f"{quantity} {format_number(row['measured'])}"
    if is_present(row["low"]) and is_present(row["high"]):
        text += f" [{format_number(row['low'])}, {format_number(row['high'])}]"
    return text

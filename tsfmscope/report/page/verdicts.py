"""Comparison of papers with measurements: claims as sentences and as a table, printed numbers as a section."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tsfmscope.report.page import sections
from tsfmscope.report.page.sections import ClaimSentence, Section, TableBlock, build_table
from tsfmscope.report.page.texts import TEXTS
from tsfmscope.report.tables import Answer, ReportTables, StudyTables, require

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "figure", "claim", "source", "model", "dataset", "condition", "quantity", "published", "published_text", "measured",
    "low", "high", "n", "p", "detectable", "comparable", "verdict", "why", "note", "run",
)  # fmt: skip
# Verdict as in the view `published_vs_measured` -> phrases after a count of one and of several.
VERDICTS = {
    "agrees": ("agrees", "agree"),
    "differs": ("differs", "differ"),
    "no effect": ("shows no effect", "show no effect"),
    "undecided": ("is undecided", "are undecided"),
    "not comparable": ("cannot be compared", "cannot be compared"),
    "not measured": ("was not measured", "were not measured"),
}
# First word of a study's figure -> the paper.
PAPERS = {"isotropy": "Shelim et al. 2025", "ranks": "Yu et al. 2026"}
# Columns that identify a claim; rows with equal values are one claim, tested on several models.
CLAIM = ("claim", "source", "quantity", "published_text")
# Largest number of models for which a claim gets one sentence per model; with more, one sentence
# covers all.
FEW = 3
NAME = "printed"
SHOWN = ["figure", "number", "model", "published", "ours", "interval", "verdict", "why"]


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


def describe_claims(published: pd.DataFrame) -> list[ClaimSentence]:
    """Return one sentence per tested claim whose direction alone is printed.

    A claim that was tested on more than FEW models gets one sentence for all of them.
    """
    rows = published[published["published"].isna()]
    groups, done = group_claims(published), set()
    sentences = []
    for row in rows.to_dict("records"):
        key = tuple(str(row[name]) for name in CLAIM)
        if key not in groups:
            sentences.append(ClaimSentence(str(row["verdict"]).replace(" ", "-"), describe_claim(row)))
        elif key not in done:
            done.add(key)
            sentences.append(_describe_group(groups[key]))
    return sentences


def group_claims(published: pd.DataFrame) -> dict[tuple[str, ...], list[dict[Hashable, Any]]]:
    """Return claims whose direction alone is printed, tested on more than FEW models: key -> rows."""
    groups: dict[tuple[str, ...], list[dict[Hashable, Any]]] = {}
    for row in published[published["published"].isna() & published["model"].notna()].to_dict("records"):
        groups.setdefault(tuple(str(row[name]) for name in CLAIM), []).append(row)
    return {key: rows for key, rows in groups.items() if len(rows) > FEW}


def _describe_group(rows: Sequence[Mapping[Hashable, Any]]) -> ClaimSentence:
    """Return one sentence for all models of a claim: counts by verdict, and each model's number.

    The verdict is the common one, or "undecided" if the models' verdicts differ. Raises ValueError for an
    unknown verdict.

    Example: Yu et al. 2026 (section 4): rank grows with depth (slope > 0). Of 4 models here 3 agree (a 0.2, b 0.1,
    c 0.3), 1 is undecided (d 0.01).
    """
    for row in rows:
        _check_verdict(row)
    named: dict[str, list[str]] = {verdict: [] for verdict in VERDICTS}
    for row in rows:
        measured = format_number(row["measured"]) if is_present(row["measured"]) else "–"
        named[row["verdict"]].append(f"{row['model']} {measured}")
    found = {verdict: models for verdict, models in named.items() if models}
    parts = [f"{len(names)} {VERDICTS[one][len(names) != 1]} ({', '.join(names)})" for one, names in found.items()]
    verdict = next(iter(found)).replace(" ", "-") if len(found) == 1 else "undecided"
    return ClaimSentence(verdict, f"{_describe_source(rows[0])} Of {len(rows)} models here {', '.join(parts)}.")


def describe_claim(row: Mapping[Hashable, Any]) -> str:
    """Return a sentence with the paper's claim, the measured value, the verdict and its reason, if any.

    Raises ValueError for an unknown verdict.

    Example: Shelim et al. 2025 (section 5.1): isotropy is lower … (share < 0.5). Here: 0.4 (95 % interval 0.2 to 0.6;
    n = 10; p = 0.3): undecided, because p is above 0.05.
    """
    _check_verdict(row)
    subject, measured = name_subject(row), "nothing measured"
    if is_present(row["measured"]):
        measured = f"{format_number(row['measured'])}{format_evidence(row)}"
    has_reason = is_present(row["why"]) and row["verdict"] in ("no effect", "undecided", "not comparable")
    because = f", because {row['why']}" if has_reason else ""
    here = f"Here{f' ({subject})' if subject else ''}: {measured}: {row['verdict']}{because}."
    return f"{_describe_source(row)} {here}"


def name_subject(row: Mapping[Hashable, Any]) -> str:
    """Return model, data set and condition that a row is about, with commas."""
    return ", ".join(str(row[name]) for name in ("model", "dataset", "condition") if is_present(row[name]))


def _check_verdict(row: Mapping[Hashable, Any]) -> None:
    if row["verdict"] not in VERDICTS:
        raise ValueError(f"verdict: got {row['verdict']!r}, expected one of {', '.join(VERDICTS)}")


def _describe_source(row: Mapping[Hashable, Any]) -> str:
    """Return the paper's claim with its source and the tested quantity."""
    source = f" ({row['source']})" if is_present(row["source"]) else ""
    quantity = TEXTS["quantities"].get(row["quantity"], str(row["quantity"]).replace("_", " "))
    printed = f" ({quantity} {row['published_text'].replace('-', '−')})" if is_present(row["published_text"]) else ""
    return f"{cite(str(row['figure'])).partition(',')[0]}{source}: {_uncapitalise(str(row['claim']))}{printed}."


def cite(figure: str) -> str:
    """Return paper and place of a study's figure: "ranks Fig. 5" is "Yu et al. 2026, Fig. 5"."""
    subject, _, place = figure.partition(" ")
    paper = PAPERS.get(subject, subject)
    return f"{paper}, {place}" if place else paper


def tabulate_numbers(published: pd.DataFrame) -> pd.DataFrame:
    """Return a table of the printed numbers next to ours, with short reasons and without empty columns."""
    rows = published[published["published"].notna()]
    columns = ["figure", "number", "model", "dataset", "condition", "published_text", "measured", "interval"]
    columns += ["n", "verdict", "why"]
    intervals: Sequence[Any] = [_interval(row) for row in rows.to_dict("records")]
    reasons: Sequence[Any] = ["; ".join(_reasons(why)) if is_present(why) else None for why in rows["why"]]
    names = rows["claim"].str.replace("zeta_adjusted", "ζ′").str.replace("nmse", "NMSE")
    printed = rows["published_text"].str.replace("-", "−")
    table = rows.assign(number=names, interval=intervals, why=reasons, published_text=printed)[columns]
    table = table.rename(columns={"published_text": "published", "measured": "ours"})
    return table.dropna(axis=1, how="all").reset_index(drop=True)


def count_verdicts(published: pd.DataFrame) -> str:
    """Summarise the verdicts on the printed numbers in one or two sentences; empty if there are none.

    A printed number counts once for every model that it is compared with.
    """
    rows = published[published["published"].notna()]
    if rows.empty:
        return ""
    is_measured, is_comparable = rows["verdict"] != "not measured", rows["comparable"].astype(bool)
    n_missing, measured, comparable = int((~is_measured).sum()), rows[is_measured], rows[is_measured & is_comparable]
    sentences = []
    if len(measured):
        text = f"{len(comparable)} of {_count(len(measured), 'printed number')} next to ours can be compared"
        text += f": {list_counts(comparable['verdict'])}" if len(comparable) else ""
        whys = filter(is_present, rows.loc[is_measured & ~is_comparable, "why"])
        if reasons := [reason for why in whys for reason in _reasons(why)]:
            text += (". The others: " if len(comparable) else ": ") + _count_each(reasons)
        sentences.append(f"{text}.")
    if n_missing:
        verb = VERDICTS["not measured"][n_missing != 1]
        sentences.append(f"{_count(n_missing, 'printed number')} {verb} here.")
    return " ".join(sentences)


def _count_each(texts: Iterable[str]) -> str:
    """Return each text with its count, the most frequent first."""
    counts = sorted(Counter(texts).items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{text} ({n})" for text, n in counts)


def list_counts(verdicts: Iterable[str]) -> str:
    """Return how often each verdict occurs, such as "3 agree, 1 is undecided"; empty without verdicts."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[name]} {words[counts[name] != 1]}" for name, words in VERDICTS.items() if counts[name])


def _interval(row: Mapping[Hashable, Any]) -> str | None:
    """Return the ends of the interval as text; without an interval, the note on why, or None."""
    if has_interval(row):
        return f"{format_number(row['low'])} to {format_number(row['high'])}"
    return str(row["note"]).replace("no interval:", "none:").replace("-", "−") if is_present(row["note"]) else None


def _reasons(why: str) -> list[str]:
    """Return the short reasons. Text after the first colon is free-form detail and is dropped."""
    return why.partition(":")[0].split("; ")


def format_number(value: float) -> str:
    """Format a number with at most three significant figures and a true minus sign."""
    return f"{float(value):.3g}".replace("-", "−")


def format_evidence(row: Mapping[Hashable, Any]) -> str:
    """Return interval, n and p in brackets, leaving out what is missing; empty if all are missing."""
    parts = []
    if has_interval(row):
        parts.append(f"95 % interval {format_number(row['low'])} to {format_number(row['high'])}")
    if is_present(row["n"]):
        parts.append(f"n = {int(row['n']):,}")
    if is_present(row["p"]):
        parts.append(f"p = {float(row['p']):.2g}")
    return f" ({'; '.join(parts)})" if parts else ""


def has_interval(row: Mapping[Hashable, Any]) -> bool:
    """Return whether a row has both ends of an interval."""
    return is_present(row["low"]) and is_present(row["high"])


def is_present(value: Any) -> bool:
    """Return whether a value is present: neither None, NA, NaN nor an empty string."""
    missing = value is None or str(value) in ("", "<NA>") or (isinstance(value, float) and math.isnan(value))
    return not missing


def _uncapitalise(text: str) -> str:
    """Return the text for use inside a sentence: no capital at the start, no full stop at the end.

    The capital stays unless a lower-case letter or a space follows it, so that abbreviations are kept.
    """
    text = text.strip().removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


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
    quantity = TEXTS["quantities"].get(row["quantity"], str(row["quantity"]).replace("_", " "))
    text = f"{quantity} {format_number(row['measured'])}"
    if has_interval(row):
        text += f" [{format_number(row['low'])}, {format_number(row['high'])}]"
    return text


def is_shown(tables: ReportTables) -> bool:
    """Return whether to show the section of printed numbers.

    True if a study reproduces a paper's figure, or if any printed number has a measured counterpart.
    """
    frame = require(tables.printed, COLUMNS)
    return any(study.figure for study in tables.studies) or bool((frame["verdict"] != "not measured").any())


def build_section(answer: Answer) -> Section:
    """Build the section: the table in the order of the figures, a summary, and the runs still needed."""
    frame = require(answer, COLUMNS)
    table = tabulate_numbers(frame)
    shown = table[[name for name in SHOWN if name in table]]
    blocks = (TableBlock(NAME, answer.title, build_table(shown)),) if len(shown) else ()
    notes = (
        (count_verdicts(frame), TEXTS["intervals"], *describe_runs(frame["run"].dropna().tolist()))
        if len(frame)
        else ()
    )
    return replace(sections.build_section(NAME, answer, TEXTS["leads"][NAME]), tables=blocks, notes=notes)


def describe_runs(runs: list[str]) -> list[str]:
    """Return one sentence on the runs that would make numbers comparable, most frequent first.

    runs: the run that each number needs, one entry per number. Empty without runs.
    """
    counts = _count_each(f"“{run}”" for run in runs)
    return [f"Runs that would make numbers comparable, with their count: {counts}."] if runs else []

"""The second page: how the results were made, namely runs, failures, skipped inputs, training and versions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import altair as alt

from tsfmscope.report import style
from tsfmscope.report.page import layout
from tsfmscope.report.page.sections import Figure, Section, build_section, build_table, list_rows
from tsfmscope.report.style import COLOURS, Chart
from tsfmscope.report.tables import Answer, ReportTables, order_models, require

if TYPE_CHECKING:
    import pandas as pd

# File of the page, next to report.html.
NAME = "run.html"
# Column of the answer `runs`.
STARTED = "started"
LOSSES = ("model", "step", "loss")
SKIPPED = (
    "Series, data sets and models that were requested but left out. n counts series unless the reason names something "
    "else."
)


def render(tables: ReportTables, outs: Mapping[str, str] | None = None) -> str:
    """Render the page. Deterministic: the same arguments give the same text.

    outs: path -> MD5 of each input of the page, as listed in dvc.lock.
    Raises ValueError if an answer lacks a column.
    """
    return layout.render(
        "run.html.j2",
        tables=tables,
        date=find_date(tables.runs.frame),
        sections=list(_sections(tables)),
        provenance=list_provenance(tables.runs.frame, outs or {}),
        outs=outs or {},
    )


def find_date(runs: pd.DataFrame) -> str:
    """Return the day on which the newest stage started; empty if it is not known."""
    return str(runs[STARTED].max())[:10] if STARTED in runs and len(runs) else ""


def list_provenance(runs: pd.DataFrame, outs: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (name, value) pairs on the origin of the numbers, such as commit, hardware and versions.

    Values that differ between stages are all listed.
    """
    facts = []
    for column in ("commit", "hardware", "seed"):
        values = sorted({str(v) for v in runs.get(column, []) if v is not None})
        facts.append((column, ", ".join(values) or "unknown"))
    versions: dict[str, set[str]] = {}
    for text in runs.get("versions", []):
        for package, version in (json.loads(text) if text else {}).items():
            versions.setdefault(package, set()).add(str(version))
    facts.append(
        ("versions", ", ".join(f"{p} {' / '.join(sorted(v))}" for p, v in sorted(versions.items())) or "unknown")
    )
    facts.append(("seconds", f"{float(runs['seconds'].sum()):,.0f} in all stages' last runs"))
    facts.append(("DVC lock", _lock(outs)))
    return facts


def _lock(outs: Mapping[str, str]) -> str:
    """Return one SHA-256 over the listed outs, so that two pages of the same data show the same hash."""
    if not outs:
        return "none: the stages were not run by DVC"
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(outs.items()))
    return f"sha256 {hashlib.sha256(lines.encode()).hexdigest()} over {len(outs)} outs in dvc.lock"


def _sections(tables: ReportTables) -> Iterator[Section]:
    yield _runs(tables.runs)
    yield list_rows("failures", tables.failures, "Failed jobs by stage and error.", empty="No job failed.")
    yield list_rows("skipped", tables.skipped, SKIPPED, empty="Nothing was skipped.")
    yield _training(tables.training, order_models(tables))
    yield _checkpoints(tables.checkpoints)


def _checkpoints(answer: Answer) -> Section:
    frame, lead = require(answer, ("model", "snapshots")), "Source of the weights of each model."
    if n_snapshots := int(frame["snapshots"].sum()):
        lead += f" The {n_snapshots:,} snapshots of the population before the end of a training have no row here; the "
        lead += "table population lists them. They are also left out of the other tables of single models and of "
        lead += "`dvc plots`."
    shown = frame if n_snapshots else frame.drop(columns="snapshots")
    return build_section("checkpoints", answer, lead, table=build_table(shown))


def _runs(answer: Answer) -> Section:
    left_out = ["versions", "hardware", "commit", "host"]
    shown = require(answer, ("stage", "seconds", STARTED)).drop(columns=left_out, errors="ignore")
    table = build_table(shown.assign(**{STARTED: shown[STARTED].astype(str).str.slice(0, 19)}))
    return build_section("runs", answer, "Seconds of each stage, and its jobs: new, reused and failed.", table=table)


def _training(answer: Answer, named: list[str]) -> Section:
    frame = require(answer, LOSSES)
    n_models, lead = frame["model"].nunique(), "Training loss of the checkpoints that this project trains."
    words = f"Line chart of training loss by step for {n_models} models, relative to the first logged loss."
    caption = "Each family has its own loss; lines show the ratio to its first value."
    shown = (Figure("training", draw_training(frame, models=named), words, caption),) if len(frame) else ()
    return build_section("training", answer, lead, figures=shown, empty="No model was trained in this run.")


def draw_training(frame: pd.DataFrame, models: Sequence[str] = ()) -> Chart:
    """Draw the training loss by step, one line per model, each divided by its first value.

    The losses of different families have different units. models: the models of the whole page, which
    determine the colours; training recipes with other names come after them.
    """
    order = [*models, *(name for name in style.distinct_values(frame, "model") if name not in models)]
    colours = {name: COLOURS[order.index(name) % len(COLOURS)] for name in order if name in set(frame["model"])}
    rows = frame.sort_values("step", kind="stable").astype({"loss": float})
    rows = rows.assign(relative=rows["loss"] / rows.groupby("model")["loss"].transform("first"))
    line = alt.Chart(rows).mark_line().encode(
        x=alt.X("step:Q", title="step"),
        y=alt.Y("relative:Q", **style.make_log_axis("loss ÷ first logged loss", rows["relative"])),
        stroke=style.encode_stroke("model", colours), strokeDash=style.encode_dash("model", list(colours)),
        **style.encode_tip("model"),
    )  # fmt: skip
    return line.properties(width=style.WIDTHS[1], height=320)

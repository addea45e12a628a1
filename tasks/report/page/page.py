"""The report: one self-contained HTML file that makes no network requests."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING

from tsfmscope.tasks.report import advice, theory
from tsfmscope.tasks.report.charts import figures
from tsfmscope.tasks.report.page import published, studies
from tsfmscope.tasks.report.page.html_table import build_table
from tsfmscope.tasks.report.page.introduction import DEFINITIONS, PAPERS
from tsfmscope.tasks.report.page.sections import Figure, Section, build_section
from tsfmscope.tasks.report.page.summary import describe_small_models, summarise
from tsfmscope.tasks.report.page.verdict_table import list_verdicts
from tsfmscope.tasks.report.tables import Answer, ReportTables, require

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# Column of the answer `runs`.
STARTED = "started"
POINTS = ("model", "dataset", "condition", *figures.AXES, "nmse")
LOSSES = ("model", "step", "loss")
MODELS = ("model", "parameters", "zeta_adjusted_corrected", "dimension_share", "rank_share_first", "rank_share_last")
SKILL = (
    "Sine error: absolute error of the median on noiseless sines of period 24, relative to forecasting zero. 0 is "
    "exact; at 1 a model does not continue a period. The other columns are for models pretrained here: WQL (pooled "
    "over windows) divided by that of two point forecasts, geometric mean over data sets, on windows that no "
    "checkpoint was trained on. Below 1 the model is better; low and high are 95 % bootstrap limits. Point seasonal "
    "naive repeats the last season, or the last value of a data set without seasons."
)
ALIGNMENT = (
    "Theorem 2: overlap in [0, 1] between the query or key space of every self-attention head and the same number of "
    "leading directions of its input, mean over heads and activation files. z is the distance from chance in standard "
    "deviations of a random space. A head has one pair of matrices, so further data sets are no further evidence. "
    "Heads with rotary embeddings are left out."
)
PARTITION = (
    "Section 3 of Shelim et al. 2025 assumes a stable partition function. The table shows log Z of the logits, in "
    "nats, over teacher-forced forecast positions, next to isotropy and error. Only softmax heads have logits."
)
LEMMA_1 = (
    "Norm of the Jacobian of attention on real heads and inputs, against three bounds: as printed; with the term of "
    "Appendix B that the statement omits; and one that is proved, which the norm must never exceed. Shares are norm ÷ "
    "bound."
)
NO_HEADS = "No model of this run has such heads."
SKIPPED = (
    "Series, data sets and models that were requested but left out. n counts series unless the reason names something "
    "else."
)


def render(tables: ReportTables, pngs: Mapping[str, bytes] | None = None, outs: Mapping[str, str] | None = None) -> str:
    """Render the page. Deterministic: the same arguments give the same text.

    pngs: study, or section on theory -> PNG of its figures, shown in print and without JavaScript.
    outs: path -> MD5 of each input of the page, as listed in dvc.lock.
    Raises ValueError if an answer lacks a column.
    """
    import jinja2
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    here = files("tsfmscope.tasks.report.page")
    scripts = {"plotly": _inline(get_plotlyjs()), "page": _inline(here.joinpath("page.js").read_text("utf-8"))}
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(here.joinpath("page.html.j2").read_text("utf-8"))
    return template.render(
        tables=tables,
        summary=summarise(tables),
        verdicts=list(list_verdicts(tables.studies)),
        models=build_table(require(tables.models, MODELS)),
        papers=PAPERS,
        definitions=DEFINITIONS,
        date=_date(tables.runs.frame),
        studies=list(_studies(tables, pngs or {})),
        sections=list(_sections(tables, pngs or {})),
        runs=_runs(tables.runs),
        provenance=_provenance(tables.runs.frame, outs or {}),
        outs=outs or {},
        style=Markup(here.joinpath("page.css").read_text("utf-8")),
        scripts={name: Markup(text) for name, text in scripts.items()},
        hashes=" ".join(_hash(text) for text in scripts.values()),
    )


def order_models(tables: ReportTables) -> list[str]:
    """Return every model in the order that assigns colours and symbols.

    Colours and symbols are few and repeat. The models of the main scatter plot therefore come first, then the
    others. In both groups, models derived from another (with @ in the name) come last.
    """
    main = set(tables.nmse_against_isotropy.frame["model"])
    return sorted(tables.checkpoints.frame["model"], key=lambda name: (name not in main, "@" in name, name))


def _studies(tables: ReportTables, pngs: Mapping[str, bytes]) -> Iterator[Section]:
    for study in tables.studies:
        frames = [answer.frame for answer in study.answers.values()]
        used = {str(name) for frame in frames if "model" in frame for name in frame["model"]}
        notes = describe_small_models(tables.checkpoints.frame, used) if study.figure else []
        yield studies.build_section(study, order_models(tables), notes, pngs.get(study.name))


def _sections(tables: ReportTables, pngs: Mapping[str, bytes]) -> Iterator[Section]:
    if published.is_shown(tables):
        yield published.build_section(tables.printed)
    yield _correlation(tables.correlation)
    yield advice.build_section(tables.advice)
    yield _scatter(tables.nmse_against_isotropy, order_models(tables))
    yield _list_rows("alignment", tables.alignment, ALIGNMENT, empty=NO_HEADS)
    yield _list_rows("partition", tables.partition, PARTITION, empty=NO_HEADS)
    yield _list_rows("lemma1", tables.lemma1, LEMMA_1, empty=NO_HEADS)
    yield from theory.build_sections(tables, pngs)
    yield _list_rows("skill", tables.skill, SKILL)
    yield _training(tables.training, order_models(tables))
    yield _list_rows("checkpoints", tables.checkpoints, "Source of the weights of each model.")
    yield _list_rows("skipped", tables.skipped, SKIPPED, empty="Nothing was skipped.")
    yield _list_rows("failures", tables.failures, "Failed jobs by stage and error.", empty="No job failed.")


def _correlation(answer: Answer) -> Section:
    frame = require(answer, ("measure", "grouping", "n", "spearman"))
    lead = (
        "Rank correlations of isotropy measures with forecast error. The rows within data sets compare models on the "
        "same data. Pooled rows mix easy and hard data sets and are no evidence."
    )
    return build_section("correlation", answer, lead, table=build_table(frame))


def _scatter(answer: Answer, named: list[str]) -> Section:
    frame = require(answer, POINTS)
    drawable = len(figures.select_drawable(frame))
    lead = (
        "One point per model, data set and condition. Hover over a point, or tap it, to read it; tap the legend to "
        "filter."
    )
    caption = "Thin lines join the models of one data set." + figures.describe_undrawable(len(frame), drawable)
    alt = (
        f"Scatter plot of NMSE against the distance of ζ′ from its null mean, {drawable} points, both axes logarithmic."
    )
    shown = _draw(
        "nmse_against_isotropy", frame, partial(figures.draw_nmse_against_isotropy, models=named), alt, caption
    )
    return build_section("nmse_against_isotropy", answer, lead, figures=shown)


def _training(answer: Answer, named: list[str]) -> Section:
    frame = require(answer, LOSSES)
    alt = (
        f"Line chart of training loss by step for {frame['model'].nunique()} models, relative to the first logged loss."
    )
    caption = "Each family has its own loss; lines show the ratio to its first value."
    shown = _draw("training", frame, partial(figures.draw_training, models=named), alt, caption)
    return build_section(
        "training",
        answer,
        "Training loss of the checkpoints that this project trains.",
        figures=shown,
        empty="No model was trained in this run.",
    )


def _list_rows(name: str, answer: Answer, lead: str, *, empty: str = "No rows.") -> Section:
    return build_section(name, answer, lead, table=build_table(answer.frame), empty=empty)


def _draw(
    name: str, frame: pd.DataFrame, draw: Callable[[pd.DataFrame], go.Figure], alt: str, caption: str
) -> tuple[Figure, ...]:
    """Draw a frame as one figure; return an empty tuple if the frame is empty."""
    return (Figure(name, draw(frame), alt, caption),) if len(frame) else ()


def _runs(answer: Answer) -> Section:
    shown = require(answer, ("stage", "seconds")).drop(
        columns=["versions", "hardware", "commit", "host"], errors="ignore"
    )
    table = build_table(
        shown.assign(**{STARTED: shown[STARTED].astype(str).str.slice(0, 19)}) if STARTED in shown else shown
    )
    return build_section("runs", answer, "Last run of each stage.", table=table)


def _provenance(runs: pd.DataFrame, outs: Mapping[str, str]) -> list[tuple[str, str]]:
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


def _date(runs: pd.DataFrame) -> str:
    """Return the day on which the newest stage started; empty if it is not known."""
    return str(runs[STARTED].max())[:10] if STARTED in runs and len(runs) else ""


def _lock(outs: Mapping[str, str]) -> str:
    """Return one SHA-256 over the listed outs, so that two pages of the same data show the same hash."""
    if not outs:
        return "none: the stages were not run by DVC"
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(outs.items()))
    return f"sha256 {hashlib.sha256(lines.encode()).hexdigest()} over {len(outs)} outs in dvc.lock"


def _inline(script: str) -> str:
    """Return a script as the text of a script element, with any closing tag in it escaped."""
    if "</script" in script.lower():
        script = script.replace("</script", "<\\/script")
    return "\n" + script.strip("\n") + "\n"


def _hash(script: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"

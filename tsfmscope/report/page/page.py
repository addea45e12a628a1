"""The report: one self-contained HTML file that makes no network requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tsfmscope.report import advice, scatter, theory
from tsfmscope.report.page import layout, studies, verdicts
from tsfmscope.report.page.run_page import find_date, list_provenance
from tsfmscope.report.page.sections import Figure, Section, build_section, build_table, list_rows
from tsfmscope.report.page.summary import Part, describe_small_models, summarise
from tsfmscope.report.page.texts import TEXTS
from tsfmscope.report.plots import load_plot
from tsfmscope.report.tables import Answer, ReportTables, StudyTables, order_models, require

POINTS = ("model", "dataset", "condition", *scatter.AXES, "nmse")
# Columns of the table of models: errors on real data sets, and errors on unseen windows.
ON_REAL = ("n_real", "real_wql", "real_low", "real_high", "real_mae")
ON_UNSEEN = ("n_datasets", "wql_vs_seasonal", "seasonal_low", "seasonal_high")
MODELS = (
    "model", "parameters", *ON_REAL, *ON_UNSEEN, "zeta_adjusted_corrected", "isoscore", "dimension_share",
    "rank_share_first", "rank_share_last",
)  # fmt: skip
NO_HEADS = "No model of this run has such heads."
# Facts of `list_provenance` that the page shows; run.html shows all.
ORIGIN = ("commit", "hardware", "DVC lock")
OWN = Part("own", "Your own studies", ["Studies of params.yaml that reproduce no figure of a paper."])


@dataclass(frozen=True)
class Question:
    """One question of the page. answer: sentences under the title; name: its id."""

    name: str
    title: str
    answer: tuple[str, ...]
    sections: tuple[Section, ...]


def render(tables: ReportTables, outs: Mapping[str, str] | None = None) -> str:
    """Render the page. Deterministic: the same arguments give the same text.

    outs: path -> MD5 of each input of the page, as listed in dvc.lock.
    Raises ValueError if an answer lacks a column.
    """
    summary = summarise(tables)
    questions = list(list_questions(summary, list(_studies(tables)), _sections(tables)))
    return layout.render(
        "report.html.j2",
        tables=tables,
        caution=[sentence for part in summary if not part.question for sentence in part.sentences],
        verdicts=list(verdicts.list_verdicts(tables.studies)),
        models=_models(tables.models),
        papers=TEXTS["papers"],
        definitions=TEXTS["definitions"].items(),
        date=find_date(tables.runs.frame),
        questions=questions,
        sections=[section for question in questions for section in question.sections],
        provenance=[(name, fact) for name, fact in list_provenance(tables.runs.frame, outs or {}) if name in ORIGIN],
    )


def _models(answer: Answer) -> Section:
    frame = require(answer, MODELS)
    # Error on real data sets replaces that on unseen windows, which models without a recipe do not have.
    unused = ON_UNSEEN if frame["real_wql"].notna().any() else ON_REAL
    return build_section("models", answer, TEXTS["leads"]["models"], table=build_table(frame.drop(columns=[*unused])))


def _studies(tables: ReportTables) -> Iterator[tuple[StudyTables, Section]]:
    for study in tables.studies:
        frames = [answer.frame for answer in study.answers.values()]
        used = {str(name) for frame in frames if "model" in frame for name in frame["model"]}
        notes = describe_small_models(tables.checkpoints.frame, used) if study.figure else []
        yield study, studies.build_section(study, order_models(tables), notes)


def _sections(tables: ReportTables) -> dict[str, list[Section]]:
    """Return part of the summary -> its sections that belong to no study."""
    compared = [verdicts.build_section(tables.printed)] if verdicts.is_shown(tables) else []
    return {
        "isotropy": [
            _scatter(tables.nmse_against_isotropy, order_models(tables)),
            _list("correlation", tables.correlation),
            *_list_if_any("population_correlation", tables.population_correlation),
            *_list_if_any("hypothesis_tests", tables.hypothesis_tests),
            advice.build_section(tables.advice),
            _list("partition", tables.partition, NO_HEADS),
        ],
        "theorems": [
            *theory.build_sections(tables),
            _list("alignment", tables.alignment, NO_HEADS),
            _list("lemma1", tables.lemma1, NO_HEADS),
        ],
        "trust": [
            _list("skill", tables.skill),
            *_list_if_any("mean_skill", tables.mean_skill),
            *_list_if_any("dataset_skill", tables.dataset_skill),
            *compared,
        ],
    }


def _list(name: str, answer: Answer, empty: str = "No rows.") -> Section:
    return list_rows(name, answer, TEXTS["leads"][name], empty=empty)


def _list_if_any(name: str, answer: Answer) -> list[Section]:
    return [_list(name, answer)] if len(answer.frame) else []


def _scatter(answer: Answer, named: list[str]) -> Section:
    frame = require(answer, POINTS)
    drawable = len(scatter.select_drawable(frame))
    name, lead = "nmse_against_isotropy", "One point per model, data set and condition."
    caption = "Thin lines join the models of one data set." + scatter.NOT_EVENNESS
    caption += scatter.describe_undrawable(len(frame), drawable)
    words = "Scatter plot of NMSE against the distance of ζ′ from its null mean, "
    words += f"{drawable} points, both axes logarithmic."
    chart = scatter.draw_nmse_against_isotropy(frame, models=named)
    figures = (Figure(name, chart, words, caption),) if drawable else ()
    return build_section(name, answer, lead, figures=figures)


def list_questions(
    parts: Iterable[Part], studies: Sequence[tuple[StudyTables, Section]], others: Mapping[str, Sequence[Section]]
) -> Iterator[Question]:
    """Yield the questions that have an answer, a study or rows; a user's own studies come first.

    The sections of own studies are open. Of another question only the first section with rows is open.

    parts: questions and answers from the summary.
    studies: every study with its section, in the order of the page.
    others: name of a part -> its sections that belong to no study.
    """
    own = tuple(section for study, section in studies if study.is_own)
    if own:
        yield Question(OWN.name, OWN.question, tuple(OWN.sentences), own)
    for part in parts:
        about = {study.name for study, _ in studies if not study.is_own and load_plot(study.plot).topic == part.name}
        chosen = [section for study, section in studies if study.name in about]
        sections = [*chosen, *others.get(part.name, ())]
        if part.question and (part.sentences or chosen or any(section.rows for section in sections)):
            yield Question(part.name, part.question, tuple(part.sentences), tuple(_fold(sections)))


def _fold(sections: Sequence[Section]) -> Iterator[Section]:
    """Yield the sections, folded except the first that has rows."""
    opened = next((section for section in sections if section.rows), None)
    for section in sections:
        yield replace(section, folded=section is not opened)

"""The report: one self-contained HTML file that makes no network requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tsfmscope.report import advice, scatter, theory
from tsfmscope.report.page import layout, studies, verdicts
from tsfmscope.report.page.run_page import find_date, list_provenance
from tsfmscope.report.page.sections import Figure, Section, build_section, build_table, list_rows
from tsfmscope.report.page.summary import Part, describe_small_models, summarise
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
CORRELATION = (
    "Rank correlations of isotropy measures with forecast error. The rows within data sets compare models on the "
    "same data. Pooled rows mix easy and hard data sets and are no evidence."
)
GLANCE = (
    "Errors: geometric means over the data sets whose number stands before them; low and high are the 95 % interval of "
    "WQL. Your own data sets count only if checkpoints.skill names them. ζ′ − null, IsoScore and d(0.8) ÷ width: last "
    "layer, means over the data sets of the main study."
)
SKILL = (
    "Sine error: absolute error of the median on noiseless sines of period 24, relative to forecasting zero. 0 is "
    "exact; at 1 a model does not continue a period. The largest error is that of the worst of twelve periods from 3 "
    "to 168 steps. The other columns are for models pretrained here: WQL (pooled "
    "over windows) divided by that of two point forecasts, geometric mean over data sets, on windows that no "
    "checkpoint was trained on. Below 1 the model is better; low and high are 95 % bootstrap limits. Point seasonal "
    "naive repeats the last season (7 days, 52 weeks, 24 hours, 12 months), or the last value where there is none."
)
MEAN_SKILL = (
    "WQL and MAE of the last window of every series, divided by those of point seasonal naive, which repeats the last "
    "season (the table below has its steps), geometric mean over data sets; below 1 the model is better. Low and high "
    "are 95 % bootstrap limits over data sets, absent for fewer than six. Data sets that a model was trained on "
    "are left out. Local baselines are fitted to every context."
)
DATASET_SKILL = (
    "The data sets of the table above, one row per model or local baseline. Where the season is 1, seasonal naive "
    "repeats the last value."
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
POPULATION = (
    "Mean rank correlation of isotropy with the error on the exploring half of the data sets: across the last weights "
    "of all trainings, inside families, across seeds of one architecture, and over the snapshots of a training given "
    "its validation loss. Isotropy is the measure of each row; ζ′ − null does not show how evenly directions are used, "
    "so read the rows of IsoScore too. Negative: more isotropic, less error. A correlation as large as detectable "
    "would have been found with a probability of 80 %, if the permuted trainings are exchangeable."
)
HYPOTHESES = (
    "Claims that were committed before isotropy and error were correlated on the other half of the data sets. A claim "
    "holds or is reversed if p, adjusted over the claims, is at most the significance level. If no effect was found, "
    "one as large as detectable would have been found with a probability of 80 %, if the permuted trainings are "
    "exchangeable."
)
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
        papers=layout.PAPERS,
        definitions=layout.DEFINITIONS,
        date=find_date(tables.runs.frame),
        questions=questions,
        sections=[section for question in questions for section in question.sections],
        provenance=[(name, fact) for name, fact in list_provenance(tables.runs.frame, outs or {}) if name in ORIGIN],
    )


def _models(answer: Answer) -> Section:
    frame = require(answer, MODELS)
    # Error on real data sets replaces that on unseen windows, which models without a recipe do not have.
    unused = ON_UNSEEN if frame["real_wql"].notna().any() else ON_REAL
    return build_section("models", answer, GLANCE, table=build_table(frame.drop(columns=[*unused])))


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
            list_rows("correlation", tables.correlation, CORRELATION),
            *_list_if_any("population_correlation", tables.population_correlation, POPULATION),
            *_list_if_any("hypothesis_tests", tables.hypothesis_tests, HYPOTHESES),
            advice.build_section(tables.advice),
            list_rows("partition", tables.partition, PARTITION, empty=NO_HEADS),
        ],
        "theorems": [
            *theory.build_sections(tables),
            list_rows("alignment", tables.alignment, ALIGNMENT, empty=NO_HEADS),
            list_rows("lemma1", tables.lemma1, LEMMA_1, empty=NO_HEADS),
        ],
        "trust": [
            list_rows("skill", tables.skill, SKILL),
            *_list_if_any("mean_skill", tables.mean_skill, MEAN_SKILL),
            *_list_if_any("dataset_skill", tables.dataset_skill, DATASET_SKILL),
            *compared,
        ],
    }


def _list_if_any(name: str, answer: Answer, lead: str) -> list[Section]:
    return [list_rows(name, answer, lead)] if len(answer.frame) else []


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

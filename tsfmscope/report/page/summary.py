"""Summary at the top of the page: plain sentences generated from the numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tsfmscope.report.page import hypotheses, rank_summary, verdicts
from tsfmscope.report.page.published import is_shown
from tsfmscope.report.plot import load_plot
from tsfmscope.report.tables import ReportTables, StudyTables, require

if TYPE_CHECKING:
    import pandas as pd

# Sources of checkpoints that this project trained itself.
SMALL_SOURCES = ("committed", "trained")
# Smallest number of models that allows a conclusion: at best, 4 models give p = 1/4! = 0.042, close
# to 0.05, and 5 models p = 1/5! = 0.008.
FEWEST_MODELS = 5
# Groupings of the view `correlation`, by preference: the first keeps conditions apart, which needs
# three models or more. The measure is ζ′ minus its null mean, because |ζ′| (Shelim et al. 2025, eq. 6)
# is also small where anisotropy and the negative ζ′ of isotropic states cancel (docs/science.md,
# "Adjusted cosine").
GROUPINGS, HEADLINE = ("per_dataset", "within_dataset"), "zeta_adjusted_corrected"
_ORDERS = {2: "two", 3: "six", 4: "24"}
MEASURES = {"zeta_adjusted_corrected": "the adjusted inter-token cosine ζ′ minus its null mean"}


class Part(NamedTuple):
    """Question of the papers or of a reader, with the answering sentences; the part `scope` has no question.

    name: topic of the studies that the part covers, or `scope`, `theorems`, `trust`.
    """

    name: str
    question: str
    sentences: list[str]


def summarise(tables: ReportTables) -> list[Part]:
    """Return questions and answers, in plain text, for a reader who knows neither paper.

    A question that no study is about has no sentences.
    """
    scope = require(tables.scope, ("models", "datasets", "conditions")).iloc[0]
    models = int(scope["models"])
    studies: dict[str, list[StudyTables]] = {"isotropy": [], "rank": [], "compression": []}
    for study in tables.studies:
        studies[load_plot(study.plot).topic].append(study)
    return [
        Part(
            "scope", "", [_scope(scope), *_small_models(require(tables.checkpoints, ("model", "source", "parameters")))]
        ),
        Part(
            "isotropy",
            "Does isotropy predict forecast error?",
            [
                *_headline(require(tables.correlation, ("measure", "grouping", "n", "spearman")), models),
                *hypotheses.describe_hypotheses(require(tables.hypothesis_tests, hypotheses.COLUMNS)),
                *_claims("Shelim et al. 2025", studies["isotropy"]),
                *_few_models(models),
            ]
            if studies["isotropy"]
            else [],
        ),
        Part(
            "rank",
            "How does rank grow through the layers?",
            [*rank_summary.describe_growth(studies["rank"]), *_claims("Yu et al. 2026", studies["rank"])],
        ),
        Part(
            "compression",
            "Do low ranks let one compress a model?",
            [
                *rank_summary.describe_compression(studies["compression"]),
                *_claims("Yu et al. 2026", studies["compression"]),
            ],
        ),
        Part("theorems", "Do the theorems hold?", rank_summary.describe_bounds(tables)),
        Part(
            "trust",
            "How reliable are these results?",
            [
                *filter(None, [_printed(tables)]),
                *_skill(require(tables.skill, ("model", "wql_vs_median", "low", "high", "sine_error"))),
                *_left_out(tables),
                *tables.notes,
            ],
        ),
    ]


def _printed(tables: ReportTables) -> str:
    return verdicts.count_verdicts(require(tables.printed, verdicts.COLUMNS)) if is_shown(tables) else ""


def describe_small_models(checkpoints: pd.DataFrame, models: Collection[str]) -> list[str]:
    """Return a note on how many of a study's models are small ones trained here; empty if there are none."""
    used = checkpoints[checkpoints["model"].isin(models)]
    small = used[used["source"].isin(SMALL_SOURCES)]
    if small.empty:
        return []
    who = "The models here are" if len(small) == len(used) else f"{len(small)} of the {len(used)} models here are"
    return [
        f"{who} small ones trained by this project, not the paper's. To run the paper's models (params/paper.yaml): "
        "“make profile NAME=paper”, then “make repro”."
    ]


def _claims(paper: str, studies: Sequence[StudyTables]) -> list[str]:
    """Count the tests of a paper's claims by verdict, over some studies; empty if there are none."""
    import pandas as pd

    answers = [study.published for study in studies if len(study.published.frame)]
    frames = [require(answer, verdicts.COLUMNS) for answer in answers]
    if not frames:
        return []
    published = pd.concat(frames)
    claimed = published[published["published"].isna()]
    text = verdicts.list_counts(claimed["verdict"])
    if not text:
        return []
    tests = "test" if len(claimed) == 1 else "tests"
    return [f"Of {len(claimed)} {tests} of claims of {paper}, {text}; the table of verdicts and each figure list them."]


def _scope(scope: Any) -> str:
    text = f"{_count(scope['models'], 'model')} on {_count(scope['datasets'], 'data set')}"
    text += f" under {_count(scope['conditions'], 'condition')}"
    if "forecasts" in scope and "series" in scope:
        text += f": {_count(scope['forecasts'], 'forecast')} of {int(scope['series']):,} series were scored"
    return text + "."


def _headline(correlation: pd.DataFrame, models: int) -> list[str]:
    within = correlation.iloc[:0]
    for grouping in GROUPINGS:
        rows = correlation[correlation["grouping"] == grouping]
        if len(rows):
            within = rows
        if rows["spearman"].notna().any():
            break
    defined = within[within["spearman"].notna()]
    correlations = sorted(defined.to_dict("records"), key=lambda row: (row["measure"] != HEADLINE, row["measure"]))
    if not correlations:
        return [
            "No correlation within data sets could be computed: it needs several models on the same data sets. A model "
            "that is derived from another (compressed, or in another precision) does not count."
        ]
    first, *others = correlations
    sentences = [_short(first)] if models >= FEWEST_MODELS else []
    sentences += [
        f"Within data sets, isotropy by {MEASURES.get(first['measure'], first['measure'])} and forecast error have a "
        f"mean Spearman correlation of {_signed(first['spearman'])}{_inferred(first)} ({_units(first)}). Below zero, "
        "the more isotropic states would forecast better."
    ]
    if others:
        text = ", ".join(f"{row['measure'].replace('_', ' ')} {_signed(row['spearman'])}" for row in others)
        sentences.append(f"By other measures: {text}.")
    return sentences


def _short(row: Mapping[Hashable, Any]) -> str:
    """Return the answer in words: yes or no if the correlation's interval excludes 0, else undecided."""
    low, high = (row.get(name) for name in ("low", "high"))
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "These data do not answer it: there is no interval."
    if high < 0:
        return "In these data yes: models that are more isotropic by the measure below have lower error."
    if low > 0:
        return "In these data no: models that are more isotropic by the measure below have higher error."
    return "These data do not answer it: the interval contains 0."


def _inferred(row: Mapping[Hashable, Any]) -> str:
    """Return interval and p as text, leaving out what the stage `statistics` could not compute."""
    values = {
        name: row[name]
        for name in ("low", "high", "p")
        if name in row and row[name] is not None and not math.isnan(row[name])
    }
    text = (
        f", 95 % interval {_signed(values['low'])} to {_signed(values['high'])}"
        if {"low", "high"} <= set(values)
        else ""
    )
    return text + (f", p = {values['p']:.2g} when models are permuted" if "p" in values else "")


def _units(row: Mapping[Hashable, Any]) -> str:
    text = f"n = {_format_count(row['n'])} units of model, data set and condition"
    if "n_blocks" not in row:
        return text
    blocks = "block of one data set and one condition" if row["grouping"] == "per_dataset" else "data set"
    return text + f" in {_count(row['n_blocks'], blocks)}"


def _few_models(models: int) -> list[str]:
    if models < 2:
        return ["With fewer than two models, nothing can be concluded about models."]
    if models < FEWEST_MODELS:
        who = "two" if models == 2 else str(models)
        # One of n! orders; both orders of two models are equally far from the centre.
        smallest = 1 if models == 2 else 1 / math.factorial(models)
        return [
            f"With {who} models nothing can be concluded: they can be ordered in {_ORDERS[models]} ways only, so a "
            f"test that permutes models never gives p below {smallest:.2g}."
        ]
    return []


def _small_models(checkpoints: pd.DataFrame) -> list[str]:
    small = checkpoints[checkpoints["source"].isin(SMALL_SOURCES)]
    if small.empty:
        return []
    size = int(small["parameters"].max())
    who = "All models are" if len(small) == len(checkpoints) else f"{len(small)} of {len(checkpoints)} models are"
    return [
        f"{who} small checkpoints trained by this project (at most {size:,} parameters). They are not the papers' "
        "models: the page shows that the pipeline works, not how the published models behave. "
        "For those models, run “make profile NAME=paper” and then “make repro” on a machine with GPUs and access to "
        "the hub."
    ]


def _skill(skill: pd.DataFrame) -> list[str]:
    if skill.empty:
        return []
    trained = skill.dropna(subset=["wql_vs_median"])
    ratios = [
        f"{row.model} {row.wql_vs_median:.2f} (95 % interval {row.low:.2f} to {row.high:.2f})"
        for row in trained.itertuples(index=False)
    ]
    sines = [f"{row.model} {row.sine_error:.2f}" for row in skill.itertuples(index=False)]
    sentences = [
        f"Error on a noiseless sine of period 24 relative to forecasting zero, 0 is exact: {', '.join(sines)}."
    ]
    if ratios:
        lead = "Forecast error of the trained checkpoints relative to the context's median, below 1 is skill: "
        sentences.insert(0, f"{lead}{', '.join(ratios)}.")
    return sentences


def _left_out(tables: ReportTables) -> list[str]:
    skipped = int(require(tables.skipped, ("n",))["n"].sum())
    failed = int(require(tables.failures, ("n",))["n"].sum())
    if not skipped and not failed:
        return ["Nothing was skipped and no job failed."]
    failures = f"{_count(failed, 'job')} failed" if failed else "no job failed"
    return [f"{skipped:,} inputs were skipped, {failures}; the reasons are in run.html."]


def _count(n: Any, noun_phrase: str) -> str:
    noun, _, rest = noun_phrase.partition(" of ")
    return f"{int(n):,} {noun}{'' if int(n) == 1 else 's'}{' of ' + rest if rest else ''}"


def _format_count(n: Any) -> str:
    return "0" if n is None or math.isnan(n) else f"{int(n):,}"


def _signed(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "undefined"
    return f"{'−' if value < 0 else '+'}{abs(value):.2f}"

"""Summary at the top of the page: plain sentences generated from the numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tsfmscope.report.page import verdicts
from tsfmscope.report.page.verdicts import format_number, is_present
from tsfmscope.report.plots import compressed, frontier, growth, load_plot
from tsfmscope.report.style import format_power, format_range, iterate_rows
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
# Columns of the page's queries `correlation` and `hypothesis_tests`.
CORRELATIONS = ("measure", "grouping", "n", "n_blocks", "spearman", "low", "high", "p")
HYPOTHESES = ("name", "verdict", "detectable", "n_datasets")
# Verdicts of the view `hypothesis_tests`.
HOLDS, REVERSED, NO_EFFECT, UNDECIDED, NOT_TESTED = "holds", "reversed", "no effect", "undecided", "not tested"
# Tolerance of the numerical rank, as in Yu et al. 2026, Fig. 5.
TOLERANCE = 0.01
# Conditions of a claim in `published_vs_measured` that is tested over families, or over models of few families.
OVERALL = ("over families", "over models")
# Text of the claim in the view `published_claims`.
GROWTH_CLAIM = "The rank of the layer inputs grows with depth"
# Largest share of the attention parameters that is kept; Yu et al. 2026: "cut to about a quarter of
# its size".
QUARTER = 0.25
# Largest error relative to the original that counts as no loss, as in the test of the claim on the
# quarter.
NO_LOSS = 1.05


class Part(NamedTuple):
    """Question of the papers or of a reader, with the answering sentences; the part `scope` has no question.

    name: topic of the studies that the part covers, or `scope`, `theorems`, `trust`.
    """

    name: str
    question: str
    sentences: list[str]


class Ends(NamedTuple):
    """Rank at the first and the last layer of a set of stacks.

    first, last: median over stacks of the rank as a share of the full rank.
    rises: number of stacks whose share is larger at the last layer than at the first.
    """

    first: float
    last: float
    rises: int
    stacks: int
    models: int


def summarise(tables: ReportTables) -> list[Part]:
    """Return questions and answers, in plain text, for a reader who knows neither paper.

    A question that no study is about has no sentences.
    """
    scope = require(tables.scope, ("models", "datasets", "conditions", "forecasts", "series")).iloc[0]
    models, printed = int(scope["models"]), require(tables.printed, verdicts.COLUMNS)
    studies: dict[str, list[StudyTables]] = {"isotropy": [], "rank": [], "compression": []}
    for study in tables.studies:
        studies[load_plot(study.plot).topic].append(study)
    isotropy = [
        *_headline(require(tables.correlation, CORRELATIONS), models),
        *describe_hypotheses(require(tables.hypothesis_tests, HYPOTHESES)),
        *_claims("Shelim et al. 2025", studies["isotropy"]),
        *_few_models(models),
    ]
    rank = [*describe_growth(studies["rank"]), *_claims("Yu et al. 2026", studies["rank"])]
    compression = [*describe_compression(studies["compression"]), *_claims("Yu et al. 2026", studies["compression"])]
    trust = [
        *filter(None, [verdicts.count_verdicts(printed) if verdicts.is_shown(tables) else ""]),
        *_skill(require(tables.skill, ("model", "wql_vs_median", "low", "high", "sine_error"))),
        _left_out(tables),
        *tables.notes,
    ]
    small = _small_models(require(tables.checkpoints, ("model", "source", "parameters")))
    return [
        Part("scope", "", [_scope(scope), *small]),
        Part("isotropy", "Does isotropy predict forecast error?", isotropy if studies["isotropy"] else []),
        Part("rank", "How does rank grow through the layers?", rank),
        Part("compression", "Do low ranks let one compress a model?", compression),
        Part("theorems", "Do the theorems hold?", describe_bounds(tables)),
        Part("trust", "How reliable are these results?", trust),
    ]


def describe_small_models(checkpoints: pd.DataFrame, models: Collection[str]) -> list[str]:
    """Return a note on how many of a study's models are small ones trained here; empty if there are none."""
    used = checkpoints[checkpoints["model"].isin(models)]
    small = used[used["source"].isin(SMALL_SOURCES)]
    if small.empty:
        return []
    text = "The models here are" if len(small) == len(used) else f"{len(small)} of the {len(used)} models here are"
    text += " small ones trained by this project, not the paper's. To run the paper's models (params/paper.yaml): "
    return [f"{text}“make profile NAME=paper”, then “make repro”."]


def _claims(paper: str, studies: Sequence[StudyTables]) -> list[str]:
    """Count the tests of a paper's claims by verdict, over some studies; empty if there are none."""
    frames = [require(study.published, verdicts.COLUMNS) for study in studies]
    claimed = [verdict for frame in frames for verdict in frame.loc[frame["published"].isna(), "verdict"]]
    tests, text = _count(len(claimed), "test of claims"), verdicts.list_counts(claimed)
    return [f"Of {tests} of {paper}, {text}; the table of verdicts and each figure list them."] if claimed else []


def _scope(scope: Any) -> str:
    text = f"{_count(scope['models'], 'model')} on {_count(scope['datasets'], 'data set')}"
    text += f" under {_count(scope['conditions'], 'condition')}: "
    return f"{text}{_count(scope['forecasts'], 'forecast')} of {int(scope['series']):,} series were scored."


def _headline(correlation: pd.DataFrame, models: int) -> list[str]:
    defined = correlation[correlation["spearman"].notna()]
    grouping = next((name for name in GROUPINGS if name in set(defined["grouping"])), None)
    within = defined[defined["grouping"] == grouping].to_dict("records")
    correlations = sorted(within, key=lambda row: (row["measure"] != HEADLINE, row["measure"]))
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
    if not (is_present(row["low"]) and is_present(row["high"])):
        return "These data do not answer it: there is no interval."
    if row["high"] < 0:
        return "In these data yes: models that are more isotropic by the measure below have lower error."
    if row["low"] > 0:
        return "In these data no: models that are more isotropic by the measure below have higher error."
    return "These data do not answer it: the interval contains 0."


def _inferred(row: Mapping[Hashable, Any]) -> str:
    """Return interval and p as text, leaving out what the stage `statistics` could not compute."""
    has_interval = is_present(row["low"]) and is_present(row["high"])
    text = f", 95 % interval {_signed(row['low'])} to {_signed(row['high'])}" if has_interval else ""
    return text + (f", p = {row['p']:.2g} when models are permuted" if is_present(row["p"]) else "")


def _units(row: Mapping[Hashable, Any]) -> str:
    blocks = "block of one data set and one condition" if row["grouping"] == "per_dataset" else "data set"
    return f"n = {int(row['n']):,} units of model, data set and condition in {_count(row['n_blocks'], blocks)}"


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
    ratios = ", ".join(
        f"{row.model} {row.wql_vs_median:.2f} (95 % interval {row.low:.2f} to {row.high:.2f})"
        for row in iterate_rows(skill.dropna(subset=["wql_vs_median"]))
    )
    lead = "Forecast error of the trained checkpoints relative to the context's median, below 1 is skill: "
    sines = ", ".join(f"{row.model} {row.sine_error:.2f}" for row in iterate_rows(skill))
    sine = f"Error on a noiseless sine of period 24 relative to forecasting zero, 0 is exact: {sines}."
    return [f"{lead}{ratios}.", sine] if ratios else [sine]


def _left_out(tables: ReportTables) -> str:
    skipped = int(require(tables.skipped, ("n",))["n"].sum())
    failed = int(require(tables.failures, ("n",))["n"].sum())
    if not skipped and not failed:
        return "Nothing was skipped and no job failed."
    failures = f"{_count(failed, 'job')} failed" if failed else "no job failed"
    return f"{skipped:,} inputs were skipped, {failures}; the reasons are in run.html."


def _count(n: Any, noun_phrase: str) -> str:
    noun, _, rest = noun_phrase.partition(" of ")
    return f"{int(n):,} {noun}{'' if int(n) == 1 else 's'}{' of ' + rest if rest else ''}"


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'}{abs(value):.2f}"


def describe_hypotheses(tests: pd.DataFrame) -> list[str]:
    """Count the hypotheses by verdict, and report how sensitive the tests without an effect are.

    tests: HYPOTHESES of the page's query `hypothesis_tests`. Empty if there are no hypotheses. Hypotheses that hold or
    are reversed are named.
    """
    if tests.empty:
        return []
    noun, half = "hypothesis" if len(tests) == 1 else "hypotheses", _describe_half(tests["n_datasets"].dropna())
    text = f"Of {len(tests)} {noun}, committed before {half} tested, {_count_verdicts(tests)}."
    return [text, *_describe_sensitivity(tests.loc[tests["verdict"].isin((NO_EFFECT, UNDECIDED)), "detectable"])]


def _count_verdicts(tests: pd.DataFrame) -> str:
    names = {verdict: sorted(map(str, part["name"])) for verdict, part in tests.groupby("verdict")}
    texts = [_name_all(names[HOLDS], "holds", "hold") if HOLDS in names else "none holds"]
    texts += [_name_all(names[REVERSED], "is reversed", "are reversed")] if REVERSED in names else []
    texts += [f"{len(names[NO_EFFECT])} found to have no effect"] if NO_EFFECT in names else []
    texts += [f"{len(names[UNDECIDED])} undecided"] if UNDECIDED in names else []
    texts += [f"{len(names[NOT_TESTED])} could not be tested"] if NOT_TESTED in names else []
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def _name_all(names: Sequence[str], singular: str, plural: str) -> str:
    """Return the number of hypotheses with its verb and their names, such as `2 hold (a, b)`."""
    return f"{len(names)} {singular if len(names) == 1 else plural} ({', '.join(names)})"


def _describe_half(n_datasets: pd.Series) -> str:
    """Return the confirming half of the data sets with its verb. n_datasets: number of each hypothesis, if known."""
    if n_datasets.empty:
        return "the confirming half of the data sets was"
    if n_datasets.max() == 1:
        return "the data set of the confirming half was"
    return f"the {format_range(n_datasets)} data sets of the confirming half were"


def _describe_sensitivity(detectable: pd.Series) -> list[str]:
    """Describe the test that can miss the largest correlation; empty if the sensitivity of no test is known.

    detectable: size of the correlation that each test without an effect finds with a probability of 80 %, or missing.
    """
    known = detectable.dropna()
    if known.empty:
        return []
    tests = "The test" if len(detectable) == 1 else "The least sensitive of the tests"
    sentences = [
        f"{tests} without an effect finds a correlation of ±{known.max():.2f} with a probability of 80 %, and misses "
        "smaller ones more often."
    ]
    if n_unknown := len(detectable) - len(known):
        sentences.append(f"For {n_unknown} of them, no such size is known.")
    return sentences


def describe_growth(studies: Sequence[StudyTables]) -> list[str]:
    """Describe how rank grows through the layers, from the study with the most models.

    Empty if no study has ranks of layer inputs.
    """
    flows = [study for study in studies if "inputs" in study.answers and len(study.answers["inputs"].frame)]
    if not flows:
        return []
    study = max(flows, key=lambda flow: flow.answers["inputs"].frame["model"].nunique())
    sentences = _describe_verdicts(require(study.published, verdicts.COLUMNS))
    if ends := compare_ends(study.rows("inputs", growth.COLUMNS)):
        sentences.append(
            f"The input of the first layer has {_percent(ends.first)} of the full rank, the output of the "
            f"last {_percent(ends.last)} (medians over {ends.stacks} stacks of {ends.models} models; singular values"
            f" above {format_power(-2)} of the largest). It rises in {ends.rises} of {ends.stacks}."
        )
    if ends := compare_ends(study.rows("weights", growth.COLUMNS)):
        sentences.append(
            f"The rank of the query projections goes from {_percent(ends.first)} to {_percent(ends.last)} of the full"
            f" rank, and rises in {ends.rises} of {ends.stacks} stacks."
        )
    return sentences


def _describe_verdicts(published: pd.DataFrame) -> list[str]:
    """Return the verdict on the claim that rank grows with depth, over families or by model; empty if not tested."""
    claimed = published[published["claim"] == GROWTH_CLAIM]
    if len(overall := claimed[claimed["condition"].isin(OVERALL)]):
        row = overall.to_dict("records")[0]
        units = row["condition"].removeprefix("over ")
        return [
            f"Over {int(row['n'])} {units}, the slope of the rank of layer inputs along depth is "
            f"{verdicts.format_number(row['measured'])} of the full rank{verdicts.format_evidence(row)}: the claim "
            f"that it grows {verdicts.VERDICTS[row['verdict']][0]}."
        ]
    counts = Counter(claimed.loc[claimed["model"].notna(), "verdict"])
    does_not = counts["differs"] + counts["no effect"]
    text = f"Tested for each model, the rank of layer inputs grows with depth in {counts['agrees']} of "
    text += f"{counts.total()}, does not in {does_not}, and is undecided in {counts['undecided']}."
    return [text] if counts else []


def compare_ends(rows: pd.DataFrame) -> Ends | None:
    """Compare the ranks at TOLERANCE of the first and the last layer, over stacks of two layers or more.

    rows: columns of `plots.growth`. Ranks below the floor that rounding leaves are left out. None
    if no stack has two layers.
    """
    rows = rows[((rows["epsilon"] - TOLERANCE).abs() < TOLERANCE / 1e3) & ~rows["below_noise_floor"].astype(bool)]
    shares = rows.assign(share=rows["rank"].astype(float) / rows["full_rank"].astype(float)).sort_values("layer")
    ends = shares.groupby(["model", "stack"])["share"].agg(["first", "last", "count"])
    ends = ends[ends["count"] > 1]
    if ends.empty:
        return None
    models = ends.index.get_level_values("model").nunique()
    rises = int((ends["last"] > ends["first"]).sum())
    return Ends(float(ends["first"].median()), float(ends["last"].median()), rises, len(ends), models)


def describe_compression(studies: Sequence[StudyTables]) -> list[str]:
    """Describe the loss at a quarter of the attention, and whether a compressed model beats local methods."""
    sentences = []
    for study in studies:
        if "compressed" in study.answers:
            sentences += _describe_losses(study.rows("compressed", compressed.COLUMNS))
        if "frontier" in study.answers and len(study.answers["frontier"].frame):
            sentences.append(frontier.check_local_methods(study.rows("frontier", frontier.COLUMNS)).text)
    return sentences


def _describe_losses(rows: pd.DataFrame) -> list[str]:
    """Return one sentence per original model: the relative error of each method.

    Each method is taken at its largest size up to QUARTER.
    """
    ours = rows[(rows["whose"] == "measured") & (rows["size"] <= QUARTER + 1e-9) & rows["wql_ratio"].notna()]
    sentences = []
    for base, part in ours.groupby(ours["model"].str.split("@").str[0], sort=True):
        best = part.sort_values("size").groupby("method", sort=True).last()
        texts = ", ".join(
            f"{format_number(row['wql_ratio'])} by {method}" for method, row in best.sort_values("wql_ratio").iterrows()
        )
        without_loss = int((best["wql_ratio"] <= NO_LOSS).sum())
        sentences.append(
            f"With {_percent(float(best['size'].max()))} of the attention's parameters left, the WQL of {base} "
            f"relative to the original is {texts}; {without_loss} of {len(best)} methods stay within 5 %."
        )
    return sentences


def describe_bounds(tables: ReportTables) -> list[str]:
    """Count the bounds that hold as printed at every random instance, and the repaired bounds that do.

    Empty if no printed bound was tried.
    """
    bounds = tables.theory_violations.frame
    tried = bounds[bounds["kind"] == "instance"]
    printed = tried[tried["form"] == "printed"]
    if printed.empty:
        return []
    held, repaired = int((printed["violations"] == 0).sum()), tried[tried["form"] == "repaired"]
    instances = f"{int(printed['n'].min()):,} random instances"
    text = f"Of the paper's {len(printed)} bounds, {held} held as printed at every one of {instances}"
    if held < len(printed):
        text += f"; {len(printed) - held} failed at some. Of {len(repaired)} repaired bounds, "
        text += f"{int((repaired['violations'] == 0).sum())} held at all"
    return [text + "."]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"

"""Made-up tables of the size and shape of the default run, and hostile ones."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from tsfmscope.store.report_queries import load_queries
from tsfmscope.tasks.report.charts.islands import project
from tsfmscope.tasks.report.page.verdicts import COLUMNS
from tsfmscope.tasks.report.plot import load_plot
from tsfmscope.tasks.report.tables import Answer, ReportTables, StudyTables

MODELS = ("chronos-bolt-small-350k", "chronos-t5-small-690k")
SYNTHETIC = tuple(
    f"{kind}-{n}" for kind in ("linear", "seasonality", "trend", "non-linear", "stochastic") for n in (1, 2)
)
REAL = ("sunspots", "co2", "elnino", "nile", "exchange_rate", "hospital", "nn5_weekly")
CONDITIONS = ("context-100", "context-500")
HOSTILE = "<img src=x onerror=window.hacked=1></script><b>%{x}"
DOMAINS = {name: name[:-2] for name in SYNTHETIC} | {"exchange_rate": "finance", "nn5_weekly": "finance"}
DOMAINS |= {"hospital": "healthcare"}
PAPERS = {name: name for name in SYNTHETIC} | {"exchange_rate": "finance-1", "nn5_weekly": "finance-2"}
SHAPES = {  # columns of store/sql/report/study; test_queries.py holds them to the SQL
    "points": (
        "model", "dataset", "domain", "paper", "stands_in_for", "condition", "zeta_adjusted_corrected",
        "zeta_adjusted", "nmse", "n_windows",
    ),
    "layers": ("model", "family", "stack", "layer", "normed", "epsilon", "median", "low", "high", "n"),
    "published": COLUMNS,
}  # fmt: skip
EVIDENCE = {
    "within_dataset": "headline: mean over data sets; interval and p stand in inference",
    "per_model": "mean over models; data sets differ in difficulty",
    "per_dataset": "mean over (data set, condition), across models only; needs three models",
    "pooled": "no evidence: differences between data sets and models make it",
}
VERSIONS = json.dumps({"torch": "2.13.0", "ray": "2.60.0", "chronos-forecasting": "2.3.2", "gluonts": "0.17.0"})


def made_up(rename: Callable[[str], str] = str, *, models: tuple[str, ...] = MODELS) -> dict[str, pd.DataFrame]:
    """Frames with the columns of store/sql/report/page; `rename` changes every name of a model, data set or series."""
    rng = np.random.default_rng(7)
    named = [rename(model) for model in models]
    datasets = [rename(dataset) for dataset in SYNTHETIC + REAL]
    return {
        "scope": pd.DataFrame(
            [{"models": len(models), "datasets": 17, "conditions": 2, "forecasts": 4352, "series": 1280}]
        ),
        "correlation": _correlation(rng, named),
        "advice": _advice(),
        "nmse_against_isotropy": _points(rng, named, datasets),
        "layers": _layers(rng, named),
        "states": _islands(rng, named, rename),
        **_heads(named, datasets),
        **_theory(rng),
        "skill": _skill(named),
        "training": _training(rng, named),
        "checkpoints": _checkpoints(named),
        "skipped": _skipped(named, datasets),
        "failures": pd.DataFrame({"stage": [], "error": [], "example": [], "n": []}).astype({"n": "int64"}),
        "runs": _runs(),
        "published": published(),
        "printed": published().dropna(subset="published").reset_index(drop=True),
    }


def _theory(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Answers on the theorems: the points of each figure, slopes of every verdict, bounds that hold and that fail."""
    kinds = {
        "theory_compression": ("J.1 rank", "J.1 width"),
        "theory_sketch": ("J.2 spectrum", "J.2 sparse", "J.2 sparse distance", "J.2 dense", "J.2 dense distance"),
        "theory_flow": ("J.3 spectrum", "J.3 spread"),
    }
    frames = {}
    for name, experiments in kinds.items():
        rows = [
            {"experiment": one, "heads": heads, "x": float(x), "y": y, "low": 0.9 * y, "high": 1.2 * y, "n": 20}
            for one in experiments
            for heads in (0, 2)
            for x, y in zip((1, 10, 100), rng.uniform(0.1, 9, 3), strict=True)
        ]
        frames[name] = pd.DataFrame(rows).astype({"heads": "Int16"})
    slopes = [("J.1 rank", 1.0, "agrees"), ("J.2 sparse", 1.0, "differs"), ("J.3 spread", None, "undecided")]
    slopes += [("Corollary 2 rate, beta 1", -0.9, "agrees"), ("Theorem 3.1 length", 0.0, "differs")]
    frames["theory_slopes"] = pd.DataFrame(
        [
            {"experiment": name, "n_seeds": 20, "points_a_seed": 4.0, "slope": 0.99, "low": None, "high": None}
            | ({} if verdict == "undecided" else {"low": 0.94, "high": 1.04})
            | {"least": 0.8, "largest": 1.2, "claimed": claimed, "verdict": verdict}
            for name, claimed, verdict in slopes
        ]
    )
    bounds = [
        ("Theorem 2", "printed", 0, 0.9),
        ("Theorem 3.2", "printed", 384, 4.5),
        ("Theorem 3.2", "repaired", 0, 0.3),
    ]
    frames["theory_violations"] = pd.DataFrame(
        [
            {"experiment": name, "form": form, "kind": "instance", "n": 1000, "violations": failed}
            | {"ratio_median": 0.2, "ratio_largest": largest, "worst_seed": 0, "worst_instance": 972, "worst_x": 2.0}
            | {"worst_y": 0.055, "worst_bound": 0.25, "worst_setting": '{"width":3}'}
            for name, form, failed, largest in bounds
        ]
    )
    return frames


def published() -> pd.DataFrame:
    """Rows as of the view `published_vs_measured`: a claim of every verdict, and numbers."""
    claim = {
        "claim": "Isotropy is lower on all noisy data sets",
        "source": "section 5.1",
        "quantity": "more_isotropic",
        "published_text": "< 0.5",
        "low": 0.2,
        "high": 0.6,
        "n": 10,
        "p": 0.3,
        "comparable": True,
    }
    deeper = [
        {
            "claim": f"d(0.8) of chronos-t5 on finance-1, layer {n}",
            "source": f"Table 1, layer {n}",
            "quantity": "d(0.8)",
        }
        | {"model": MODELS[1], "published": 4.0, "published_text": "4", "verdict": "not measured", "comparable": False}
        | {"why": "the model has 1 layers", "run": "make profile NAME=paper; make repro", "figure": "isotropy Table 1"}
        for n in range(1, 13)
    ]
    number = {"model": MODELS[1], "dataset": "exchange_rate", "condition": "context-500", "comparable": False}
    cell = {
        **number,
        "figure": "isotropy Fig. 3",
        "claim": "nmse of chronos-t5 on seasonality-1",
        "source": "section 5.1",
        "quantity": "nmse",
        "low": 0.1,
        "high": 0.2,
    }
    rows = [
        {**claim, "measured": 0.4, "why": "p is above 0.05", "verdict": "undecided"},
        {**claim, "measured": 0.1, "high": 0.3, "p": 0.002, "verdict": "agrees"},
        {**claim, "measured": 0.9, "low": 0.8, "high": 1.0, "p": 0.002, "verdict": "differs"},
        {**claim, "measured": None, "low": None, "high": None, "n": None, "p": None}
        | {"comparable": False, "why": "not measured", "verdict": "not comparable"},
        {**deeper[0], **number, "measured": 3.0, "verdict": "not comparable", "why": "a small checkpoint of ours"}
        | {"note": "no interval: one covariance matrix"},
        *deeper[1:],
        {**cell, "published": 0.0000066, "published_text": "0.0000066", "measured": 0.15, "verdict": "not comparable"}
        | {"why": "a small checkpoint of ours; a stand-in for the data: 2012-2014, not 2002-2015"},
    ]
    frame = pd.DataFrame(rows).reindex(columns=COLUMNS)
    return frame.astype({"published": "float64", "n": "Int64", "comparable": "bool"})


def report_tables(frames: dict[str, pd.DataFrame], *, study: str = "isotropy-fig-3") -> ReportTables:
    """The frames with their titles and SQL, and a study a kind of picture."""
    queries = {name: query.fill(study=study) for name, query in load_queries("page").items()}
    answers = {name: Answer(query.title, query.sql, frames[name]) for name, query in queries.items()}
    studies = tuple(study_tables(kind, frames) for kind in ("domains", "conditions", "dimension", "islands", "none"))
    return ReportTables(study=study, profile="default", **answers, studies=studies)


def study_tables(picture: str, frames: dict[str, pd.DataFrame]) -> StudyTables:
    """A study of all that `frames` hold, whose picture is of this kind."""
    points = frames["nmse_against_isotropy"]
    facts = {
        "points": points.assign(
            domain=[DOMAINS.get(name.removesuffix(HOSTILE), "nature") for name in points["dataset"]],
            paper=[PAPERS.get(name.removesuffix(HOSTILE)) for name in points["dataset"]],
            stands_in_for=None,
        ),
        "layers": frames["layers"].assign(family=[name[:10] for name in frames["layers"]["model"]]),
        "published": frames["published"],
    }
    facts = {name: frame.reindex(columns=SHAPES[name]) for name, frame in facts.items()} | {"islands": frames["states"]}
    queries = load_queries("study")

    def answer(name: str) -> Answer:
        values = {"models": [], "datasets": [], "conditions": [], "layer": "last", "tokens": 400}
        query = queries[name].fill(study=picture, **values)
        return Answer(query.title, query.sql, facts[name])

    return StudyTables(
        name=picture,
        title=f"A study of {picture}",
        figure=None if picture == "none" else f"isotropy {picture}",
        plot=picture,
        conditions=("context-500", "context-100"),
        published=answer("published"),
        answers={name: answer(name) for name in load_plot(picture).queries},
    )


@pytest.fixture(scope="session")
def tables() -> ReportTables:
    """The tables of an ordinary run."""
    return report_tables(made_up())


@pytest.fixture(scope="session")
def hostile() -> ReportTables:
    """The same with names that would run if anything read them as HTML or as a template."""
    return report_tables(made_up(lambda name: name + HOSTILE), study=HOSTILE)


def _advice() -> pd.DataFrame:
    rules = {"advised": (1.6, None), "validation": (1.2, 1.4), "largest_context": (3.0, 0.9), "chance": (2.5, 0.7)}
    return pd.DataFrame(
        [
            {"measure": measure, "grouping": grouping, "rule": rule, "n": 17}
            | {"n_candidates": 170, "n_unfilled": 40, "times": times, "low": times / 1.3}
            | {"high": times * 1.3}
            | dict.fromkeys(("advice_over_it", "advice_over_it_low", "advice_over_it_high"), ratio)
            | dict.fromkeys(("p", "p_bh", "p_models"), None if ratio is None else 0.03)
            | {"advice_is": None if ratio is None else "undecided"}
            for measure in ("zeta", "zeta_adjusted_corrected")
            for grouping in ("model", "context", "model_and_context")
            for rule, (times, ratio) in rules.items()
            if (grouping, rule) != ("model", "largest_context")
        ]
    )


def _correlation(rng: np.random.Generator, models: list[str]) -> pd.DataFrame:
    groups = [("within_dataset", 68, 17), ("per_model", 68, len(models)), ("per_dataset", 68, 0), ("pooled", 68, 1)]
    return pd.DataFrame(
        [
            {
                "measure": measure,
                "grouping": grouping,
                "n": n,
                "n_blocks": n_blocks,
                "spearman": round(rng.uniform(-0.5, 0.5), 4) if n_blocks else None,
                "low": -0.6 if n_blocks > 1 else None,
                "high": 0.6 if n_blocks > 1 else None,
                "p": round(rng.uniform(0.01, 1), 4) if n_blocks > 1 else None,
                "p_bh": 0.9 if n_blocks > 1 else None,
                "double_centred_p": 0.4 if grouping == "within_dataset" else None,
                "detectable": None,
                "reason": None if n_blocks > 1 else "fewer than three models",
                "evidence": EVIDENCE[grouping],
            }
            for measure in ("zeta_adjusted", "zeta", "zeta_adjusted_corrected", "log_isotropy_scaled")
            for grouping, n, n_blocks in groups
        ]
    )


def _points(rng: np.random.Generator, models: list[str], datasets: list[str]) -> pd.DataFrame:
    rows = [(model, dataset, condition) for dataset in datasets for model in models for condition in CONDITIONS]
    frame = pd.DataFrame(rows, columns=["model", "dataset", "condition"])
    hard = dict(zip(datasets, 10 ** rng.uniform(-3, 0.7, len(datasets)), strict=True))
    frame["zeta_adjusted_corrected"] = 0.0  # stands before the printed one, as in the query
    frame["zeta_adjusted"] = rng.choice([-1, 1], len(rows)) * 10 ** rng.uniform(-4, -1, len(rows))
    frame.loc[frame["dataset"] == datasets[3], "zeta_adjusted"] = np.nan
    frame["zeta_adjusted_corrected"] = frame["zeta_adjusted"] / 2  # so that a figure shows which of the two it draws
    frame["nmse"] = frame["dataset"].map(hard) * 10 ** rng.uniform(-0.4, 0.4, len(rows))
    return frame.assign(nmse_median=frame["nmse"] / 2, nmse_pooled=frame["nmse"], n_windows=64)


def _layers(rng: np.random.Generator, models: list[str]) -> pd.DataFrame:
    rows = []
    for model in models:
        for stack in ("encoder", "decoder"):
            for layer, normed in [*((n, False) for n in range(5)), (4, True)]:
                middle = int(rng.integers(2, 14))
                rows.append(
                    {
                        "model": model,
                        "stack": stack,
                        "layer": layer,
                        "normed": normed,
                        "epsilon": 0.8,
                        "median": float(middle),
                        "low": max(1, middle - 3),
                        "high": middle + 6,
                        "n": 34,
                    }
                )
    return pd.DataFrame(rows)


def _islands(rng: np.random.Generator, models: list[str], rename: Callable[[str], str]) -> pd.DataFrame:
    parts = []
    for model in models:
        centres = 4 * rng.standard_normal((5, 64))
        clusters = rng.integers(5, size=320)
        states = centres[clusters] + rng.standard_normal((320, 64)) * np.linspace(1.5, 0.1, 64)
        series = [rename(f"non-linear-1/{i % 32:03d}") for i in range(320)]
        identity = {
            "model": model,
            "stack": "encoder",
            "layer": 4,
            "dataset": "non-linear-1",
            "condition": "context-500",
        }
        parts.append(project(states, clusters, series, np.arange(320) % 32, identity).assign(n_tokens=2048))
    return pd.concat(parts, ignore_index=True)


def _heads(models: list[str], datasets: list[str]) -> dict[str, pd.DataFrame]:
    place = {"model": models[0], "stack": "encoder"}
    overlap = {"layer": 1, "n": 216, "n_null": 0, "chance": 0.25, "query": 0.41, "key": 0.42, "query_z": 4.9}
    above = {"key_z": 5.2, "query_share_above": 0.97, "key_share_above": 0.98, "inverse_cosine": 0.02, "reason": None}
    cell = {"model": models[0], "dataset": datasets[0], "condition": "context-500", "n_positions": 2048}
    log_z = {"log_z_mean": 7.0, "log_z_sd": 0.9, "log_z_range": 4.0, "zeta_adjusted_corrected": 0.1}
    log_z |= {"zeta_adjusted": 0.1, "log_isotropy_scaled": -3.0}
    counts = {"n_tokens": 2, "n": 432, "n_null": 0, "printed_violations": 45, "appendix_violations": 0}
    shares = {"safe_violations": 0, "printed_largest_share": 12.4, "safe_largest_share": 0.48, "reason": None}
    return {
        "alignment": pd.DataFrame([place | overlap | above]),
        "partition": pd.DataFrame([cell | log_z | {"nmse": 0.5, "reason": None}]),
        "lemma1": pd.DataFrame([place | counts | shares]),
    }


def _skill(models: list[str]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "model": model,
                "sine_error": 0.5 + 0.1 * place,
                "n_windows": 1200,
                "n_datasets": 11,
                "n_seasonal": 4,
                "wql_vs_median": 0.74 + 0.05 * place,
                "low": 0.71,
                "high": 0.83,
                "wql_vs_seasonal": 0.93,
                "seasonal_low": 0.89,
                "seasonal_high": 0.98,
            }
            for place, model in enumerate(models)
        ]
    )


def _training(rng: np.random.Generator, models: list[str]) -> pd.DataFrame:
    steps = np.arange(100, 6001, 100)
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "model": model,
                    "step": steps,
                    "loss": (8 - place * 5)
                    * (0.35 + 0.65 * np.exp(-steps / 900))
                    * np.exp(0.02 * rng.standard_normal(60)),
                    "learning_rate": 1e-3 * (1 - steps / 6001),
                }
            )
            for place, model in enumerate(models)
        ],
        ignore_index=True,
    )


def _checkpoints(models: list[str]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "model": model,
                "family": model[:10],
                "source": "committed",
                "ref": f"checkpoints/{model}",
                "parameters": 352_000,
                "bytes": 1_412_000,
                "license": "Apache-2.0",
            }
            for model in models
        ]
    )


def _skipped(models: list[str], datasets: list[str]) -> pd.DataFrame:
    reasons = ("fewer than 16 observed steps before the origin", "constant", "external data: TSFMSCOPE_DATA is not set")
    return pd.DataFrame(
        [
            {
                "stage": "forecasts",
                "model": models[place % len(models)],
                "dataset": dataset,
                "condition": "context-500",
                "reason": reasons[place % 3],
                "n": 3 + place,
            }
            for place, dataset in enumerate(datasets)
        ]
    )


def _runs() -> pd.DataFrame:
    stages = ("kernelsynth", "datasets", "checkpoints", "tokens", "embeddings", "geometry", "forecasts")
    return pd.DataFrame(
        [
            {
                "stage": stage,
                "started": pd.Timestamp("2026-11-21 12:00:00.123") + pd.Timedelta(minutes=place),
                "seconds": 12.5 * (place + 1),
                "jobs": 68,
                "done": 68,
                "reused": 0,
                "failed": 0,
                "commit": "1a2b3c4",
                "versions": VERSIONS,
                "hardware": "2 cores, x86_64, 8 GB",
                "cpus": 2,
                "gpus": 0,
                "seed": 0,
            }
            for place, stage in enumerate(stages)
        ]
    )

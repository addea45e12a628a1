"""Every estimate of the table `inference`, computed a second time from the views with pandas and scipy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from scipy import stats

KEY = ("study", "answer", "measure", "grouping", "block", "statistic")
# Key -> number of units and estimate, NaN where there is none.
Estimates = dict[tuple[str, ...], tuple[int, float]]
PAIRS = {"dataset": "sign_test", "context": "context_effect", "noise": "noise_effect"}
RUN_GROUPS = {"across_runs": [], "inside_families": ["family"], "across_seeds": ["family", "size"]}


def all_estimates(connection: duckdb.DuckDBPyConnection) -> Estimates:
    """Estimates of every answer but the mixed model, which statsmodels fits."""
    parts = (correlations, pair_shares, pair_changes, rank_statistics, regrets, population)
    return dict(itertools.chain.from_iterable(part(connection) for part in parts))


def differences(connection: duckdb.DuckDBPyConnection, rows: Iterable[dict[str, Any]]) -> list[str]:
    """One sentence for each row of `inference` whose estimate or number of units is another, and for each missing row.

    An estimate may differ by 1e-9.
    """
    expected, found = all_estimates(connection), []
    for row in rows:
        key = tuple(row[name] for name in KEY)
        n, estimate = expected.pop(key, (0, math.nan))
        value = math.nan if row.get("estimate") is None else row["estimate"]
        is_same = row["n"] == n and (abs(value - estimate) <= 1e-9 or (math.isnan(value) and math.isnan(estimate)))
        if not is_same and row["answer"] != "mixed_model":
            found.append(f"{key}: {n} units and {estimate} expected, {row['n']} and {value} found")
    return found + [f"{key}: {value} expected, no row found" for key, value in expected.items()]


def correlations(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[tuple[str, ...], tuple[int, float]]]:
    units = connection.sql("select * from correlation_units").df()
    for (study, measure), group in units.groupby(["study", "measure"]):
        blocks = {
            "within_dataset": ["dataset"],
            "per_dataset": ["dataset", "condition"],
            "per_model": ["model"],
            "pooled": ["study"],
        }
        for grouping, names in blocks.items():
            rhos = [rho(block) for _, block in group.groupby(names)]
            yield (study, "correlation", measure, grouping, "all", "spearman"), (len(group), nan_mean(rhos))
        yield ((study, "correlation", measure, "within_dataset", "all", "double_centred"), double_centred(group))
        for answer, grouping, name in (
            ("correlation_by_model", "per_model", "model"),
            ("correlation_by_dataset", "within_dataset", "dataset"),
        ):
            for label, block in group.groupby(name):
                tau = stats.kendalltau(block.isotropy, block.log_nmse).statistic if is_defined(block) else math.nan
                yield (study, answer, measure, grouping, label, "spearman"), (len(block), rho(block))
                yield (study, answer, measure, grouping, label, "kendall"), (len(block), tau)


def is_defined(block: pd.DataFrame) -> bool:
    return len(block) >= 3 and block.isotropy.nunique() > 1 and block.log_nmse.nunique() > 1


def rho(block: pd.DataFrame) -> float:
    return stats.spearmanr(block.isotropy, block.log_nmse).statistic if is_defined(block) else math.nan


def nan_mean(values: Iterable[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def double_centred(units: pd.DataFrame) -> tuple[int, float]:
    """Correlation of ranks and errors after subtracting the means of data sets and of (model, condition)."""
    tables = [
        units.pivot_table(index="dataset", columns=["model", "condition"], values=name, dropna=True)
        for name in ("isotropy", "log_nmse")
    ]
    columns = tables[0].columns[2 * tables[0].notna().sum() >= len(tables[0])]
    isotropy, error = (table[columns].dropna() for table in tables)
    if isotropy.empty:
        return 0, math.nan
    left = []
    for values in (stats.rankdata(isotropy.to_numpy(), axis=1), error.to_numpy()):
        rest = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
        left.append(rest if (rest**2).mean() > 1e-20 * (values**2).mean() else rest * math.nan)
    return left[0].size, float((left[0] * left[1]).sum() / math.sqrt((left[0] ** 2).sum() * (left[1] ** 2).sum()))


def pair_shares(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[tuple[str, ...], tuple[int, float]]]:
    signs = connection.sql("select * from pair_signs where half = 'explored'").df()
    for (study, kind, measure, pair, statistic), group in signs.groupby(
        ["study", "kind", "measure", "pair", "statistic"]
    ):
        answers = group.answer.dropna().to_numpy(dtype=float)
        share = float(np.mean((answers > 0) + (answers == 0) / 2)) if len(answers) else math.nan
        yield (study, PAIRS[kind], measure, kind, pair, statistic), (len(answers), share)


def pair_changes(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[tuple[str, ...], tuple[int, float]]]:
    changes = connection.sql("select * from condition_pairs where kind != 'dataset' and half = 'explored'").df()
    columns = {"isotropy_change": "isotropy", "log_nmse_change": "log_nmse"}
    changes = changes[["study", "kind", "measure", "pair", "model", *columns]].rename(columns=columns)
    for (study, kind, measure, pair), group in changes.groupby(["study", "kind", "measure", "pair"]):
        both = group.dropna()
        estimate = nan_mean(rho(block) for _, block in both.groupby("model"))
        yield (study, PAIRS[kind], measure, kind, pair, "changes_spearman"), (len(both), estimate)


def rank_statistics(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[tuple[str, ...], tuple[int, float]]]:
    for key, group in connection.sql("select * from rank_units").df().groupby(list(KEY)):
        values, statistic = group.value.dropna(), key[-1]
        if statistic == "mean":
            estimate = values.mean()
        elif statistic == "difference":
            is_series = group["sample"] == "series"
            estimate = group[is_series].value.mean() - group[~is_series].value.mean()
        else:
            points = group[["x", "value"]].dropna()
            estimate = np.polyfit(points.x, points.value, 1)[0] if points.x.nunique() > 1 else math.nan
        yield key, (len(values), float(estimate))


def regrets(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[tuple[str, ...], tuple[int, float]]]:
    candidates = connection.sql("select * from advice_candidates where is_filled").df()
    kinds = {"model_and_context": ["dataset"], "model": ["dataset", "condition"], "context": ["dataset", "model"]}
    for (study, measure), group in candidates.groupby(["study", "measure"]):
        for grouping, names in kinds.items():
            choices = [choice for _, choice in group.groupby(names) if len(choice) > 1]
            if not choices or (grouping == "model_and_context" and not any(map(varies_in_both, choices))):
                continue
            by_choice = pd.DataFrame([regrets_of_choice(choice) for choice in choices])
            by_dataset = by_choice.groupby("dataset").agg(lambda column: column.mean(skipna=False))
            for rule in by_dataset.columns:
                numbers = {f"regret_{rule}": by_dataset[rule]}
                if rule != "advised":
                    numbers[f"advised_less_{rule}"] = by_dataset.advised - by_dataset[rule]
                if rule == "chance" and grouping != "context":
                    numbers["advised_less_chance_models"] = by_dataset.advised - by_dataset.chance
                for statistic, values in numbers.items():
                    key = (study, "advice_regret", measure, grouping, "all", statistic)
                    yield key, (int(values.count()), nan_mean(values))


def varies_in_both(choice: pd.DataFrame) -> bool:
    return choice.model.nunique() > 1 and choice.context.nunique() > 1


def regrets_of_choice(choice: pd.DataFrame) -> dict[str, Any]:
    """Mean log error of each rule's candidates minus the smallest one."""
    picked = {
        "advised": choice.isotropy == choice.isotropy.max(),
        "validation": choice.log_nmse_earlier == choice.log_nmse_earlier.min(),
        "largest_context": choice.context == choice.context.max(),
        "chance": choice.context > 0,
    }
    lacks = {"validation": choice.log_nmse_earlier.isna().any(), "largest_context": choice.context.nunique() == 1}
    regret = {
        rule: math.nan if lacks.get(rule) else max(0.0, choice.log_nmse[is_picked].mean() - choice.log_nmse.min())
        for rule, is_picked in picked.items()
    }
    return {"dataset": choice.dataset.iloc[0], **regret}


def population(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[tuple[str, ...], tuple[int, float]]]:
    units = connection.sql("select *, dataset || ' / ' || condition as cell from population_units").df()
    claims = set(connection.sql('select study, measure, "grouping", error from hypotheses').fetchall())
    for (study, measure, half), group in units.groupby(["study", "measure", "half"]):
        for error, grouping in itertools.product(("nmse", "wql"), (*RUN_GROUPS, "within_runs")):
            if half == "confirmed" and (study, measure, grouping, error) not in claims:
                continue
            answer = "population_correlation" if half == "explored" else "hypothesis_tests"
            statistic = "spearman" if error == "nmse" else "spearman_wql"
            members = group.assign(error=group[f"log_{error}"])
            found = within_runs(members) if grouping == "within_runs" else across_runs(members, RUN_GROUPS[grouping])
            yield (study, answer, measure, grouping, half, statistic), found


def across_runs(units: pd.DataFrame, names: list[str]) -> tuple[int, float]:
    """Mean over cells of the correlation of ranks inside groups of runs, of the last weights."""
    last = units[units.is_final & np.isfinite(units[["isotropy", "error"]].astype(float)).all(axis=1)]
    cells = last.groupby("cell").run.transform("count") >= 0.9 * last.run.nunique()
    kept = last[cells]
    kept = kept[kept.groupby("run").cell.transform("count") == kept.cell.nunique()]
    groups = ["cell", *names]
    if kept.run.nunique() < 4 or kept.groupby(groups).size().max() < 2:
        return len(kept), math.nan
    ranks = kept.groupby(groups)[["isotropy", "error"]].rank()
    ranks = ranks - ranks.groupby([kept[name] for name in groups]).transform("mean")
    products = (ranks.isotropy * ranks.error).groupby(kept.cell).sum()
    squares = (ranks**2).groupby(kept.cell).sum()
    norms = np.sqrt(squares.isotropy * squares.error)
    return len(kept), nan_mean((products / norms)[norms > 0])


def within_runs(units: pd.DataFrame) -> tuple[int, float]:
    """Mean over runs and cells of the partial rank correlation over snapshots, given the validation loss."""
    names = ["isotropy", "error", "validation_loss"]
    complete = units[np.isfinite(units[names].astype(float)).all(axis=1)]
    partial: dict[str, list[float]] = {}
    for (run, _), snapshots in complete.groupby(["run", "cell"]):
        if len(snapshots) >= 4 and not math.isnan(value := partial_correlation(snapshots[names].rank().to_numpy())):
            partial.setdefault(run, []).append(value)
    values = [value for of_run in partial.values() for value in of_run]
    return len(values), float(np.mean(values)) if len(partial) >= 4 else math.nan


def partial_correlation(ranks: np.ndarray) -> float:
    """Correlation of the first two columns after regression on the third."""
    x, y, loss = (column - column.mean() for column in ranks.T)
    # A loss that does not change takes nothing out.
    norm = max(loss @ loss, 1e-300)
    left = [values - loss * (values @ loss) / norm for values in (x, y)]
    if any(rest @ rest <= 1e-9 * max(values @ values, 1e-300) for rest, values in zip(left, (x, y), strict=True)):
        return math.nan
    return float(left[0] @ left[1] / math.sqrt((left[0] @ left[0]) * (left[1] @ left[1])))

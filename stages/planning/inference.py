"""Rows of the table `inference`: the statistics of the units that the SQL views contain."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.planning.population_tests import ANSWERS, Hypothesis, key_of, population_rows
from tsfmscope.statistics import means, selection_regret
from tsfmscope.statistics.options import SeededOptions
from tsfmscope.statistics.permutation import adjust
from tsfmscope.statistics.study import Unit, Units, changes, correlations, signs, tabulate

if TYPE_CHECKING:
    import duckdb

# Kind of pairs -> the view that shows them, and the clusters whose signs are flipped as a whole.
KINDS = {
    "dataset": ("sign_test", "pairs of data sets"),
    "context": ("context_effect", "data sets"),
    "noise": ("noise_effect", "data sets"),
}
KEY = ("study", "answer", "measure", "grouping", "block", "statistic")


def infer(
    connection: duckdb.DuckDBPyConnection, options: SeededOptions, hypotheses: Sequence[Hypothesis] = ()
) -> list[dict[str, Any]]:
    """Return all rows of `inference`, from the views of a catalogue that does not contain that table yet.

    hypotheses: the tests for which the confirming half of the data sets is read, and no others.
    p-values are adjusted over each printed table, that is over the rows of one study and one view.
    """
    claimed_rows = {hypothesis.row for hypothesis in hypotheses}
    rows = [
        *_correlation_rows(connection, options),
        *_sign_rows(connection, options, claimed_rows),
        *_change_rows(connection, options),
        *_rank_rows(connection, options),
        *_advice_rows(connection, options),
        *population_rows(connection, options, claimed_rows),
    ]
    rows = [{k: None if isinstance(v, float) and np.isnan(v) else v for k, v in row.items()} for row in rows]
    printed: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        printed.setdefault((row["study"], row["answer"]), []).append(row)
    for table in printed.values():
        p_bh, p_by, n_tests = adjust(np.array([row.get("p") for row in table], dtype=float))
        for row, bh, by in zip(table, p_bh, p_by, strict=True):
            row |= {"p_bh": float(bh), "p_by": float(by), "n_tests": n_tests}
            row |= {"alpha": options.alpha, "seed": options.seed}
    return sorted(rows, key=lambda row: [row[name] for name in KEY])


def _correlation_rows(connection: duckdb.DuckDBPyConnection, options: SeededOptions) -> Iterator[dict[str, Any]]:
    columns = "study, measure, dataset, model, condition, isotropy, log_nmse"
    statement = f"select {columns} from independent_units order by all"
    families = _families(connection)
    for (study, measure), units in _group_rows(connection, statement, 2):
        for row in correlations(Units.of(map(Unit._make, units), families), options, study, measure):
            yield {"study": study, "measure": measure} | row


def _sign_rows(
    connection: duckdb.DuckDBPyConnection, options: SeededOptions, claimed_rows: Collection[tuple[str, ...]]
) -> Iterator[dict[str, Any]]:
    names = 'study, kind, measure, pair, half, statistic, "cluster", model, answer'
    families = _families(connection)
    for group, pairs in _group_rows(connection, f"select {names} from pair_signs order by all", 6):
        *identity, half, statistic = group
        row = _pair_row(*identity) | {"statistic": statistic}
        if half == "confirmed":
            row["answer"] = ANSWERS["confirmed"]
            if key_of(row) not in claimed_rows:
                continue
        clusters, models, answers = zip(*pairs, strict=True)
        of_models = [families.get(model, model) for model in models]
        yield signs(_to_array(answers), clusters, of_models, options, row, KINDS[row["grouping"]][1])


def _change_rows(connection: duckdb.DuckDBPyConnection, options: SeededOptions) -> Iterator[dict[str, Any]]:
    columns = "study, kind, measure, pair, dataset, model, pair, isotropy_change, log_nmse_change"
    statement = f"select {columns} from condition_pairs where kind != 'dataset' and half = 'explored' order by all"
    for names, pairs in _group_rows(connection, statement, 4):
        units = Units.of(map(Unit._make, pairs), {})
        # [model, dataset]
        x, y = (table[..., 0].T for table in (units.isotropy, units.log_nmse))
        yield changes(x, y, options, _pair_row(*names) | {"statistic": "changes_spearman"})


def _rank_rows(connection: duckdb.DuckDBPyConnection, options: SeededOptions) -> Iterator[dict[str, Any]]:
    columns = 'study, answer, measure, "grouping", block, statistic, sample, x, value'
    for names, units in _group_rows(connection, f"select {columns} from rank_units order by all", 6):
        row = dict(zip(KEY, (names[0], *names[1:]), strict=True))
        samples, x, values = ([unit[n] for unit in units] for n in range(3))
        yield row | means.infer(row["statistic"], samples, _to_array(x), _to_array(values), alpha=options.alpha)


def _advice_rows(connection: duckdb.DuckDBPyConnection, options: SeededOptions) -> Iterator[dict[str, Any]]:
    columns = "study, measure, dataset, model, condition, isotropy, log_nmse, log_nmse_earlier, context"
    statement = f"select {columns} from advice_candidates where is_filled order by all"
    for names, candidates in _group_rows(connection, statement, 2):
        isotropy, error, earlier, contexts = tabulate(candidates, 4)[1]
        for row in selection_regret.compare(isotropy, error, earlier, contexts, options, names):
            yield {"study": names[0], "measure": names[1]} | row


def _families(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return model -> family."""
    return dict(connection.sql("select model, family from checkpoints").fetchall())


def _to_array(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _pair_row(study: str, kind: str, measure: str, pair: str) -> dict[str, Any]:
    return {"study": study, "answer": KINDS[kind][0], "measure": measure, "grouping": kind, "block": pair}


def _group_rows(
    connection: duckdb.DuckDBPyConnection, statement: str, names: int
) -> Iterator[tuple[tuple[str, ...], list[tuple]]]:
    """Yield the rows of a sorted query, grouped by their first `names` columns."""
    for name, rows in itertools.groupby(connection.sql(statement).fetchall(), key=lambda row: row[:names]):
        yield name, [row[names:] for row in rows]

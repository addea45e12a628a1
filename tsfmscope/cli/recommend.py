"""Command `tsfmscope recommend`: a ranking of models and contexts by isotropy, which is no reliable choice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stages.config.defaults import params_here
from stages.config.params import ParamsError
from store.printable import printable
from tsfmscope.cli.options import (
    RESULTS,
    Data,
    Device,
    Horizon,
    Id,
    Json,
    MaxSeries,
    Seed,
    Time,
    TimeFormat,
    TimeZone,
    Value,
    name_columns,
)
from tsfmscope.cli.output import print_json, print_left_out, print_table, with_spread
from tsfmscope.cli.progress import show_progress
from tsfmscope.defaults import MAX_CONTEXT, MIN_CONTEXT
from tsfmscope.errors import QueryError

if TYPE_CHECKING:
    from tsfmscope.cli.ranking import Criteria, Ranking

# Heading of the table -> column of the ranking.
COLUMNS = {
    "": "rank", "model": "model", "context": "context", "steps, min": "n_context_min",
    "steps, median": "n_context_median", "ζ′ − null": "zeta_adjusted_corrected", "ζ′": "zeta_adjusted", "ζ": "zeta",
    "K": "k", "IsoScore": "isoscore", "d(0.8)/width": "dimension_share",
    "s.d. log Z": "log_partition_spread", "tokens": "n_tokens", "reason": "reason",
}  # fmt: skip
MEANING = (
    "Rank 1 is first by {by}. ζ′: mean cosine between tokens of the last layer inside K clusters; ζ′ − null: ζ′ minus "
    "its mean over permuted coordinates, which responds to skewness and to unequal norms; ζ: mean cosine without "
    "clusters; IsoScore (0 to 1) and d(0.8)/width show how evenly the directions are used; "
    "s.d. log Z: spread of a softmax head's log-partition; steps: observed steps of context. "
    "Measured on {tokens} tokens."
)
TIES = (
    "±: standard deviation over token samples and cluster starts. A rank is one more than the number of candidates "
    "that come before it by over two standard deviations of the difference; a shared rank (=) is a tie."
)
# Measured on 28 November 2026: models trained here, data sets that chose nothing, ratios of NMSE (docs/advice.md).
VERDICT = (
    "No reliable choice: on 8 data sets that chose nothing, the model chosen among 14 by isotropy had 1.62 times the "
    "error of the best one (95 % interval 1.20 to 2.24), a random one 1.48, and the one with the least error on an "
    "earlier window 1.35 (1.11 to 1.84). Use errors on an earlier window of your own series."
)
NO_SPREAD = "No standard deviation is known for {by}: only equal values share a rank."
RULES = {
    "advised": "isotropy",
    "validation": "least error on the window before",
    "largest_context": "the largest context",
    "chance": "chance",
}


Contexts = Annotated[
    str | None, typer.Option(help="Context lengths in steps, with commas; default: those of params.yaml.")
]
Measure = Annotated[
    str,
    typer.Option(help="Measure of isotropy: a column of the view `isotropy`, or log_partition_spread (softmax heads)."),
]
RatingResults = Annotated[
    Path | None,
    typer.Option(
        help=f"DuckDB file or saved folder of results that rate such a choice on their data sets; default: {RESULTS}."
    ),
]
RatingStudy = Annotated[
    str | None, typer.Option(help="Study of these results; default: the study of the most data sets.")
]


def recommend(
    data: Data,
    models: Annotated[list[str], typer.Option(help="Model names or references, with commas, or the option again.")],
    contexts: Contexts = None,
    by: Measure = "zeta_adjusted_corrected",
    results: RatingResults = None,
    study: RatingStudy = None,
    horizon: Horizon = None,
    rows: Annotated[int | None, typer.Option(min=30, help="Largest number of tokens per candidate.")] = None,
    max_series: MaxSeries = None,
    seed: Seed = None,
    device: Device = "cpu",
    time: Time = None,
    series_id: Id = None,
    value: Value = None,
    time_format: TimeFormat = None,
    tz: TimeZone = None,
    as_json: Json = False,
) -> None:
    """Rank models and context lengths by isotropy.

    \b
    tsfmscope recommend nile --models chronos-bolt-nano,patchtst-nano --contexts 32,64
    tsfmscope recommend mine.csv --models chronos-t5-nano --contexts 64,128,256 --by log_partition_spread
    tsfmscope recommend mine.csv --models chronos-bolt-nano,moirai-nano --json

    A candidate is one model at one context length; its last layer is measured on your series. Nothing is
    forecast. The order describes the states and is no reliable choice: below the ranks, the command prints how
    such choices compare with chance and with a validation window, and the same on the data sets of the
    results. Exit codes: 0 ranked; 1 no candidate could be measured; 2 the command is not valid.
    """
    from tsfmscope.cli.inspection import InspectRequest
    from tsfmscope.cli.ranking import Criteria, check_measure, find_grouping, list_candidates, rank_candidates

    check_measure(by)
    if results is not None and not results.exists():
        raise ParamsError(f"--results {results}: no such file; `make repro` makes {RESULTS}, or leave the option out")
    names = [name.strip() for text in models for name in text.split(",") if name.strip()]
    criteria = Criteria(names, _steps(contexts), by)
    request = InspectRequest(
        "", data, horizon=horizon, rows=rows, max_series=max_series, seed=seed, device=device,
        columns=name_columns(time, series_id, value, time_format, tz),
    )  # fmt: skip
    params = params_here()
    pairs = list_candidates(params, criteria)
    rules, verdict = _trust(results, criteria, find_grouping(pairs), study)
    with show_progress() as watch:
        ranking = rank_candidates(params, request, criteria, watch)
    if ranking.unfilled:
        filled = [pair for pair in pairs if pair[1] not in ranking.unfilled]
        rules, verdict = _trust(results, criteria, find_grouping(filled), study)
    if as_json:
        print_json(_facts(criteria, ranking, rules, verdict))
        print_left_out(ranking.skipped, as_json=True)
    else:
        _show(data, criteria, ranking)
        if rules:
            _show_trust(rules)
        typer.echo(VERDICT)
        typer.echo(verdict)


def _advised(ranking: Ranking) -> list[dict[str, Any]]:
    return [{"model": row["model"], "context": row["context"]} for row in ranking.rows if row["rank"] == 1]


def _facts(criteria: Criteria, ranking: Ranking, rules: list[dict[str, Any]], verdict: str) -> dict[str, Any]:
    """Return the JSON document of the command."""
    from tsfmscope.cli.ranking_trust import beats_chance

    trust = {"study": rules[0]["study"], "beats_chance": beats_chance(rules), "rules": rules} if rules else None
    unfilled = {"contexts": ranking.unfilled, "longest": ranking.longest} if ranking.unfilled else None
    return {
        "by": criteria.by,
        "advised": _advised(ranking),
        "candidates": ranking.rows,
        "unfilled": unfilled,
        "trust": trust,
        "verdict": f"{VERDICT} {verdict}",
    }


def _steps(text: str | None) -> list[int] | None:
    """Return the numbers of --contexts; None if the option was not given. Raises ParamsError."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not part.isdecimal() or not MIN_CONTEXT <= int(part) <= MAX_CONTEXT:
            raise ParamsError(
                f"--contexts {text}: got {part!r}, expected steps from {MIN_CONTEXT} to {MAX_CONTEXT}; write "
                "--contexts 64,128"
            )
    return list(map(int, parts))


def _trust(path: Path | None, criteria: Criteria, varies: str, study: str | None) -> tuple[list[dict[str, Any]], str]:
    """Return rows of advice_regret and the verdict; without rows, the reason and how to get some.

    Raises ParamsError if the named results database cannot be queried.
    """
    from tsfmscope.cli.ranking_trust import trust, verdict

    database = path or RESULTS
    if not database.exists():
        return [], f"Your own data sets are not rated: {database} does not exist; `make repro` makes it."
    try:
        rules = trust(database, criteria.by, varies, study)
    except QueryError as error:
        problem = f"{database} cannot be queried ({str(error).splitlines()[0]}); `make repro` rebuilds it"
        if path is not None:
            raise ParamsError(f"--results {problem}") from None
        return [], f"Your own data sets are not rated: {problem}."
    if not rules:
        studies = f"no study {study}" if study else "no study"
        choice = varies.replace("_and_", " and ")
        return [], (
            f"Your own data sets are not rated: {database} has {studies} in which the {choice} could be "
            f"chosen by {criteria.by}; docs/advice.md lists what a study needs."
        )
    return rules, verdict(rules)


def _show(data: str, criteria: Criteria, ranking: Ranking) -> None:
    from stages.planning.contexts import describe_unfilled

    rows = ranking.rows
    columns = {name: column for name, column in COLUMNS.items() if any(row[column] is not None for row in rows)}
    if criteria.by not in columns.values():
        columns = {**columns, criteria.by: criteria.by}
    print_table(
        f"{data}, by {criteria.by}",
        list(columns),
        [[_value(row, column) for column in columns.values()] for row in rows],
    )
    sizes = sorted({row["n_tokens"] for row in rows if row["n_tokens"] is not None})
    typer.echo(MEANING.format(by=criteria.by, tokens=" to ".join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))))
    typer.echo(TIES if any(row[f"{criteria.by}_sd"] for row in rows) else NO_SPREAD.format(by=criteria.by))
    if len(sizes) > 1:
        typer.echo("candidates with fewer tokens cannot be compared with the others: ζ, ζ′ and K depend on that number")
    if not _advised(ranking):
        typer.echo(f"no candidate has {criteria.by}")
    if ranking.unfilled:
        typer.echo(f"not ranked: {describe_unfilled(ranking.unfilled, ranking.longest)}")
    for model, license in ranking.licenses.items():
        typer.echo(printable(f"{model}: {license}"))
    print_left_out(ranking.skipped, as_json=False)


def _value(row: Mapping[str, Any], column: str) -> Any:
    """Return a cell of the table. "=" marks a shared rank; a median of steps has no zero fraction."""
    value = row[column]
    if column == "rank" and row["is_tied"]:
        return f"{value}="
    if column == "n_context_median" and value is not None:
        return f"{value:g}"
    return with_spread(value, row.get(f"{column}_sd"))


def _show_trust(rules: Sequence[Mapping[str, Any]]) -> None:
    first = rules[0]
    choice = first["grouping"].replace("_and_", " and ")
    title = f"Choosing the {choice}, in study {first['study']}: NMSE over that of the best in hindsight"
    columns_in_nats = ("regret", "low", "high", "advised_less", "advised_less_low", "advised_less_high")
    lines = [
        [RULES[row["rule"]], row["n"], *(_times(row[column]) for column in columns_in_nats), row["p"], row["advice_is"]]
        for row in rules
    ]
    columns = ["choosing by", "data sets", "times", "low", "high", "isotropy/it", "low", "high", "p", "isotropy is"]
    print_table(title, columns, lines)


def _times(nats: float | None) -> float | None:
    return None if nats is None else math.exp(nats)

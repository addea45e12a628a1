"""Command `tsfmscope recommend`: a ranking of models and contexts by isotropy, and how far to trust it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsfmscope.stages.cli.options import (
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
from tsfmscope.stages.cli.output import print_json, print_left_out, print_table, with_spread
from tsfmscope.stages.cli.progress import show_progress
from tsfmscope.stages.config.defaults import params_here
from tsfmscope.stages.config.params import ParamsError
from tsfmscope.store.errors import QueryError
from tsfmscope.store.printable import printable
from tsfmscope.tasks.defaults import MAX_CONTEXT, MIN_CONTEXT

if TYPE_CHECKING:
    from tsfmscope.stages.cli.ranking import Criteria, Ranking

# Heading of the table -> column of the ranking.
COLUMNS = {
    "": "rank", "model": "model", "context": "context", "steps, min": "n_context_min",
    "steps, median": "n_context_median", "ζ′ − null": "zeta_adjusted_corrected", "ζ′": "zeta_adjusted", "ζ": "zeta",
    "K": "k", "s.d. log Z": "log_partition_spread", "tokens": "n_tokens", "reason": "reason",
}  # fmt: skip
MEANING = (
    "Rank 1 is the most isotropic by {by}. ζ′: mean cosine between tokens of the last layer inside K clusters; "
    "ζ′ − null: ζ′ minus its mean for isotropic states (0: isotropic); ζ: mean cosine without clusters; "
    "s.d. log Z: spread of a softmax head's log-partition; steps: observed steps of context. "
    "Measured on {tokens} tokens."
)
TIES = (
    "±: standard deviation over token samples and cluster starts. A rank is one more than the number of candidates "
    "that are nearer to isotropic by over two standard deviations of the difference; a shared rank (=) is a tie."
)
NO_SPREAD = "No standard deviation is known for {by}: only equal values share a rank."
RULES = {
    "advised": "this advice",
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
        help=f"DuckDB file or saved folder of results that rate the reliability of the advice; default: {RESULTS}."
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
    forecast. Below the ranks, the command prints how far to trust them: on the data sets of the
    results, the cost of such advice over the best choice in hindsight, compared with a validation window, the
    largest context and chance. It states if the advice does not beat chance. Exit codes: 0 ranked, trusted or
    not; 1 no candidate could be measured; 2 the command is not valid.
    """
    from tsfmscope.stages.cli.inspection import InspectRequest
    from tsfmscope.stages.cli.ranking import Criteria, check_measure, find_grouping, list_candidates, rank_candidates

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
        typer.echo(verdict)


def _advised(ranking: Ranking) -> list[dict[str, Any]]:
    return [{"model": row["model"], "context": row["context"]} for row in ranking.rows if row["rank"] == 1]


def _facts(criteria: Criteria, ranking: Ranking, rules: list[dict[str, Any]], verdict: str) -> dict[str, Any]:
    """Return the JSON document of the command."""
    from tsfmscope.stages.cli.ranking_trust import beats_chance

    trust = {"study": rules[0]["study"], "beats_chance": beats_chance(rules), "rules": rules} if rules else None
    unfilled = {"contexts": ranking.unfilled, "longest": ranking.longest} if ranking.unfilled else None
    return {
        "by": criteria.by,
        "advised": _advised(ranking),
        "candidates": ranking.rows,
        "unfilled": unfilled,
        "trust": trust,
        "verdict": verdict,
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
    from tsfmscope.stages.cli.ranking_trust import trust, verdict

    database = path or RESULTS
    if not database.exists():
        return [], f"The reliability of this advice is unknown: {database} does not exist; `make repro` makes it."
    try:
        rules = trust(database, criteria.by, varies, study)
    except QueryError as error:
        problem = f"{database} cannot be queried ({str(error).splitlines()[0]}); `make repro` rebuilds it"
        if path is not None:
            raise ParamsError(f"--results {problem}") from None
        return [], f"The reliability of this advice is unknown: {problem}."
    if not rules:
        studies = f"no study {study}" if study else "no study"
        choice = varies.replace("_and_", " and ")
        return [], (
            f"The reliability of this advice is unknown: {database} has {studies} in which the {choice} could be "
            f"chosen by {criteria.by}; docs/advice.md lists what a study needs."
        )
    return rules, verdict(rules)


def _show(data: str, criteria: Criteria, ranking: Ranking) -> None:
    from tsfmscope.stages.pipeline.contexts import describe_unfilled

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
    advice = " or ".join(f"{choice['model']} at context {choice['context']}" for choice in _advised(ranking))
    typer.echo(f"advice: {advice}" if advice else f"advice: none, no candidate has {criteria.by}")
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
    columns = ["choosing by", "data sets", "times", "low", "high", "advice/it", "low", "high", "p", "advice is"]
    print_table(title, columns, lines)


def _times(nats: float | None) -> float | None:
    return None if nats is None else math.exp(nats)

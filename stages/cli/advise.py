"""`tsfm-lens advise`: which model and context, by isotropy, for data without labels, and how far to trust that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from stages.advising import RESULTS, Choice, beats_chance, candidates, ranked, trust, verdict, what_varies
from stages.cli.look import params_here, watched
from stages.cli.output import Json, say_json, say_left_out, say_table
from stages.params import ParamsError
from store.errors import QueryError


class By(StrEnum):
    """Of view `isotropy`, and a softmax head's log-partition."""

    zeta_adjusted = "zeta_adjusted"
    zeta_adjusted_corrected = "zeta_adjusted_corrected"
    zeta = "zeta"
    log_isotropy_scaled = "log_isotropy_scaled"
    isoscore = "isoscore"
    log_partition_spread = "log_partition_spread"


COLUMNS = {  # of the table: heading -> column
    "": "rank", "model": "model", "context": "context", "ζ′": "zeta_adjusted", "ζ": "zeta", "K": "k",
    "s.d. log Z": "log_partition_spread", "tokens": "n_tokens", "why none": "reason",
}  # fmt: skip
MEANING = (
    "1 is the most isotropic by {by}. ζ′: mean cosine between tokens of the last layer inside K clusters (0: every "
    "direction alike), ζ: without clusters, s.d. log Z: of a softmax head's log-partition; on {tokens} tokens."
)
RULES = {
    "advised": "this advice",
    "validation": "least error on the window before",
    "largest_context": "the largest context",
    "chance": "chance",
}


def advise(
    data: Annotated[str, typer.Argument(help="As of `look`; nothing in it needs to be forecast or labelled.")],
    models: Annotated[list[str], typer.Option(help="As of `look`: names with commas, or the option again.")],
    contexts: Annotated[str | None, typer.Option(help="Steps, with commas; default: those of params.yaml.")] = None,
    by: Annotated[By, typer.Option(help="What isotropy is; the last: of softmax heads only.")] = By.zeta_adjusted,
    results: Annotated[Path | None, typer.Option(help=f"Where trust is from; default: {RESULTS}.")] = None,
    study: Annotated[str | None, typer.Option(help="Of the results; default: that of the most data sets.")] = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Steps after it; default: the data set's, or 24.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=30, help="Tokens of a candidate, at most.")] = None,
    max_series: Annotated[int | None, typer.Option(min=1, help="A seeded sample where there are more.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of sampled series, tokens and clusters.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    as_json: Json = False,
) -> None:
    """Rank models and context lengths by how isotropic their last layer is on your series; nothing is forecast.

    \b
    tsfm-lens advise nile --models chronos-bolt-nano,patchtst-nano --contexts 32,64
    tsfm-lens advise mine.csv --models chronos-t5-nano --contexts 64,128,256 --by log_partition_spread
    tsfm-lens advise mine.csv --models chronos-bolt-nano,moirai-nano --json

    Below the ranks stands how far to trust them: on the data sets of the results, what such advice cost over the best
    in hindsight, against a validation window, the largest context and chance. Where it does not beat chance, that is
    said. Exit codes: 0 ranked, trusted or not; 1 no candidate could be looked at; 2 the command is to be mended.
    """
    from stages.looking import Asked

    names = [name.strip() for one in models for name in one.split(",") if name.strip()]
    choice = Choice(names, _steps(contexts), by.value)
    asked = Asked("", data, horizon=horizon, rows=rows, max_series=max_series, seed=seed, device=device)
    if results is not None and not results.is_file():
        raise ParamsError(f"--results {results}: no such file; `make repro` makes {RESULTS}, or leave the option out")
    params = params_here()
    rules, said = _trust(results, choice, what_varies(candidates(params, choice)), study)
    with watched() as watch:
        ranking = ranked(params, asked, choice, watch)
    found = ranking.rows
    best = [{"model": row["model"], "context": row["context"]} for row in found if row["rank"] == 1]
    if as_json:
        beats = beats_chance(rules) if rules else None
        trusted = {"study": rules[0]["study"], "beats_chance": beats, "rules": rules} if rules else None
        say_json({"by": choice.by, "advised": best, "candidates": found, "trust": trusted, "said": said})
        say_left_out(ranking.skipped, aside=True)
        return
    _show(data, choice, found, best)
    say_left_out(ranking.skipped, aside=False)
    if rules:
        _show_trust(rules)
    typer.echo(said)


def _steps(text: str | None) -> list[int] | None:
    """The numbers of --contexts."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not part.isdecimal() or int(part) < 16:
            raise ParamsError(
                f"--contexts {text}: got {part!r}, expected whole numbers of steps from 16 on; write --contexts 64,128"
            )
    return list(map(int, parts))


def _trust(path: Path | None, choice: Choice, varies: str, study: str | None) -> tuple[list[dict[str, Any]], str]:
    """Rows of advice_regret and the verdict; without rows, why there is none and how to have some."""
    where = path or RESULTS
    if not where.is_file():
        return [], f"How far to trust this is not known here: there is no {where}; `make repro` makes it."
    try:
        rules = trust(where, choice.by, varies, study)
    except QueryError as error:
        why = f"{where} does not answer ({str(error).splitlines()[0]}); `make repro` makes it anew"
        if path is not None:
            raise ParamsError(f"--results {why}") from None
        return [], f"How far to trust this is not known here: {why}."
    if not rules:
        of = f"no study {study}" if study else "no study"
        asked = varies.replace("_and_", " and ")
        return [], (
            f"How far to trust this is not known: {where} has {of} in which the {asked} could be chosen by "
            f"{choice.by}; docs/advice.md says what a study needs."
        )
    return rules, verdict(rules)


def _show(data: str, choice: Choice, found: Sequence[Mapping[str, Any]], best: Sequence[Mapping[str, Any]]) -> None:
    columns = {name: column for name, column in COLUMNS.items() if any(row[column] is not None for row in found)}
    if choice.by not in columns.values():
        columns = {**columns, choice.by: choice.by}
    say_table(f"{data}, by {choice.by}", list(columns), [[row[one] for one in columns.values()] for row in found])
    sizes = sorted({row["n_tokens"] for row in found if row["n_tokens"] is not None})
    typer.echo(MEANING.format(by=choice.by, tokens=" to ".join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))))
    if len(sizes) > 1:
        typer.echo("candidates with so few tokens cannot be compared with the others: ζ, ζ′ and K depend on the number")
    named = " or ".join(f"{one['model']} at context {one['context']}" for one in best)
    typer.echo(f"advice: {named}" if best else f"advice: none, no candidate has {choice.by}")


def _show_trust(rules: Sequence[Mapping[str, Any]]) -> None:
    first = rules[0]
    what = first["grouping"].replace("_and_", " and ")
    title = f"Choosing the {what}, in study {first['study']}: NMSE over that of the best in hindsight"
    nats = ("regret", "low", "high", "advised_less", "advised_less_low", "advised_less_high")
    lines = [
        [RULES[row["rule"]], row["n"], *(_times(row[one]) for one in nats), row["p"], row["advice_is"]] for row in rules
    ]
    columns = ["choosing by", "data sets", "times", "low", "high", "advice/it", "low", "high", "p", "advice is"]
    say_table(title, columns, lines)


def _times(nats: float | None) -> float | None:
    return None if nats is None else math.exp(nats)

"""`tsfm-lens advise`: models and contexts ranked by the isotropy of their states on unlabelled data, and its trust.

A candidate is looked at as `look` does, its last layer alone, candidates on equally many tokens: ζ, ζ′ and K depend on
their number. One that has too few for clusters does not cost the others theirs, and its number stands beside it. The
trust is that of answer advice_regret: what such advice was worth where the errors are known.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import store
from stages import DATA, heads, planning
from stages.looking import (
    CONTEXT,
    Asked,
    AtHand,
    Watch,
    at_hand,
    isotropy,
    left_out,
    place_of,
    placed,
    states,
    token_dump,
    under,
)
from stages.naming import find
from stages.params import Params, ParamsError
from store.dumps import last_layers
from store.query import query
from tasks.errors import DataError, HealthError, ModelError
from tasks.sweep.jobs import Job

if TYPE_CHECKING:
    import pyarrow as pa

Measure = Literal[  # as in view `isotropy`, and advice_regret
    "zeta_adjusted", "zeta_adjusted_corrected", "zeta", "log_isotropy_scaled", "isoscore", "log_partition_spread"
]
LARGER = ("log_isotropy_scaled", "isoscore")  # is more isotropic; of the others, nearer to 0 is
FROM_VOCABULARY = ("chronos-t5", "wavetoken")  # whose last layer is the decoder's, as in last_layer.sql
NO_HEAD = "log_partition_spread: no softmax head; chronos-t5 and wavetoken have one"
SHOWN = ("zeta_adjusted", "zeta_adjusted_corrected", "zeta", "log_isotropy_scaled", "isoscore", "k", "n_tokens")
RESULTS = Path(DATA, "results.duckdb")


@dataclass(frozen=True)
class Choice:
    """What is chosen from, and by what. contexts: None for those of params.yaml, else as many as there are."""

    models: Sequence[str]
    contexts: Sequence[int] | None = None
    by: Measure = "zeta_adjusted"


@dataclass(frozen=True)
class Seen:
    """A candidate after its forward pass: the states of its last layer, the spread of its head's log Z, or why not."""

    model: str
    context: int
    it: AtHand | None = None
    last: pa.Table | None = None
    log_z_sd: float | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)
    error: Exception | None = None


@dataclass(frozen=True)
class Ranked:
    """rows: one a candidate, the most isotropic first; skipped: reason -> series that gave no window."""

    rows: list[dict[str, Any]]
    skipped: Mapping[str, int]


def ranked(params: Params, asked: Asked, choice: Choice, watch: Watch) -> Ranked:
    """The candidates with their rank: ties share one; None where it has none, with the reason.

    asked: of `look`, but for model and context. Raises ParamsError for a name or value that cannot be meant, or where
    there is nothing to choose from, and what the first candidate raised where none can be looked at.
    """
    pairs = candidates(params, choice)
    with placed(asked.device):
        seen: list[Seen] = []
        for done, model in enumerate(dict.fromkeys(choice.models)):
            watch(f"candidates: {model}", done, len(set(choice.models)))
            seen += _passed(params, asked, model, [context for one, context in pairs if one == model])
    if first := next((one.error for one in seen if all(each.error for each in seen)), None):
        raise first
    sizes = [one.last.num_rows for one in seen if one.last is not None]
    block = params.geometry
    enough = [size for size in sizes if size >= block.k_max * block.min_cluster]
    rows, fewest = [], min(enough or [max(sizes)])
    for done, one in enumerate(seen):
        watch("measuring candidates", done, len(seen))
        rows.append(_row(one, fewest, choice.by))
    return Ranked(_in_order(rows), _left_out(seen))


def candidates(params: Params, choice: Choice) -> list[tuple[str, int]]:
    """Model and context of every candidate; ParamsError where there are not two, or a name cannot be meant."""
    pairs = list(itertools.product(dict.fromkeys(choice.models), _contexts(params, choice)))
    if len(pairs) < 2:
        raise ParamsError(
            f"--models {','.join(choice.models)}, --contexts {pairs[0][1] if pairs else 'none'}: one candidate is "
            "nothing to choose from; name another model or context"
        )
    for model in choice.models:
        with contextlib.suppress(ModelError):  # one that is not to be had costs itself only
            find(params, model)
    return pairs


def _contexts(params: Params, choice: Choice) -> list[int]:
    """Those asked for, else those of params.yaml's conditions without noise, else the usual one."""
    if choice.contexts is not None:
        return list(dict.fromkeys(choice.contexts))
    plain = [one for one in params.conditions.values() if one.modality == "series" and not one.noise + one.history]
    return list(dict.fromkeys(one.context for one in plain)) or [CONTEXT]


def what_varies(pairs: Sequence[tuple[str, int]]) -> str:
    """Grouping of advice_regret that the choice is like."""
    sides = zip(("model", "context"), zip(*pairs, strict=True), strict=True)
    return "_and_".join(name for name, values in sides if len(set(values)) > 1)


def trust(path: Path, by: Measure, grouping: str, study: str | None = None) -> list[dict[str, Any]]:
    """Rows of advice_regret, one a rule, of the study that compares on most data sets; [] where none does.

    study: the one that is meant. Raises QueryError where there is no database, or one older than this question.
    """
    asked = f"""select * from advice_regret where measure = '{by}' and "grouping" = '{grouping}'"""
    with store.open(path, threads=1) as connection:
        rows: list[dict[str, Any]] = query(connection, asked).to_pylist()
    sizes = {row["study"]: row["n"] for row in rows if row["rule"] == "advised" and study in (None, row["study"])}
    chosen = min(sizes, key=lambda name: (-sizes[name], name), default=None)
    return [row for row in rows if row["study"] == chosen]


def beats_chance(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the advice is better than chance, also where models change places in all data sets at once.

    And after Benjamini-Hochberg over all that the answer tests: there are several measures to choose from. A measure
    that is fond of one model is better than chance wherever that model happens to be good; of others that says nothing.
    """
    chance = next(row for row in rows if row["rule"] == "chance")
    fond = chance["p_models"] is not None and chance["p_models"] > chance["alpha"]
    return chance["advice_is"] == "better" and chance["p_bh"] <= chance["alpha"] and not fond


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """In words, whether the advice beats chance on the data sets of the store."""
    chance = next(row for row in rows if row["rule"] == "chance")
    names = ("advised_less", "advised_less_low", "advised_less_high")
    ratio, low, high = (None if chance[name] is None else math.exp(chance[name]) for name in names)
    made = low is not None and high is not None
    between = f", {100 - 100 * chance['alpha']:g} % interval {low:.2f} to {high:.2f}" if made else ", no interval"
    p = (
        ""
        if chance["p"] is None
        else f", p = {chance['p']:.3g}, corrected for {chance['n_tests']} tests {chance['p_bh']:.3g}"
    )
    found = f"NMSE {ratio:.2f} of chance's{between}{p}"
    models = "" if chance["p_models"] is None else f" (p = {chance['p_models']:.3g} where models change places)"
    if beats_chance(rows):
        still = any(row["rule"] == "validation" and row["advice_is"] == "worse" for row in rows)
        but = " Errors on an earlier window of the series choose better still." if still else ""
        return f"On {chance['n']} data sets this advice beats chance: {found}{models}.{but}"
    if chance["advice_is"] == "better":
        return (
            f"On {chance['n']} data sets this advice is better than chance, but that is not shown to be its own doing: "
            f"{found}{models}. It may be one test of many, or a taste for a model that happens to be good there."
        )
    worse = "is worse than" if chance["advice_is"] == "worse" else "does not beat"
    return (
        f"On {chance['n']} data sets this advice {worse} chance: {found}{models}. Take the order for a description of "
        "the states, not for a choice; errors on an earlier window of your own series say more."
    )


def _passed(params: Params, asked: Asked, model: str, wanted: Sequence[int]) -> Iterator[Seen]:
    """The candidates of one model, which is loaded once and let go of. One that cannot be looked at says why."""
    try:
        first = at_hand(params, replace(asked, model=model, context=wanted[0]), lambda *now: None)
    except (DataError, ModelError) as error:
        yield from (Seen(model, context, error=error) for context in wanted)
        return
    for context in wanted:
        try:
            yield _seen(under(first, params, replace(asked, model=model, context=context)), model, context)
        except (DataError, ModelError, HealthError) as error:
            yield Seen(model, context, error=error)
        except ValueError as error:  # what a family says to a context that it cannot take
            yield Seen(model, context, error=ModelError(f"{model} at context {context}: {error}"))


def _seen(it: AtHand, model: str, context: int) -> Seen:
    """One forward pass; of a softmax head another, which log Z is of."""
    from tasks.models.heads import partition

    dump, skipped = token_dump(it)
    layers = {place_of(table.to_batches()[0]): table for table in states(it, dump)}
    stacks = {stack: place for place in last_layers(layers) for stack in place[:1]}
    stack = "decoder" if it.source.family in FROM_VOCABULARY else max(stacks)
    spread = None
    if it.model.softmax_head:
        block = {"rows": it.params.heads.rows, "batch": it.params.heads.batch}
        spec = planning.identity(it.params, it.cell) | block | {"seed": it.params.seed}
        spread = partition(Job(heads.PARTITION, spec), dump, it.model).rows[0]["log_z_sd"]
    without = left_out(it.series, skipped)
    return Seen(model, context, replace(it, model=None), layers[stacks[stack]], spread, without)  # type: ignore[arg-type]


def _left_out(seen: Sequence[Seen]) -> dict[str, int]:
    """Reason -> series, the most of the candidates; with the contexts, where not all of them leave out as many."""
    looked = [one for one in seen if one.error is None]
    contexts = dict.fromkeys(one.context for one in looked)
    found = {}
    for reason in dict.fromkeys(reason for one in looked for reason in one.skipped):
        most = {at: max(one.skipped.get(reason, 0) for one in looked if one.context == at) for at in contexts}
        for n in sorted({*most.values()} - {0}):
            where = [str(at) for at in contexts if most[at] == n]
            found[reason if len(where) == len(contexts) else f"{reason}, at context {', '.join(where)}"] = n
    return found


def _row(one: Seen, fewest: int, by: Measure) -> dict[str, Any]:
    row: dict[str, Any] = {"model": one.model, "context": one.context, "score": None} | dict.fromkeys(SHOWN)
    row |= {"log_partition_spread": one.log_z_sd, "reason": None}
    if one.it is None or one.last is None:
        return row | {"reason": str(one.error)}
    params = one.it.params
    params = params.model_copy(update={"geometry": params.geometry.model_copy(update={"rows": fewest})})
    found = isotropy(params, one.it.cell, one.last)
    row |= {name: found[name] for name in SHOWN} | {"stack": found["stack"], "layer": found["layer"]}
    value = row[by]
    if value is None:
        why = NO_HEAD if by == "log_partition_spread" else found["reason"]
        return row | {"reason": next((one for one in why.split("; ") if one.startswith(f"{by}:")), why)}
    return row | {"score": value if by in LARGER else -abs(value)}


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The most isotropic first, those without a score last; each says its rank, which ties share."""
    scores = [row["score"] for row in rows if row["score"] is not None]
    ranks = [None if row["score"] is None else 1 + sum(one > row["score"] for one in scores) for row in rows]
    listed = [{"rank": rank} | row for rank, row in zip(ranks, rows, strict=True)]
    return sorted(listed, key=lambda row: math.inf if row["rank"] is None else row["rank"])

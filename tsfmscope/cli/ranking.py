"""Ranking of models and contexts by the isotropy of their states, for `tsfmscope recommend`.

The data need no labels. A candidate is one model at one context length. Only its last layer is measured, in
the same way as by `inspect`. All candidates are measured on the same number of tokens, because ζ, ζ′ and K
depend on that number. A candidate with too few tokens for clusters is measured on the tokens that it has, and
their number is printed.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from stages.config.params import Params, ParamsError
from stages.planning.contexts import Observed
from stages.planning.model_reference import resolve
from store.schema import arrow_schema
from store.tables.results import isotropy_measures
from tsfmscope.cli.inspection import (
    InspectRequest,
    LoadedCase,
    Watch,
    count_left_out,
    device_context,
    hidden_states,
    load_case,
    tokenize_case,
    with_context,
)
from tsfmscope.cli.provenance import license_of_source
from tsfmscope.defaults import CONTEXT
from tsfmscope.errors import DataError, HealthError, ModelError

if TYPE_CHECKING:
    import numpy as np

    from tsfmscope.geometry.options import IsotropyOptions
    from tsfmscope.models.base import Family
    from tsfmscope.models.licenses import License

logger = logging.getLogger(__name__)

# Measures of the last layer's states, as in the view `isotropy`.
MEASURES = {column.name: column.more_isotropic for column in isotropy_measures()}
# Measure of a softmax head; a value nearer to 0 ranks first.
HEAD_MEASURE = "log_partition_spread"
DEFAULT_MEASURE = "zeta_adjusted_corrected"
NO_HEAD = f"{HEAD_MEASURE}: the model has no softmax head; rank by another measure"
# Measure -> the column of its standard deviation, for measures that have one.
SPREADS = {name: f"{name}_sd" for name in MEASURES if f"{name}_sd" in arrow_schema("geometry").names}
SHOWN = (*MEASURES, *SPREADS.values(), "repeats", "k", "n_tokens")
# Two candidates tie within this many standard deviations of their difference; chance exceeds it in
# about 5 % of cases.
TIE = 2.0
OBSERVED = ("n_context_min", "n_context_median")


@dataclass(frozen=True)
class Criteria:
    """Models and contexts to choose from, and the measure to rank them by.

    contexts: context lengths in steps; None takes those of params.yaml.
    """

    models: Sequence[str]
    contexts: Sequence[int] | None = None
    by: str = DEFAULT_MEASURE


class LastLayer(NamedTuple):
    """Last layer of the stack that forecasts, with its states [token, width] and their token types."""

    stack: str
    layer: int
    states: np.ndarray
    types: np.ndarray | None


@dataclass(frozen=True)
class Candidate:
    """Candidate after its forward pass, with the states of its last layer or the error that prevented it.

    log_z_sd: standard deviation of the softmax head's log Z, None without such a head. skipped: reason ->
    number of series that were left out. longest: steps that the longest series has for a context; None if the
    series could not be read. license: licence of the weights; None if the model could not be loaded.
    """

    model: str
    context: int
    last: LastLayer | None = None
    log_z_sd: float | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)
    error: Exception | None = None
    observed: Observed | None = None
    longest: int | None = None
    license: License | None = None

    @property
    def is_filled(self) -> bool:
        """Whether at least one series is as long as the context; True if the lengths are not known."""
        if self.observed is not None:
            return self.observed.is_filled
        return self.longest is None or self.longest >= self.context


@dataclass(frozen=True)
class Ranking:
    """Ranking of the candidates.

    rows: one per candidate, the most isotropic first. skipped: reason -> number of series that gave no
    window.
    unfilled: contexts that no series fills, whose candidates are not ranked. longest: the longest context, in
    steps, that a series fills; None if no series could be read. licenses: model -> licence of its weights.
    """

    rows: list[dict[str, Any]]
    skipped: Mapping[str, int]
    unfilled: Sequence[int] = ()
    longest: int | None = None
    licenses: Mapping[str, License] = field(default_factory=dict)


def rank_candidates(params: Params, request: InspectRequest, criteria: Criteria, watch: Watch) -> Ranking:
    """Measure every candidate and return the ranking.

    Candidates that tie share a rank. A candidate that has no value has rank None and a reason. Contexts that
    no series fills are left out, because they would differ only in padding; contexts of which a model reads the same
    steps are measured once.
    request: as for `inspect`; its model and context are replaced by each candidate's.
    Raises ParamsError for a name or value that is not valid, or for fewer than two candidates. If no
    candidate can be measured, raises the error of the first one.
    """
    pairs = list_candidates(params, criteria)
    with device_context(request.device):
        measured: list[Candidate] = []
        for n_done, model in enumerate(dict.fromkeys(criteria.models)):
            watch(f"candidates: {model}", n_done, len(set(criteria.models)))
            measured += _run_model(params, request, model, [context for name, context in pairs if name == model])
    if len(measured) < 2:
        raise ParamsError(
            f"--contexts: expected two or more candidates that read different steps, got {len(measured)}; name another "
            "model, or contexts that the model reads"
        )
    measured, unfilled, longest = select_filled(measured)
    if all(candidate.error for candidate in measured) and (
        first := next((candidate.error for candidate in measured), None)
    ):
        raise first
    block = params.geometry
    sizes = [len(candidate.last.states) for candidate in measured if candidate.last is not None]
    enough = [size for size in sizes if size >= block.k_max * block.min_cluster]
    tokens = min(enough or [max(sizes)])
    seed = params.seed if request.seed is None else request.seed
    rows = []
    for n_done, candidate in enumerate(measured):
        watch("measuring candidates", n_done, len(measured))
        rows.append(_row(candidate, tokens, criteria.by, seed, block))
    licenses = {candidate.model: candidate.license for candidate in measured if candidate.license}
    return Ranking(assign_ranks(rows, criteria.by), count_skipped(measured), unfilled, longest, licenses)


def select_filled(measured: Sequence[Candidate]) -> tuple[list[Candidate], list[int], int | None]:
    """Return the candidates whose context a series fills, the other contexts, and the longest context filled.

    Raises ParamsError if leaving out contexts leaves fewer than two candidates.
    """
    remaining = [candidate for candidate in measured if candidate.is_filled]
    unfilled = list(dict.fromkeys(candidate.context for candidate in measured if not candidate.is_filled))
    longest = max((candidate.longest for candidate in measured if candidate.longest is not None), default=None)
    if unfilled and len(remaining) < 2:
        raise ParamsError(
            f"contexts {', '.join(map(str, unfilled))}: no series fills them, the longest has {longest} steps before "
            f"its horizon; that leaves {len(remaining)} of {len(measured)} candidates, expected two or more: name "
            f"contexts of at most {longest} steps with --contexts, shorten --horizon or give longer series"
        )
    return remaining, unfilled, longest


def list_candidates(params: Params, choice: Criteria) -> list[tuple[str, int]]:
    """Return the model and context of every candidate.

    Raises ParamsError if there are fewer than two candidates, or if a model's name is not valid.
    """
    pairs = list(itertools.product(dict.fromkeys(choice.models), _contexts(params, choice)))
    if len(pairs) < 2:
        raise ParamsError(
            f"--models {','.join(choice.models)}, --contexts {pairs[0][1] if pairs else 'none'}: got one candidate, "
            "expected two or more; name another model or context"
        )
    for model in choice.models:
        # A checkpoint that cannot be obtained is reported with its own candidates; the others are
        # still ranked.
        with contextlib.suppress(ModelError):
            resolve(params, model)
    return pairs


def _contexts(params: Params, choice: Criteria) -> list[int]:
    """Return the requested contexts, else those of params.yaml's conditions without noise, else CONTEXT.

    Of params.yaml, only conditions for series and without a history count.
    """
    if choice.contexts is not None:
        return list(dict.fromkeys(choice.contexts))
    plain = [
        condition
        for condition in params.conditions.values()
        if condition.modality == "series" and not condition.noise + condition.history
    ]
    return list(dict.fromkeys(condition.context for condition in plain)) or [CONTEXT]


def check_measure(name: str) -> None:
    """Raise ParamsError, with the list, for a measure that candidates cannot be ranked by."""
    known = (*MEASURES, HEAD_MEASURE)
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ParamsError(f"--by {name}: expected one of {', '.join(known)}{hint}")


def find_grouping(pairs: Sequence[tuple[str, int]]) -> str:
    """Return the grouping of advice_regret that matches the candidates.

    It is "model", "context" or "model_and_context".
    """
    sides = zip(("model", "context"), zip(*pairs, strict=True), strict=True)
    return "_and_".join(name for name, values in sides if len(set(values)) > 1)


def _run_model(params: Params, request: InspectRequest, model: str, contexts: Sequence[int]) -> Iterator[Candidate]:
    """Yield the candidates of one model, which is loaded once and then released.

    A candidate that cannot be measured holds its error.
    """
    try:
        first = load_case(params, replace(request, model=model, context=contexts[0]), lambda *now: None)
    except (DataError, ModelError) as error:
        yield from (Candidate(model, context, error=error) for context in contexts)
        return
    unread = _unread_contexts(first.model, contexts)
    for context in unread:
        logger.warning(f"not ranked: {model} at context {context}: it reads the last {first.model.max_context} steps")
    for context in (context for context in contexts if context not in unread):
        try:
            case = with_context(first, params, replace(request, model=model, context=context))
            longest = case.longest_context
            if longest < case.read_context:
                yield Candidate(model, context, longest=longest)
            else:
                license = license_of_source(case.source)
                yield replace(_run(case, params.heads.rows, params.heads.batch), model=model, license=license)
        except (DataError, ModelError, HealthError) as error:
            yield Candidate(model, context, error=error)
        # A family raises ValueError for a context length that it does not accept.
        except ValueError as error:
            yield Candidate(model, context, error=ModelError(f"{model} at context {context}: {error}"))


def _unread_contexts(model: Family, contexts: Sequence[int]) -> list[int]:
    """Return the contexts of which the model reads no more steps than of another one, but the first of them."""
    limit = model.max_context
    first: dict[int, int] = {}
    for context in sorted(contexts):
        first.setdefault(context if limit is None else min(context, limit), context)
    return [context for context in contexts if context not in first.values()]


def _run(case: LoadedCase, head_rows: int, head_batch: int | None) -> Candidate:
    """Run one forward pass and keep the last layer's states.

    A model with a softmax head gets a second pass, for its log Z, on windows with head_rows tokens.
    """
    from tsfmscope.geometry.head import partition_spread
    from tsfmscope.lens import log_partition_values, token_types
    from tsfmscope.models.common.batches import sample_windows

    tokens, skipped, observed, _ = tokenize_case(case)
    states = hidden_states(case, tokens)
    last: LastLayer | None = None
    for layer in states.layers:
        # The last state of a stack comes last: after the final norm, where there is one.
        if layer.stack == case.model.output_stack:
            types = token_types(tokens, layer.stack, states.rows[layer.stack])
            last = LastLayer(layer.stack, layer.layer, layer.states, types)
    spread = None
    if case.model.softmax_head:
        windows = sample_windows(tokens, head_rows, case.seed)
        values, _ = log_partition_values(case.model, windows, batch=head_batch, device=case.device)
        spread = partition_spread(values).sd
    left_out = count_left_out(case.series, skipped)
    return Candidate(case.source.name, case.context, last, spread, left_out, None, observed, observed.longest)


def count_skipped(candidates: Sequence[Candidate]) -> dict[str, int]:
    """Return the number of series left out by reason.

    For each context, the number is the largest over its candidates. If contexts differ, each number has an
    entry of its own, whose reason names the contexts.
    """
    measured = [candidate for candidate in candidates if candidate.error is None]
    contexts = dict.fromkeys(candidate.context for candidate in measured)
    counts = {}
    for reason in dict.fromkeys(reason for candidate in measured for reason in candidate.skipped):
        largest = {
            context: max(candidate.skipped.get(reason, 0) for candidate in measured if candidate.context == context)
            for context in contexts
        }
        for n in sorted({*largest.values()} - {0}):
            names = [str(context) for context in contexts if largest[context] == n]
            counts[reason if len(names) == len(contexts) else f"{reason}, at context {', '.join(names)}"] = n
    return counts


def _row(candidate: Candidate, tokens: int, by: str, seed: int, options: IsotropyOptions) -> dict[str, Any]:
    """Return the ranking's row of a candidate."""
    from tsfmscope.geometry.dimension import effective_dimension
    from tsfmscope.geometry.measure import measure_states, subsample
    from tsfmscope.geometry.repeats import SHARE

    row: dict[str, Any] = {"model": candidate.model, "context": candidate.context, "score": None}
    row |= candidate.license.columns if candidate.license else dict.fromkeys(("license", "license_source"))
    row |= dict.fromkeys((*OBSERVED, *SHOWN))
    row |= dict.fromkeys(f"{name}_sd" for name in (*MEASURES, HEAD_MEASURE) if name not in SPREADS)
    row |= {HEAD_MEASURE: candidate.log_z_sd, "dimension_share": None, "reason": None}
    if candidate.last is None or candidate.observed is None:
        return row | {"reason": str(candidate.error)}
    row |= candidate.observed.columns
    last = candidate.last
    measured = measure_states(*subsample(last.states, last.types, tokens, seed=seed), options, seed=seed)
    row |= {name: measured[name] for name in SHOWN} | {"stack": last.stack, "layer": last.layer}
    if any(variances := measured["eigenvalues"]):
        row["dimension_share"] = effective_dimension(variances, SHARE) / len(variances)
    value = row[by]
    if value is None:
        reason = NO_HEAD if by == HEAD_MEASURE else measured["reason"]
        return row | {"reason": next((part for part in reason.split("; ") if part.startswith(f"{by}:")), reason)}
    return row | {"score": value if MEASURES.get(by) == "larger" else -abs(value)}


def assign_ranks(rows: list[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """Return the rows sorted by rank, then by value; rows without a score come last.

    A rank is one more than the number of candidates that clearly come before it, so candidates of one
    rank tie.
    """
    scored = [row for row in rows if row["score"] is not None]
    # A candidate whose standard deviation is not known gets the largest one of all candidates.
    default_sd = max((row[f"{by}_sd"] or 0.0 for row in scored), default=0.0)
    ranks = [
        None if row["score"] is None else 1 + sum(_is_above(other, row, by, default_sd) for other in scored)
        for row in rows
    ]
    ranked = [
        {"rank": rank, "is_tied": rank is not None and ranks.count(rank) > 1} | row
        for rank, row in zip(ranks, rows, strict=True)
    ]
    return sorted(ranked, key=lambda row: (math.inf, 0.0) if row["rank"] is None else (row["rank"], -row["score"]))


def _is_above(row: Mapping[str, Any], other_row: Mapping[str, Any], by: str, default_sd: float) -> bool:
    """Return whether a candidate is clearly more isotropic than another.

    Clearly: by more than TIE standard deviations over token samples and cluster starts.
    default_sd: standard deviation for a candidate that has none.
    """
    spread = math.hypot(
        *(default_sd if candidate[f"{by}_sd"] is None else candidate[f"{by}_sd"] for candidate in (row, other_row))
    )
    return bool(row["score"] - other_row["score"] > TIE * spread)

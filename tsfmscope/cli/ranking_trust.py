"""Trust in a choice by isotropy: its regret on data sets whose errors are known (view `advice_regret`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import store
from store.query import query


def trust(path: Path, by: str, grouping: str, study: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of advice_regret, one per rule, of the study that compares on the most data sets.

    Returns [] if no study compares by this measure and grouping. Ties between studies go to the first name in
    order.
    study: restricts the answer to this study. Raises QueryError if there is no database, or if it is too old
    to have the view.
    """
    statement = f"""select * from advice_regret where measure = '{by}' and "grouping" = '{grouping}'"""
    with store.open(path, threads=1) as connection:
        rows: list[dict[str, Any]] = query(connection, statement).to_pylist()
    sizes = {row["study"]: row["n"] for row in rows if row["rule"] == "advised" and study in (None, row["study"])}
    largest = min(sizes, key=lambda name: (-sizes[name], name), default=None)
    return [row for row in rows if row["study"] == largest]


def beats_chance(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the choice by isotropy is better than chance by both tests.

    The first test is corrected by Benjamini-Hochberg over all tests of the view, since there are several
    measures to choose from. The second permutes the models in all data sets at once (`p_models`), because a
    measure that always ranks the same model first beats chance wherever that model is good. The second is
    passed if it was not made.
    """
    chance = next(row for row in rows if row["rule"] == "chance")
    prefers_one_model = chance["p_models"] is not None and chance["p_models"] > chance["alpha"]
    return chance["advice_is"] == "better" and chance["p_bh"] <= chance["alpha"] and not prefers_one_model


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on whether the choice by isotropy beats chance on the data sets of the results."""
    chance = next(row for row in rows if row["rule"] == "chance")
    names = ("advised_less", "advised_less_low", "advised_less_high")
    ratio, low, high = (None if chance[name] is None else math.exp(chance[name]) for name in names)
    has_interval = low is not None and high is not None
    interval = (
        f", {100 - 100 * chance['alpha']:g} % interval {low:.2f} to {high:.2f}" if has_interval else ", no interval"
    )
    p = (
        ""
        if chance["p"] is None
        else f", p = {chance['p']:.3g}, corrected for {chance['n_tests']} tests {chance['p_bh']:.3g}"
    )
    result = f"NMSE {ratio:.2f} of chance's{interval}{p}"
    models = "" if chance["p_models"] is None else f" (p = {chance['p_models']:.3g} where models change places)"
    if beats_chance(rows):
        validation_is_better = any(row["rule"] == "validation" and row["advice_is"] == "worse" for row in rows)
        addition = " Errors on an earlier window of the series choose better still." if validation_is_better else ""
        return f"On {chance['n']} data sets, choosing by isotropy beats chance: {result}{models}.{addition}"
    if chance["advice_is"] == "better":
        return (
            f"On {chance['n']} data sets, choosing by isotropy is better than chance, but the difference may "
            f"have another cause: "
            f"{result}{models}. It may be one test of many, or prefer a model that is good on all data sets."
        )
    comparison = "is worse than" if chance["advice_is"] == "worse" else "does not beat"
    return f"On {chance['n']} data sets, choosing by isotropy {comparison} chance: {result}{models}."

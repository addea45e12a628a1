"""Columns that state which size a compressed model was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def requested_size(ranks: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the columns `size_parameter` and `size_rule` of a rule; nulls for a model without one.

    ranks: one rule and its value, such as {"budget": 0.5}. The parameter of a flow is its first dimension.
    """
    if ranks is None:
        return {"size_parameter": None, "size_rule": None}
    ((rule, value),) = ranks.items()
    return {"size_parameter": float(value["first"] if rule == "flow" else value), "size_rule": rule}

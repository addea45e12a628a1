"""All methods of compression by name: what each reads, the rules that it takes, and what compresses a model.

Loading params.yaml imports this module, so it imports no code of compression.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

MethodName = Literal[
    "svd",
    "joint",
    "activation-aware",
    "activation-aware-svd",
    "project",
    "activation-aware-2step",
    "activation-aware-refit",
    "whole-model",
]
# Rules for the size of a compressed model that every truncation takes.
RULES = ("epsilon", "budget", "share", "flat", "flow")


class CompressionMethod(NamedTuple):
    """Method of compression.

    rules: rules for the size that it takes; only narrower heads and fewer neurons save seconds, for `time`.
    candidates: for a truncation, the function of `candidates` that yields the parts of an attention layer.
    driver: module of this folder that compresses a model.
    reads_data: whether it uses calibration windows.
    one_tolerance: whether a budget of a truncation is spent at one tolerance instead of the least error.
    """

    rules: tuple[str, ...]
    candidates: str | None = None
    driver: Literal["truncation", "two_step", "whole_model"] = "truncation"
    reads_data: bool = True
    one_tolerance: bool = False


# In the order that gives methods their colours in plots.
METHODS: dict[str, CompressionMethod] = {
    "svd": CompressionMethod(RULES, "single_matrices", reads_data=False, one_tolerance=True),
    "joint": CompressionMethod((*RULES, "time"), "head_products", reads_data=False),
    "activation-aware": CompressionMethod((*RULES, "time"), "head_products"),
    "activation-aware-svd": CompressionMethod(RULES, "single_matrices"),
    "project": CompressionMethod(RULES, "projected_matrices"),
    "activation-aware-2step": CompressionMethod(("budget",), driver="two_step"),
    "activation-aware-refit": CompressionMethod(("budget",), driver="two_step"),
    "whole-model": CompressionMethod(("bytes", "time"), driver="whole_model"),
}

"""Products with a model's matrices in bfloat16, everything else in float32: how a model runs, not what is stored."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn

from tasks.models.registry import PRECISION, PRECISIONS


class RoundedLinear(nn.Linear):
    """A Linear whose weight is held in bfloat16; what it is given is rounded likewise.

    Products are summed in float32 and their sum is rounded to bfloat16 once, as torch.autocast does; then the bias is
    added, in the dtype of what it was given.
    """

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., out], of the states' dtype."""
        product = nn.functional.linear(states.to(self.weight.dtype), self.weight).to(states.dtype)
        return product if self.bias is None else product + self.bias


def run_in(network: nn.Module, precision: str) -> int:
    """Let the Linears of a network multiply in this precision, from now on; how many are changed.

    Embeddings, norms, attention's own products and subclasses of Linear stay as they are, and so does a matrix that a
    Linear shares with an embedding, which would be held twice, and what torch's own transformer layers hold, whose fast
    path reads their weights itself. No gradients are meant to flow afterwards.
    ValueError for another precision than PRECISIONS.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"{PRECISION}: got {precision!r}, expected one of {', '.join(PRECISIONS)}")
    if precision == "float32":
        return 0
    sealed = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    inside = {part for module in network.modules() if isinstance(module, sealed) for part in module.modules()}
    owners = Counter(id(one) for module in network.modules() for one in module.parameters(recurse=False))
    plain = [module for module in network.modules() if type(module) is nn.Linear and owners[id(module.weight)] == 1]
    plain = [module for module in plain if module not in inside]
    for module in plain:
        module.weight = nn.Parameter(module.weight.detach().to(torch.bfloat16), requires_grad=False)
        module.__class__ = RoundedLinear
    return len(plain)

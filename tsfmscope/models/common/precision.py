"""Products with a model's matrices in bfloat16, everything else in float32.

This changes how a model runs, not what is stored.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn

from tsfmscope.defaults import PRECISION, PRECISIONS


class RoundedLinear(nn.Linear):
    """Linear whose weight is in bfloat16 and whose input is rounded to bfloat16.

    Products are summed in float32 and their sum is rounded to bfloat16 once, as in torch.autocast. Then the
    bias is added, in the dtype of the input.
    """

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return [..., out] for states [..., in], in the dtype of the states."""
        product = nn.functional.linear(states.to(self.weight.dtype), self.weight).to(states.dtype)
        return product if self.bias is None else product + self.bias


def run_in(network: nn.Module, precision: str) -> int:
    """Make the Linears of a network multiply in this precision; return how many are changed.

    These stay as they are: embeddings, norms, attention's own products, and subclasses of Linear. So does a
    matrix that a Linear shares with another module such as an embedding, since it would be stored twice. So
    do the Linears inside torch's own transformer layers, whose fast path reads their weights itself. Changed
    weights get no gradients. ValueError for a precision that is not in PRECISIONS.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"{PRECISION}: got {precision!r}, expected one of {', '.join(PRECISIONS)}")
    if precision == "float32":
        return 0
    sealed = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    inside = {part for module in network.modules() if isinstance(module, sealed) for part in module.modules()}
    owners = Counter(id(parameter) for module in network.modules() for parameter in module.parameters(recurse=False))
    plain = [module for module in network.modules() if type(module) is nn.Linear and owners[id(module.weight)] == 1]
    plain = [module for module in plain if module not in inside]
    for module in plain:
        module.weight = nn.Parameter(module.weight.detach().to(torch.bfloat16), requires_grad=False)
        module.__class__ = RoundedLinear
    return len(plain)

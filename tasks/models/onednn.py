"""Float32 products on a CPU by oneDNN, which reads both factors where they lie.

torch gives them to MKL, which first copies the weight into its own order, at every call. At the 80 sample paths of a
forecast and the matrices of Chronos-T5-base that takes 1.1 to 1.3 times as long on an AMD EPYC (Zen 4), and at a
window's 513 tokens 1.1 to 1.6 times as long. The operator is the one that torch's own compiler emits for a Linear.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def times_transposed(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """left [..., k] times the transpose of right [m, k]: [..., m]. No gradients; either may lie in columns.

    Where one of them is in bfloat16 (tasks/models/precision.py) the other is rounded likewise, and the answer float32.
    """
    import torch

    if left.dtype != right.dtype and torch.bfloat16 in (left.dtype, right.dtype):
        rounded = torch.nn.functional.linear(left.to(torch.bfloat16), right.to(torch.bfloat16))
        return rounded.to(torch.promote_types(left.dtype, right.dtype))
    if left.dtype == torch.float32 and left.device.type == "cpu" and _has_onednn():
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")
        return product
    return torch.nn.functional.linear(left, right)


@functools.cache
def _has_onednn() -> bool:
    """Whether torch has it and the CPU is one of those that it has kernels of its own for."""
    import torch

    vectors = torch.backends.cpu.get_cpu_capability()  # DEFAULT, NO AVX and names of other architectures besides
    return vectors in ("AVX2", "AVX512") and torch.backends.mkldnn.is_available()

"""Arrays of real numbers from what users pass."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def real_array(x: Any) -> np.ndarray:
    """Return the values as an array. Raises TypeError if they are not real numbers.

    A torch tensor is detached and copied to the host; its type becomes float32 if NumPy lacks it (bfloat16).
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        x = x.detach().cpu()
        x = x.float() if x.dtype == torch.bfloat16 else x
    values = np.asarray(x)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"x: got values of type {values.dtype}, expected real numbers")
    return values

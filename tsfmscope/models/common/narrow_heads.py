"""Hooks that run attention of other packages with narrower heads, by filling each head with zeros.

The forward of such attention has one head width. Where queries and keys have another width than values, zeros
fill the narrower heads up to the wider ones. Zeros appended to a query and a key do not change their product,
so nothing is approximated as long as the package's score scale stays that of the original heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tsfmscope.models.common.attention import Widths

if TYPE_CHECKING:
    import torch

# Attribute of an attention module: handles of the hooks that fill its heads up.
HANDLES = "narrow_hooks"


def resizer(parts: Mapping[str, str], width: str) -> Callable[[Any, Widths], None]:
    """Return the `resize` callable of an AttentionLayer.

    parts: names of the projections, as in the layer. width: name of the attribute by which the module's
    forward splits heads. The projections may be any modules that return heads one after the other, at the
    widths that `resize` is called with. Call `resize` again after a projection is replaced.
    """
    return partial(_resize, parts, width)


def _resize(parts: Mapping[str, str], width: str, attention: Any, widths: Widths) -> None:
    for handle in getattr(attention, HANDLES, ()):
        handle.remove()
    wider, handles = max(widths), []
    setattr(attention, width, wider)
    for matrix, own in (("q", widths.key), ("k", widths.key), ("v", widths.value)):
        if own < wider:
            handles.append(getattr(attention, parts[matrix]).register_forward_hook(partial(_pad_heads, own, wider)))
    if widths.value < wider:
        joined = partial(_unpad_heads, widths.value, wider)
        handles.append(getattr(attention, parts["o"]).register_forward_pre_hook(joined))
    setattr(attention, HANDLES, handles)


def _pad_heads(own: int, wider: int, module: Any, inputs: Any, heads: torch.Tensor) -> torch.Tensor:
    """Return heads [..., h * own] as [..., h * wider], with zeros appended to each head."""
    from torch.nn import functional

    return functional.pad(heads.unflatten(-1, (-1, own)), (0, wider - own)).flatten(-2)


def _unpad_heads(own: int, wider: int, module: Any, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    """Undo `_pad_heads` on an input [..., h * wider]: keep the first `own` values of each head."""
    return (inputs[0].unflatten(-1, (-1, wider))[..., :own].flatten(-2),)

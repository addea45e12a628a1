"""Heads of any width in attention of other packages, whose forward knows one: zeros fill up to the wider of the two.

A query and a key of more zeros have the same product, so nothing is approximated, as long as the package's score scale
stays that of the original heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tasks.models.attention import Widths

if TYPE_CHECKING:
    import torch

HANDLES = "narrow_hooks"  # attribute of an attention module: what fills its heads up


def resizer(parts: Mapping[str, str], width: str) -> Callable[[Any, Widths], None]:
    """The `resize` of an AttentionLayer. width: the attribute that its forward cuts heads by; parts: as in the layer.

    The projections may be any modules that answer heads one after the other, at the widths then given. Call it again
    after one is replaced.
    """
    return partial(_resize, parts, width)


def _resize(parts: Mapping[str, str], width: str, attention: Any, widths: Widths) -> None:
    for handle in getattr(attention, HANDLES, ()):
        handle.remove()
    wider, handles = max(widths), []
    setattr(attention, width, wider)
    for what, own in (("q", widths.key), ("k", widths.key), ("v", widths.value)):
        if own < wider:
            handles.append(getattr(attention, parts[what]).register_forward_hook(partial(_filled, own, wider)))
    if widths.value < wider:
        joined = partial(_emptied, widths.value, wider)
        handles.append(getattr(attention, parts["o"]).register_forward_pre_hook(joined))
    setattr(attention, HANDLES, handles)


def _filled(own: int, wider: int, module: Any, inputs: Any, heads: torch.Tensor) -> torch.Tensor:
    """Heads [..., h * own] as [..., h * wider], zeros behind each."""
    from torch.nn import functional

    return functional.pad(heads.unflatten(-1, (-1, own)), (0, wider - own)).flatten(-2)


def _emptied(own: int, wider: int, module: Any, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    """The same way back: what stands behind each head is left out."""
    return (inputs[0].unflatten(-1, (-1, wider))[..., :own].flatten(-2),)

"""Measure isotropy, rank and compression of time-series foundation models, layer by layer.

The names in `__all__` are the public Python API. Each is imported when it is first used, so that
`import tsfmscope` loads neither torch nor Ray. `stages`, `tasks` and `store` next to this file are links to the
folders of these names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsfmscope.functions.any_module import states_of, weights
    from tsfmscope.functions.api import embed, inspect, results, states
    from tsfmscope.functions.benchmarks import fev_model
    from tsfmscope.functions.certificate import certify
    from tsfmscope.functions.compression import compress
    from tsfmscope.functions.measures import effective_dimension, isotropy, numerical_rank, singular_values
    from tsfmscope.functions.model import load
    from tsfmscope.models.base import Family, Forecaster
    from tsfmscope.models.t5.fast_pipeline import fast
    from tsfmscope.models.types import TokenKind, Tokens

_API, _MODULE, _MEASURES = "tsfmscope.functions.api", "tsfmscope.functions.any_module", "tsfmscope.functions.measures"
# Name -> the module that defines it.
_MODULES = {
    **dict.fromkeys(("embed", "inspect", "results", "states"), _API),
    "certify": "tsfmscope.functions.certificate",
    "compress": "tsfmscope.functions.compression",
    "fast": "tsfmscope.models.t5.fast_pipeline",
    "fev_model": "tsfmscope.functions.benchmarks",
    "load": "tsfmscope.functions.model",
    **dict.fromkeys(("states_of", "weights"), _MODULE),
    **dict.fromkeys(("effective_dimension", "isotropy", "numerical_rank", "singular_values"), _MEASURES),
    **dict.fromkeys(("Family", "Forecaster"), "tsfmscope.models.base"),
    **dict.fromkeys(("TokenKind", "Tokens"), "tsfmscope.models.types"),
}

__all__ = [
    "Family",
    "Forecaster",
    "TokenKind",
    "Tokens",
    "certify",
    "compress",
    "effective_dimension",
    "embed",
    "fast",
    "fev_model",
    "inspect",
    "isotropy",
    "load",
    "numerical_rank",
    "results",
    "singular_values",
    "states",
    "states_of",
    "weights",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})

"""Measure isotropy, rank and compression of time-series foundation models, layer by layer.

The names in `__all__` are the public Python API. Each is imported when it is first used, so that
`import tsfmscope` loads neither torch nor Ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsfmscope.functions.certify import certify
    from tsfmscope.functions.compress import compress
    from tsfmscope.functions.doctor import doctor
    from tsfmscope.functions.embed import embed
    from tsfmscope.functions.export import export
    from tsfmscope.functions.fev_model import fev_model
    from tsfmscope.functions.inspect import inspect
    from tsfmscope.functions.load import load
    from tsfmscope.functions.measures import effective_dimension, isotropy, numerical_rank, singular_values
    from tsfmscope.functions.push import push
    from tsfmscope.functions.results import results
    from tsfmscope.functions.states import states
    from tsfmscope.functions.verify import verify
    from tsfmscope.functions.weights import states_of, weights
    from tsfmscope.models.base import Family, Forecaster
    from tsfmscope.models.t5.fast_pipeline import fast
    from tsfmscope.models.types import TokenKind, Tokens

_FUNCTIONS = "tsfmscope.functions"
# Name -> the module that defines it.
_MODULES = {
    **{name: f"{_FUNCTIONS}.{name}" for name in ("certify", "compress", "doctor", "embed", "export", "fev_model")},
    **{name: f"{_FUNCTIONS}.{name}" for name in ("inspect", "load", "push", "results", "states", "verify", "weights")},
    "states_of": f"{_FUNCTIONS}.weights",
    **dict.fromkeys(("effective_dimension", "isotropy", "numerical_rank", "singular_values"), f"{_FUNCTIONS}.measures"),
    "fast": "tsfmscope.models.t5.fast_pipeline",
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
    "doctor",
    "effective_dimension",
    "embed",
    "export",
    "fast",
    "fev_model",
    "inspect",
    "isotropy",
    "load",
    "numerical_rank",
    "push",
    "results",
    "singular_values",
    "states",
    "states_of",
    "verify",
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

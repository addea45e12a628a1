"""Measure isotropy, rank and compression of time-series foundation models, layer by layer.

The names in `__all__` are the public Python API. Each is imported when it is first used, so that
`import tsfmscope` loads neither torch nor Ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsfmscope.functions.ablate import ablate
    from tsfmscope.functions.certify import certify
    from tsfmscope.functions.compare import compare
    from tsfmscope.functions.compress import compress
    from tsfmscope.functions.doctor import doctor
    from tsfmscope.functions.embed import embed
    from tsfmscope.functions.export import export
    from tsfmscope.functions.fev_model import fev_model
    from tsfmscope.functions.forecast import forecast
    from tsfmscope.functions.inspect import inspect
    from tsfmscope.functions.load import load
    from tsfmscope.functions.measures import effective_dimension, isotropy, numerical_rank, singular_values
    from tsfmscope.functions.probe import probe
    from tsfmscope.functions.push import push
    from tsfmscope.functions.results import results
    from tsfmscope.functions.score import score
    from tsfmscope.functions.states import states
    from tsfmscope.functions.verify import verify
    from tsfmscope.functions.weights import states_of, weights
    from tsfmscope.models.base import Family, Forecaster
    from tsfmscope.models.t5_decoding import fast
    from tsfmscope.models.types import TokenKind, Tokens

# Module -> the public names that it defines.
_NAMES = {
    "functions.ablate": ["ablate"], "functions.certify": ["certify"], "functions.compare": ["compare"],
    "functions.compress": ["compress"], "functions.doctor": ["doctor"], "functions.embed": ["embed"],
    "functions.export": ["export"], "functions.fev_model": ["fev_model"], "functions.forecast": ["forecast"],
    "functions.inspect": ["inspect"], "functions.load": ["load"], "functions.probe": ["probe"],
    "functions.push": ["push"], "functions.results": ["results"], "functions.score": ["score"],
    "functions.states": ["states"], "functions.verify": ["verify"], "functions.weights": ["states_of", "weights"],
    "functions.measures": ["effective_dimension", "isotropy", "numerical_rank", "singular_values"],
    "models.base": ["Family", "Forecaster"], "models.t5_decoding": ["fast"],
    "models.types": ["TokenKind", "Tokens"],
}  # fmt: skip
_MODULES = {name: f"tsfmscope.{module}" for module, names in _NAMES.items() for name in names}

__all__ = [
    "Family", "Forecaster", "TokenKind", "Tokens", "ablate", "certify", "compare", "compress", "doctor",
    "effective_dimension", "embed", "export", "fast", "fev_model", "forecast", "inspect", "isotropy", "load",
    "numerical_rank", "probe", "push", "results", "score", "singular_values", "states", "states_of", "verify",
    "weights",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})

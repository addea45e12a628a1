"""Plots of studies: each module is one value of `plot` in params.yaml, and its docstring describes the plot.

This file imports no plot, so that reading params.yaml stays fast. `tsfmscope/report/plot.py` loads a plot.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import pkgutil
from pathlib import Path


def plot_names() -> list[str]:
    """Return the names of all plots, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def check_plot_name(name: str) -> str:
    """Return the name. Raises ValueError for an unknown plot."""
    known = plot_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"unknown plot {name!r}, expected one of {', '.join(known)}{meant}")
    return name


def describe_plot(name: str) -> str:
    """Return the first line of the plot's docstring, without importing the plot."""
    spec = importlib.util.find_spec(f"{__name__}.{check_plot_name(name)}")
    assert spec is not None and spec.origin is not None
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text("utf-8")))
    assert text is not None, f"{spec.origin}: expected a docstring that describes the plot, found none"
    return text.partition("\n")[0].removesuffix(".")

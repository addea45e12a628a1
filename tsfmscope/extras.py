"""Version of the package, and its optional parts: which extra of pyproject.toml installs a module."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

PACKAGE = "tsfmscope"
# Top-level module -> extra. A test compares it with pyproject.toml.
EXTRAS = {
    "ray": "pipeline", "dvc": "pipeline", "dvclive": "pipeline", "statsforecast": "baselines", "openpyxl": "excel",
    "jinja2": "report", "altair": "report", "vl_convert": "report", "uni2ts": "moirai", "fev": "fev", "onnx": "onnx",
    "onnxruntime": "onnx", "onnxscript": "onnx",
}  # fmt: skip
# Packages that an extra cannot install with their dependencies, whose bounds conflict with ours.
WITHOUT_DEPENDENCIES = ("uni2ts",)

# Exists in a checkout only.
PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def describe_missing(error: ModuleNotFoundError) -> str:
    """Return the message that names a missing module and what to install."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(module)
    fix = f"it with `{install_command(extra)}`" if extra else f"the package that holds {module!r}"
    if module in WITHOUT_DEPENDENCIES:
        fix += f", then `pip install --no-deps {module}` (docs/install.md)"
    return f"module {error.name!r} is missing; install {fix}"


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{PACKAGE}[{extra}]'"


def version() -> str:
    """Return the package's version: from pyproject.toml in a checkout, else from the installed metadata."""
    if PROJECT.is_file():
        return str(tomllib.loads(PROJECT.read_text())["project"]["version"])
    return importlib.metadata.version(PACKAGE)

"""Texts of the pages that no number changes, from texts.yaml."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from tsfmscope.files import read_packaged

# Part of texts.yaml, which describes it -> its texts.
TEXTS: dict[str, Any] = read_packaged(files("tsfmscope.report.page") / "texts.yaml")

"""Texts of the pages that no number changes, from texts.yaml."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

# Part of texts.yaml, which describes it -> its texts.
TEXTS: dict[str, Any] = yaml.safe_load(files("tsfmscope.report.page").joinpath("texts.yaml").read_text("utf-8"))

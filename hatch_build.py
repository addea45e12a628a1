"""Build hook of hatchling: the wheel holds one package, tsfmscope, with the folders that it links to.

An sdist has no links, and hatchling follows none to a folder that it has packed before, so the folders are named here.
An editable install is a path to the checkout and gets none of them: a copy would hide changes of the original.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

INCLUDED = {name: f"tsfmscope/{name}" for name in ("stages", "tasks", "store")}
# What stages/config/defaults.py reads where there is no checkout.
DEFAULT = "tsfmscope/stages/default"
INCLUDED |= {"params/full.yaml": f"{DEFAULT}/params.yaml", "checkpoints": f"{DEFAULT}/checkpoints"}


class CustomBuildHook(BuildHookInterface):
    """Add the modules and the folders to a wheel that is not editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Extend the files that hatchling packs. version: "standard" or "editable"."""
        if version == "standard":
            modules = sorted(path.name for path in Path(self.root, "tsfmscope").glob("*.py"))
            build_data["force_include"] |= {f"tsfmscope/{name}": f"tsfmscope/{name}" for name in modules} | INCLUDED

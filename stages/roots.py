"""Names and checksums of external data files and of installed families, so that DVC sees what lies outside."""

from __future__ import annotations

import json
from pathlib import Path

from stages import DATA
from stages.blocks import DATA_VARIABLE
from stages.params import Params, ParamsError
from store.files import fingerprint, write_text
from tasks.models.plugins import codes

OUT = Path(DATA, "roots.json")
PLUGINS = Path(DATA, "plugins.json")
READ = ("folder", "text", "images")  # sources with files under the data root


def main(params: Params) -> None:
    """Write data/roots.json: the files that data sets name, with the fingerprint of those that are there.

    And data/plugins.json: the families that installed packages add, with what their code is known by.
    """
    root = params.data_root
    if root is not None and not root.is_dir():
        raise ParamsError(f"data root {root}: no such folder; set {DATA_VARIABLE} or datasets.root to one, or unset it")
    named = sorted({one.file for one in params.datasets.sets.values() if one.source in READ and one.file is not None})
    paths = {name: root / name for name in named} if root else {}
    seen = {name: fingerprint(path) for name, path in paths.items() if path.is_file()}
    write_text(OUT, json.dumps({"files": seen, "root": "given" if root else "none"}, indent=2, sort_keys=True) + "\n")
    write_text(PLUGINS, json.dumps(codes(), indent=2, sort_keys=True) + "\n")

"""Stage external_inputs: every parameter with its value, and checksums of external data files and installed families.

With them, DVC notices changes outside the repository, and keys that params.yaml leaves out have their defaults.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from stages import DATA, PARAMS
from stages.config.params import COMPRESSED, Params, ParamsError
from store.files import fingerprint, write_text
from tsfmscope.errors import DataError
from tsfmscope.models.registry import plugin_codes
from tsfmscope.series.data_sets import DATA_VARIABLE
from tsfmscope.series.files.user_files import list_files

OUT = Path(DATA, "external_inputs.json")
# Sources of data sets with files under the data root.
READ = ("folder", "text", "images")


def main(params: Params) -> None:
    """Write data/params.json, data/external_inputs.json and data/plugins.json.

    data/params.json contains all parameters, with the defaults of those that params.yaml leaves out: DVC has no
    defaults, and would refuse a file without a key that a stage depends on. It also has the fingerprint of the
    population's file of hypotheses.
    data/external_inputs.json contains the files that data sets name and that exist, with their fingerprints; for
    a folder, those of the files that are read from it.
    data/plugins.json contains the families that installed packages add, with the identification of their
    code. Raises ParamsError if the data root is not a folder.
    """
    root = params.data_root
    if root is not None and not root.is_dir():
        raise ParamsError(f"data root {root}: no such folder; set {DATA_VARIABLE} or datasets.root to one, or unset it")
    # DVC needs each key that a stage tracks; keys inside that are null are left out, which keeps dvc.lock short.
    values: dict[str, Any] = dict.fromkeys(Params.model_fields)
    values |= params.model_dump(mode="json", exclude_none=True)
    del values["resources"]
    population = values["population"] or {}
    if "hypotheses" in population:
        path = Path(population["hypotheses"])
        # DVC then notices a change of the file, whose name alone is in the params.
        population["hypotheses_fingerprint"] = fingerprint(path) if path.is_file() else None
    # The other stages derive these models from the studies.
    values["models"] = {
        name: model for name, model in values["models"].items() if not model["ref"].startswith(COMPRESSED)
    }
    write_text(Path(PARAMS), json.dumps(values, indent=2) + "\n")
    names = sorted(
        {
            dataset.file
            for dataset in params.datasets.sets.values()
            if dataset.source in READ and dataset.file is not None
        }
    )
    fingerprints: dict[str, str] = {}
    if root is not None:
        for name in names:
            # A file that does not exist, or a folder without files, makes the stage datasets skip the data set.
            with suppress(DataError):
                files = list_files(root / name)
                fingerprints |= {file.relative_to(root).as_posix(): fingerprint(file) for file in files}
    write_text(
        OUT, json.dumps({"files": fingerprints, "root": "given" if root else "none"}, indent=2, sort_keys=True) + "\n"
    )
    write_text(Path(DATA, "plugins.json"), json.dumps(plugin_codes(), indent=2, sort_keys=True) + "\n")

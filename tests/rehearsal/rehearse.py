"""Write released layouts with random weights, load them as from the hub, and record what each step takes.

    python -m tests.rehearsal.rehearse [NAME ...]

writes docs/rehearsed.json, which the table of supported models reads: all layouts take 20 minutes and 6 GB of memory.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.local_hub import LocalHub, Repository, serving
from tests.rehearsal.layouts import LAYOUTS, Layout

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "rehearsed.json"
# Variables that would keep a process from the local hub.
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN")
PACKAGES = ("tsfmscope", "torch", "transformers", "chronos-forecasting", "uni2ts")
SEED = 0


def rehearse(layout: Layout, server: LocalHub, folder: Path) -> dict[str, Any]:
    """Return the row of a layout: what was written, loaded and measured. Raises RuntimeError with a step's messages."""
    row: dict[str, Any] = {"model": layout.name, "family": layout.family, "repository": layout.repository}
    row |= {"layout_sources": list(layout.sources), "layout_unknown": layout.unknown, "seed": SEED}
    row["packages"] = {name: importlib.metadata.version(name) for name in PACKAGES}
    row |= run_step("write", layout.name, folder / "files")
    server.repositories[layout.repository] = Repository.of_folder(folder / "files")
    row |= run_step("inspect", layout.name, folder / "cache", HF_ENDPOINT=server.endpoint)
    return row | {"status": "passed", "reason": None}


def run_step(step: str, name: str, folder: Path, **environment: str) -> dict[str, Any]:
    """Run a step in a process of its own, so that its peak memory is its own, and return its document."""
    command = [sys.executable, "-m", "tests.rehearsal.steps", step, name, str(folder), str(SEED)]
    inherited = {key: value for key, value in os.environ.items() if key not in OFFLINE}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**inherited, "PYTHONPATH": str(ROOT), "HF_HUB_DISABLE_PROGRESS_BARS": "1", **environment},
        capture_output=True,
        text=True,
    )
    try:
        document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        document = {"error": f"no result, exit code {done.returncode}: {done.stderr[-2000:]}"}
    if "error" in document:
        raise RuntimeError(f"{name}: step {step}: {document['error']}")
    return document


def main(names: Sequence[str]) -> None:
    """Rehearse the named layouts, by default all, and replace their rows in RECORD."""
    rows = {row["model"]: row for row in json.loads(RECORD.read_text())}
    with serving(LocalHub()) as server:
        for name in names or LAYOUTS:
            with tempfile.TemporaryDirectory() as folder:
                rows[name] = rehearse(LAYOUTS[name], server, Path(folder))
            print(name, f"{rows[name]['seconds_load']:.1f} s", f"{rows[name]['peak_bytes'] / 1e9:.1f} GB", flush=True)
            RECORD.write_text(json.dumps([rows[name] for name in LAYOUTS if name in rows], indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

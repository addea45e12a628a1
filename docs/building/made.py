"""Pages that are made and not written: from other files, from the code, from params files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.building import commands, params, studies

ROOT = Path(__file__).parents[2]
COPIED = {  # page -> the file whose text it is
    "overview.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "checkpoints.md": "checkpoints/README.md",
}
GEOMETRY = [
    "cosine",
    "adjusted",
    "clusters",
    "dimension",
    "partition",
    "head",
    "alignment",
    "jacobian",
    "isoscore",
    "cai",
]
PYTHON = {  # title -> what it is about, and the modules whose docstrings it shows
    "Isotropy": (
        "`tasks.geometry`: arrays in, numbers out. States are [N, d], a row a token.",
        GEOMETRY,
        "tasks.geometry",
    ),
    "Rank": (
        "`tasks.ranks`: singular values, numerical ranks, angles.",
        ["spectrum", "tall", "angles", "plane"],
        "tasks.ranks",
    ),
    "Statistics": (
        "`tasks.statistics`: correlations with intervals, permutation and sign tests, corrections.",
        ["study", "permutation", "bootstrap", "signs", "ranks", "power", "means", "mixed", "adjust"],
        "tasks.statistics",
    ),
    "Compression": (
        "`tasks.compression`: thinner attention layers, and checkpoints of them.",
        ["truncation", "products", "matrices", "budget", "schedules", "export", "fidelity"],
        "tasks.compression",
    ),
    "Theory": (
        "`tasks.theory`: the theorems of the rank paper at random instances.",
        ["statements", "theorem1", "theorem2", "theorem3", "theorem4", "theorem6", "sides"],
        "tasks.theory",
    ),
    "Models": (
        "`tasks.models`: the face that every family has, and the names that lead to them.",
        ["base", "types", "registry"],
        "tasks.models",
    ),
    "Results": ("`store`: the results as a read-only connection, and as rows.", ["query"], "store"),
}


def pages() -> dict[str, str]:
    """Path in the site -> Markdown."""
    made = {page: (ROOT / file).read_text("utf-8") for page, file in COPIED.items()}
    made |= {page: (ROOT / file).read_text("utf-8") for page, file in _measurements()}
    made["results.md"] = _notebook(ROOT / "docs" / "results.ipynb")
    made["reference/commands.md"] = commands.page()
    made["reference/params.md"] = params.page()
    made |= {_python_path(title): _python(title) for title in PYTHON}
    return made | studies.pages(ROOT)


def navigation() -> dict[str, list[Any]]:
    """What stands in mkdocs.yml's navigation as @KIND."""
    return {
        "@python": [{"Python": [{title: _python_path(title)} for title in PYTHON]}],
        "@studies": studies.navigation(ROOT),
        "@measurements": [{"Measured against peers": [page for page, _ in _measurements()]}],
    }


def _measurements() -> list[tuple[str, str]]:
    """Page and file of every kept measurement."""
    return [(f"measurements/{one.name}", f"bench/results/{one.name}") for one in sorted(_kept())]


def _kept() -> Iterator[Path]:
    return (ROOT / "bench" / "results").glob("*.md")


def _python_path(title: str) -> str:
    return f"reference/python/{title.lower()}.md"


def _python(title: str) -> str:
    """A page of docstrings, for mkdocstrings to fill."""
    lead, modules, package = PYTHON[title]
    whole = [f"::: {package}\n    options: {{members: [open]}}"] if package == "store" else []
    parts = [f"# {title}", lead, *whole, *(f"::: {package}.{name}" for name in modules)]
    return "\n\n".join(parts) + "\n"


def _notebook(path: Path) -> str:
    """The notebook's cells; it is kept without outputs, which are of whoever runs it."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"

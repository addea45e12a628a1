"""Generated pages: from other files of the repository, from the code, and from params files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.building import commands, params, studies

ROOT = Path(__file__).parents[2]
# Page -> the file whose text it shows.
COPIED = {
    "overview.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "checkpoints.md": "tsfmscope/checkpoints/README.md",
}
# Title -> lead of the page, the modules whose docstrings it shows, and their package.
PYTHON = {
    "Isotropy": (
        "`tsfmscope.geometry`: arrays in, numbers out. States are [N, d], one row per token.",
        ["cosine", "clusters", "spectrum", "heads", "measures"],
        "tsfmscope.geometry",
    ),
    "Rank": (
        "`tsfmscope.ranks`: singular values, numerical ranks, angles.",
        ["spectrum", "tall"],
        "tsfmscope.ranks",
    ),
    "Statistics": (
        "`tsfmscope.statistics`: correlations with intervals, permutation and sign tests, corrections.",
        ["study", "permutation", "bootstrap", "ranks", "means", "noninferiority"],
        "tsfmscope.statistics",
    ),
    "Compression": (
        "`tsfmscope.compression`: narrower attention layers, and their checkpoints.",
        ["truncation", "candidates", "budget", "schedules", "export", "fidelity"],
        "tsfmscope.compression",
    ),
    "Theory": (
        "`tsfmscope.theory`: the theorems of Yu et al. 2026 at random instances.",
        ["experiments", "attention_theorems", "embedding_theorems"],
        "tsfmscope.theory",
    ),
    "Models": (
        "`tsfmscope.models`: the interface of every family, and the registry of names.",
        ["base", "types", "registry"],
        "tsfmscope.models",
    ),
    "Results": ("`store`: the results as a read-only connection, and as rows.", ["query"], "store"),
}


def pages() -> dict[str, str]:
    """Return path in the site -> Markdown of every generated page."""
    text_by_page = {page: (ROOT / file).read_text("utf-8") for page, file in COPIED.items()}
    text_by_page |= {page: (ROOT / file).read_text("utf-8") for page, file in _measurements()}
    text_by_page["results.md"] = _notebook(ROOT / "docs" / "results.ipynb")
    text_by_page["reference/commands.md"] = commands.page()
    text_by_page["reference/params.md"] = params.page()
    text_by_page |= {_python_path(title): _python(title) for title in PYTHON}
    return text_by_page | studies.pages(ROOT)


def navigation() -> dict[str, list[Any]]:
    """Return @KIND -> the entries that replace it in the navigation of mkdocs.yml."""
    return {
        "@python": [{"Python": [{title: _python_path(title)} for title in PYTHON]}],
        "@studies": studies.navigation(ROOT),
        "@measurements": [{"Measured against peers": [page for page, _ in _measurements()]}],
    }


def _measurements() -> list[tuple[str, str]]:
    """Return the page and the file of every committed measurement."""
    return [(f"measurements/{file.name}", f"bench/results/{file.name}") for file in sorted(_committed())]


def _committed() -> Iterator[Path]:
    return (ROOT / "bench" / "results").glob("*.md")


def _python_path(title: str) -> str:
    return f"reference/python/{title.lower()}.md"


def _python(title: str) -> str:
    """Return a page with references to modules, which mkdocstrings replaces by their docstrings."""
    lead, modules, package = PYTHON[title]
    whole = [f"::: {package}\n    options: {{members: [open]}}"] if package == "store" else []
    parts = [f"# {title}", lead, *whole, *(f"::: {package}.{name}" for name in modules)]
    return "\n\n".join(parts) + "\n"


def _notebook(path: Path) -> str:
    """Return the notebook's cells as Markdown; it is committed without outputs."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"

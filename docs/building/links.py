"""Links from pages to files of the repository that are not pages; each such file becomes a page."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
# Page -> the file that it is made from; links in the page are relative to that file.
ORIGINS = {
    "overview.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "checkpoints.md": "tsfmscope/checkpoints/README.md",
}
PAGES = {origin: page for page, origin in ORIGINS.items()} | {
    "checkpoints": "checkpoints.md",
    "docs/results.ipynb": "results.md",
    "docs/results/full": "studies/index.md",
    "docs/results/ranks": "studies/index.md",
    "docs/results/compression": "studies/index.md",
    "docs/results/population": "population.md",
    "docs/results/confirmation": "population.md",
    "docs/results/advice": "findings/advice.md",
    "docs/results/probes": "findings/probes.md",
    "tsfmscope/cli": "reference/commands.md",
    "stages/config": "reference/params.md",
    "store/tables": "tables.md",
}
# Folders whose page lists their files.
LISTED = ("deploy", "docs/plugin", "store/published", "store/sql")
LANGUAGES = {".py": "python", ".csv": "text", ".yaml": "yaml", ".toml": "toml", ".sql": "sql", ".cff": "yaml"}
# Folder of the pages that show a file of the repository.
SOURCES = "files/"


def origin(page: str) -> str:
    """Return the path in the repository of the file from which a page is made."""
    if page.startswith("measurements/"):
        return f"bench/results/{page.removeprefix('measurements/')}"
    return ORIGINS.get(page, f"docs/{page}")


def page_of(file: str) -> str:
    """Return the path in the site of the page of a file or folder of the repository."""
    if file.startswith("bench/results/"):
        return f"measurements/{file.removeprefix('bench/results/')}"
    if file in PAGES:
        return PAGES[file]
    if file.startswith("docs/") and not file.startswith("docs/plugin"):
        return file.removeprefix("docs/")
    return f"{SOURCES}{file}.md"


def inside(markdown: str, page: str) -> str:
    """Return the text with its relative links pointing to pages of the site; links in code are unchanged."""

    def rewrite(match: re.Match[str]) -> str:
        head, target, anchor, tail = match.groups(default="")
        if ":" in target:
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(origin(page)), target))
        return f"{head}{posixpath.relpath(page_of(file), posixpath.dirname(page))}{anchor}{tail}"

    # These pages are generated for the site, and their links are already those of the site.
    if page.startswith(("reference/", "studies/", SOURCES)):
        return markdown
    return "".join(part if code else LINK.sub(rewrite, part) for code, part in _parts(markdown))


def sources(root: Path, pages: Mapping[str, str]) -> dict[str, str]:
    """Return path -> Markdown of pages for the files of the repository that pages link to.

    A folder of LISTED that is linked to gets a page that lists its files, and each of these gets a page.
    """
    targets = {target for page, text in pages.items() for target in _targets(text, page)}
    files: set[str] = set()
    pages_by_path = {}
    for page in sorted(targets):
        folder = page.removeprefix(SOURCES).removesuffix(".md")
        if folder in LISTED:
            inner = [str(path.relative_to(root)) for path in sorted((root / folder).rglob("*")) if path.is_file()]
            inner = [path for path in inner if Path(path).suffix in LANGUAGES]
            files |= set(inner)
            lines = [f"- [`{path}`]({posixpath.relpath(page_of(path), posixpath.dirname(page))})" for path in inner]
            pages_by_path[page] = f"# `{folder}`\n\n" + "\n".join(lines) + "\n"
        elif (root / folder).is_file():
            files.add(folder)
    for file in sorted(files):
        text = (root / file).read_text("utf-8")
        pages_by_path[page_of(file)] = f"# `{file}`\n\n````{LANGUAGES.get(Path(file).suffix, 'text')}\n{text}\n````\n"
    return pages_by_path


def _targets(text: str, page: str) -> set[str]:
    """Return the pages under SOURCES that a page links to, after its links were rewritten by `inside`."""
    folder = posixpath.dirname(page)
    parts = [part for code, part in _parts(inside(text, page)) if not code]
    targets = {posixpath.normpath(posixpath.join(folder, match[2])) for part in parts for match in LINK.finditer(part)}
    return {match for match in targets if match.startswith(SOURCES)}


def _parts(markdown: str) -> list[tuple[bool, str]]:
    """Return the text split into fenced blocks (True) and the parts between them (False)."""
    parts, start = [], 0
    for match in FENCE.finditer(markdown):
        parts += [(False, markdown[start : match.start()]), (True, match[0])]
        start = match.end()
    return [*parts, (False, markdown[start:])]

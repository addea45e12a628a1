"""Hook of mkdocs: generated pages, links that leave docs/ or lead to the glossary, and equations as MathML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# mkdocs may be started from any folder, and by its own script.
sys.path.insert(0, str(ROOT))

from docs.building import glossary, links, made  # noqa: E402
from docs.building.equations import with_mathml  # noqa: E402


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace every @KIND in the navigation by the generated pages of that kind."""
    config.nav = _fill(config.nav, made.navigation())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and a page for every file of the repository that a page links to."""
    pages = made.pages()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for path, text in links.sources(ROOT, texts).items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links that leave docs/ so that they lead to pages of the site, and link terms to the glossary."""
    return glossary.with_links(links.inside(markdown, page.file.src_uri), page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Convert equations to MathML, which needs no script."""
    return with_mathml(html, page.file.src_uri)


def _fill(nav: Any, made_nav: dict[str, list[Any]]) -> Any:
    """Return the navigation with every @KIND replaced: several entries in a list, a list under a title."""
    if isinstance(nav, list):
        entries = []
        for entry in nav:
            entries += made_nav[entry] if isinstance(entry, str) and entry in made_nav else [_fill(entry, made_nav)]
        return entries
    if isinstance(nav, dict):
        return {title: _fill(entry, made_nav) for title, entry in nav.items()}
    return made_nav.get(nav, nav)

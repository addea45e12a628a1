"""The site builds without a warning, needs no network, and works from a folder in a browser."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs.building import equations, links
from tests.browser import Browser, needs_chromium, start_chromium
from tests.docs.blocks import ROOT

KINDS = (  # a page of every kind
    "index.html", "tutorial.html", "science.html", "tables.html", "reference/commands.html",
    "reference/python/isotropy.html", "studies/index.html", "studies/isotropy.html",
    "files/tsfmscope/series/catalog.yaml.html",
)  # fmt: skip
FITS = "document.documentElement.scrollWidth <= innerWidth"
LOADED = "[...document.images].filter(i => i.loading !== 'lazy').every(i => i.complete && i.naturalWidth)"
FETCHED = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src", "video": "src"}


class Fetches(HTMLParser):
    """What a page asks a browser to fetch, where its links lead, and what can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.linked: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.add(given.get("id") or "")
        if tag in FETCHED and given.get("rel") != "canonical":
            self.fetched.append(given.get(FETCHED[tag]) or "")
        if tag == "a":
            self.linked.append(given.get("href") or "")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` builds, in a folder of its own."""
    folder = tmp_path_factory.mktemp("site") / "a folder"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]  # with --quiet it would let warnings pass
    command += ["--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nWARNING " not in done.stderr
    return folder


@pytest.mark.slow
def test_no_page_asks_for_anything_but_files_of_the_site_and_no_link_is_dead(site: Path) -> None:
    read = {path: Fetches(path.read_text("utf-8")) for path in site.rglob("*.html")}
    assert len(read) > 80
    for path, page in read.items():
        for wanted in (*page.fetched, *page.linked):
            parts = urlsplit(wanted)
            if parts.scheme in ("http", "https") and wanted in page.linked:
                continue  # where a reader may go
            assert not parts.scheme and not parts.netloc, f"{path.name} asks for {wanted}"
            if path.name == "404.html":  # has absolute links: it is shown wherever nothing is
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file(), f"{path.relative_to(site)}: {wanted}"
            if parts.fragment and target in read and not parts.fragment.startswith("__"):
                assert unquote(parts.fragment) in read[target].ids, f"{path.relative_to(site)}: {wanted}"
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", style.read_text("utf-8")), style


@pytest.mark.slow
def test_equations_are_mathml_and_none_is_left_as_latex(site: Path) -> None:
    text = (site / "science.html").read_text("utf-8")
    assert text.count("<math ") > 60
    assert "arithmatex" not in text and "\\frac" not in re.sub(r'alttext="[^"]*"', "", text)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_chromium() as open_page:
        yield open_page()


@pytest.mark.slow
@needs_chromium
def test_pages_of_every_kind_work_from_a_folder_wide_and_narrow(site: Path, browser: Browser) -> None:
    for name in KINDS:
        browser.open(site / name)
        browser.settle()
        assert browser.page.evaluate(FITS), name
        with browser.screen(390):
            assert browser.page.evaluate(FITS), f"{name} on a phone"
        assert browser.page.evaluate(LOADED), name
        assert all(url.startswith("file://") for url in browser.fetched()), name
        assert browser.complaints == [], name


@pytest.mark.slow
@needs_chromium
def test_search_finds_a_page_without_a_server(site: Path, browser: Browser) -> None:
    browser.open(site / "studies" / "isotropy.html")
    box = browser.page.locator("[data-md-component=search-query]")
    box.evaluate("box => box.focus()")
    # Inserted at once: on a busy machine Material would search for "inter-", which its index calls invalid.
    browser.page.keyboard.insert_text("inter-token cosin")
    browser.page.keyboard.type("e")
    # Material lists results while the user types: wait for the page, not for any first result.
    browser.page.locator(".md-search-result__link[href*='science.html']").first.wait_for(state="attached")
    assert browser.complaints == []


def test_a_link_out_of_docs_leads_to_a_page_of_the_site() -> None:
    text = "[a](../stages/config) [b](../README.md#x) [e](https://e.example) [f](../deploy/kuberay.yaml)\n"
    code = "```text\n[c](../README.md)\n```\n"
    led = "[a](reference/params.md) [b](overview.md#x) [e](https://e.example) [f](files/deploy/kuberay.yaml.md)\n"
    assert links.inside(text + code, "cluster.md") == led + code
    assert links.inside("[a](docs/sql.md) [b](bench/results/store.md)", "overview.md") == (
        "[a](sql.md) [b](measurements/store.md)"
    )
    assert set(links.sources(ROOT, {"cluster.md": text})) == {"files/deploy/kuberay.yaml.md"}


def test_what_is_no_equation_is_named_with_its_page() -> None:
    good = equations.with_mathml(r'<span class="arithmatex">\(a_1 &lt; b\)</span>', "p.md")
    assert good.startswith("<math ") and "<mo>&#x0003C;</mo>" in good
    with pytest.raises(ValueError, match=r"p\.md: '\\\\frac\{' is no equation"):
        equations.with_mathml(r'<span class="arithmatex">\(\frac{\)</span>', "p.md")

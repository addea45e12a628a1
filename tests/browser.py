"""Headless Chromium of this machine, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="not installed: chromium; apt-get install chromium")
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
# Warnings of the graphics driver, which software rendering brings.
NOISE = ("GPU stall due to ReadPixels", "GL Driver Message", "software WebGL", "willReadFrequently")
NEXT_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Browser:
    """A page of Chromium that records the console's complaints and the requested URLs."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self._complain(message.type, message.text))
        page.on("pageerror", lambda error: self._complain("error", str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def _complain(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not any(known in text for known in NOISE):
            self.complaints.append(text)

    def open(self, path: Path) -> None:
        """Open a file and forget what was recorded before."""
        self.complaints.clear(), self.requests.clear()
        self.page.goto(path.as_uri())

    def fetched(self) -> list[str]:
        """Return the requested URLs, without data inside the page."""
        return [url for url in self.requests if not url.startswith(("data:", "blob:"))]

    def settle(self) -> None:
        """Wait until the page has drawn and its observers were called."""
        for _ in range(3):
            self.page.evaluate(NEXT_FRAMES)

    @contextmanager
    def screen(self, width: int, height: int = 844) -> Iterator[None]:
        """A screen of another size."""
        before = self.page.viewport_size
        self.page.set_viewport_size({"width": width, "height": height})
        self.settle()
        try:
            yield
        finally:
            self.page.set_viewport_size(before or {"width": 1100, "height": 900})
            self.settle()


@contextmanager
def start_chromium() -> Iterator[Callable[[], Browser]]:
    """A function that opens a page; Playwright takes one Chromium at a time in a process."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield lambda: Browser(chromium.new_page(viewport={"width": 1100, "height": 900}))
        finally:
            chromium.close()

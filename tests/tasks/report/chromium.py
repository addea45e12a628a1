"""Headless Chromium over WebDriver, as the tests of the page drive it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MISSING = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
LACKING = f"not installed: {', '.join(MISSING)}; apt-get install chromium-driver"
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader", "--hide-scrollbars", "--window-size=1100,900",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-quic",
]  # fmt: skip
NEXT_FRAME = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()));"


class Browser:
    """Just enough of the WebDriver protocol."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"
        capabilities = {
            "goog:chromeOptions": {"args": FLAGS, "binary": shutil.which("chromium")},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        made = self.send("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.session = f"/session/{made['sessionId']}"

    def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.root + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=180) as answer:
            return json.load(answer)["value"]

    def open(self, path: Path) -> None:
        self.send("POST", f"{self.session}/url", {"url": path.as_uri()})

    def js(self, script: str) -> Any:
        return self.send("POST", f"{self.session}/execute/sync", {"script": script, "args": []})

    def cdp(self, command: str, parameters: dict[str, Any]) -> Any:
        body = {"cmd": command, "params": parameters}
        return self.send("POST", f"{self.session}/goog/cdp/execute", body)

    def log(self, kind: str) -> list[dict[str, Any]]:
        return self.send("POST", f"{self.session}/se/log", {"type": kind})

    def settle(self) -> None:
        """Wait until the page has drawn and its observers were called."""
        for _ in range(3):
            self.send("POST", f"{self.session}/execute/async", {"script": NEXT_FRAME, "args": []})

    def show(self, place: int) -> None:
        """Bring the figure at a place to the screen."""
        self.js(f"document.querySelectorAll('.plot')[{place}].scrollIntoView({{behavior: 'instant'}})")
        self.settle()

    def requests(self) -> list[str]:
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(("data:", "blob:"))]

    def complaints(self) -> list[str]:
        """Errors, and warnings but those of the graphics driver that software rendering brings."""
        noise = ("GPU stall due to ReadPixels", "GL Driver Message", "software WebGL", "willReadFrequently")
        entries = [entry for entry in self.log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        return [entry["message"] for entry in entries if not any(known in entry["message"] for known in noise)]

    @contextmanager
    def screen(self, width: int, height: int) -> Iterator[None]:
        """A screen of this size, of a phone if it is narrow."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.cdp("Emulation.setDeviceMetricsOverride", size)
        try:
            self.settle()
            yield
        finally:
            self.cdp("Emulation.clearDeviceMetricsOverride", {})
            self.settle()

    def scheme(self, name: str) -> None:
        """Light or dark, as the system asks for."""
        self.cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})
        self.settle()


@contextmanager
def started() -> Iterator[Browser]:
    """A browser of its own, ended with all its processes."""
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert driver.stdout is not None
        lines = (re.search(r"started successfully on port (\d+)", line) for line in driver.stdout)
        port = int(next(found for found in lines if found).group(1))
        opened = Browser(port)
        yield opened
        opened.send("DELETE", opened.session)
    finally:
        driver.terminate()
        driver.communicate(timeout=20)

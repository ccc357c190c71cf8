"""A headless Chromium through chromedriver: the few commands of W3C WebDriver that tests need."""

import base64
import contextlib
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-prefers-reduced-motion",
]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def missing() -> str | None:
    """Why there is no browser here, or None."""
    if not shutil.which("chromedriver"):
        return "no chromedriver: apt-get install chromium chromium-driver"
    if not any(map(shutil.which, ("chromium", "google-chrome", "chrome"))):
        return "no chromium: apt-get install chromium chromium-driver"
    return None


class Browser:
    """One window."""

    def __init__(self, server: str, folder: Path):
        self.downloads = folder / "downloads"
        self.downloads.mkdir(parents=True)
        options: dict[str, Any] = {
            "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"],
            "prefs": {"download.default_directory": str(self.downloads)},
        }
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        self.address = f"{server}/session"
        made = self._call("POST", "", {"capabilities": {"alwaysMatch": capabilities}})
        self.address += f"/{made['sessionId']}"
        self.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def open(self, path: Path) -> None:
        self._call("POST", "/url", {"url": path.resolve().as_uri()})

    def reload(self) -> None:
        self._call("POST", "/refresh", {})

    def run(self, script: str, *arguments: Any) -> Any:
        """What ``script``, the body of a function, returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition: str, seconds: float = 20.0) -> None:
        """Until the script gives something true; a busy machine needs a moment."""
        deadline = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < deadline, f"never true: {condition}"
            time.sleep(0.1)

    def cdp(self, command: str, **parameters: Any) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def console(self) -> list[str]:
        """Errors and warnings since the last call."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [e["message"] for e in entries if e["level"] in ("SEVERE", "WARNING")]

    def find(self, css: str) -> str:
        return self._call("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]

    def click(self, css: str) -> None:
        self._call("POST", f"/element/{self.find(css)}/click", {})

    def type(self, css: str, keys: str) -> None:
        self._call("POST", f"/element/{self.find(css)}/value", {"text": keys})

    def size(self, width: int, height: int, phone: bool = False) -> None:
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    def media(self, kind: str = "screen", scheme: str = "light") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.cdp("Emulation.setEmulatedMedia", media=kind, features=features)

    def screenshot(self, path: Path, whole_page: bool = False) -> None:
        taken = self.cdp("Page.captureScreenshot", captureBeyondViewport=whole_page)
        path.write_bytes(base64.b64decode(taken["data"]))

    def downloaded(self, pattern: str) -> Path:
        """The file, as soon as it is whole."""
        for _ in range(200):
            for path in self.downloads.glob(pattern):
                if path.suffix != ".crdownload" and path.stat().st_size:
                    return path
            time.sleep(0.05)
        raise AssertionError(f"nothing like {pattern} was saved")

    def close(self) -> None:
        self._call("DELETE", "")


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    with subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True, stderr=subprocess.STDOUT
    ) as driver:
        try:
            lines = iter(driver.stdout.readline, "")
            port = next(line.split()[-1].rstrip(".") for line in lines if "successfully on" in line)
            browser = Browser(f"http://127.0.0.1:{port}", folder)
            try:
                yield browser
            finally:
                browser.close()
        finally:
            driver.terminate()

"""A headless Chromium, driven by Selenium, with the few words that tests of pages need."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = (
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
)
BROWSERS = ("chromium", "google-chrome", "chrome")


def missing() -> str | None:
    """Why there is no browser here, or None."""
    if not shutil.which("chromedriver"):
        return "no chromedriver: apt-get install chromium chromium-driver"
    if not any(map(shutil.which, BROWSERS)):
        return "no chromium: apt-get install chromium chromium-driver"
    return None


class Browser:
    """One window."""

    def __init__(self, driver: Any, downloads: Path):
        self.driver, self.downloads = driver, downloads
        self.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))

    def open(self, page: Path | str) -> None:
        """A file, or an address."""
        self.driver.get(page if isinstance(page, str) else page.resolve().as_uri())

    def reload(self) -> None:
        self.driver.refresh()

    def run(self, script: str, *arguments: Any) -> Any:
        """What ``script``, the body of a function, returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str, seconds: float = 20.0) -> None:
        """Until the script gives something true; a busy machine needs a moment."""
        self._until(lambda: self.run(condition), f"never true: {condition}", seconds)

    def _until(self, condition: Any, message: str, seconds: float = 20.0) -> Any:
        from selenium.webdriver.support.wait import WebDriverWait

        return WebDriverWait(self.driver, seconds, 0.1).until(lambda _: condition(), message)

    def cdp(self, command: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, parameters)

    def console(self) -> list[str]:
        """Errors and warnings since the last call."""
        entries = self.driver.get_log("browser")
        return [e["message"] for e in entries if e["level"] in ("SEVERE", "WARNING")]

    def find(self, css: str) -> Any:
        return self.driver.find_element("css selector", css)

    def click(self, css: str) -> None:
        self.find(css).click()

    def type(self, css: str, keys: str) -> None:
        self.find(css).send_keys(keys)

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

    def downloaded(self, pattern: str) -> Path:
        """The file, as soon as it is whole."""

        def whole() -> Path | None:
            found = [p for p in self.downloads.glob(pattern) if p.suffix != ".crdownload"]
            return next((path for path in found if path.stat().st_size), None)

        return self._until(whole, f"nothing like {pattern} was saved")


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    from selenium import webdriver

    downloads = folder / "downloads"
    downloads.mkdir(parents=True)
    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Ours, and no other that Selenium would look for in the network.
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(driver, downloads)
    finally:
        driver.quit()

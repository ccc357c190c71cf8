"""One browser for all tests of pages; where there is none, they are skipped and say why."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    import browser

    if reason := browser.missing():
        pytest.skip(reason)
    with browser.chromium(tmp_path_factory.mktemp("chromium")) as window:
        yield window


@pytest.fixture
def page(browser):
    """The browser as a person with a desktop sees it, without messages of other pages."""
    browser.size(1280, 900)
    browser.media()
    browser.console()
    return browser

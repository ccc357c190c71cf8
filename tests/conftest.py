"""Fixtures of the tests that need fairseq or a browser."""

import signal
from pathlib import Path

import pytest

# What runs in the background of a script ignores Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def reversal_data(tmp_path_factory) -> Path:
    from fairseq_runs import write_reversal_data

    sizes = {"train": 400, "valid": 48, "test": 16}
    return write_reversal_data(tmp_path_factory.mktemp("reversal"), sizes, longest=6)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """One browser for all tests of pages; where there is none, they are skipped and say why."""
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

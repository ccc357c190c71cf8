"""Every test here runs on the routes that this machine has: host and device."""

import pytest

from sparse_fairseq.functional._routes import VARIABLE


@pytest.fixture(autouse=True, params=["host", "device"])
def route(request, monkeypatch) -> str:
    """The route that all calls of a test take. A test of one of them alone says so:
    ``@pytest.mark.parametrize("route", ["host"], indirect=True)``."""
    monkeypatch.setenv(VARIABLE, request.param)
    return request.param

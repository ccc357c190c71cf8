"""Every test here runs on the routes that this machine has: host and device, or triton where its
kernels are interpreted (TRITON_INTERPRET=1)."""

import os

import pytest

from sparse_fairseq.functional._routes import VARIABLE

ROUTES = ["triton"] if os.environ.get("TRITON_INTERPRET") == "1" else ["host", "device"]


@pytest.fixture(autouse=True, params=ROUTES)
def route(request, monkeypatch) -> str:
    """The route that all calls of a test take. A test of one of them alone says so:
    ``@pytest.mark.parametrize("route", ["host"], indirect=True)``."""
    monkeypatch.setenv(VARIABLE, request.param)
    return request.param

"""The local web application: one page and an API of JSON. It serves one person's own machine.

Nothing in a request is a path or code: the page's files are read when the application is made, and
runs go by number.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from . import answers
from .catalogue import Entry, one_line
from .predictor import NotPossible

FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
LONGEST_TEXT = 1_000  # characters of a sentence, and of what is typed
MOST_WORDS = 300
MOST_OPENED = 100  # beginnings, one below the other
LONGEST_BODY = 64_000  # bytes
PER_SECOND, AT_ONCE = 60, 120  # requests to the API: in the long run, and in a burst
WAITING = 64  # requests that wait for the models
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A request that is not answered: status and one line."""

    def __init__(self, status: int, why: str):
        super().__init__(why)
        self.status = status


def make_app(entries: list[Entry], port: int) -> ASGIApp:
    """The application for the runs of a catalogue, as it is reached at this port."""
    api = Api(entries)
    routes = [Route(path, _file(*file), methods=["GET"]) for path, file in FILES.items()]
    routes.append(Route("/api/runs", api.runs, methods=["GET"]))
    for name in ("translate", "alternatives", "follow", "suggest"):
        routes.append(Route(f"/api/{name}", getattr(api, name), methods=["POST"]))
    handlers = {Refused: _refuse, HTTPException: _http_error, Exception: _failure}
    return LocalOnly(Starlette(routes=routes, exception_handlers=handlers), port)


def _file(name: str, kind: str) -> Callable:
    content = (Path(__file__).parent / name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, media_type=kind)

    return answer


def _error(status: int, why: str) -> JSONResponse:
    return JSONResponse({"error": one_line(why)}, status)


async def _refuse(request: Request, error: Exception) -> Response:
    return _error(error.status, str(error))


async def _http_error(request: Request, error: Exception) -> Response:
    why = {404: "there is nothing here", 405: f"{request.method} is not for this address"}
    return _error(error.status_code, why.get(error.status_code, str(error.detail)))


async def _failure(request: Request, error: Exception) -> Response:
    return _error(500, f"this went wrong: {type(error).__name__}: {error}")


class LocalOnly:
    """Answers only pages of its own: other Host headers (a name that was made to point here) and
    requests from other sites are refused. Every answer carries the safe headers."""

    def __init__(self, app: ASGIApp, port: int):
        self.app = app
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no web sockets

        async def send_safely(message: dict) -> None:
            if message["type"] == "http.response.start":
                extra = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        why = self._why_refused(scope)
        answer = self.app if why is None else _error(403, why)
        await answer(scope, receive, send_safely)

    def _why_refused(self, scope: Scope) -> str | None:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        hosts = headers.get("host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return f"this page is at {min(self.hosts)} only"
        origins = headers.get("origin", [])
        if any(origin not in {f"http://{host}" for host in self.hosts} for origin in origins):
            return "requests from other sites are refused"
        sites = headers.get("sec-fetch-site", [])
        if any(site not in ("same-origin", "none") for site in sites):
            return "requests from other sites are refused"
        return None


class Bucket:
    """Lets through so many requests a second in the long run, and so many at once."""

    def __init__(
        self, per_second: float, at_once: int, clock: Callable[[], float] = time.monotonic
    ):
        self.per_second, self.at_once, self.clock = per_second, at_once, clock
        self.left, self.last = float(at_once), clock()

    def take(self) -> bool:
        now = self.clock()
        self.left = min(self.left + (now - self.last) * self.per_second, float(self.at_once))
        self.last = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Api:
    """Requests bring all they need and leave nothing behind but caches: two browsers do not disturb
    each other."""

    def __init__(self, entries: list[Entry]):
        self.entries = entries
        self.bucket = Bucket(PER_SECOND, AT_ONCE)
        self.waiting = 0
        self._turn: anyio.Lock | None = None

    async def runs(self, request: Request) -> Response:
        return JSONResponse({"runs": [e.public(i) for i, e in enumerate(self.entries)]})

    async def translate(self, request: Request) -> Response:
        body = await self._body(request)
        words, typed = _words(body), _text(body, "typed", optional=True)
        wanted = (words, typed, _flag(body, "end"), _flag(body, "prove"))
        return await self._answer(request, body, answers.translation, *wanted)

    async def alternatives(self, request: Request) -> Response:
        body = await self._body(request)
        everything, skip = _flag(body, "all"), _number(body, "skip")
        wanted = (_words(body), _opened(body), everything, skip)
        return await self._answer(request, body, answers.alternatives, *wanted)

    async def follow(self, request: Request) -> Response:
        body = await self._body(request)
        wanted = (_words(body), _opened(body), _number(body, "budget"))
        return await self._answer(request, body, answers.progress, *wanted)

    async def suggest(self, request: Request) -> Response:
        body = await self._body(request)
        words, typed = _words(body), _text(body, "typed", optional=True)
        return await self._answer(request, body, answers.suggestions, words, typed)

    async def _body(self, request: Request) -> dict:
        if not self.bucket.take():
            raise Refused(429, "too many requests at once: wait a moment")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(415, "requests must be application/json")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST_BODY:
                raise Refused(413, f"a request has at most {LONGEST_BODY:,} bytes")
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            raise Refused(400, "the request is not JSON") from None
        if not isinstance(value, dict):
            raise Refused(400, "the request is not an object")
        return value

    async def _answer(
        self, request: Request, body: dict, function: Callable, *arguments
    ) -> Response:
        predictor, text = self._predictor(body), _text(body, "source")
        if self.waiting >= WAITING:
            raise Refused(429, "too many requests are waiting: try again in a moment")
        self._turn = self._turn or anyio.Lock()
        self.waiting += 1
        try:
            async with self._turn:  # models answer one after the other
                if await request.is_disconnected():
                    raise Refused(499, "nobody waits for this any more")
                found = await anyio.to_thread.run_sync(function, predictor, text, *arguments)
        except NotPossible as error:
            raise Refused(422, str(error)) from None
        finally:
            self.waiting -= 1
        return JSONResponse(found)

    def _predictor(self, body: dict):
        number = body.get("run")
        if type(number) is not int or not 0 <= number < len(self.entries):
            raise Refused(404, f"no run {one_line(repr(number))}")
        entry = self.entries[number]
        if entry.predictor is None:
            raise Refused(409, f"{entry.name} cannot be used: {entry.problem}")
        return entry.predictor


def _text(body: dict, key: str, optional: bool = False) -> str:
    value: Any = body.get(key, "" if optional else None)
    if not isinstance(value, str):
        raise Refused(422, f"'{key}' must be a text")
    if len(value) > LONGEST_TEXT:
        raise Refused(422, f"{len(value):,} characters: at most {LONGEST_TEXT:,} are taken")
    return _encodable(value)


def _flag(body: dict, key: str) -> bool:
    value = body.get(key, False)
    if not isinstance(value, bool):
        raise Refused(422, f"'{key}' must be true or false")
    return value


def _number(body: dict, key: str) -> int:
    value = body.get(key, 0)
    if type(value) is not int or value < 0:
        raise Refused(422, f"'{key}' must be a number, 0 or more")
    return value


def _opened(body: dict) -> tuple[tuple[str, bool], ...]:
    """Beginnings that were opened, one below the other."""
    values = body.get("opened", [])
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise Refused(422, "'opened' must be a list of beginnings: {name, all}")
    if len(values) > MOST_OPENED:
        raise Refused(422, f"{len(values):,} beginnings are open: at most {MOST_OPENED} are taken")
    return tuple((_text(value, "name"), _flag(value, "all")) for value in values)


def _words(body: dict) -> list[str]:
    words = body.get("words", [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Refused(422, "'words' must be a list of texts")
    if len(words) > MOST_WORDS or sum(map(len, words)) > 10 * LONGEST_TEXT:
        raise Refused(422, f"{len(words):,} words: at most {MOST_WORDS} are taken")
    if any(word.split() != [word] for word in words):
        raise Refused(422, "a word is empty or has spaces in it")
    return [_encodable(word) for word in words]


def _encodable(text: str) -> str:
    """JSON can hold halves of characters, which no text has."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Refused(422, "the text has half a character (a lone surrogate)") from None
    return text

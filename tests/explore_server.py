"""The page's server for tests: a real one, in a thread, at a port of its own."""

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import uvicorn

from experiments.explore.server import make_app


@dataclass
class Site:
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def ask(
        self, path: str, body=None, method: str | None = None, headers: dict | None = None
    ) -> "Reply":
        """``body``: a value to send as JSON, or bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if data is None else {"Content-Type": "application/json"}
        method = method or ("GET" if data is None else "POST")
        connection.request(method, path, data, {**kind, **(headers or {})})
        answer = connection.getresponse()
        reply = Reply(answer.status, answer.read(), dict(answer.getheaders()))
        connection.close()
        return reply


@dataclass
class Reply:
    status: int
    content: bytes
    headers: dict = field(repr=False)

    @property
    def value(self):
        return json.loads(self.content)

    @property
    def error(self) -> str:
        """The one line of an error, which is all that its JSON holds."""
        (message,) = self.value.values()
        assert "error" in self.value and "\n" not in message and message
        return message


@contextlib.contextmanager
def serving(entries: list) -> Iterator[Site]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        port = listener.getsockname()[1]
        config = uvicorn.Config(make_app(entries, port), log_level="critical", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield Site(port)
        finally:
            server.should_exit = True
            thread.join()

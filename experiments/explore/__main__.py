"""Starts the page of predictive translation for trained runs, on this machine only."""

import argparse
import contextlib
import logging
import socket
import sys
from pathlib import Path
from typing import NoReturn

from sparse_fairseq.errors import UsageError

PORT = 8642
HOST = "127.0.0.1"


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="python -m experiments.explore", description=__doc__)
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="runs/<dataset>/<system>/seed<N>, or runs/<dataset> for all of them",
    )
    parser.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}")
    options = parser.parse_args(arguments)
    if not 1 <= options.port <= 65535:
        raise UsageError(f"--port must be between 1 and 65535, got {options.port}")
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    try:
        import uvicorn

        from .server import make_app
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{error.name} is missing: pip install 'sparse_fairseq[explore]'"
        ) from None
    with listening(options.port) as listener:
        entries = _open(options.runs)
        app = make_app(entries, options.port)
        print(f"http://{HOST}:{options.port}/  (Ctrl-C ends it)", flush=True)
        config = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=2, server_header=False, ws="none"
        )
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
    print("ended", flush=True)


def _open(paths: list[Path]) -> list:
    """The runs; one line for each."""
    from .catalogue import open_runs

    for path in paths:
        if not path.is_dir():
            raise UsageError(
                f"{path} is no directory: train first (make demo), or name another run"
            )
    entries = open_runs(paths)
    for entry in entries:
        print(f"{entry.name}: {entry.problem or entry.note or 'ready'}", flush=True)
    if not any(entry.predictor for entry in entries):
        raise UsageError("none of these runs can be used")
    return entries


def listening(port: int) -> socket.socket:
    """A socket of this machine alone."""
    try:
        return _bound(port)
    except OSError as error:
        free = next((p for p in range(port + 1, min(port + 200, 65536)) if _is_free(p)), None)
        why = "is taken" if port >= 1024 else f"cannot be used ({error.strerror})"
        hint = f": use --port {free} (make explore PORT={free})" if free else ""
        raise UsageError(f"port {port} {why}{hint}") from None


def _bound(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def _is_free(port: int) -> bool:
    try:
        _bound(port).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    sys.exit(main())

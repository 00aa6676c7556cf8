"""The report of a run while it goes on, for a browser on this machine."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TextIO
from urllib.parse import parse_qs, urlsplit

from treadle.recipes import loop, profiles, runs
from treadle.recipes import metrics as metrics_file
from treadle.recipes.errors import UsageError, command
from treadle.recipes.report import facts
from treadle.recipes.report.page import content, page
from treadle.recipes.report.parts import Pairs, Part, Report, Text, charts
from treadle.recipes.runs import Run

HOST = "127.0.0.1"
_POLL = 0.5


class Watched:
    """A run as it is at each time that it is asked for.

    find: gives the run; raises UsageError as long as there is none.
    """

    def __init__(self, name: str, find: Callable[[], Run]) -> None:
        self.name, self._find = name, find
        self._lock = threading.Lock()
        self._tail: metrics_file.Tail | None = None
        self._seen: tuple[Any, Report | None] = None, None

    def report(self) -> Report:
        """The report of now."""
        with self._lock:
            try:
                run = self._find()
            except UsageError:
                waiting = f"waiting for the run {self.name} to begin"
                return Report(self.name, state="waiting", status=waiting, version="-")
            sign = _sign(run)
            if self._seen[1] is None or sign != self._seen[0]:
                self._seen = sign, self._made(run, str(hash(sign)))
            assert self._seen[1] is not None
            return self._seen[1]

    def _made(self, run: Run, version: str) -> Report:
        if self._tail is None or self._tail.path != run.metrics:
            self._tail = metrics_file.Tail(run.metrics)
        rows = self._tail.rows()
        manager = loop.manager_of(run, None)
        sections: list[Pairs] = facts.sections(run, manager, rows)
        parts: list[Part] = [*facts.notes(run), *sections]
        kept = profiles.read(run.profile)
        if kept is not None:
            parts.append(facts.kernels(kept))
        state, status = facts.state(run, manager, rows)
        if state != "training":
            more = f"{command('report', run.folder)}"
            parts.append(Text("layers, kernels and samples", f"are shown by: {more}"))
        title = facts.title(run)
        return Report(title, charts(rows), parts, state, status, version)


def _sign(run: Run) -> tuple[Any, ...]:
    """Changes with what a report says."""
    paths = (run.settings, run.metrics, run.checkpoints, run.profile, run.diverged)
    return (runs.is_claimed(run.folder), *map(_stamp, paths))


def _stamp(path: Any) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        """Gives the page, or what has changed of it."""
        # A page of another site, whose name leads here, has no business with it.
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in (HOST, "localhost"):
            return self._answer(HTTPStatus.FORBIDDEN, "text/plain", "not from here\n")
        asked = urlsplit(self.path)
        if asked.path == "/":
            text = page(self.server.watched.report())
            return self._answer(HTTPStatus.OK, "text/html; charset=utf-8", text)
        if asked.path == "/data.json":
            report = self.server.watched.report()
            if parse_qs(asked.query).get("since") == [report.version]:
                return self._answer(HTTPStatus.NO_CONTENT)
            text = json.dumps(content(report), allow_nan=False)
            return self._answer(HTTPStatus.OK, "application/json", text)
        return self._answer(HTTPStatus.NOT_FOUND, "text/plain", "no such page\n")

    def _answer(self, status: HTTPStatus, kind: str = "", text: str = "") -> None:
        body = text.encode()
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a page asks every second."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Another server must not get the port while this one has it.
    allow_reuse_port = False

    def __init__(self, port: int, watched: Watched) -> None:
        self.watched = watched
        super().__init__((HOST, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a browser that has left."""


def serve(name: str, find: Callable[[], Run], port: int, out: TextIO) -> None:
    """Serves the report of a run to browsers on this machine, until Ctrl-C.

    Args:
      name: what the user calls the run.
      find: gives the run; raises UsageError as long as there is none.
      port: 0 for any that is free.

    Raises:
      UsageError: if the port is taken, or not for users.
    """
    watched = Watched(name, find)
    try:
        server = _Server(port, watched)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise UsageError(
            f"--port {port}: {os.strerror(error.errno or 0)}\n"
            "Choose another, or 0 for one that is free: "
            f"{command('report', name, '--live', '--port', 0)}"
        ) from None
    print(f"report: http://{HOST}:{server.server_port}/    (Ctrl-C ends it)", file=out)
    out.flush()
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL,))
        thread.start()
        try:
            _tell(watched, out)
        except KeyboardInterrupt:
            print(file=out)
        finally:
            server.shutdown()
            thread.join()


def _tell(watched: Watched, out: TextIO) -> None:
    """Says when a run begins and ends."""
    state = ""
    while True:
        report = watched.report()
        if report.state != state:
            state = report.state
            print(report.status, file=out, flush=True)
        threading.Event().wait(2 * _POLL)

"""`sadq watch`: the same page on this machine alone, made anew while its runs go on."""

import contextlib
import hashlib
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sadq.errors import SadqError
from sadq.report.contents import Report, part
from sadq.report.runs import runs_in
from sadq.report.standing import Standing, fleets

ADDRESS = "127.0.0.1"
READ = ("config.json", "metrics.jsonl", "evaluations.jsonl", "result.json")
SHARE = 5.0  # a page may take one part in so many of the time: the runs need the processor themselves
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Watched:
    """The page of runs under way, made anew where they have written something, and not too often."""

    def __init__(self, runs: Sequence[Path], title: str | None = None, seed: int = 0, refresh: float = 5.0):
        for run in runs:
            runs_in(Path(run))  # which says why where that cannot be read
            if not Path(run).is_dir():
                raise SadqError(
                    f"{run} is not a folder, so there is no run to watch: name run folders, or one that will hold some."
                )
        if not 0 < refresh < math.inf:
            raise SadqError(f"refresh = {refresh} must be above 0 seconds and finite.")
        self.runs, self.title, self.seed, self.refresh = [Path(run) for run in runs], title, seed, refresh
        self._lock = threading.Lock()
        self._seen: tuple[object, ...] | None = None
        self._standings: list[Standing] = []
        self._page, self._not_before = b"", 0.0

    def page(self) -> tuple[str, bytes]:
        """(its tag, the page)."""
        with self._lock:
            files, words = self._signature(), [standing.later().words for standing in self._standings]
            if not self._page or ((files, words) != self._seen and time.monotonic() >= self._not_before):
                began = time.monotonic()
                self._page = self._build()
                self._seen = files, [standing.words for standing in self._standings]
                self._not_before = time.monotonic() + SHARE * (time.monotonic() - began)
            return f'"{hashlib.sha256(self._page).hexdigest()[:24]}"', self._page

    def _signature(self) -> tuple[object, ...]:
        """What tells whether anything was written: sizes and times of all files that a page is made of."""
        found = []
        for run in self.runs:
            with contextlib.suppress(OSError, SadqError):
                for path in (folder / name for folder in runs_in(run) for name in READ if (folder / name).exists()):
                    found.append((str(path), path.stat().st_size, path.stat().st_mtime_ns))
        return tuple(found)

    def _build(self) -> bytes:
        script = part("live.js").replace("REFRESH", str(round(1000 * self.refresh)))
        try:
            report = Report.of(self.runs, self.title, self.seed)
            self._standings = [Standing.of(run) for run in report.runs]
            return report.html(fleets(self._standings), script).encode("utf-8", "replace")
        except SadqError as error:  # a run that has only just begun is not there to be read yet
            self._standings = []
            return waiting(str(error), script).encode("utf-8", "replace")


def waiting(sentence: str, script: str) -> str:
    """A page for runs that cannot be read yet."""
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>Waiting for runs</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{part("style.css")}</style></head>\n'
        f'<body><header><h1>Waiting for runs</h1></header><main id="content"><p>{escape(sentence)}</p>'
        '<p class="status" role="status" id="live"></p></main>\n'
        f"<script>{part('script.js')}{script}</script></body></html>\n"
    )


class Server(ThreadingHTTPServer):
    """A page that is closed or reloaded while it is answered is nothing to speak of."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def server_of(watched: Watched, port: int) -> ThreadingHTTPServer:
    """A server on the loopback address, not yet serving; port 0 takes any that is free."""

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "sadq", ""
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            # A page of another site could name this address as its own: only what was typed here is answered.
            host = self.headers.get("Host", "").partition(":")[0].lower()
            if host not in (ADDRESS, "localhost"):
                self._answer(HTTPStatus.FORBIDDEN, b"")
            elif self.path != "/":
                self._answer(HTTPStatus.NO_CONTENT if self.path == "/favicon.ico" else HTTPStatus.NOT_FOUND, b"")
            else:
                tag, page = watched.page()
                same = self.headers.get("If-None-Match") == tag
                self._answer(HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK, b"" if same else page, tag)

        do_HEAD = do_GET

        def _answer(self, status: HTTPStatus, body: bytes, tag: str | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Cache-Control", "no-cache")
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("X-Content-Type-Options", "nosniff")
            if tag is not None:
                self.send_header("ETag", tag)
            if status is not HTTPStatus.NO_CONTENT:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Requests are not worth a line each."""

    try:
        server = Server((ADDRESS, port), Handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SadqError(f"Port {port} cannot be used ({reason}): choose another with --port, or 0 for any.") from error
    server.daemon_threads = True
    return server


def watch(watched: Watched, port: int, say: Callable[[str], None]) -> None:
    """Serves until it is interrupted, by Ctrl-C or from outside, also where a shell has it in the background."""
    server = server_of(watched, port)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    say(f"watching: http://{ADDRESS}:{server.server_address[1]}/ (Ctrl-C stops; the runs go on)")
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        say("stopped watching; the runs go on.")
    finally:
        server.server_close()

"""Watching: where runs stand, and a server that answers this machine alone, with what is newest."""

import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from report.reader import Reader
from sadq.errors import SadqError
from sadq.report.runs import Run
from sadq.report.standing import Standing, duration, fleets
from sadq.report.watch import Watched, server_of

Make = Callable[..., Path]
HOST = "127.0.0.1"


def test_a_run_under_way_says_how_far_and_how_long(make_run: Make) -> None:
    folder = make_run("a", "dqn", [(0, 1), (0, 3)], finished=False, config={"steps": 5000})
    standing = Standing.of(Run(folder))
    # 4,000 more steps of two members at 500 steps a second.
    assert (standing.step, standing.planned, standing.rate, standing.seconds_left) == (1000, 5000, 500, 16)
    assert standing.share == 0.2 and standing.words == "running"
    text = Reader(fleets([standing])).text
    assert "1,000 of 5,000 steps" in text and "500 steps/s" in text and "ETA 16 s" in text and "2 members" in text
    later = Standing.of(Run(folder), now=time.time() + 3600)
    assert later.words == "silent for 1 h 00 min" and later.seconds_left is None
    assert "ETA" not in (told := Reader(fleets([later])).text) and "steps/s" not in told


def test_finished_and_starting_runs(make_run: Make) -> None:
    finished = Standing.of(Run(make_run("a", diverged={0: 5})))
    assert (finished.share, finished.words, finished.seconds_left) == (1, "finished", None)
    assert "diverged" in fleets([finished])
    starting = Standing.of(Run(make_run("b", curves=[()], finished=False, config={"steps": 10})))
    assert (starting.share, starting.words, starting.seconds_left) == (0, "starting", None)
    assert "none yet" in fleets([starting])
    assert Standing.of(starting.run, now=time.time() + 500).words == "starting"  # compiling may take minutes
    assert Standing.of(starting.run, now=time.time() + 1325).words == "silent for 22 min"


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0 s"), (59, "59 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")])
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.fixture
def serve() -> Iterator[Callable[[Watched], int]]:
    """Serves what is watched on a free port, until the test ends."""
    servers = []

    def start(watched: Watched) -> int:
        server = server_of(watched, 0)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return int(server.server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(port: int, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def test_the_page_is_made_anew_when_a_run_has_written(make_run: Make, serve: Callable[[Watched], int]) -> None:
    folder = make_run("a", "dqn", [(0, 1)], finished=False, config={"steps": 9000})
    watched = Watched([folder])
    port = serve(watched)
    status, headers, body = ask(port)
    page = Reader(body)
    assert status == 200 and "Under way" in page.text and "1,000 of 9,000 steps" in page.text
    assert ask(port, **{"If-None-Match": headers["ETag"]})[::2] == (304, "")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 4000, "member": 0, "steps_per_second": 100.0}) + "\n")
    watched._not_before = 0.0  # as if enough time had passed
    status, fresh, body = ask(port, **{"If-None-Match": headers["ETag"]})
    assert status == 200 and fresh["ETag"] != headers["ETag"] and "4,000 of 9,000 steps" in body
    assert "connect-src 'self'" in headers["Content-Security-Policy"]


def test_a_killed_run_is_told_though_it_writes_nothing(make_run: Make) -> None:
    folder = make_run("a", "dqn", [(0, 1)], finished=False, config={"steps": 9000})
    files = [folder / name for name in ("config.json", "metrics.jsonl", "evaluations.jsonl")]
    for path in files:
        os.utime(path, (time.time() - 50, time.time() - 50))
    watched = Watched([folder])
    tag, page = watched.page()
    assert "running" in Reader(page.decode()).text and watched.page()[0] == tag
    with mock.patch("sadq.report.standing.time.time", return_value=time.time() + 100):
        watched._not_before = 0.0  # as if enough time had passed
        assert "silent for 2 min" in Reader(watched.page()[1].decode()).text


def test_only_this_machine_is_answered(make_run: Make, serve: Callable[[Watched], int]) -> None:
    port = serve(Watched([make_run("a")]))
    assert ask(port, Host=f"evil.example:{port}")[0] == 403
    assert ask(port, Host=f"localhost:{port}")[0] == ask(port, Host=f"LocalHost:{port}")[0] == 200
    assert ask(port, "/config.json")[0] == 404 and ask(port, "/../../etc/passwd")[0] == 404
    assert ask(port, "/favicon.ico")[0] == 204
    assert ask(port, method="POST")[0] == 501
    with pytest.raises(SadqError, match="--port"):
        server_of(Watched([]), port)


def test_a_run_that_is_yet_to_begin_is_waited_for(tmp_path: Path, make_run: Make) -> None:
    (tmp_path / "runs").mkdir()
    watched = Watched([tmp_path / "runs"])
    assert "Waiting for runs" in watched.page()[1].decode()
    make_run("a", "dqn", [(0, 1)])
    watched._not_before = 0.0
    assert "dqn on BitFlip" in watched.page()[1].decode()
    with pytest.raises(SadqError, match="not a folder"):
        Watched([tmp_path / "nowhere"])
    for refresh in (float("inf"), float("nan"), 0.0):
        with pytest.raises(SadqError, match="refresh = .* must be above 0 seconds and finite"):
            Watched([tmp_path / "runs"], refresh=refresh)


def test_ctrl_c_stops_it_cleanly(make_run: Make) -> None:
    """The command itself, in a process of its own."""
    command = [sys.executable, "-m", "sadq", "watch", str(make_run("a")), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        port = int(first.split(f"{HOST}:")[1].split("/")[0])
        assert ask(port)[0] == 200
        for _ in range(3):  # closed before it is answered, as by a reader who reloads the page
            with socket.create_connection((HOST, port)) as gone:
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                gone.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ask(port)[0] == 200
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, errors) == (0, "") and "stopped watching" in rest

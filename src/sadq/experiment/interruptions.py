"""Ctrl-C as a request: a run ends its chunk and saves, and only a second one stops it at once."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def interruptions() -> Iterator[list[int]]:
    """The signals so far; turns the first SIGINT or SIGTERM into a request to stop, and the second into an interrupt."""
    requests: list[int] = []

    def handle(number: int, frame: Any) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(number)

    in_main = threading.current_thread() is threading.main_thread()
    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM) if in_main}
    try:
        yield requests
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

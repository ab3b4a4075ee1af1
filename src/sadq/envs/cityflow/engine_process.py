"""CityFlow's own engine in a process of its own, since its destructor may wait for ever: messages are lines of JSON.

The process is a fresh interpreter that ends when its input does, without destroying the engine; where it does not end by
itself, it is killed. This end of it imports neither JAX nor the `cityflow` module.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

from sadq.errors import SadqError

CLOSE_SECONDS = 5.0
"""For how long an engine may take to end before it is killed."""


class EngineProcess:
    """An engine of the `cityflow` module, asked by the names of `Served`'s methods."""

    def __init__(self, config: Path, signals: tuple[str, ...], lanes: tuple[str, ...]):
        code = (
            "import sys; sys.path[:] = sys.argv[1:]; "
            "from sadq.envs.cityflow import engine_process; engine_process.serve()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *sys.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._stop = weakref.finalize(self, _stop, self._process)
        try:
            self.version = self.ask("start", str(config), list(signals), list(lanes))
        except BaseException:
            self.close()
            raise

    def ask(self, method: str, *arguments: Any) -> Any:
        """What the engine answers; EngineError where it raised or is gone."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([method, *arguments]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise EngineError(f"its process ended with code {self._process.wait()}")
        worked, value = json.loads(answer)
        if not worked:
            raise EngineError(value)
        return value

    def close(self) -> None:
        """End the process, within `CLOSE_SECONDS` or by force; a second call does nothing."""
        self._stop()


class EngineError(SadqError):
    """What an engine raised, as a part of a sentence."""


class Served:
    """An engine within its process, and what is asked of it."""

    def start(self, config: str, signals: list[str], lanes: list[str]) -> str:
        """Make the engine, with one thread; gives its version."""
        import cityflow

        if not hasattr(cityflow, "Engine"):  # any folder of that name can be imported
            raise ImportError("what goes by that name has no Engine")
        self._engine = cityflow.Engine(config, thread_num=1)
        self._signals, self._lanes = signals, lanes
        return getattr(cityflow, "__version__", "unknown")

    def reset(self, seed: int) -> None:
        self._engine.reset(False)
        self._engine.set_random_seed(seed)

    def show(self, phases: list[int]) -> None:
        """Set the phase of every signal."""
        for name, phase in zip(self._signals, phases, strict=True):
            self._engine.set_tl_phase(name, phase)

    def advance(self, steps: int) -> None:
        for _ in range(steps):
            self._engine.next_step()

    def look(self) -> tuple[list[int], list[int]]:
        """(vehicles, waiting ones) on every lane."""
        count, waiting = self._engine.get_lane_vehicle_count(), self._engine.get_lane_waiting_vehicle_count()
        return [count[lane] for lane in self._lanes], [waiting[lane] for lane in self._lanes]

    def measured(self) -> tuple[float, int, int]:
        """(average travel time, vehicles inside, vehicles inside or waiting to enter)."""
        inside, present = self._engine.get_vehicle_count(), self._engine.get_vehicles(include_waiting=True)
        return self._engine.get_average_travel_time(), inside, len(present)


def serve() -> None:
    """Answer the parent at the other end of the standard streams until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the parent, which then closes us
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the engine prints must not mix with the answers
    served = Served()
    with contextlib.suppress(BrokenPipeError):
        for line in requests:
            method, *arguments = json.loads(line)
            try:
                answer = True, getattr(served, method)(*arguments)
            except Exception as error:
                answer = False, f"{type(error).__name__}: {' '.join(str(error).split())}"
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    os._exit(0)  # the engine's threads may be at a place where its destructor would wait for them for ever


def _stop(process: "subprocess.Popen[str]") -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    try:
        process.wait(CLOSE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

"""Groups of host environments in processes of their own, where that is faster; results do not depend on it.

A worker is a fresh interpreter that talks over its standard streams. Unlike `multiprocessing`'s it does not import the
user's main script again (so scripts need no `__main__` guard), never forks the threads of JAX, does not import JAX, and
ends when its parent does, however that came about, because its input ends.
"""

import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
import weakref
from collections.abc import Sequence
from typing import IO, Any

import cloudpickle
import numpy as np

from sadq.envs import contract
from sadq.envs.contract import HostSpec
from sadq.envs.group import EnvironmentGroup, HostStep, Slot
from sadq.errors import SadqError

EXCHANGE_SECONDS = 150e-6
"""What one worker adds to a step of the batch: measured, two messages with a process switch each."""
START_SECONDS = 0.5
"""What starting workers takes, to be earned back within `STEPS_TO_EARN`."""
STEPS_TO_EARN = 5_000
WORTHWHILE = 0.8
"""The share of the time in one process that workers must stay under to be used: the estimate is a rough one."""
CALIBRATION_STEPS = 64
CALIBRATION_SECONDS = 0.25
CLOSE_SECONDS = 5.0


def resolve(workers: int | str, spec: HostSpec, count: int) -> int:
    """How many worker processes to use for `count` environments; 0 is none, all of them in this process."""
    if workers == "auto":
        processors = _processors()
        return best_count(step_seconds(spec), count, processors) if min(count, processors) > 1 else 0
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise SadqError(f'workers is {workers!r}, expected "auto" or a number: give 0 to use no worker processes.')
    return min(workers, count)


def best_count(seconds: float, count: int, processors: int) -> int:
    """The number of workers with the shortest step of `count` environments that take `seconds` each."""

    def step(workers: int) -> float:
        return -(-count // workers) * seconds + workers * EXCHANGE_SECONDS + START_SECONDS / STEPS_TO_EARN

    best = min(range(1, min(count, processors) + 1), key=step)
    return best if step(best) < WORTHWHILE * count * seconds else 0


def step_seconds(spec: HostSpec) -> float:
    """The time of one environment's step, its share of resets included, measured on a scratch environment."""
    environment = contract.build(spec.name, spec.maker)
    _, info = contract.checked_reset(spec, contract.call_reset(spec, environment, 0))
    taken = 0
    start = time.perf_counter()
    try:
        while taken < CALIBRATION_STEPS and time.perf_counter() - start < CALIBRATION_SECONDS:
            mask = contract.checked_mask(spec, "step", info)
            legal = range(spec.action_count) if mask is None else np.flatnonzero(mask).tolist()
            action = legal[taken * 7919 % len(legal)]  # any that are spread out will do
            result = contract.call_step(spec, environment, action + spec.action_start)
            _, _, terminated, truncated, info = contract.checked_step(spec, result)
            taken += 1
            if terminated or truncated:
                _, info = contract.checked_reset(spec, contract.call_reset(spec, environment, taken))
        return (time.perf_counter() - start) / taken
    finally:
        environment.close()


class WorkerPool:
    """An `EnvironmentGroup` spread over processes, each with a contiguous part of the slots."""

    def __init__(self, spec: HostSpec, slots: Sequence[Slot], purpose: str, workers: int):
        self._spec = spec
        self._parts = [part for part in np.array_split(np.arange(len(slots)), workers) if len(part)]
        self._broken = False
        try:
            setups = [cloudpickle.dumps((spec, [slots[i] for i in part], purpose)) for part in self._parts]
        except Exception as error:
            raise SadqError(
                f"environment {spec.name} cannot be sent to worker processes ({contract.one_line(error)}): "
                "use workers=0."
            ) from error
        self._processes = [_start() for _ in self._parts]
        self._stop = weakref.finalize(self, _stop, self._processes)
        try:
            self._exchange(setups)
        except BaseException:
            self.close()
            raise

    def reset(self, episodes: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """As `EnvironmentGroup.reset`."""
        observations, masks = self._call("reset", [(episodes[part],) for part in self._parts])
        return observations, masks

    def step(self, actions: np.ndarray) -> HostStep:
        """As `EnvironmentGroup.step`."""
        return HostStep(*self._call("step", [(actions[part],) for part in self._parts]))

    def replay(
        self, episodes: np.ndarray, lengths: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """As `EnvironmentGroup.replay`."""
        ends = np.concatenate([[0], np.cumsum(lengths)])
        observations, masks, ended = self._call(
            "replay",
            [(episodes[part], lengths[part], actions[ends[part[0]] : ends[part[-1] + 1]]) for part in self._parts],
        )
        return observations, masks, ended

    def close(self) -> None:
        """End the worker processes."""
        self._broken = True
        self._stop()

    def _call(self, method: str, arguments: list[tuple[np.ndarray, ...]]) -> list[Any]:
        replies = self._exchange([pickle.dumps((method, values)) for values in arguments])
        if len(replies) == 1:
            return list(replies[0])
        return [None if parts[0] is None else np.concatenate(parts) for parts in zip(*replies, strict=True)]

    def _exchange(self, messages: list[bytes]) -> list[Any]:
        if self._broken:
            raise SadqError(
                f"the workers of environment {self._spec.name} were closed or interrupted, expected them running: "
                "make new ones and restore their state."
            )
        # Broken until every reply is in: after an interrupt in between, replies would be taken for later ones.
        self._broken = True
        for process, message in zip(self._processes, messages, strict=True):
            self._guarded(process, _send, process.stdin, message)
        replies = [pickle.loads(self._guarded(process, _receive, process.stdout)) for process in self._processes]
        for failure, trace in (value for succeeded, value in replies if not succeeded):
            error = SadqError(failure)
            error.add_note(f"In a worker process:\n{trace}")
            raise error
        self._broken = False
        return [value for _, value in replies]

    def _guarded(self, process: subprocess.Popen[bytes], transfer: Any, *arguments: Any) -> Any:
        try:
            return transfer(*arguments)
        except (EOFError, OSError) as error:
            _stop([process])
            raise SadqError(
                f"a worker process of environment {self._spec.name} died with exit code {process.returncode}, expected "
                "it to answer: use workers=0 to see why."
            ) from error


def serve() -> None:
    """A worker's whole life: build a group, then do to it what comes in, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the parent, which then closes us
    commands, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What an environment prints or reads must not mix with the messages.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    group: EnvironmentGroup | None = None
    try:
        while True:
            message = _receive(commands)
            try:
                if group is None:
                    group = EnvironmentGroup(*_unpacked(message))
                    value = None
                else:
                    method, arguments = pickle.loads(message)
                    value = getattr(group, method)(*arguments)
                reply: tuple[bool, Any] = (True, value if value is None else tuple(value))
            except SadqError as error:
                reply = (False, (str(error), traceback.format_exc()))
            _send(replies, pickle.dumps(reply))
    except (EOFError, BrokenPipeError):
        if group is not None:
            group.close()


def _unpacked(message: bytes) -> tuple[HostSpec, list[Slot], str]:
    try:
        spec, slots, purpose = pickle.loads(message)
    except Exception as error:
        raise SadqError(
            f"an environment could not be rebuilt in a worker process ({contract.one_line(error)}): use workers=0."
        ) from error
    return spec, slots, purpose


def _start() -> subprocess.Popen[bytes]:
    code = "import sys; sys.path[:] = sys.argv[1:]; from sadq.envs import workers; workers.serve()"
    # An environment that itself computes with JAX must not claim the accelerator that the learner fills.
    variables = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *sys.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables
    )


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        for stream in (process.stdin, process.stdout):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                pass  # it died with a message half sent
    deadline = time.monotonic() + CLOSE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _send(stream: IO[bytes], payload: bytes) -> None:
    stream.write(len(payload).to_bytes(8, "little") + payload)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    header = stream.read(8)
    payload = stream.read(int.from_bytes(header, "little")) if len(header) == 8 else b""
    if len(header) < 8 or len(payload) < int.from_bytes(header, "little"):
        raise EOFError
    return payload


def _processors() -> int:
    """Processors that we may use and that others leave free: on a busy machine workers are slower than none."""
    ours = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    busy = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0
    return max(1, round(ours * (1.0 - min(1.0, busy))))

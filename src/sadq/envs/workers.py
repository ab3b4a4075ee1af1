"""Groups of host environments in processes of their own, where that is faster; results do not depend on it.

A worker is a fresh interpreter that talks over its standard streams. Unlike `multiprocessing`'s it does not import the
user's main script again (so scripts need no `__main__` guard), never forks the threads of JAX, does not import JAX, and
ends when its parent does, however that came about, because its input ends. What is said at every step lies on a board in
memory that all share, and only a byte goes each way: the actions are there, the answers are.
"""

import mmap
import os
import pickle
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from typing import Any

import cloudpickle
import numpy as np

from sadq.envs import contract, shared
from sadq.envs.channel import Channel
from sadq.envs.contract import HostSpec
from sadq.envs.group import IDLE, Part, Slot
from sadq.errors import SadqError

EXCHANGE_SECONDS = 25e-6
"""What each worker adds to a step of the batch: measured, a byte each way, and what is taken from the others' time."""
WAKE_SECONDS = 60e-6
"""What a step of the batch takes longer as soon as there are workers: measured, two process switches."""
START_SECONDS = 0.5
"""What starting workers takes, to be earned back within `STEPS_TO_EARN`."""
STEPS_TO_EARN = 5_000
WORTHWHILE = 0.8
"""The share of the time in one process that workers must stay under to be used: the estimate is a rough one."""
WORTHWHILE_BESIDE = 1.5
"""The same beside training: what is stepped in its own process holds it up."""
MOST_EVALUATIONS, PROCESSORS_EACH = 4, 4
"""Evaluations at once, and the processors that there must be for each."""
CALIBRATION_STEPS = 64
CALIBRATION_SECONDS = 0.25
CLOSE_SECONDS = 5.0
PATIENCE_SECONDS = 200e-6
"""For how long a worker looks out for the next step before it goes to sleep, where it has a processor to itself."""


def resolve(workers: int | str, spec: HostSpec, count: int, beside: bool = False) -> int:
    """How many worker processes to use for `count` environments; 0 is none, all of them in this process.

    `beside`: they are stepped while this process does something else, too.
    """
    if workers == "auto":
        processors = max(1, _processors() // evaluations_at_once()) if beside else _processors()
        return best_count(step_seconds(spec), count, processors, beside) if min(count, processors) > 1 else 0
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise SadqError(f'workers is {workers!r}, expected "auto" or a number: give 0 to use no worker processes.')
    return min(workers, count)


def evaluations_at_once() -> int:
    """How many evaluations may go on beside training: each gets on by itself only as fast as its longest episode."""
    return max(1, min(MOST_EVALUATIONS, _own_processors() // PROCESSORS_EACH))


def best_count(seconds: float, count: int, processors: int, beside: bool = False) -> int:
    """The number of workers with the shortest step of `count` environments that take `seconds` each."""
    fixed = WAKE_SECONDS + START_SECONDS / STEPS_TO_EARN

    def step(workers: int) -> float:
        return -(-count // workers) * seconds + workers * EXCHANGE_SECONDS + fixed

    best = min(range(1, min(count, processors) + 1), key=step)
    return best if step(best) < (WORTHWHILE_BESIDE if beside else WORTHWHILE) * count * seconds else 0


def step_seconds(spec: HostSpec) -> float:
    """The time of one environment's step, its share of resets included, measured on a scratch environment."""
    environment = contract.build(spec.name, spec.maker)
    _, info = contract.checked_reset(spec, contract.call_reset(spec, environment, 0))
    steps, resets = list[float](), 0.0
    try:
        while len(steps) < CALIBRATION_STEPS and sum(steps) + resets < CALIBRATION_SECONDS:
            mask = contract.checked_mask(spec, environment, "step", info)
            legal = range(spec.action_count) if mask is None else np.flatnonzero(mask).tolist()
            action = legal[len(steps) * 7919 % len(legal)]  # any that are spread out will do
            start = time.perf_counter()
            result = contract.call_step(spec, environment, action)
            steps.append(time.perf_counter() - start)
            _, _, terminated, truncated, info = contract.checked_step(spec, result)
            if terminated or truncated:
                start = time.perf_counter()
                _, info = contract.checked_reset(spec, contract.call_reset(spec, environment, len(steps)))
                resets += time.perf_counter() - start
        # The median, for what else runs on the machine makes single steps long.
        return float(np.median(steps)) + resets / len(steps)
    finally:
        contract.close(spec.name, environment)


def shares(second: np.ndarray, workers: int) -> list[np.ndarray]:
    """The rows of each worker, as many of them as can be from each half, for `second` bool[n] of the rows."""
    first, last = (np.array_split(np.flatnonzero(half), workers) for half in (~second, second))
    # From the other end, so that what is left over of both halves goes to different workers.
    return [np.sort(np.concatenate(pair)) for pair in zip(first, reversed(last), strict=True)]


class WorkerPool:
    """An `EnvironmentGroup` spread over processes, each with a share of both halves."""

    def __init__(self, spec: HostSpec, slots: Sequence[Slot], purpose: str, workers: int, second: np.ndarray):
        """As for `EnvironmentGroup`, but for `board`, which is made here."""
        count = len(slots)
        self._spec = spec
        self._shares = shares(second, workers)
        parts = np.ones_like(second), ~second, second
        # By part: its rows of the board, their workers, and each worker that has one.
        self._rows = [np.flatnonzero(chosen) for chosen in parts]
        self._owners = [_owners(self._shares, count)[rows] for rows in self._rows]
        self._staff = [np.unique(owners).tolist() for owners in self._owners]
        self._under_way: dict[Part, list[int]] = {}  # whose answers are not in yet
        self._broken = False
        patience = PATIENCE_SECONDS if workers < _own_processors() else 0.0
        try:
            setups = [
                cloudpickle.dumps((spec, [slots[row] for row in rows], purpose, count, rows, second[rows], patience))
                for rows in self._shares
            ]
        except Exception as error:
            raise SadqError(
                f"environment {spec.name} cannot be sent to worker processes ({contract.one_line(error)}): "
                "use workers=0."
            ) from error
        size = shared.board_size(spec, count)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stop = weakref.finalize(self, _stop, self._processes)
        descriptor = shared.reserve(size)
        try:
            self.board = shared.board_on(mmap.mmap(descriptor, size), spec, count)
            for _ in self._shares:
                self._processes.append(_start(descriptor))
            self._channels = [_channel(process) for process in self._processes]
            self._exchange(setups)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(descriptor)

    def reset(self, episodes: np.ndarray) -> None:
        """As `EnvironmentGroup.reset`."""
        self._call("reset", [(episodes[rows],) for rows in self._shares])

    def send(self, part: Part, idle: bool) -> None:
        """Have a part of the environments stepped by the board's actions; where some are `idle`, so may workers be."""
        workers = self._staff[part]
        if idle:
            workers = np.unique(self._owners[part][self.board.action[self._rows[part]] != IDLE]).tolist()
        self._begin()
        for worker in workers:
            self._guarded(worker, self._channels[worker].signal, part)
        self._under_way[part] = workers
        self._broken = False

    def receive(self, part: Part) -> None:
        """Wait until the answers to `send` are on the board."""
        self._begin()
        workers = self._under_way.pop(part)
        replies = [self._guarded(worker, self._channels[worker].receive) for worker in workers]
        self._checked([pickle.loads(reply) for reply in replies if isinstance(reply, bytes)])

    def replay(self, episodes: np.ndarray, lengths: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """As `EnvironmentGroup.replay`."""
        recorded = np.split(actions, np.cumsum(lengths)[:-1])
        answers = self._call(
            "replay",
            [(episodes[rows], lengths[rows], np.concatenate([recorded[row] for row in rows])) for rows in self._shares],
        )
        ended = np.zeros(len(episodes), bool)
        for rows, answer in zip(self._shares, answers, strict=True):
            ended[rows] = answer
        return ended

    def close(self) -> None:
        """End the worker processes."""
        self._broken = True
        self._stop()

    def _call(self, method: str, arguments: list[tuple[np.ndarray, ...]]) -> list[Any]:
        if self._under_way:
            self._broken = True  # an interrupt came between a step's sending and its answers
        return self._exchange([pickle.dumps((method, values)) for values in arguments])

    def _exchange(self, messages: list[bytes]) -> list[Any]:
        self._begin()
        for worker, message in enumerate(messages):
            self._guarded(worker, self._channels[worker].post, message)
        replies = [self._guarded(worker, channel.receive) for worker, channel in enumerate(self._channels)]
        return self._checked([pickle.loads(reply) for reply in replies])

    def _begin(self) -> None:
        """Broken until every reply is in: after an interrupt in between, replies would be taken for later ones."""
        if self._broken:
            raise SadqError(
                f"the workers of environment {self._spec.name} were closed or interrupted, expected them running: "
                "make new ones and restore their state."
            )
        self._broken = True

    def _checked(self, replies: list[tuple[bool, Any]]) -> list[Any]:
        """What workers answered, the first failure raised."""
        for failure, trace in (value for succeeded, value in replies if not succeeded):
            error = SadqError(failure)
            error.add_note(f"In a worker process:\n{trace}")
            raise error
        self._broken = False
        return [value for _, value in replies]

    def _guarded(self, worker: int, transfer: Any, *arguments: Any) -> Any:
        try:
            return transfer(*arguments)
        except (EOFError, OSError) as error:
            process = self._processes[worker]
            _stop([process])
            raise SadqError(
                f"a worker process of environment {self._spec.name} died with exit code {process.returncode}, expected "
                "it to answer: use workers=0 to see why."
            ) from error


def _owners(rows: Sequence[np.ndarray], count: int) -> np.ndarray:
    """The worker of every row."""
    owners = np.zeros(count, np.intp)
    for worker, own in enumerate(rows):
        owners[own] = worker
    return owners


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    code = (
        "import sys; descriptor = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
        "from sadq.envs import worker_process; worker_process.serve(descriptor)"
    )
    # An environment that itself computes with JAX must not claim the accelerator that the learner fills.
    variables = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "-c", code, str(descriptor), *sys.path],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=variables,
        pass_fds=[descriptor],
    )


def _channel(process: subprocess.Popen[bytes]) -> Channel:
    assert process.stdin is not None and process.stdout is not None
    return Channel(process.stdout.fileno(), process.stdin.fileno())


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
    deadline = time.monotonic() + CLOSE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _processors() -> int:
    """Processors that we may use and that others leave free: on a busy machine workers are slower than none."""
    busy = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0
    return max(1, round(_own_processors() * (1.0 - min(1.0, busy))))


def _own_processors() -> int:
    """Processors that we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

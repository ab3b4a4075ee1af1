"""Fleets as tasks of a Ray cluster: as many at once as fit, gone on with where a worker was lost, kept in one folder."""

import contextlib
import importlib
import logging
import os
import socket
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from sadq.errors import SadqError
from sadq.experiment.config import Config
from sadq.experiment.records import from_json, to_json
from sadq.experiment.run import Experiment, Progress
from sadq.studies.display import Display
from sadq.studies.mirror import Keeper, Mirror
from sadq.studies.sweep import Job, Stopped, carry_out, writing

RETRIES = 10
"""Times that a fleet is begun again after its worker was lost."""
SECONDS_TO_SAVE = 60.0
"""What a fleet is given to save itself after Ctrl-C."""
SECONDS_BETWEEN_NEWS = 1.0
SECONDS_TO_ANSWER = 10.0
"""What a cluster is given to take a connection."""


@dataclass(frozen=True)
class RayRunner:
    """Runs the jobs of a sweep on a cluster."""

    address: str | None = None  # None: a local cluster, which ends with the sweep
    cpus: float = 1.0
    gpus: float = 0.0
    modules: tuple[str, ...] = ()  # the user's own, which workers must import too
    shared: bool | None = None  # whether workers see the sweep's folder; None: they find out

    def __call__(self, jobs: Sequence[Job], out: Path, environment: Any, display: Display) -> None:
        if not jobs:
            return
        with _cluster(self.address) as ray, _token(out) as token:
            task = self._task(ray)
            here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            )
            keeper = ray.remote(Keeper).options(num_cpus=0, scheduling_strategy=here).remote(str(out.resolve()))
            where = _Where(str(out.resolve()), token, self.shared, self.modules, _search_path(), _compilation_cache())
            refs = {
                task.remote(keeper, job.name, to_json(job.config), job.folder, environment, where, job.notes): job
                for job in jobs
            }
            _follow(ray, refs, keeper, display)

    def _task(self, ray: Any) -> Any:
        """What a fleet runs as; refused where nothing here could ever run it, for Ray would wait without a word."""
        asked = f"{self.cpus:g} cores and {self.gpus:g} GPUs for a fleet"
        try:
            task = ray.remote(fleet).options(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES)
        except (ValueError, OverflowError) as error:
            raise SadqError(f"Ray cannot give {asked} ({error}): choose other --ray-cpus and --ray-gpus.") from error
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(one.get("CPU", 0) >= self.cpus and one.get("GPU", 0) >= self.gpus for one in alive):
            if self.address is None:
                raise SadqError(f"This machine has not {asked}: give fewer with --ray-cpus and --ray-gpus.")
            Display.say(f"no machine of the cluster has {asked} now: they wait until one has")
        return task


@dataclass(frozen=True)
class _Where:
    """What a worker must know of the sweep's machine."""

    out: str
    token: str
    shared: bool | None
    modules: tuple[str, ...]
    search_path: tuple[str, ...]
    compilation_cache: str | None


def fleet(
    keeper: Any,
    name: str,
    config: dict[str, Any],
    folder: str,
    environment: Any,
    where: _Where,
    notes: dict[str, Any],
) -> bool:
    """One job, in a worker's process; False if it was stopped and saved."""
    import ray

    sys.path[:0] = [path for path in where.search_path if path not in sys.path]
    for module in where.modules:
        importlib.import_module(module)
    if where.compilation_cache and os.path.isdir(where.compilation_cache):
        jax.config.update("jax_compilation_cache_dir", where.compilation_cache)
    sees = where.shared if where.shared is not None else os.path.exists(os.path.join(where.out, where.token))
    place = f"{ray.util.get_node_ip_address()}, process {os.getpid()}"
    told = 0.0
    with contextlib.ExitStack() as stack:
        if sees:
            path, mirror = Path(where.out) / folder, None
        else:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sadq-"))) / "run"
            mirror = Mirror(path, folder, lambda method, *given: ray.get(getattr(keeper, method).remote(*given)))
            mirror.fetch()

        def begin(experiment: Experiment) -> None:
            keeper.tell.remote(name, ("started", experiment.step, experiment.steps, place))

        def update(progress: Progress) -> None:
            nonlocal told
            if mirror is not None:
                mirror.push()
            if time.monotonic() - told >= SECONDS_BETWEEN_NEWS:
                told = time.monotonic()
                keeper.tell.remote(name, ("update", progress._replace(metrics=[])))

        done = carry_out(from_json(Config, config), path, environment, begin, update, notes)
        if mirror is not None:
            mirror.push(everything=True)
        return done


def _follow(ray: Any, refs: dict[Any, Job], keeper: Any, display: Display) -> None:
    """Until all are done; Ctrl-C lets them save and ends them."""
    left, stopped = dict(refs), False
    try:
        while left:
            ready, _ = ray.wait(list(left), num_returns=1, timeout=SECONDS_BETWEEN_NEWS)
            _tell(ray.get(keeper.news.remote()), display)
            for ref in ready:
                job = left.pop(ref)
                stopped |= not _answer(ray, ref, job)
                display.finished(job.name)
    except BaseException as error:
        for ref in left:
            ray.cancel(ref)
        ray.wait(list(left), num_returns=len(left), timeout=SECONDS_TO_SAVE)
        if isinstance(error, KeyboardInterrupt):
            raise Stopped from None
        raise
    if stopped:
        raise Stopped


def _answer(ray: Any, ref: Any, job: Job) -> bool:
    """What a task returned; its complaint in a sentence of ours."""
    try:
        return ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, SadqError):
            raise error.cause from None
        raise SadqError(f"{job.name} failed on its worker: {error.cause!r}; see Ray's logs for where.") from error
    except ray.exceptions.RayError as error:
        reason = str(error).splitlines()[0]
        raise SadqError(
            f"{job.name} was lost with its worker {RETRIES} times ({reason}): look at the cluster."
        ) from error


def _tell(news: list[tuple[str, tuple[Any, ...]]], display: Display) -> None:
    for name, (what, *given) in news:
        getattr(display, what)(name, *given)


@contextlib.contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Ray, connected; a cluster that was not there before ends afterwards."""
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise SadqError("--on ray needs Ray, which is not installed: install sadq[ray].") from error
    connected = ray.is_initialized()
    if not connected:
        try:
            _knock(address)
            with warnings.catch_warnings():
                # Ray's processes begin with a fork that becomes another program at once, which does JAX no harm.
                warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
                ray.init(
                    address=address or "local",
                    log_to_driver=False,
                    include_dashboard=False,
                    logging_level=logging.ERROR,
                )
        except Exception as error:  # Ray has no type of its own for it
            reason = " ".join(str(error).split()).rstrip(".")
            where = address or "this machine"
            raise SadqError(f"No Ray cluster answers at {where} ({reason}): give another --ray-address.") from error
    try:
        yield ray
    finally:
        if not connected:
            ray.shutdown()


def _knock(address: str | None) -> None:
    """An OSError where nobody listens at HOST:PORT, at which Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_ANSWER).close()


@contextlib.contextmanager
def _token(out: Path) -> Iterator[str]:
    """A file by whose name a worker sees whether it has the same folder."""
    token = out / f".{uuid.uuid4().hex}.token"
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        token.touch()
    try:
        yield token.name
    finally:
        token.unlink(missing_ok=True)


def _search_path() -> tuple[str, ...]:
    return tuple(path or os.getcwd() for path in sys.path)


def _compilation_cache() -> str | None:
    return getattr(jax.config, "jax_compilation_cache_dir", None)

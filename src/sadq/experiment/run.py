"""Running an experiment: chunk by chunk on its timetable, with evaluations, checkpoints, interruption and exact resume."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from sadq.envs.base import Environment
from sadq.envs.contract import HostSpec
from sadq.errors import SadqError
from sadq.experiment import checkpoint, transfer
from sadq.experiment.build import Timetable, check_memory, hyper_of, make_learner, make_loop, members_of, resolve
from sadq.experiment.config import Config
from sadq.experiment.evaluations import Evaluations, json_number
from sadq.experiment.folder import CHECKPOINTS, RunFolder
from sadq.experiment.scores import area_under_curve, final_return
from sadq.experiment.trust import check_trusted
from sadq.fleet.members import Loop, MemberState


class Progress(NamedTuple):
    """Where a run stands, as callbacks and progress displays see it."""

    step: int  # env steps of each member so far
    steps: int  # of the whole run
    mean_return: float | None  # of the newest evaluation, over the members
    steps_per_second: float  # of all members, over the newest chunk
    metrics: list[dict[str, Any]]  # the newest chunk's rows, one a member


Callback = Callable[[Progress], bool | None]
"""Called after every chunk; False stops the run, which can be resumed."""

AFTER_DIVERGING = {"values": "the others go on", "model": "its values go on learning with the model as it was"}


@dataclass
class Experiment:
    """A run under way: its config, its compiled loop, its state and its folder."""

    config: Config
    environment: Environment | HostSpec
    folder: RunFolder = field(default_factory=lambda: RunFolder(None))
    loop: Loop = field(init=False)
    state: MemberState = field(init=False)
    begun: bool = False
    collect: int = 0  # collects done
    origin: int = 0  # where this training began, in collects
    exact: bool = True  # whether every resume so far was bit-exact
    interrupted: int | None = None  # the signal that stopped the last `run`
    warn: Callable[[str], None] = lambda _: None
    _recorded: dict[str, Any] = field(default_factory=dict)  # of the environment's data, when the run began
    _evaluations: Evaluations = field(init=False)
    _began: float = 0.0  # by the clock, had all of the run been in this process
    _earlier_compile_seconds: float = 0.0  # before the checkpoint that this process resumed from

    @property
    def timetable(self) -> Timetable:
        return Timetable.of(self.config, self.origin)

    @property
    def members(self) -> list[dict[str, Any]]:
        return members_of(self.config)

    @property
    def step(self) -> int:
        return self.collect * self.config.collect

    @property
    def steps(self) -> int:
        return self.timetable.end * self.config.collect

    @property
    def seconds(self) -> dict[str, float]:
        """Time spent on the run over all its resumes, and the part of it that went into compilation."""
        compiled = self._earlier_compile_seconds + self.loop.programs.compile_seconds
        return {"wall_seconds": time.perf_counter() - self._began, "compile_seconds": compiled}

    @property
    def data(self) -> dict[str, Any]:
        """Where the environment's data come from, with their checksums."""
        return self.environment.provenance if isinstance(self.environment, Environment) else {}

    def begin(self, saved: Path | None = None) -> None:
        """Start, or take up a checkpoint, by default the folder's newest; the first evaluation belongs to the start."""
        self._began = time.perf_counter()
        self.folder.take()
        self._look_back()
        if self.folder.path is not None:
            checkpoint.recover(self.folder.path / CHECKPOINTS)
            saved = saved or checkpoint.latest(self.folder.path / CHECKPOINTS)
        if saved:
            self.origin = checkpoint.read_record(saved)["origin"]
        self.loop = make_loop(self.config, self.environment, self.timetable.chunk)
        self.state = self.loop.start()
        self._evaluations = Evaluations(self.environment.name, self.folder)
        counted: dict[str, Any] = {}
        if saved:
            meta, self.state, outside = restored(self.loop, self.state, saved)
            self.exact = self.loop.restore(self.state, outside) and meta["exact"]
            self.collect, self._earlier_compile_seconds = meta["collect"], meta["compile_seconds"]
            self._began -= meta["wall_seconds"]
            counted = meta["rows"]
            if not self.exact:
                self.warn(f"{self.environment.name} did not repeat its episodes, so this resume is not bit-exact.")
        elif self.config.model_from is not None:
            self.state = transfer.with_models_of(Path(self.config.model_from), self.state, self.loop.placement)
        self.folder.cut_back(self.step if saved else -1, counted)
        if not saved:
            self._evaluate()
        self.begun = True

    def _look_back(self) -> None:
        """Say what differs from when the run began; data that changed would make of it a run of two halves."""
        if self.folder.filled:
            fields = ", ".join(self.folder.filled)
            self.warn(f"The run is of an earlier version, whose config had no {fields}: these are the defaults of now.")
        before, now = _checksums(self._recorded), _checksums(self.data)
        for name in sorted(before.keys() & now.keys()):
            if before[name] != now[name]:
                sentence = (
                    f"The data of {self.environment.name} changed since the run began: {name} was {before[name]:.16} and is "
                    f"{now[name]:.16}: put back the data that it began with, or train again"
                )
                if self.folder.path is not None:
                    raise SadqError(f"{sentence}.")
                self.warn(f"{sentence}.")

    def extend(self, steps: int) -> None:
        """Plan `steps` more env steps of each member, from where training stands now."""
        self._evaluations.settle()
        outside = self.loop.outside()
        self.loop.close()
        self.origin = self.collect
        self.config = replace(self.config, steps=self.step + steps)
        self.loop = make_loop(self.config, self.environment, self.timetable.chunk)
        self.loop.start()
        self.loop.restore(self.state, outside)

    def run(self, *callbacks: Callback) -> bool:
        """Go on to the end of the run; False if it was stopped before, in which case it was saved."""
        saved_at, self.interrupted = time.perf_counter(), None
        with _interruptions() as interruptions:
            while self.step < self.steps:
                progress = self._advance()
                due = time.perf_counter() - saved_at >= self.config.checkpoint_seconds
                answers = [callback(progress) for callback in callbacks]
                stopped = bool(interruptions) or any(answer is False for answer in answers)
                if self.folder.path is not None and (due or stopped or self.step == self.steps):
                    self.save(self.folder)
                    saved_at = time.perf_counter()
                if stopped and self.step < self.steps:
                    self.interrupted = interruptions[0] if interruptions else None
                    break
            self._evaluations.settle()
        return self.step >= self.steps

    def rows(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Copies of the metrics and evaluations so far, the one under way included."""
        self._evaluations.settle()
        return list(self.folder.metrics), list(self.folder.evaluations)

    def save(self, folder: RunFolder) -> None:
        """Write a checkpoint to a run folder; it never outlives the rows before it, which are on the disk first."""
        assert folder.path is not None, "there is nowhere to write a checkpoint to"
        self._evaluations.settle()
        meta = {"step": self.step, **self.seconds, "exact": self.exact, "origin": self.origin, "rows": folder.settle()}
        # Cut on the host: a part of what lies on several devices would be put whole on each of them.
        state = self.loop.placement.real(jax.tree.map(np.asarray, self.state))
        checkpoint.save(folder.path / CHECKPOINTS, self.collect, state, self.loop.outside(), meta)

    def describe(self) -> str:
        """What is about to run, and the memory that its replay will take."""
        name, members = f"{self.config.agent} on {self.environment.name}", len(self.members)
        megabytes = make_learner(self.config, self.environment).store.nbytes * members / 1e6
        return f"{name}: {members} members of {self.steps:,} steps, replay {megabytes:,.1f} MB"

    def result(self) -> dict[str, Any]:
        """The run in numbers, as `--json` prints it and result.json keeps it."""
        members, seconds = self.members, self.seconds
        trained = max(seconds["wall_seconds"] - seconds["compile_seconds"], 1e-9)
        return {
            "run": None if self.folder.path is None else str(self.folder.path),
            "environment": self.environment.name,
            "agent": self.config.agent,
            "steps": self.step,
            **{name: round(spent, 3) for name, spent in seconds.items()},
            "steps_per_second": round(self.step * len(members) / trained, 1),
            "exact_resume": self.exact,
            "members": [self._member_result(index, member) for index, member in enumerate(members)],
        }

    def close(self) -> None:
        """Let go of processes, environments and folder, however far the run came."""
        if hasattr(self, "_evaluations"):
            self._evaluations.abandon()
        if hasattr(self, "loop"):
            self.loop.close()
        self.folder.release()

    def _advance(self) -> Progress:
        began, before = time.perf_counter(), self.step
        self.state, measured = self.loop.advance(self.state, self.collect)
        metrics = {name: np.asarray(values, np.float64) for name, values in measured.items()}
        seconds = time.perf_counter() - began
        self.collect += self.timetable.chunk
        rate = len(self.members) * (self.step - before) / seconds
        rows = self._metric_rows(metrics, rate)
        self.folder.add_metrics(rows)
        for (what, member), step in self._diverged_at().items():
            if step > before:
                self.warn(
                    f"Member {member} (seed {self.members[member]['seed']}) diverged at step {step}: the loss of its {what} "
                    f"was not finite; that stays frozen at its last finite parameters, {AFTER_DIVERGING[what]}."
                )
        if self.timetable.evaluates(self.collect):
            self._evaluate()
        newest = self.folder.evaluations[-len(self.members) :]
        mean_return = float(np.mean([np.mean(row["returns"]) for row in newest])) if newest else None
        return Progress(self.step, self.steps, mean_return, rate, rows)

    def _metric_rows(self, metrics: dict[str, np.ndarray], rate: float) -> list[dict[str, Any]]:
        """One row a member: the mean of every metric over the chunk's collects that have something to report.

        What stays away before learning starts, or in slots that a pacing left out, is no number; but where a part of a
        member diverged, a loss that is no number is what there is to report.
        """
        diverged = self._diverged_at()

        def over_chunk(name: str, values: np.ndarray, member: int) -> float:
            part = "model" if name.startswith("model_") else "values"
            known = values if (part, member) in diverged else values[~np.isnan(values)]
            return float(known.mean()) if known.size else math.nan

        episodes, total = metrics.pop("episodes").sum(axis=1), metrics.pop("episode_return").sum(axis=1)
        return [
            {
                "step": self.step,
                "member": member,
                "training_return": json_number(total[member] / count) if count else None,
                "episodes": int(count),
                **{
                    name: json_number(over_chunk(name, values[member], member))
                    for name, values in sorted(metrics.items())
                },
                "steps_per_second": round(rate, 1),
            }
            for member, count in enumerate(episodes)
        ]

    def _evaluate(self) -> None:
        self._evaluations.begin(self.loop, self.state, self.collect, self.step)

    def _diverged_at(self) -> dict[tuple[str, int], int]:
        """("values" or "model", member) -> the env step at which it diverged."""
        learner, found = self.state.learner, dict[tuple[str, int], int]()
        for what, trained in (("values", learner.online), ("model", learner.model)):
            steps = [] if trained is None else np.asarray(trained.diverged_at)[: len(self.members)].tolist()
            found |= {(what, member): step for member, step in enumerate(steps) if step >= 0}
        return found

    def _member_result(self, index: int, member: dict[str, Any]) -> dict[str, Any]:
        own = [row for row in self.folder.evaluations if row["member"] == index]
        steps = np.array([row["step"] for row in own])
        returns = np.array([[np.mean(row["returns"]) for row in own]])
        diverged = self._diverged_at()
        diverged_at, model_diverged_at = diverged.get(("values", index)), diverged.get(("model", index))
        last: dict[str, Any] = next((row for row in reversed(self.folder.metrics) if row["member"] == index), {})
        skipped = {"step", "member", "steps_per_second", "episodes", "alpha"}
        return {
            **member,
            "status": "ok" if diverged_at is None else "diverged",
            "diverged_at": diverged_at,
            **({} if model_diverged_at is None else {"model_diverged_at": model_diverged_at}),
            "final_return": float(final_return(returns)[0]),
            "area_under_curve": float(area_under_curve(steps, returns)[0]),
            **{name: own[-1][name] for name in ("overestimation", "measures") if name in own[-1]},
            "effective_alpha": last.get("alpha"),
            **{name: value for name, value in last.items() if name not in skipped},
        }


def restored(loop: Loop, fresh: MemberState, saved: Path) -> tuple[dict[str, Any], MemberState, dict[str, np.ndarray]]:
    """(meta, state, outside) of a checkpoint, given the state in which its loop starts."""
    meta, tensors, outside = checkpoint.load(saved)
    return meta, checkpoint.fill(fresh, tensors, saved, loop.placement.padded), outside


def create(config: Config, path: Path | None, environment: Any = None) -> Experiment:
    """A new run, in a folder of its own or (None) in memory; nothing is compiled yet."""
    resolved = _resolved(config, environment)
    if environment is not None:
        config = replace(config, environment=resolved.name)
    learner = make_learner(config, resolved)
    check_memory(learner, hyper_of(config))
    if config.model_from is not None:
        transfer.check(Path(config.model_from), learner)
    experiment = Experiment(config, resolved)
    if path is not None:
        timetable = experiment.timetable
        notes = {
            "steps": experiment.steps,
            "metrics_interval": timetable.chunk * config.collect,
            "evaluation_interval": timetable.interval * config.collect,
            "exact_resume": getattr(resolved, "deterministic", None) is not False,
            "data": resolved.provenance if isinstance(resolved, Environment) else {},
        }
        experiment.folder = RunFolder.create(path, config, experiment.members, notes)
    return experiment


def reopen(path: Path, environment: Any = None, trust: Collection[str] = ()) -> Experiment:
    """A run begun earlier; `trust` names modules that the folder's environment may import."""
    folder, config, record = RunFolder.open(path)
    if environment is None:
        check_trusted(config.environment, path, trust)
    recorded = record.get("data")
    noted = recorded if isinstance(recorded, dict) else {}
    return Experiment(config, _resolved(config, environment), folder, _recorded=noted)


def _checksums(data: dict[str, Any]) -> dict[str, str]:
    """The checksums in an environment's record of its data, by what they are of."""
    found = data.get("sha256")
    named = found if isinstance(found, dict) else {"sha256": found}
    return {name: value for name, value in named.items() if isinstance(value, str)}


def _resolved(config: Config, environment: Any) -> Environment | HostSpec:
    return resolve(config.environment, config.settings) if environment is None else resolve(environment)


@contextlib.contextmanager
def _interruptions() -> Iterator[list[int]]:
    """Turns the first Ctrl-C (or SIGTERM) into a request to stop after the chunk; a second one stops at once."""
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

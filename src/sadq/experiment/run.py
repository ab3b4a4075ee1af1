"""Running an experiment: chunk by chunk on its timetable, with evaluations, checkpoints, interruption and exact resume."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from sadq.envs.base import Environment
from sadq.envs.contract import HostSpec
from sadq.experiment import checkpoint
from sadq.experiment.build import Timetable, check_memory, hyper_of, make_learner, make_loop, members_of, resolve
from sadq.experiment.config import Config
from sadq.experiment.evaluations import Evaluations, json_number, mean_return
from sadq.experiment.folder import CHECKPOINTS, RunFolder
from sadq.experiment.scores import area_under_curve, final_return
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
    warn: Callable[[str], None] = lambda _: None
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

    def begin(self, saved: Path | None = None) -> None:
        """Start, or take up a checkpoint, by default the folder's newest; the first evaluation belongs to the start."""
        self._began = time.perf_counter()
        self.loop = make_loop(self.config, self.environment, self.timetable.chunk)
        self.state = self.loop.start()
        self.begun = True
        self._evaluations = Evaluations(self.environment, self.folder)
        if saved is None and self.folder.path is not None:
            saved = checkpoint.latest(self.folder.path / CHECKPOINTS)
        if saved:
            meta, self.state, outside = restored(self.loop, self.state, saved)
            self.exact = self.loop.restore(self.state, outside) and meta["exact"]
            self.collect, self._earlier_compile_seconds = meta["collect"], meta["compile_seconds"]
            self._began -= meta["wall_seconds"]
            if not self.exact:
                self.warn(f"{self.environment.name} did not repeat its episodes, so this resume is not bit-exact.")
        self.folder.cut_back(self.step if saved else -1)
        if not saved:
            self._evaluate()

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
        saved_at = time.perf_counter()
        with _interruptions() as interruptions:
            while self.step < self.steps:
                progress = self._advance()
                due = time.perf_counter() - saved_at >= self.config.checkpoint_seconds
                answers = [callback(progress) for callback in callbacks]
                stopped = bool(interruptions) or any(answer is False for answer in answers)
                if self.folder.path is not None and (due or stopped or self.step == self.steps):
                    self.save(self.folder.path)
                    saved_at = time.perf_counter()
                if stopped and self.step < self.steps:
                    break
            self._evaluations.settle()
        return self.step >= self.steps

    def save(self, folder: Path) -> None:
        """Write a checkpoint to a run folder; it never outlives the evaluations before it."""
        self._evaluations.settle()
        meta = {"step": self.step, **self.seconds, "exact": self.exact}
        # Cut on the host: a part of what lies on several devices would be put whole on each of them.
        state = self.loop.placement.real(jax.tree.map(np.asarray, self.state))
        checkpoint.save(folder / CHECKPOINTS, self.collect, state, self.loop.outside(), meta)

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
        if self.begun:
            self._evaluations.abandon()
            self.loop.close()

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
        means = np.array([mean_return(row) for row in newest])
        mean = float(means[np.isfinite(means)].mean()) if np.isfinite(means).any() else None
        return Progress(self.step, self.steps, mean, rate, rows)

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
        self._freeze()

    def _freeze(self) -> None:
        """Members whose environments broke down in an evaluation learn no more; the others do not notice."""
        troubled, self._evaluations.troubled = self._evaluations.troubled, {}
        online = self.state.learner.online
        for member, (step, sentence) in troubled.items():
            if int(online.diverged_at[member]) < 0:
                online = online._replace(diverged_at=online.diverged_at.at[member].set(step))
                self.warn(f"Member {member} (seed {self.members[member]['seed']}) is frozen at step {step}: {sentence}")
        self.state = self.state._replace(learner=self.state.learner._replace(online=online))

    def _diverged_at(self) -> dict[tuple[str, int], int]:
        """("values" or "model", member) -> the env step at which it diverged."""
        learner, found = self.state.learner, dict[tuple[str, int], int]()
        for what, trained in (("values", learner.online), ("model", learner.model)):
            steps = [] if trained is None else np.asarray(trained.diverged_at)[: len(self.members)].tolist()
            found |= {(what, member): step for member, step in enumerate(steps) if step >= 0}
        return found

    def _member_result(self, index: int, member: dict[str, Any]) -> dict[str, Any]:
        own = [row for row in self.folder.evaluations if row["member"] == index]
        whole = [row for row in own if math.isfinite(mean_return(row))] or own
        steps = np.array([row["step"] for row in whole])
        returns = np.array([[mean_return(row) for row in whole]])
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
    check_memory(make_learner(config, resolved), hyper_of(config))
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


def reopen(path: Path, environment: Any = None) -> Experiment:
    """A run begun earlier."""
    folder, config, _ = RunFolder.open(path)
    return Experiment(config, _resolved(config, environment), folder)


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

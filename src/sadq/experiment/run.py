"""Running an experiment: chunk by chunk on its timetable, with evaluations, checkpoints, interruption and exact resume."""

import math
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from sadq.envs.base import Environment
from sadq.envs.contract import HostSpec
from sadq.errors import SadqError
from sadq.experiment import checkpoint
from sadq.experiment.build import Timetable, check_memory, make_learner, make_loop, members_of, resolve
from sadq.experiment.config import Config
from sadq.experiment.folder import CHECKPOINTS, RunFolder
from sadq.experiment.scores import area_under_curve, final_return
from sadq.fleet.members import Evaluation, Loop, MemberState


class Progress(NamedTuple):
    """Where a run stands, as callbacks and progress displays see it."""

    step: int  # env steps of each member so far
    steps: int  # of the whole run
    mean_return: float | None  # of the newest evaluation, over the members
    steps_per_second: float  # of all members, over the newest chunk
    metrics: list[dict[str, Any]]  # the newest chunk's rows, one a member


Callback = Callable[[Progress], bool | None]
"""Called after every chunk; False stops the run, which can be resumed."""


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
    _diverged: set[tuple[str, int]] = field(default_factory=set)
    _resumed_at: float = 0.0
    _earlier_seconds: float = 0.0  # spent before the checkpoint that this process resumed from
    _earlier_compile_seconds: float = 0.0

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
    def wall_seconds(self) -> float:
        """Time spent on the run, compilation included, over all its resumes."""
        return self._earlier_seconds + time.perf_counter() - self._resumed_at

    @property
    def compile_seconds(self) -> float:
        """The part of it that went into compilation."""
        return self._earlier_compile_seconds + self.loop.programs.compile_seconds

    def begin(self, saved: Path | None = None) -> None:
        """Start, or take up a checkpoint, by default the folder's newest; the first evaluation belongs to the start."""
        self._resumed_at = time.perf_counter()
        self.loop = make_loop(self.config, self.environment, self.timetable.chunk)
        self.state = self.loop.start()
        self.begun = True
        if saved is None and self.folder.path is not None:
            saved = checkpoint.latest(self.folder.path / CHECKPOINTS)
        if saved:
            self.load(saved)
        self.folder.cut_back(self.step if saved else -1)
        if not saved:
            self._evaluate()

    def load(self, saved: Path) -> None:
        """Take up a checkpoint."""
        meta, tensors, outside = checkpoint.load(saved)
        placement = self.loop.placement
        self.state = placement.padded(checkpoint.fill(placement.real(self.state), tensors, saved))
        self.exact = self.loop.restore(self.state, outside) and meta["exact"]
        self.collect = meta["collect"]
        self._earlier_seconds, self._earlier_compile_seconds = meta["wall_seconds"], meta["compile_seconds"]
        self._diverged = set(self._diverged_members())
        if not self.exact:
            self.warn(f"{self.environment.name} did not repeat its episodes, so this resume is not bit-exact.")

    def extend(self, steps: int) -> None:
        """Plan `steps` more env steps of each member, from where training stands now."""
        outside = self.loop.outside()
        self.loop.close()
        self.origin = self.collect
        self.config = replace(self.config, steps=self.step + steps)
        self.loop = make_loop(self.config, self.environment, self.timetable.chunk)
        self.loop.start()
        self.loop.restore(self.state, outside)

    def run(self, callback: Callback = lambda _: None) -> bool:
        """Go on to the end of the run; False if it was stopped before, in which case it was saved."""
        saved_at = time.perf_counter()
        with _Interruption() as interruption:
            while self.collect < self.timetable.end:
                progress = self._advance()
                now = time.perf_counter()
                proceed = callback(progress) is not False and not interruption.requested
                due = now - saved_at >= self.config.checkpoint_seconds
                if due or not proceed or self.collect == self.timetable.end:
                    self.save()
                    saved_at = time.perf_counter()
                if not proceed and self.collect < self.timetable.end:
                    return False
        return True

    def save(self) -> None:
        """Write a checkpoint, where there is a folder for it."""
        if self.folder.path is not None:
            self.write_checkpoint(self.folder.path / CHECKPOINTS)

    def write_checkpoint(self, folder: Path) -> None:
        meta = {
            "step": self.step,
            "wall_seconds": self.wall_seconds,
            "compile_seconds": self.compile_seconds,
            "exact": self.exact,
        }
        checkpoint.save(folder, self.collect, self.loop.placement.real(self.state), self.loop.outside(), meta)

    def describe(self) -> str:
        """What is about to run, and the memory that its replay will take."""
        needed = make_learner(self.config, self.environment).store.nbytes * len(self.members)
        return (
            f"{self.config.agent} on {self.environment.name}: {len(self.members)} members of "
            f"{self.timetable.end * self.config.collect:,} steps, replay {needed / 1e6:,.1f} MB"
        )

    def result(self) -> dict[str, Any]:
        """The run in numbers, as `--json` prints it and result.json keeps it."""
        members, wall_seconds = self.members, self.wall_seconds
        compiled = self.compile_seconds
        trained = wall_seconds - compiled
        return {
            "run": None if self.folder.path is None else str(self.folder.path),
            "environment": self.environment.name,
            "agent": self.config.agent,
            "steps": self.step,
            "wall_seconds": round(wall_seconds, 3),
            "compile_seconds": round(compiled, 3),
            "steps_per_second": round(self.step * len(members) / max(trained, 1e-9), 1),
            "exact_resume": self.exact,
            "members": [self._member_result(index, member) for index, member in enumerate(members)],
        }

    def close(self) -> None:
        if self.begun:
            self.loop.close()

    def _advance(self) -> Progress:
        began = time.perf_counter()
        self.state, measured = self.loop.advance(self.state, self.collect)
        metrics = {name: np.asarray(values, np.float64) for name, values in measured.items()}
        seconds = time.perf_counter() - began
        self.collect += self.timetable.chunk
        rate = len(self.members) * self.timetable.chunk * self.config.collect / seconds
        rows = self._metric_rows(metrics, rate)
        self.folder.add_metrics(rows)
        self._name_diverged()
        if self.timetable.evaluates(self.collect):
            self._evaluate()
        newest = [row for row in self.folder.evaluations if row["step"] == self.folder.evaluations[-1]["step"]]
        mean_return = float(np.mean([np.mean(row["returns"]) for row in newest]))
        return Progress(self.step, self.timetable.end * self.config.collect, mean_return, rate, rows)

    def _metric_rows(self, metrics: dict[str, np.ndarray], rate: float) -> list[dict[str, Any]]:
        """One row a member: the mean of every metric over the chunk's collects."""
        episodes, total = metrics.pop("episodes"), metrics.pop("episode_return")
        rows = []
        for member in range(episodes.shape[0]):
            count = episodes[member].sum()
            row: dict[str, Any] = {"step": self.step, "member": member}
            row |= {"training_return": _number(total[member].sum() / count) if count else None, "episodes": int(count)}
            row |= {name: _number(values[member].mean()) for name, values in sorted(metrics.items())}
            rows.append(row | {"steps_per_second": round(rate, 1)})
        return rows

    def _evaluate(self) -> None:
        evaluation = jax.tree.map(np.asarray, self.loop.evaluate(self.state, self.collect))
        if not np.isfinite(evaluation.returns).all():
            raise SadqError(
                f"environment {self.environment.name} returned rewards that are not finite, expected numbers: "
                "fix the environment."
            )
        self.folder.add_evaluations(
            {
                "step": self.step,
                "member": member,
                "returns": evaluation.returns[member].astype(float).tolist(),
                "lengths": evaluation.lengths[member].tolist(),
                "overestimation": _number(np.mean(evaluation.predicted[member] - evaluation.discounted[member])),
                **self._measures(evaluation, member),
            }
            for member in range(evaluation.returns.shape[0])
        )

    def _measures(self, evaluation: Evaluation, member: int) -> dict[str, Any]:
        """What the environment measures beside returns, where it does: means over the episodes."""
        found = {name: _number(float(np.mean(values[member]))) for name, values in evaluation.measures.items()}
        return {"measures": found} if found else {}

    def _diverged_members(self) -> dict[tuple[str, int], int]:
        """("values" or "model", member) -> the env step at which it diverged."""
        learner, found = self.state.learner, dict[tuple[str, int], int]()
        for what, trained in (("values", learner.online), ("model", learner.model)):
            steps = [] if trained is None else np.asarray(trained.diverged_at)[: len(self.members)].tolist()
            found |= {(what, member): step for member, step in enumerate(steps) if step >= 0}
        return found

    def _name_diverged(self) -> None:
        for (what, member), step in self._diverged_members().items():
            if (what, member) in self._diverged:
                continue
            self._diverged.add((what, member))
            consequence = (
                "the others go on" if what == "values" else "its values go on learning with the model as it was"
            )
            self.warn(
                f"Member {member} (seed {self.members[member]['seed']}) diverged at step {step}: the loss of its {what} was "
                f"not finite; that stays frozen at its last finite parameters, {consequence}."
            )

    def _member_result(self, index: int, member: dict[str, Any]) -> dict[str, Any]:
        own = [row for row in self.folder.evaluations if row["member"] == index]
        steps = np.array([row["step"] for row in own])
        returns = np.array([[np.mean(row["returns"]) for row in own]])
        diverged = self._diverged_members()
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
            "overestimation": own[-1]["overestimation"],
            **{name: own[-1][name] for name in ("measures",) if name in own[-1]},
            "effective_alpha": last.get("alpha"),
            **{name: value for name, value in last.items() if name not in skipped},
        }


def _resolved(config: Config, environment: Any) -> Environment | HostSpec:
    if environment is None:
        return resolve(config.environment, config.settings)
    return resolve(environment)


def create(config: Config, path: Path | None, environment: Any = None) -> Experiment:
    """A new run, in a folder of its own or (None) in memory; nothing is compiled yet."""
    resolved = _resolved(config, environment)
    check_memory(make_learner(config, resolved), len(members_of(config)))
    if path is None:
        return Experiment(config, resolved)
    timetable = Timetable.of(config)
    notes = {
        "steps": timetable.end * config.collect,
        "metrics_interval": timetable.chunk * config.collect,
        "evaluation_interval": timetable.interval * config.collect,
        "exact_resume": getattr(resolved, "deterministic", None) is not False,
        "data": resolved.provenance if isinstance(resolved, Environment) else {},
    }
    return Experiment(config, resolved, RunFolder.create(path, config, members_of(config), notes))


def reopen(path: Path, environment: Any = None) -> Experiment:
    """A run begun earlier."""
    folder, config, _ = RunFolder.open(path)
    return Experiment(config, _resolved(config, environment), folder)


def _number(value: float) -> float | None:
    """A JSON number to single precision's six digits; None for what JSON has no number for."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


class _Interruption:
    """Turns the first Ctrl-C (or SIGTERM) into a request to stop after the chunk; a second one stops at once."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "_Interruption":
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._handle) for number in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: Any) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

"""Running an experiment: chunk by chunk on its timetable, with evaluations, checkpoints, interruption and exact resume."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from sadq.envs.base import Environment
from sadq.envs.contract import HostSpec
from sadq.envs.limits import without_limit
from sadq.errors import SadqError
from sadq.experiment import checkpoint, transfer
from sadq.experiment.broken_off import salvaged
from sadq.experiment.build import Timetable, environment_of, hyper_of, make_learner, make_loop, members_of
from sadq.experiment.config import Config
from sadq.experiment.evaluations import Evaluations, mean_return
from sadq.experiment.folder import CHECKPOINTS, RunFolder
from sadq.experiment.interruptions import interruptions
from sadq.experiment.looking_back import changed_data, filled_fields
from sadq.experiment.ranges import of_earlier_version
from sadq.experiment.results import diverged_at, member_result, metric_rows, told_of_diverging, trained_seconds
from sadq.experiment.stored import (
    LEARNED,
    POLICY_ONLY,
    check_same_spaces,
    moved_to,
    networks_of,
    restored,
)
from sadq.fleet.members import Loop, MemberState


class Progress(NamedTuple):
    """Where a run stands, as callbacks and progress displays see it."""

    step: int  # env steps of each member so far
    steps: int  # of the whole run
    mean_return: float | None  # of the newest evaluation that is over, over the members
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
    chunk: int = 0  # collects of a chunk of the training before it
    exact: bool = True  # whether every resume so far was bit-exact
    moved: bool = False  # whether its environment is another one than that of the checkpoint to be taken up
    interrupted: int | None = None  # the signal that stopped the last `run`
    warn: Callable[[str], None] = lambda _: None
    _record: dict[str, Any] = field(default_factory=dict)  # what its config.json held when it was opened
    _said: str | None = None  # what was found out when it was made, to be told when it begins
    _evaluations: Evaluations = field(init=False)
    _closed: bool = False
    _began: float = 0.0  # by the clock, had all of the run been in this process
    _earlier_compile_seconds: float = 0.0  # before the checkpoint that this process resumed from

    @property
    def timetable(self) -> Timetable:
        return Timetable.of(self.config, self.origin, self.chunk)

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
    def metrics(self) -> list[dict[str, Any]]:
        return self.folder.metrics

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        return self.folder.evaluations

    @property
    def parameters(self) -> Any:
        """Of the online networks, [M] on every leaf."""
        return self.state.learner.online.parameters

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
        if self.folder.take():
            self.folder.read()  # whoever had it before may have written on since it was opened
        self._look_back()
        if self.folder.path is not None:
            checkpoint.recover(self.folder.path / CHECKPOINTS)
            saved = saved or checkpoint.latest(self.folder.path / CHECKPOINTS)
        if saved:
            if self._record.get(POLICY_ONLY):
                kept = "holds networks to act with and nothing to learn on from"
                raise SadqError(f"{saved.parent.parent} {kept}: save the agent without policy_only for that.")
            record = checkpoint.read_record(saved)
            self.origin, self.chunk = record["origin"], record["chunk"]
        self.loop = self._made_loop()
        self.state = self.loop.start()
        self._evaluations = Evaluations(self.environment, self.folder)
        counted: dict[str, Any] = {}
        if saved:
            meta, self.state, outside = restored(self.loop, self.state, saved, self.moved)
            repeated = self.moved or self.loop.restore(self.state, outside)
            self.exact = repeated and meta["exact"]
            self.collect, self._earlier_compile_seconds = meta["collect"], meta["compile_seconds"]
            self._began -= meta["wall_seconds"]
            counted = meta["rows"]
            if not repeated:
                self.warn(f"{self.environment.name} did not repeat its episodes, so this resume is not bit-exact.")
        elif self.config.model_from is not None:
            self.state = transfer.with_models_of(Path(self.config.model_from), self.state, self.loop.placement)
        self.folder.cut_back(self.step if saved else -1, counted)
        if not saved:
            self._evaluate()
        self.begun = True

    def _look_back(self) -> None:
        """Say what differs from when the run began; data that changed would make of it a run of two halves."""
        changed = changed_data(self.environment.name, self._record.get("data"), self.data)
        if changed and self.folder.path is not None:
            raise SadqError(changed)
        earlier = of_earlier_version(self.config, self.environment)
        endless = None if self._record else without_limit(self.environment)  # a run that goes on has said it
        for sentence in (filled_fields(self.folder.filled), changed, endless, self._said, earlier):
            if sentence:
                self.warn(sentence)

    def plan(self, steps: int) -> None:
        """So many env steps of each member, in place of what the config says; before the run has begun."""
        self.config = replace(self.config, steps=steps)
        self.folder.rewrite(self.config, self.plans())

    def extend(self, steps: int) -> None:
        """Plan `steps` more env steps of each member, from where training stands now."""
        config, before = replace(self.config, steps=self.step + steps), self.timetable.chunk
        self._evaluations.settle()
        self.folder.take_again(self.step)
        self.folder.reopen()
        self.origin, self.chunk, self.config = self.collect, before, config
        if self.timetable.chunk == before and not self._closed:
            self.loop.follow(hyper_of(config, self.origin))
        else:
            outside = self.loop.outside()
            self._started_anew()
            self.loop.restore(self.state, outside)
        if self.folder.path is not None:
            self.save(self.folder)  # with the new origin, before the config says how far it is to go from there
            self.folder.rewrite(self.config, self.plans())

    def move(self, environment: Any) -> None:
        """Go on in another environment that shows and takes the same, where episodes begin anew."""
        resolved = environment_of(self.config, environment)
        check_same_spaces(self.environment, resolved)
        self.folder.take_again(self.step)
        self.environment, self._record, self.config = resolved, {}, moved_to(self.config, resolved)
        if self.begun:
            self._evaluations.settle()
            learned = {name: getattr(self.state, name) for name in LEARNED}
            self.state = self._started_anew()._replace(**learned)
            self._evaluations = Evaluations(resolved, self.folder)
        self.folder.rewrite(self.config, {"data": self.data})

    def plans(self) -> dict[str, int]:
        """How far the run goes, and how often it tells of itself, in env steps of a member."""
        timetable, collect = self.timetable, self.config.collect
        intervals = {"metrics_interval": timetable.chunk, "evaluation_interval": timetable.interval}
        return {"steps": self.steps} | {name: collects * collect for name, collects in intervals.items()}

    def run(self, *callbacks: Callback) -> bool:
        """Go on to the end of the run; False if it was stopped before, in which case it was saved."""
        saved_at, self.interrupted = time.perf_counter(), None
        with interruptions() as signals:
            while self.step < self.steps:
                progress = self._advance()
                due = time.perf_counter() - saved_at >= self.config.checkpoint_seconds
                answers = [callback(progress) for callback in callbacks]
                stopped = bool(signals) or any(isinstance(answer, bool | np.bool_) and not answer for answer in answers)
                if self.folder.path is not None and (due or stopped or self.step == self.steps):
                    self.save(self.folder)
                    saved_at = time.perf_counter()
                if stopped and self.step < self.steps:
                    self.interrupted = signals[0] if signals else None
                    break
            self._evaluations.settle()
        return self.step >= self.steps

    def rows(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Copies of the metrics and evaluations so far, the one under way included."""
        self._evaluations.settle()
        return list(self.folder.metrics), list(self.folder.evaluations)

    def save(self, folder: RunFolder, policy_only: bool = False) -> None:
        """Write a checkpoint to a run folder; it never outlives the rows before it, which are on the disk first."""
        assert folder.path is not None, "there is nowhere to write a checkpoint to"
        self._evaluations.settle()
        position = {"step": self.step, "origin": self.origin, "chunk": self.chunk}
        meta = position | self.seconds | {"exact": self.exact, "rows": folder.settle()}
        # Cut on the host: a part of what lies on several devices would be put whole on each of them.
        state = self.loop.placement.real(
            jax.tree.map(np.asarray, networks_of(self.state) if policy_only else self.state)
        )
        outside = {} if policy_only else self.loop.outside()
        checkpoint.save(folder.path / CHECKPOINTS, self.collect, state, outside, meta)

    def describe(self) -> str:
        """What is about to run, and the memory that its replay will take."""
        name, members = f"{self.config.agent} on {self.environment.name}", len(self.members)
        megabytes = make_learner(self.config, self.environment).store.nbytes * members / 1e6
        return f"{name}: {members} members of {self.steps:,} steps, replay {megabytes:,.1f} MB"

    def result(self) -> dict[str, Any]:
        """The run in numbers, as `--json` prints it and result.json keeps it."""
        members, seconds, diverged = self.members, self.seconds, diverged_at(self.state, len(self.members))
        return {
            "run": None if self.folder.path is None else str(self.folder.path),
            "environment": self.environment.name,
            "agent": self.config.agent,
            "steps": self.step,
            **{name: round(spent, 3) for name, spent in seconds.items()},
            "steps_per_second": round(self.step * len(members) / trained_seconds(**seconds), 1),
            "exact_resume": self.exact,
            "members": [member_result(index, one, self.folder, diverged) for index, one in enumerate(members)],
        }

    def close(self) -> None:
        """Let go of processes, environments and folder, however far the run came."""
        try:
            if hasattr(self, "_evaluations"):
                self._evaluations.abandon()
            if hasattr(self, "loop"):
                self.loop.close()
        finally:
            self._closed = True
            self.folder.release()

    def _started_anew(self) -> MemberState:
        """The state in which another loop starts, in place of the one so far."""
        self._earlier_compile_seconds += self.loop.programs.compile_seconds
        self.loop.close()
        self.loop, self._closed = self._made_loop(), False
        return self.loop.start()

    def _made_loop(self) -> Loop:
        return make_loop(self.config, self.environment, self.timetable.chunk, self.origin)

    def _advance(self) -> Progress:
        began, before = time.perf_counter(), self.step
        try:
            self.state, measured = self.loop.advance(self.state, self.collect)
        except BaseException:
            self.state = salvaged(self.state, self.loop)
            raise
        metrics = {name: np.asarray(values, np.float64) for name, values in measured.items()}
        seconds = time.perf_counter() - began
        self.collect += self.timetable.chunk
        rate = len(self.members) * (self.step - before) / seconds
        diverged = diverged_at(self.state, len(self.members))
        rows = metric_rows(metrics, self.step, rate, diverged)
        self.folder.add_metrics(rows)
        for (what, member), step in diverged.items():
            if step > before:
                self.warn(told_of_diverging(what, f"{member} (seed {self.members[member]['seed']})", step))
        if self.timetable.evaluates(self.collect):
            self._evaluate()
        newest = self.folder.evaluations[-len(self.members) :]
        means = np.array([mean_return(row) for row in newest])
        mean = float(means[np.isfinite(means)].mean()) if np.isfinite(means).any() else None
        return Progress(self.step, self.steps, mean, rate, rows)

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

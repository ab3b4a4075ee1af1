"""An agent's learning phase by itself: compiled for a fleet whose replay is full, with no environment in the loop."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sadq.agents import AGENTS, SUFFIX
from sadq.envs.base import Environment
from sadq.experiment.build import hyper_of, make_learner, resolve
from sadq.experiment.config import Config
from sadq.experiment.presets import preset
from sadq.fleet.devices import Placement
from sadq.fleet.members import MemberState
from sadq.fleet.scan_loop import ScanFleet
from sadq.learning.state import Hyper, LearnerState
from sadq.types import Array, Metrics, PyTree, Transition

PRESET = "acrobot"
REFERENCE = "dqn"
VARIANTS = [base + suffix for base in AGENTS for suffix in ("", SUFFIX)]
"""Every agent, plain and guided."""


@dataclass(frozen=True)
class Call:
    """A compiled program with its arguments."""

    program: Callable
    arguments: tuple[PyTree, ...]
    interval: float  # value updates of a member that one call stands for

    def __call__(self) -> PyTree:
        return self.program(*self.arguments)

    def milliseconds(self, seconds: float) -> float:
        """Per value update of a member."""
        return 1e3 * seconds / self.interval


@dataclass(frozen=True)
class Subject:
    """What is timed of one agent."""

    learn: Call
    refit: Call | None  # a Bayesian head's by itself; `learn` makes it only where it is due
    compile_seconds: float


class Member(NamedTuple):
    """What one member learns from and changes."""

    learner: LearnerState
    sampler: PyTree
    replay: Transition


def config_of(variant: str, members: int = 1) -> Config:
    return replace(preset(PRESET, variant), seeds=tuple(range(members)))


def full_replay(config: Config) -> Transition:
    """A whole ring of transitions that really happened, to an untrained agent: any agent can learn from it."""
    environment = resolve(config.environment)
    assert isinstance(environment, Environment)
    learner, own = make_learner(config, environment), _first(hyper_of(config))
    fleet = ScanFleet(learner=learner, environment=environment)

    def fill(hyper: Hyper) -> Transition:
        def body(member: MemberState, index: Array) -> tuple[MemberState, None]:
            member, collected, _ = fleet.collect(member, hyper, index)
            replay = learner.store.add(member.replay, index * fleet.collect_steps, collected)
            return member._replace(replay=replay), None

        collects = -(-learner.store.rows // fleet.collect_steps)
        return jax.lax.scan(body, fleet.init(hyper), jnp.arange(collects))[0].replay

    return jax.block_until_ready(jax.jit(fill)(own))


def prepare(config: Config, replay: Transition, collects: int) -> Subject:
    """Compile `collects` learning phases in one call, for all members of the config, the way a run would."""
    learner, hyper = make_learner(config, resolve(config.environment)), hyper_of(config)
    store, placement = learner.store, Placement(hyper.seed.shape[0])
    compile_seconds = 0.0
    first = jnp.int32(store.rows // learner.collect_steps)  # the collect with which the replay is full

    def compiled(function: Callable, *arguments: PyTree, interval: float = 1.0) -> Call:
        nonlocal compile_seconds
        began = time.perf_counter()
        program = placement.over_members(function).lower(*arguments).compile()
        compile_seconds += time.perf_counter() - began
        return Call(program, arguments, interval)

    def start(_: Hyper, own: Hyper, content: Transition) -> Member:
        sampler = learner.sampler.add(learner.sampler.init(), jnp.int32(0), store.rows)
        return Member(learner.init(own), sampler, content)

    def learn(member: Member, own: Hyper) -> tuple[Any, Metrics]:
        def body(carry: tuple[LearnerState, PyTree], index: Array) -> tuple[Any, Metrics]:
            state, sampler, metrics = learner.learn(carry[0], own, member.replay, carry[1], index)
            return (state, sampler), metrics

        return jax.lax.scan(body, (member.learner, member.sampler), first + jnp.arange(collects))

    begun = compiled(start, hyper, hyper, replay)()
    learning = compiled(learn, begun, hyper, interval=collects * config.updates_per_collect)
    refit = None
    if learner.refit is not None:
        refitted = learner.refit.refitted

        def infer(member: Member, own: Hyper) -> LearnerState:
            phase = learner.phase(own, first)
            returns = learner.returns(member.learner, phase, member.replay)
            return refitted(member.learner, phase, jnp.bool_(True), returns, store)

        updates_per_step = config.updates_per_collect / config.collect
        refit = compiled(infer, begun, hyper, interval=learner.refit.interval * updates_per_step)
    return Subject(learning, refit, compile_seconds)


def outside_learning(subject: Subject, repetitions: int) -> dict[str, Any]:
    """What a Bayesian head's refit costs, and its share of an update."""
    parts = {"refit": subject.refit}
    found: dict[str, Any] = {}
    per_update = 0.0
    for name, call in parts.items():
        if call is not None:
            seconds = statistics.median(timed(call, repetitions))
            found[name] = {"milliseconds": 1e3 * seconds, "updates_between": call.interval}
            per_update += call.milliseconds(seconds)
    return found | {"milliseconds_per_update": per_update} if found else {}


def timed(call: Callable[[], Any], repetitions: int) -> list[float]:
    """Seconds of each call, after one that warms up."""
    once(call)
    return [once(call) for _ in range(repetitions)]


def once(call: Callable[[], Any]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - began


def _first(tree: PyTree) -> PyTree:
    """A fleet's first member."""
    return jax.tree.map(lambda leaf: leaf[0], tree)

"""A fleet: many independent members in one compiled program.

Scan outside, member axis inside, step counters shared and scalar. Work is cut into collects (T steps of E environments,
then all updates); a chunk is a fixed number of collects, so an interrupted run executes the same programs as a whole one.
`scan_loop.py` runs a fleet over environments in JAX, `host_loop.py` over environments outside it; `Loop` is what the two
have in common for whoever drives them.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from sadq import keys
from sadq.core.schedules import Decay, exploration
from sadq.envs import base
from sadq.exploration.rules import EpsilonGreedy, Exploration, Noise, Situation, draw_noise
from sadq.learning.learner import Actor, Hyper, Learner, LearnerState, with_mean
from sadq.networks.value import Network, ValueNetwork
from sadq.replay.samplers import Priorities
from sadq.types import Array, Metrics, PyTree, Transition


class MemberState(NamedTuple):
    """Everything of one member that a resume needs; a fleet's has a leading axis M on every leaf."""

    learner: LearnerState
    ring: Transition
    priorities: Priorities | None
    memory: PyTree  # of the exploration rule
    fresh: Array  # bool[E]: an episode begins with the next step
    environment: base.Timed | None  # [E]; None where environments live outside JAX
    episode_return: Array  # f32[E]: undiscounted, of the episodes under way


class Evaluation(NamedTuple):
    """Greedy episodes of one evaluation: [episodes], or [M, episodes] for a fleet."""

    returns: Array
    lengths: Array
    discounted: Array  # discounted return
    predicted: Array  # Q(s0, a0)
    measures: dict[str, Array]  # the environment's own, of every episode


class Plan(NamedTuple):
    """What a collect's steps need beside what is seen: [T] on every leaf, or one step's."""

    step: Array  # i32[]: env steps of the member before this one
    epsilon: Array  # f32[]
    noise: Noise


class Programs:
    """Compiles each program at its first call, and keeps account of the time that takes."""

    def __init__(self) -> None:
        self.compile_seconds = 0.0

    def timed(self, program: Any) -> Callable:
        compiled: Callable | None = None

        def call(*arguments: PyTree) -> PyTree:
            nonlocal compiled
            if compiled is None:
                began = time.perf_counter()
                compiled = program.lower(*arguments).compile()
                self.compile_seconds += time.perf_counter() - began
            return compiled(*arguments)

        return call


class Loop(Protocol):
    """A fleet bound to its members, ready to run: the contract of `ScanLoop` and `HostLoop`."""

    programs: Programs

    def start(self) -> MemberState:
        """The fleet before its first step."""

    def advance(self, state: MemberState, first: int) -> tuple[MemberState, Metrics]:
        """One chunk, beginning with collect number `first`; metrics are [M, collects]."""

    def evaluate(self, state: MemberState, number: int) -> Evaluation:
        """Greedy episodes of evaluation `number`: [M, episodes]."""

    def outside(self) -> dict[str, np.ndarray]:
        """What a checkpoint needs beside the state: environments that live outside JAX."""

    def restore(self, state: MemberState, outside: dict[str, np.ndarray]) -> bool:
        """Take up again from a checkpoint; whether that is exact."""

    def close(self) -> None:
        """Let go of environments and workers."""


@dataclass(frozen=True)
class Fleet:
    """What both loops share: one member's pure functions, and the member axis over them."""

    learner: Learner
    collect_steps: int  # T: vector steps between two learning phases
    exploration: Exploration = EpsilonGreedy()
    epsilon_decay: Decay = "exponential"
    target_interval: int | None = None  # None: only soft updates
    target_unit: Literal["steps", "updates"] = "steps"
    evaluation_episodes: int = 8
    devices: tuple[jax.Device, ...] = ()
    vectorise: bool | None = None
    """Members side by side in every operation (accelerators) or one after the other (CPU, where that is as fast and
    makes a member's arithmetic exactly that of a solo run). None: by platform."""

    @property
    def environments(self) -> int:
        return self.learner.ring.environments

    def init_member(self, hyper: Hyper, environment: base.Timed | None) -> MemberState:
        """A member before its first step."""
        prioritised, learner = self.learner.prioritised, self.learner.init(hyper)
        return MemberState(
            learner=learner,
            ring=self.learner.ring.init(),
            priorities=None if prioritised is None else prioritised.init(),
            memory=self.exploration.init(self.environments, learner.online.parameters),
            fresh=jnp.ones(self.environments, bool),
            environment=environment,
            episode_return=jnp.zeros(self.environments),
        )

    def plan(self, hyper: Hyper, index: Array) -> "Plan":
        """Exploration's randomness and epsilon for the T steps of collect `index`, drawn at once."""
        first = index * self.collect_steps
        stream = keys.purpose(keys.member_key(hyper.seed), "exploration")
        actions = self.learner.ring.action_count
        noise = jax.vmap(lambda key: draw_noise(key, self.environments, actions))(
            keys.range_of(stream, first, self.collect_steps)
        )
        step = (first + jnp.arange(self.collect_steps)) * self.environments
        epsilon = exploration(step, hyper.epsilon_start, hyper.epsilon_end, hyper.epsilon_decay, self.epsilon_decay)
        return Plan(step, epsilon, noise)

    def act(
        self, actor: Actor, memory: PyTree, observation: Array, mask: Array | None, fresh: Array, now: "Plan"
    ) -> tuple[Array, PyTree]:
        """Behaviour at one step: actions i32[E]."""
        situation = Situation(*actor, observation, mask, fresh, now.step, now.epsilon, now.noise)
        return self.exploration.act(situation, memory)

    def absorb(
        self, member: MemberState, hyper: Hyper, collected: Transition, index: Array
    ) -> tuple[MemberState, Metrics]:
        """Store a collect, [T, E, ...], and learn from the replay."""
        learner = self.learner
        written = index * self.collect_steps
        ring = learner.ring.add(member.ring, written, collected)
        priorities = member.priorities
        if learner.prioritised is not None and priorities is not None:
            priorities = learner.prioritised.add(priorities, written, self.collect_steps)
        rows, state = written + self.collect_steps, self._resample(member.learner, hyper, index)
        state, priorities, metrics = learner.learn(state, hyper, ring, priorities, rows, index)
        if self.target_interval is not None:
            due = self._due(index, self.target_interval, self.target_unit)
            # The counter is shared by all members, so this stays a branch under vmap; likewise below.
            target = jax.lax.cond(due, lambda: state.online.parameters, lambda: state.target)
            state = state._replace(target=with_mean(target, state.posterior))
        if learner.inference is not None:
            due = self._due(index, learner.inference.refit_interval)
            fitted = jax.lax.cond(due, lambda: learner.refit(state, hyper, ring, rows, index), lambda: state.posterior)
            state = state._replace(posterior=fitted, target=with_mean(state.target, fitted))
        return member._replace(learner=state, ring=ring, priorities=priorities), metrics

    def _resample(self, state: LearnerState, hyper: Hyper, index: Array) -> LearnerState:
        """A Bayesian agent learns by a draw of its last layer that is renewed now and then."""
        learner, posterior = self.learner, state.posterior
        if learner.inference is None or posterior is None:
            return state
        network: ValueNetwork = state.online.parameters
        due = self._due(index, learner.inference.resample_interval)
        weights = jax.lax.cond(
            due, lambda: learner.resample(posterior, hyper, index), lambda: network.bayesian_head.weights
        )
        return state._replace(online=state.online._replace(parameters=network.with_weights(weights)))

    def _due(self, index: Array, interval: int, unit: str = "steps") -> Array:
        """Whether collect number `index` completes an interval."""
        per_collect = self.learner.updates if unit == "updates" else self.collect_steps * self.environments
        return (index + 1) * per_collect // interval > index * per_collect // interval

    def over_members(self, function: Callable, members: int, donate: bool = False) -> Any:
        """`function(member, own, *shared)` for all members at once, sharded over the devices there are.

        `member` and `own` have the axis M on every leaf; `donate` gives the first one's memory to the result.
        """
        devices = self.devices or tuple(jax.devices())
        shards = max(count for count in range(1, len(devices) + 1) if members % count == 0)
        vectorise = devices[0].platform != "cpu" if self.vectorise is None else self.vectorise

        def stacked(member: PyTree, own: PyTree, *shared: PyTree) -> PyTree:
            if vectorise:
                return jax.vmap(lambda *pair: function(*pair, *shared))(member, own)
            return jax.lax.map(lambda pair: function(*pair, *shared), (member, own))

        if shards > 1:
            mesh = Mesh(devices[:shards], ("members",))
            split, whole = PartitionSpec("members"), PartitionSpec()

            def sharded(member: PyTree, own: PyTree, *shared: PyTree) -> PyTree:
                specs = (split, split, *(whole for _ in shared))
                # Members never communicate, so there is nothing for the replication check to find.
                return jax.shard_map(stacked, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)(
                    member, own, *shared
                )

            return jax.jit(sharded, donate_argnums=0 if donate else ())
        return jax.jit(stacked, donate_argnums=0 if donate else ())


def action_values(network: Network, observation: Array, mask: Array | None) -> Array:
    """Expected returns f32[E, A] at E observations."""
    return jax.vmap(lambda one, legal: network.mean(one, legal))(observation, mask)


def stack_hyper(members: Sequence[Hyper]) -> Hyper:
    """The fleet's hyper-parameters: [M] on every leaf."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *members)

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
from sadq.exploration import EXPLORATIONS, Noise, draw_noise
from sadq.learner import Hyper, Learner, LearnerState
from sadq.nets.value import ValueNetwork
from sadq.replay.samplers import Priorities
from sadq.types import Array, Metrics, PyTree, Transition


class MemberState(NamedTuple):
    """Everything of one member that a resume needs; a fleet's has a leading axis M on every leaf."""

    learner: LearnerState
    ring: Transition
    priorities: Priorities | None
    memory: PyTree  # of the exploration rule
    environment: base.Timed | None  # [E]; None where environments live outside JAX
    episode_return: Array  # f32[E]: undiscounted, of the episodes under way


class Evaluation(NamedTuple):
    """Greedy episodes of one evaluation: [episodes], or [M, episodes] for a fleet."""

    returns: Array
    lengths: Array
    discounted: Array  # discounted return
    predicted: Array  # Q(s0, a0)


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
    exploration: str = "epsilon"
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
        prioritised = self.learner.prioritised
        return MemberState(
            learner=self.learner.init(hyper),
            ring=self.learner.ring.init(),
            priorities=None if prioritised is None else prioritised.init(),
            memory=EXPLORATIONS[self.exploration].init(self.environments),
            environment=environment,
            episode_return=jnp.zeros(self.environments),
        )

    def plan(self, hyper: Hyper, index: Array) -> tuple[Noise, Array]:
        """Exploration's randomness and epsilon for the T steps of collect `index`, drawn at once."""
        first = index * self.collect_steps
        stream = keys.purpose(keys.member_key(hyper.seed), "exploration")
        actions = self.learner.ring.action_count
        noise = jax.vmap(lambda key: draw_noise(key, self.environments, actions))(
            keys.range_of(stream, first, self.collect_steps)
        )
        step = (first + jnp.arange(self.collect_steps)) * self.environments
        epsilon = exploration(step, hyper.epsilon_start, hyper.epsilon_end, hyper.epsilon_decay, self.epsilon_decay)
        return noise, epsilon

    def act(
        self,
        network: ValueNetwork,
        memory: PyTree,
        observation: Array,
        mask: Array | None,
        noise: Noise,
        epsilon: Array,
    ) -> tuple[Array, PyTree]:
        """Behaviour at one step: actions i32[E]."""
        values = action_values(network, observation, mask)
        return EXPLORATIONS[self.exploration].act(values, memory, noise, epsilon, mask)

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
        rows = written + self.collect_steps
        state, priorities, metrics = learner.learn(member.learner, hyper, ring, priorities, rows, index)
        if self.target_interval is not None:
            per_collect = learner.updates if self.target_unit == "updates" else self.collect_steps * self.environments
            due = (index + 1) * per_collect // self.target_interval > index * per_collect // self.target_interval
            # The counter is shared, so this stays a branch under vmap.
            target = jax.lax.cond(due, lambda: state.online.parameters, lambda: state.target)
            state = state._replace(target=target)
        return member._replace(learner=state, ring=ring, priorities=priorities), metrics

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


def action_values(network: ValueNetwork, observation: Array, mask: Array | None) -> Array:
    """Expected returns f32[E, A] at E observations."""
    return jax.vmap(lambda one, legal: network(one, legal).mean)(observation, mask)


def stack_hyper(members: Sequence[Hyper]) -> Hyper:
    """The fleet's hyper-parameters: [M] on every leaf."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *members)

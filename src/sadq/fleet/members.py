"""A fleet: many independent members in one compiled program.

Scan outside, member axis inside, step counters shared and scalar. Work is cut into collects (T steps of E environments,
then all updates); a chunk is a fixed number of collects, so an interrupted run executes the same programs as a whole one.
`scan_loop.py` runs a fleet over environments in JAX, `host_loop.py` over environments outside it; `Loop` is what the two
have in common for whoever drives them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.core.schedules import Decay, exploration_rate
from sadq.envs import base
from sadq.errors import SadqError
from sadq.exploration.behaviour import Behaviour
from sadq.exploration.situation import (
    Noise,
    Rule,
    Situation,
    best_actions,
    draw_noise,
    noisy_values,
    random_actions,
    settled_values,
)
from sadq.fleet.devices import Placement, Programs
from sadq.learning.learner import Learner
from sadq.learning.normalising import observed
from sadq.learning.state import Hyper, Known, LearnerState
from sadq.networks.network import Network
from sadq.registry import shown
from sadq.types import Array, Key, Mask, Metrics, PyTree, Transition


class MemberState(NamedTuple):
    """Everything of one member that a resume needs; a fleet's has a leading axis M on every leaf."""

    learner: LearnerState
    replay: PyTree  # the store's contents
    sampler: PyTree  # the sampler's memory
    behaviour: PyTree  # the exploration's memory
    fresh: Array  # bool[E]: an episode begins with the next step
    environment: base.Timed | None  # [E]; None where environments live outside JAX
    episode_return: Array  # f32[E]: undiscounted, of the episodes under way


class Evaluation(NamedTuple):
    """Greedy episodes of one evaluation: [episodes], or [M, episodes] for a fleet."""

    returns: Array
    lengths: Array
    discounted: Array  # discounted return of what is learned of the rewards
    predicted: Array  # Q(s0, a0)
    measures: dict[str, Array]  # the environment's own, of every episode


class StepPlan(NamedTuple):
    """What a collect's steps need beside what is seen: [T] on every leaf, or one step's."""

    step: Array  # i32[]: env steps of the member before this one
    epsilon: Array  # f32[]
    noise: Noise


class Loop(Protocol):
    """A fleet bound to its members, ready to run: the contract of `ScanLoop` and `HostLoop`."""

    @property
    def evaluates_beside(self) -> int:
        """How many calls of `evaluate` may go on in other threads while `advance` does."""

    @property
    def programs(self) -> Programs: ...

    @property
    def placement(self) -> Placement: ...

    def start(self) -> MemberState:
        """The fleet before its first step, idle copies included; likewise below."""

    def advance(self, state: MemberState, first: int) -> tuple[MemberState, Metrics]:
        """One chunk, beginning with collect number `first`; metrics are [M, collects]."""

    def evaluate(self, state: MemberState, number: int) -> Evaluation:
        """Greedy episodes of evaluation `number`: [M, episodes]."""

    def outside(self) -> dict[str, np.ndarray]:
        """What a checkpoint needs beside the state: environments that live outside JAX."""

    def restore(self, state: MemberState, outside: dict[str, np.ndarray]) -> bool:
        """Take up again from a checkpoint; whether that is exact."""

    def left_over(self) -> list[Array] | None:
        """The leaves of the networks as an error in `advance` left them; None where nothing is."""

    def follow(self, hyper: Hyper) -> None:
        """Go on with other numbers of the same members, by the same programs."""

    def close(self) -> None:
        """Let go of environments and workers."""


@dataclass(frozen=True)
class Fleet:
    """What both loops share: one member's pure functions."""

    learner: Learner
    exploration: Rule = field(default_factory=Behaviour)
    epsilon_decay: Decay = "exponential"
    evaluation_episodes: int = 8
    devices: tuple[jax.Device, ...] = ()
    vectorise: bool | None = None  # see `Placement`

    @property
    def environments(self) -> int:
        return self.learner.environments

    @property
    def collect_steps(self) -> int:
        return self.learner.collect_steps

    @property
    def lanes(self) -> int:
        """Environments times the actors in each."""
        return self.learner.store.lanes

    def placement(self, members: int) -> Placement:
        return Placement(members, self.devices, self.vectorise)

    def init_member(self, hyper: Hyper, environment: base.Timed | None) -> MemberState:
        """A member before its first step."""
        learner = self.learner.init(hyper)
        networks = learner.online.parameters
        behaviour = self.exploration.init(self.lanes, networks)
        return MemberState(
            learner=learner,
            replay=self.learner.store.init(),
            sampler=self.learner.sampler.init(),
            behaviour=self.begun(networks, hyper, jnp.int32(0), behaviour),
            fresh=jnp.ones(self.environments, bool),
            environment=environment,
            episode_return=jnp.zeros(self.environments),
        )

    def plan(self, hyper: Hyper, index: Array) -> StepPlan:
        """Exploration's randomness and epsilon for the T steps of collect `index`, drawn at once."""
        first = index * self.collect_steps
        noise = jax.vmap(lambda key: draw_noise(key, self.lanes, self.learner.action_count))(
            keys.range_of(hyper.stream("exploration"), first, self.collect_steps)
        )
        step = (first + jnp.arange(self.collect_steps)) * self.environments
        numbers = hyper.epsilon_start, hyper.epsilon_end, hyper.epsilon_decay
        return StepPlan(step, exploration_rate(step, *numbers, self.epsilon_decay), noise)

    def act(
        self, networks: Network, memory: PyTree, observation: Array, mask: Mask, fresh: Array, now: StepPlan
    ) -> tuple[Array, PyTree]:
        """Behaviour at one step: actions i32[lanes]."""
        values = noisy_values(networks, observation, mask, now.noise.key)
        stride, rest = self.environments, (now.epsilon, now.noise)
        situation = Situation(networks, values, observation, mask, fresh, now.step, stride, *rest)
        action, memory = self.exploration.act(situation, memory)
        kind: Any = getattr(action, "dtype", None)
        if getattr(action, "shape", None) != (self.lanes,) or not jnp.issubdtype(kind, jnp.integer):
            expected = f"expected one for each of {self.lanes} lanes, i32[E]"
            raise SadqError(
                f"{type(self.exploration).__name__} gave the actions {shown(action)}, {expected}: fix its act."
            )
        if self.learner.learning_starts > 0:
            action = jnp.where(now.step < self.learner.learning_starts, random_actions(situation), action)
        return action, memory

    def absorb(
        self, member: MemberState, hyper: Hyper, collected: Transition, index: Array, known: Known | None = None
    ) -> tuple[MemberState, Metrics]:
        """Store a collect, [T, lanes, ...], learn from the replay, and draw what the next collect is begun with."""
        member, learner = self.stored(member, collected, index), self.learner
        state, sampler, metrics = learner.learn(member.learner, hyper, member.replay, member.sampler, index, known)
        behaviour = self.begun(state.online.parameters, hyper, index + 1, member.behaviour)
        return member._replace(learner=state, sampler=sampler, behaviour=behaviour), metrics

    def stored(self, member: MemberState, collected: Transition, index: Array) -> MemberState:
        """With a collect, [T, lanes, ...], in the replay."""
        learner, written = self.learner, index * self.collect_steps
        member = member._replace(learner=observed(member.learner, collected.observation))
        collected = collected._replace(reward=learner.rewards.learned(collected.reward))
        replay = learner.store.add(member.replay, written, collected)
        return member._replace(replay=replay, sampler=learner.sampler.add(member.sampler, written, self.collect_steps))

    def begun(self, networks: Network, hyper: Hyper, index: Array, memory: PyTree) -> PyTree:
        """What exploration draws once for collect `index`."""
        return self.exploration.begin(networks, keys.at(hyper.stream("exploration-collect"), index), memory)


def greedy_actions(networks: Network, observation: Array, mask: Mask) -> tuple[Array, Array]:
    """What evaluation does at E observations: (the best actions i32[E], their expected returns f32[E])."""
    values = settled_values(networks, observation, mask)
    action = best_actions(values, mask)
    return action, jnp.take_along_axis(values, action[:, None], axis=1)[:, 0]


def explore(
    exploration: Rule,
    networks: Network,
    observation: Array,
    mask: Mask,
    step: Array,
    epsilon: Array,
    key: Key,
) -> Array:
    """What behaviour does at E observations, each taken for an episode's first: i32[E]."""
    count = observation.shape[0]
    values = noisy_values(networks, observation, mask, key)
    memory = exploration.begin(networks, keys.purpose(key, "begin"), exploration.init(count, networks))
    noise = draw_noise(key, count, values.shape[-1])
    fresh = jnp.ones(count, bool)
    now = Situation(networks, values, observation, mask, fresh, step, count, epsilon, noise)
    return exploration.act(now, memory)[0]


def stack_hyper(members: Sequence[Hyper]) -> Hyper:
    """The fleet's hyper-parameters: [M] on every leaf."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *members)

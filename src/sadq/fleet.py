"""A fleet: many independent members in one compiled program, over environments in JAX (`ScanLoop`).

Scan outside, member axis inside, step counters shared and scalar. Work is cut into collects (T steps of E environments,
then all updates); a chunk is a fixed number of collects, so an interrupted run executes the same programs as a whole one.
`host_loop.py` keeps the same contract over environments outside JAX.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from sadq import keys
from sadq.core.schedules import Decay, exploration
from sadq.envs import base
from sadq.exploration import EXPLORATIONS, Noise, draw_noise
from sadq.learner import Hyper, Learner, LearnerState
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
        state: LearnerState,
        memory: PyTree,
        observation: Array,
        mask: Array | None,
        noise: Noise,
        epsilon: Array,
    ) -> tuple[Array, PyTree]:
        """Behaviour at one step: actions i32[E]."""
        values = jax.vmap(lambda o, m: state.online.parameters(o, m).mean)(observation, mask)
        return EXPLORATIONS[self.exploration].act(values, memory, noise, epsilon, mask)

    def absorb(
        self, member: MemberState, hyper: Hyper, collected: Transition, index: Array
    ) -> tuple[MemberState, Metrics]:
        """Store a collect, [T, E, ...], and learn from the replay."""
        learner = self.learner
        written = index * self.collect_steps
        ring = learner.ring.add(member.ring, written, collected)
        priorities = member.priorities
        if learner.prioritised is not None:
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

    def over_members(self, function: Callable, members: int, donate: bool = False) -> Callable:
        """`function(member, hyper, *shared)` for all members at once, sharded over the devices there are."""
        devices = self.devices or tuple(jax.devices())
        shards = max(count for count in range(1, len(devices) + 1) if members % count == 0)
        vectorise = devices[0].platform != "cpu" if self.vectorise is None else self.vectorise

        def stacked(member: PyTree, hyper: Hyper, *shared: PyTree) -> PyTree:
            if vectorise:
                return jax.vmap(lambda one, own: function(one, own, *shared))(member, hyper)
            return jax.lax.map(lambda pair: function(*pair, *shared), (member, hyper))

        if shards > 1:
            mesh = Mesh(devices[:shards], ("members",))
            split, whole = PartitionSpec("members"), PartitionSpec()

            def sharded(member: PyTree, hyper: Hyper, *shared: PyTree) -> PyTree:
                specs = (split, split, *(whole for _ in shared))
                return jax.shard_map(stacked, mesh=mesh, in_specs=specs, out_specs=split)(member, hyper, *shared)

            return jax.jit(sharded, donate_argnums=0 if donate else ())
        return jax.jit(stacked, donate_argnums=0 if donate else ())


def stack_hyper(members: Sequence[Hyper]) -> Hyper:
    """The fleet's hyper-parameters: [M] on every leaf."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *members)


@dataclass(frozen=True)
class ScanLoop(Fleet):
    """The loop over native environments: a whole chunk is one call."""

    environment: base.Environment | None = None
    evaluation_block: int = 25
    """Evaluation runs until every episode has ended, and looks whether they have once in this many steps."""

    def init(self, hyper: Hyper) -> MemberState:
        """One member, its environments freshly reset."""
        return self.init_member(hyper, jax.vmap(lambda key: base.reset(self.environment, key))(self._keys(hyper, "reset", 0, 1)[0]))

    def chunk(self, member: MemberState, hyper: Hyper, start: Array, collects: int) -> tuple[MemberState, Metrics]:
        """`collects` collects beginning with number `start`; metrics are [collects]."""

        def body(member: MemberState, index: Array) -> tuple[MemberState, Metrics]:
            member, collected, episodes = self.collect(member, hyper, index)
            member, metrics = self.absorb(member, hyper, collected, index)
            return member, metrics | episodes

        return jax.lax.scan(body, member, start + jnp.arange(collects))

    def collect(
        self, member: MemberState, hyper: Hyper, index: Array
    ) -> tuple[MemberState, Transition, Metrics]:
        """T steps of E environments: transitions [T, E, ...], and the episodes that ended."""
        environment = self.environment
        first = index * self.collect_steps
        # Resets do not depend on what they replace: all that could be needed are made before the loop.
        fresh = jax.vmap(jax.vmap(lambda key: base.reset(environment, key)))(
            self._keys(hyper, "reset", first + 1, self.collect_steps)
        )
        transition_keys = self._keys(hyper, "transition", first, self.collect_steps)

        def step(carry, planned):
            timed, memory, running = carry
            noise, epsilon, restart, step_keys = planned
            observation, mask = self._observe(timed)
            action, memory = self.act(member.learner, memory, observation, mask, noise, epsilon)
            timed, outcome = jax.vmap(lambda t, a, k: base.step(environment, t, a, k))(timed, action, step_keys)
            ended = outcome.terminated | outcome.truncated
            running = running + outcome.reward
            transition = Transition(
                observation,
                action,
                outcome.reward,
                outcome.observation,
                outcome.terminated,
                outcome.truncated,
                mask,
                self._legal(outcome.observation),
            )
            finished = {"episode_return": jnp.where(ended, running, 0.0), "episodes": ended * 1.0}
            return (_select(ended, restart, timed), memory, jnp.where(ended, 0.0, running)), (transition, finished)

        carry = (member.environment, member.memory, member.episode_return)
        planned = (*self.plan(hyper, index), fresh, transition_keys)
        (timed, memory, running), (collected, finished) = jax.lax.scan(step, carry, planned)
        member = member._replace(environment=timed, memory=memory, episode_return=running)
        return member, collected, {name: jnp.sum(values) for name, values in finished.items()}

    def evaluate(self, state: LearnerState, hyper: Hyper, number: Array) -> Evaluation:
        """Greedy episodes of evaluation `number`, whose starts depend on nothing but the member's seed and it."""
        environment, episodes = self.environment, self.evaluation_episodes
        stream = keys.at(keys.purpose(keys.member_key(hyper.seed), "evaluation"), number)
        timed = jax.vmap(lambda key: base.reset(environment, key))(keys.range_of(keys.purpose(stream, "reset"), 0, episodes))
        network = state.online.parameters

        def values_of(timed: base.Timed) -> tuple[Array, Array | None]:
            observation, mask = self._observe(timed)
            return jax.vmap(lambda o, m: network(o, m).mean)(observation, mask), mask

        def greedy(values: Array, mask: Array | None) -> Array:
            legal = values if mask is None else jnp.where(mask, values, -jnp.inf)
            return jnp.argmax(legal, axis=1)

        def step(carry, _):
            timed, running, factor, totals = carry
            action = greedy(*values_of(timed))
            step_keys = keys.range_of(keys.at(keys.purpose(stream, "transition"), timed.elapsed[0]), 0, episodes)
            timed, outcome = jax.vmap(lambda t, a, k: base.step(environment, t, a, k))(timed, action, step_keys)
            gained = outcome.reward * running
            totals = totals._replace(
                returns=totals.returns + gained,
                lengths=totals.lengths + running.astype(jnp.int32),
                discounted=totals.discounted + factor * gained,
            )
            running = running * ~(outcome.terminated | outcome.truncated)
            return (timed, running, factor * hyper.discount, totals), None

        first_values, first_mask = values_of(timed)
        predicted = jnp.max(first_values if first_mask is None else jnp.where(first_mask, first_values, -jnp.inf), axis=1)
        zeros = jnp.zeros(episodes)
        totals = Evaluation(zeros, jnp.zeros(episodes, jnp.int32), zeros, predicted)
        carry = (timed, jnp.ones(episodes), jnp.float32(1), totals)
        block = min(self.evaluation_block, environment.max_steps)
        *_, totals = jax.lax.while_loop(
            lambda carry: jnp.any(carry[1] > 0),
            lambda carry: jax.lax.scan(step, carry, None, length=block)[0],
            carry,
        )
        return totals

    def _observe(self, timed: base.Timed) -> tuple[Array, Array | None]:
        observation = jax.vmap(self.environment.observe)(timed.state)
        return observation, self._legal(observation)

    def _legal(self, observation: Array) -> Array | None:
        return jax.vmap(self.environment.legal)(observation) if self.environment.has_masks else None

    def _keys(self, hyper: Hyper, purpose: str, first: Array | int, count: int) -> keys.Key:
        """The keys of steps first ... first + count - 1 for all E environments: [count, E]."""
        steps = keys.range_of(keys.purpose(keys.member_key(hyper.seed), purpose), first, count)
        return jax.vmap(lambda key: keys.range_of(key, 0, self.environments))(steps)


def _select(condition: Array, left: PyTree, right: PyTree) -> PyTree:
    """Per environment: `left` where the condition holds."""
    return jax.tree.map(
        lambda l, r: jnp.where(condition.reshape(condition.shape + (1,) * (l.ndim - 1)), l, r), left, right
    )

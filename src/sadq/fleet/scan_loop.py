"""The loop over native environments: a whole chunk of collects and updates is one compiled call."""

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.envs import base
from sadq.fleet.devices import Programs
from sadq.fleet.members import Evaluation, Fleet, MemberState, greedy_actions
from sadq.learning.metrics import scan_with_metrics
from sadq.learning.state import Hyper, LearnerState
from sadq.types import Array, Key, Metrics, PyTree, Transition


@dataclass(frozen=True, kw_only=True)
class ScanFleet(Fleet):
    """One member's pure functions over a native environment."""

    environment: base.Environment
    evaluation_block: int = 25
    """Evaluation runs until every episode has ended, and looks whether they have once in this many steps."""

    def init(self, hyper: Hyper) -> MemberState:
        """One member, its environments freshly reset."""
        timed, _ = base.reset_lanes(self.environment, self._keys(hyper, "reset", 0, 1)[0])
        return self.init_member(hyper, timed)

    def chunk(self, member: MemberState, hyper: Hyper, first: Array, collects: int) -> tuple[MemberState, Metrics]:
        """`collects` collects beginning with number `first`; metrics are [collects]."""

        def body(member: MemberState, index: Array) -> tuple[MemberState, Metrics]:
            member, collected, episodes = self.collect(member, hyper, index)
            member, metrics = self.absorb(member, hyper, collected, index)
            return member, metrics | episodes

        return scan_with_metrics(body, member, first + jnp.arange(collects))

    def collect(self, member: MemberState, hyper: Hyper, index: Array) -> tuple[MemberState, Transition, Metrics]:
        """T steps of E environments: transitions [T, lanes, ...], and the episodes that ended."""
        assert member.environment is not None
        environment, networks = self.environment, member.learner.online.parameters
        first = index * self.collect_steps
        restarts, shared = self._restarts(hyper, first)
        transition_keys = self._keys(hyper, "transition", first, self.collect_steps)

        def step(carry, planned):
            timed, observation, memory, fresh, running = carry
            now, restart_now, step_keys = planned
            restart, restart_seen = restart_now if shared is None else shared
            mask = self._legal(hyper, observation)
            lanes_fresh = base.to_lanes(environment, fresh)
            action, memory = self.act(networks, memory, observation, mask, lanes_fresh, now)
            timed, outcome = base.step_lanes(environment, timed, action, step_keys)
            lanes_ended = outcome.terminated | outcome.truncated
            ended = base.of_environments(environment, lanes_ended)
            running = running + base.over_actors(environment, outcome.reward)
            transition = Transition(
                observation,
                action,
                outcome.reward,
                outcome.observation,
                outcome.terminated,
                outcome.truncated,
                mask,
                self._legal(hyper, outcome.observation),
            )
            carry = (
                _select(ended, restart, timed),
                _select(lanes_ended, restart_seen, outcome.observation),
                memory,
                ended,
                jnp.where(ended, 0.0, running),
            )
            return carry, (transition, ended, jnp.where(ended, running, 0.0))

        observation = base.observe_lanes(environment, member.environment)
        carry = (member.environment, observation, member.behaviour, member.fresh, member.episode_return)
        planned = (self.plan(hyper, index), restarts, transition_keys)
        (timed, _, memory, fresh, running), (collected, ended, finished) = jax.lax.scan(step, carry, planned)
        member = member._replace(environment=timed, behaviour=memory, fresh=fresh, episode_return=running)
        return member, collected, {"episode_return": jnp.sum(finished), "episodes": jnp.sum(ended * 1.0)}

    def _restarts(self, hyper: Hyper, first: Array) -> tuple[PyTree, PyTree]:
        """(what an episode that ends at step t continues with [T, E], what one that ends at any step does [E]).

        Resets do not depend on what they replace, so they are made before the steps; one of the two is None. Where all
        episodes last equally long, the shared counter tells whether one ends in this collect, so that resets that would
        be thrown away are not made at all.
        """
        length = self.environment.max_steps

        def made(reset_keys: Key) -> PyTree:
            return base.reset_lanes(self.environment, reset_keys)

        if not self.environment.fixed_length or self.collect_steps > length:
            return jax.vmap(made)(self._keys(hyper, "reset", first + 1, self.collect_steps)), None
        ends = (first // length + 1) * length
        due_keys = self._keys(hyper, "reset", ends, 1)[0]
        shapes = jax.eval_shape(made, due_keys)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return None, jax.lax.cond(ends <= first + self.collect_steps, lambda: made(due_keys), lambda: nothing)

    def evaluate(self, state: LearnerState, hyper: Hyper, number: Array) -> Evaluation:
        """Greedy episodes, whose starts depend on nothing but the member's seed and the evaluation's number."""
        judged = replace(self, environment=self.environment.for_evaluation())
        return judged._evaluate(state, hyper, number)

    def _evaluate(self, state: LearnerState, hyper: Hyper, number: Array) -> Evaluation:
        environment, episodes, networks = self.environment, self.evaluation_episodes, state.online.parameters
        stream = keys.at(hyper.stream("evaluation"), number)
        timed, observation = base.reset_lanes(environment, keys.range_of(keys.purpose(stream, "reset"), 0, episodes))

        def step(carry, _):
            timed, running, factor, totals = carry
            seen = base.observe_lanes(environment, timed)
            action, _ = greedy_actions(networks, seen, self._legal(hyper, seen))
            step_keys = keys.range_of(keys.at(keys.purpose(stream, "transition"), timed.elapsed[0]), 0, episodes)
            timed, outcome = base.step_lanes(environment, timed, action, step_keys)
            gained = learned = jnp.where(running, base.over_actors(environment, outcome.reward), 0.0)
            if not self.learner.rewards.plain:
                reward = self.learner.rewards.learned(outcome.reward)
                learned = jnp.where(running, base.over_actors(environment, reward), 0.0)
            measured = jax.vmap(environment.measures)(timed.state)
            totals = totals._replace(
                returns=totals.returns + gained,
                lengths=totals.lengths + running,
                discounted=totals.discounted + factor * learned,
                measures=_select(running, measured, totals.measures),
            )
            running = running & ~base.of_environments(environment, outcome.terminated | outcome.truncated)
            return (timed, running, factor * hyper.discount, totals), None

        _, predicted = greedy_actions(networks, observation, self._legal(hyper, observation))
        zeros, measures = jnp.zeros(episodes), jax.vmap(environment.measures)(timed.state)
        predicted = base.over_actors(environment, predicted)
        totals = Evaluation(zeros, jnp.zeros(episodes, jnp.int32), zeros, predicted, measures)
        carry = (timed, jnp.ones(episodes, bool), jnp.float32(1), totals)
        block = min(self.evaluation_block, environment.max_steps)
        *_, totals = jax.lax.while_loop(
            lambda carry: jnp.any(carry[1]),
            lambda carry: jax.lax.scan(step, carry, None, length=block)[0],
            carry,
        )
        return totals

    def _legal(self, hyper: Hyper, observation: Array) -> Array | None:
        if not self.environment.has_masks and hyper.actions is None:
            return None
        return jax.vmap(self.learner.legal_for(hyper))(observation)

    def _keys(self, hyper: Hyper, purpose: str, first: Array | int, count: int) -> Key:
        """The keys of steps first ... first + count - 1 for all E environments: [count, E]."""
        steps = keys.range_of(hyper.stream(purpose), first, count)
        return jax.vmap(lambda key: keys.range_of(key, 0, self.environments))(steps)


class ScanLoop:
    """A `ScanFleet` bound to its members."""

    evaluates_beside: ClassVar[int] = 0

    def __init__(self, fleet: ScanFleet, hyper: Hyper, collects: int):
        self.placement, self.programs = fleet.placement(hyper.seed.shape[0]), Programs()
        self.hyper = self.placement.padded(hyper)
        over_members, timed = self.placement.over_members, self.programs.timed
        self._start = timed(over_members(lambda _, own: fleet.init(own)))
        self._chunk = timed(
            over_members(lambda member, own, first: fleet.chunk(member, own, first, collects), donate=True)
        )
        self._evaluate = timed(over_members(fleet.evaluate))

    def start(self) -> MemberState:
        return self._start(self.hyper, self.hyper)

    def advance(self, state: MemberState, first: int) -> tuple[MemberState, Metrics]:
        state, metrics = self._chunk(state, self.hyper, jnp.int32(first))
        return state, self.placement.real(metrics)

    def evaluate(self, state: MemberState, number: int) -> Evaluation:
        return self.placement.real(self._evaluate(state.learner, self.hyper, jnp.int32(number)))

    def outside(self) -> dict[str, np.ndarray]:
        return {}

    def restore(self, state: MemberState, outside: dict[str, np.ndarray]) -> bool:
        return True

    def left_over(self) -> list[Array] | None:
        return None

    def follow(self, hyper: Hyper) -> None:
        self.hyper = self.placement.padded(hyper)

    def close(self) -> None:
        pass


def _select(condition: Array, left: PyTree, right: PyTree) -> PyTree:
    """Per environment: `left` where the condition holds."""
    return jax.tree.map(
        lambda one, other: jnp.where(condition.reshape(condition.shape + (1,) * (one.ndim - 1)), one, other),
        left,
        right,
    )

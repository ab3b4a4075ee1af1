"""The loop over native environments: a whole chunk of collects and updates is one compiled call."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.envs import base
from sadq.exploration.rules import best_actions
from sadq.fleet.members import Evaluation, Fleet, MemberState, Programs, action_values
from sadq.learning.learner import Hyper, LearnerState
from sadq.learning.metrics import scan_with_metrics
from sadq.types import Array, Key, Metrics, PyTree, Transition


@dataclass(frozen=True, kw_only=True)
class ScanFleet(Fleet):
    """One member's pure functions over a native environment."""

    environment: base.Environment
    evaluation_block: int = 25
    """Evaluation runs until every episode has ended, and looks whether they have once in this many steps."""

    def init(self, hyper: Hyper) -> MemberState:
        """One member, its environments freshly reset."""
        first_keys = self._keys(hyper, "reset", 0, 1)[0]
        return self.init_member(hyper, jax.vmap(self._reset)(first_keys))

    def chunk(self, member: MemberState, hyper: Hyper, first: Array, collects: int) -> tuple[MemberState, Metrics]:
        """`collects` collects beginning with number `first`; metrics are [collects]."""

        def body(member: MemberState, index: Array) -> tuple[MemberState, Metrics]:
            member, collected, episodes = self.collect(member, hyper, index)
            member, metrics = self.absorb(member, hyper, collected, index)
            return member, metrics | episodes

        return scan_with_metrics(body, member, first + jnp.arange(collects))

    def collect(self, member: MemberState, hyper: Hyper, index: Array) -> tuple[MemberState, Transition, Metrics]:
        """T steps of E environments: transitions [T, E, ...], and the episodes that ended."""
        assert member.environment is not None
        first = index * self.collect_steps
        restarts, shared = self._restarts(hyper, first)
        transition_keys = self._keys(hyper, "transition", first, self.collect_steps)

        def step(carry, planned):
            timed, observation, memory, fresh, running = carry
            now, own_restart, step_keys = planned
            restart, restart_seen = own_restart if shared is None else shared
            mask = self._legal(observation)
            action, memory = self.act(member.learner.actor, memory, observation, mask, fresh, now)
            timed, outcome = jax.vmap(self._step)(timed, action, step_keys)
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
            carry = (
                _select(ended, restart, timed),
                _select(ended, restart_seen, outcome.observation),
                memory,
                ended,
                jnp.where(ended, 0.0, running),
            )
            return carry, (transition, jnp.where(ended, running, 0.0))

        observation, _ = self._observe(member.environment)
        carry = (member.environment, observation, member.memory, member.fresh, member.episode_return)
        planned = (self.plan(hyper, index), restarts, transition_keys)
        (timed, _, memory, fresh, running), (collected, finished) = jax.lax.scan(step, carry, planned)
        member = member._replace(environment=timed, memory=memory, fresh=fresh, episode_return=running)
        ended = collected.terminated | collected.truncated
        return member, collected, {"episode_return": jnp.sum(finished), "episodes": jnp.sum(ended * 1.0)}

    def _restarts(self, hyper: Hyper, first: Array) -> tuple[PyTree, PyTree]:
        """(what an episode that ends at step t continues with [T, E], what one that ends at any step does [E]).

        Resets do not depend on what they replace, so they are made before the steps; one of the two is None. Where all
        episodes last equally long, the shared counter tells whether one ends in this collect, so that resets that would
        be thrown away are not made at all.
        """
        length = self.environment.max_steps

        def made(reset_keys: Key) -> PyTree:
            fresh = jax.vmap(self._reset)(reset_keys)
            return fresh, jax.vmap(self.environment.observe)(fresh.state)

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
        episodes = self.evaluation_episodes
        stream = keys.at(keys.purpose(keys.member_key(hyper.seed), "evaluation"), number)
        timed = jax.vmap(self._reset)(keys.range_of(keys.purpose(stream, "reset"), 0, episodes))

        def step(carry, _):
            timed, running, factor, totals = carry
            values, mask = self._values(state, timed)
            step_keys = keys.range_of(keys.at(keys.purpose(stream, "transition"), timed.elapsed[0]), 0, episodes)
            timed, outcome = jax.vmap(self._step)(timed, best_actions(values, mask), step_keys)
            gained = jnp.where(running, outcome.reward, 0.0)
            measured = jax.vmap(self.environment.measures)(timed.state)
            totals = totals._replace(
                returns=totals.returns + gained,
                lengths=totals.lengths + running,
                discounted=totals.discounted + factor * gained,
                measures=_select(running, measured, totals.measures),
            )
            running = running & ~(outcome.terminated | outcome.truncated)
            return (timed, running, factor * hyper.discount, totals), None

        values, mask = self._values(state, timed)
        predicted = jnp.take_along_axis(values, best_actions(values, mask)[:, None], axis=1)[:, 0]
        zeros, measures = jnp.zeros(episodes), jax.vmap(self.environment.measures)(timed.state)
        totals = Evaluation(zeros, jnp.zeros(episodes, jnp.int32), zeros, predicted, measures)
        carry = (timed, jnp.ones(episodes, bool), jnp.float32(1), totals)
        block = min(self.evaluation_block, self.environment.max_steps)
        *_, totals = jax.lax.while_loop(
            lambda carry: jnp.any(carry[1]),
            lambda carry: jax.lax.scan(step, carry, None, length=block)[0],
            carry,
        )
        return totals

    def _reset(self, key: Key) -> base.Timed:
        return base.reset(self.environment, key)

    def _step(self, timed: base.Timed, action: Array, key: Key) -> tuple[base.Timed, base.Step]:
        return base.step(self.environment, timed, action, key)

    def _observe(self, timed: base.Timed) -> tuple[Array, Array | None]:
        observation = jax.vmap(self.environment.observe)(timed.state)
        return observation, self._legal(observation)

    def _legal(self, observation: Array) -> Array | None:
        return jax.vmap(self.environment.legal)(observation) if self.environment.has_masks else None

    def _values(self, state: LearnerState, timed: base.Timed) -> tuple[Array, Array | None]:
        observation, mask = self._observe(timed)
        return action_values(state.actor.policy, observation, mask), mask

    def _keys(self, hyper: Hyper, purpose: str, first: Array | int, count: int) -> Key:
        """The keys of steps first ... first + count - 1 for all E environments: [count, E]."""
        steps = keys.range_of(keys.purpose(keys.member_key(hyper.seed), purpose), first, count)
        return jax.vmap(lambda key: keys.range_of(key, 0, self.environments))(steps)


class ScanLoop:
    """A `ScanFleet` bound to its members."""

    def __init__(self, fleet: ScanFleet, hyper: Hyper, collects: int):
        self.hyper, self.programs = hyper, Programs()
        members = hyper.seed.shape[0]
        self._start = self.programs.timed(fleet.over_members(lambda _, own: fleet.init(own), members))
        self._chunk = self.programs.timed(
            fleet.over_members(
                lambda member, own, first: fleet.chunk(member, own, first, collects), members, donate=True
            )
        )
        self._evaluate = self.programs.timed(fleet.over_members(fleet.evaluate, members))

    def start(self) -> MemberState:
        return self._start(self.hyper, self.hyper)

    def advance(self, state: MemberState, first: int) -> tuple[MemberState, Metrics]:
        return self._chunk(state, self.hyper, jnp.int32(first))

    def evaluate(self, state: MemberState, number: int) -> Evaluation:
        return self._evaluate(state.learner, self.hyper, jnp.int32(number))

    def outside(self) -> dict[str, np.ndarray]:
        return {}

    def restore(self, state: MemberState, outside: dict[str, np.ndarray]) -> bool:
        return True

    def close(self) -> None:
        pass


def _select(condition: Array, left: PyTree, right: PyTree) -> PyTree:
    """Per environment: `left` where the condition holds."""
    return jax.tree.map(
        lambda one, other: jnp.where(condition.reshape(condition.shape + (1,) * (one.ndim - 1)), one, other),
        left,
        right,
    )

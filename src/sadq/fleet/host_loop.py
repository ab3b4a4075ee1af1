"""The loop over environments outside JAX: a compiled `act`, a NumPy `step`, a compiled `learn`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sadq.envs.group import IDLE
from sadq.envs.host import HostEnvironments
from sadq.fleet.devices import Programs
from sadq.fleet.members import Evaluation, Fleet, MemberState, greedy_actions
from sadq.learning.state import Hyper
from sadq.types import Array, Metrics, PyTree, Transition


class HostLoop:
    """A `Fleet` bound to M x E host environments; the same updates, in the same order, as a `ScanLoop` makes."""

    def __init__(
        self, fleet: Fleet, hyper: Hyper, collects: int, training: HostEnvironments, evaluation: HostEnvironments
    ):
        self.fleet, self.collects = fleet, collects
        self.training, self.evaluation = training, evaluation
        self.placement, self.programs = fleet.placement(hyper.seed.shape[0]), Programs()
        self.hyper = self.placement.padded(hyper)
        self._discount = np.asarray(hyper.discount)[:, None]
        self._owned = None  # bool[M, 1, A]: the actions that each member has
        if hyper.actions is not None:
            self._owned = np.arange(fleet.learner.action_count) < np.asarray(hyper.actions)[:, None, None]
        self._seen: tuple[np.ndarray, np.ndarray | None]  # what to act on next
        over_members, timed = self.placement.over_members, self.programs.timed

        def act(inputs: PyTree, own: Hyper, step: Array) -> tuple[Array, PyTree]:
            networks, memory, observation, mask, fresh, plan = inputs
            now = jax.tree.map(lambda leaf: leaf[step], plan)
            return fleet.act(networks, memory, observation, mask, fresh, now)

        def greedy(inputs: PyTree, own: Hyper) -> tuple[Array, Array]:
            return greedy_actions(*inputs)

        def absorb(member: MemberState, inputs: PyTree, index: Array) -> tuple[MemberState, Metrics]:
            own, collected = inputs
            return fleet.absorb(member, own, collected, index)

        self._init = timed(over_members(lambda _, own: fleet.init_member(own, None)))
        self._plan = timed(over_members(lambda _, own, index: fleet.plan(own, index)))
        self._act = timed(over_members(act))
        self._greedy = timed(over_members(greedy))
        self._absorb = timed(over_members(absorb, donate=True))

    def start(self) -> MemberState:
        self._seen = self._legal(*self.training.reset())
        return self._init(self.hyper, self.hyper)

    def advance(self, state: MemberState, first: int) -> tuple[MemberState, Metrics]:
        rows = []
        for index in range(first, first + self.collects):
            state, collected, episodes = self._collect(state, index)
            inputs = (self.hyper, self.placement.padded(collected))
            state, metrics = self._absorb(state, inputs, jnp.int32(index))
            rows.append(self.placement.real(metrics) | episodes)
        return state, jax.tree.map(lambda *values: np.stack([np.asarray(value) for value in values], axis=1), *rows)

    def evaluate(self, state: MemberState, number: int) -> Evaluation:
        factor = np.ones_like(self._discount)
        observation, mask = self._legal(*self.evaluation.reset(start=number))
        running = np.ones(observation.shape[:2], bool)
        zeros: Any = np.zeros(running.shape, np.float32)
        totals = Evaluation(zeros, zeros.astype(np.int32), zeros, zeros, {})
        predicted: Any = None
        while running.any():
            seen = self.placement.padded((observation, mask))
            answers = self._greedy((state.learner.online.parameters, *seen), self.hyper)
            action, value = self.placement.real(answers)
            predicted = np.asarray(value) if predicted is None else predicted
            step = self.evaluation.step(np.where(running, action, IDLE))
            gained = np.where(running, step.reward, 0)
            totals = totals._replace(
                returns=totals.returns + gained,
                lengths=totals.lengths + running,
                discounted=totals.discounted + factor * gained,
            )
            factor = factor * self._discount
            running = running & ~(step.terminated | step.truncated)
            observation, mask = self._legal(step.observation, step.mask)
        return totals._replace(predicted=predicted)

    def outside(self) -> dict[str, np.ndarray]:
        return self.training.state()

    def restore(self, state: MemberState, outside: dict[str, np.ndarray]) -> bool:
        self._seen = self._legal(*self.training.restore(outside))
        return self.training.exact_resume

    def close(self) -> None:
        self.training.close()
        self.evaluation.close()

    def _collect(self, state: MemberState, index: int) -> tuple[MemberState, Transition, dict[str, np.ndarray]]:
        """T steps of all environments: transitions [M, T, E, ...], and the episodes that ended."""
        plan = self._plan(self.hyper, self.hyper, jnp.int32(index))
        networks, memory = state.learner.online.parameters, state.behaviour
        fresh, running = self.placement.real((np.asarray(state.fresh), np.array(state.episode_return)))
        finished = {"episode_return": np.zeros(running.shape[0]), "episodes": np.zeros(running.shape[0])}
        transitions = []
        for step in range(self.fleet.collect_steps):
            observation, mask = self._seen
            seen = self.placement.padded((observation, mask, fresh))
            action, memory = self._act((networks, memory, *seen, plan), self.hyper, jnp.int32(step))
            action = np.asarray(self.placement.real(action))
            outcome = self.training.step(action)
            reached, next_mask = self._legal(outcome.next_observation, outcome.next_mask)
            ends = outcome.terminated, outcome.truncated
            parts: tuple[Any, ...] = (observation, action, outcome.reward, reached, *ends, mask, next_mask)
            transitions.append(Transition(*parts))
            ended = fresh = outcome.terminated | outcome.truncated
            running += outcome.reward
            finished["episode_return"] += np.where(ended, running, 0).sum(axis=1)
            finished["episodes"] += ended.sum(axis=1)
            running[ended] = 0
            self._seen = self._legal(outcome.observation, outcome.mask)
        fresh, running = self.placement.padded((jnp.asarray(fresh), jnp.asarray(running)))
        state = state._replace(behaviour=memory, fresh=fresh, episode_return=running)
        return state, jax.tree.map(lambda *rows: np.stack(rows, axis=1), *transitions), finished

    def _legal(self, observation: np.ndarray, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        """What was seen, with what is legal there for each member."""
        if self._owned is None:
            return observation, mask
        owned = np.broadcast_to(self._owned, (*observation.shape[:2], self._owned.shape[-1]))
        return observation, owned if mask is None else mask & owned

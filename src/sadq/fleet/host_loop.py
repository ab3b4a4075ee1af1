"""The loop over environments outside JAX: a compiled `act`, a NumPy `step`, a compiled `learn`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sadq.envs.group import IDLE
from sadq.envs.host import HostEnvironments
from sadq.exploration.rules import best_actions
from sadq.fleet.members import Evaluation, Fleet, MemberState, Programs, action_values
from sadq.learning.learner import Hyper
from sadq.types import Array, Metrics, PyTree, Transition


class HostLoop:
    """A `Fleet` bound to M x E host environments; the same updates, in the same order, as a `ScanLoop` makes."""

    def __init__(
        self, fleet: Fleet, hyper: Hyper, collects: int, training: HostEnvironments, evaluation: HostEnvironments
    ):
        self.fleet, self.hyper, self.collects = fleet, hyper, collects
        self.training, self.evaluation = training, evaluation
        self.programs = Programs()
        self._seen: tuple[np.ndarray, np.ndarray | None]  # what to act on next
        members = hyper.seed.shape[0]

        def act(inputs: PyTree, own: Hyper, step: Array) -> tuple[Array, PyTree]:
            actor, memory, observation, mask, fresh, plan = inputs
            return fleet.act(actor, memory, observation, mask, fresh, jax.tree.map(lambda leaf: leaf[step], plan))

        def greedy(inputs: PyTree, own: Hyper) -> tuple[Array, Array]:
            actor, observation, mask = inputs
            values = action_values(actor.policy, observation, mask)
            action = best_actions(values, mask)
            return action, jnp.take_along_axis(values, action[:, None], axis=1)[:, 0]

        def absorb(member: MemberState, inputs: PyTree, index: Array) -> tuple[MemberState, Metrics]:
            own, collected = inputs
            return fleet.absorb(member, own, collected, index)

        self._init = self.programs.timed(fleet.over_members(lambda _, own: fleet.init_member(own, None), members))
        self._plan = self.programs.timed(fleet.over_members(lambda _, own, index: fleet.plan(own, index), members))
        self._act = self.programs.timed(fleet.over_members(act, members))
        self._greedy = self.programs.timed(fleet.over_members(greedy, members))
        self._absorb = self.programs.timed(fleet.over_members(absorb, members, donate=True))

    def start(self) -> MemberState:
        self._seen = self.training.reset()
        return self._init(self.hyper, self.hyper)

    def advance(self, state: MemberState, first: int) -> tuple[MemberState, Metrics]:
        rows = []
        for index in range(first, first + self.collects):
            state, collected, episodes = self._collect(state, index)
            state, metrics = self._absorb(state, (self.hyper, collected), jnp.int32(index))
            rows.append(metrics | episodes)
        return state, jax.tree.map(lambda *values: np.stack([np.asarray(value) for value in values], axis=1), *rows)

    def evaluate(self, state: MemberState, number: int) -> Evaluation:
        discount = np.asarray(self.hyper.discount)[:, None]
        factor = np.ones_like(discount)
        observation, mask = self.evaluation.reset(start=number)
        running = np.ones(observation.shape[:2], bool)
        zeros: Any = np.zeros(running.shape, np.float32)
        totals = Evaluation(zeros, zeros.astype(np.int32), zeros, zeros, {})
        predicted: Any = None
        while running.any():
            action, value = self._greedy((state.learner.actor, observation, mask), self.hyper)
            predicted = np.asarray(value) if predicted is None else predicted
            step = self.evaluation.step(np.where(running, action, IDLE))
            gained = np.where(running, step.reward, 0)
            totals = totals._replace(
                returns=totals.returns + gained,
                lengths=totals.lengths + running,
                discounted=totals.discounted + factor * gained,
            )
            factor = factor * discount
            running = running & ~(step.terminated | step.truncated)
            observation, mask = step.observation, step.mask
        return totals._replace(predicted=predicted)

    def outside(self) -> dict[str, np.ndarray]:
        return self.training.state()

    def restore(self, state: MemberState, outside: dict[str, np.ndarray]) -> bool:
        self._seen = self.training.restore(outside)
        return self.training.exact_resume

    def close(self) -> None:
        self.training.close()
        self.evaluation.close()

    def _collect(self, state: MemberState, index: int) -> tuple[MemberState, Transition, dict[str, np.ndarray]]:
        """T steps of all environments: transitions [M, T, E, ...], and the episodes that ended."""
        plan = self._plan(self.hyper, self.hyper, jnp.int32(index))
        memory, fresh = state.memory, np.asarray(state.fresh)
        running = np.array(state.episode_return)
        finished = {"episode_return": np.zeros(running.shape[0]), "episodes": np.zeros(running.shape[0])}
        transitions = []
        for step in range(self.fleet.collect_steps):
            observation, mask = self._seen
            inputs = (state.learner.actor, memory, observation, mask, fresh, plan)
            action, memory = self._act(inputs, self.hyper, jnp.int32(step))
            action = np.asarray(action)
            outcome = self.training.step(action)
            transition: tuple[Any, ...] = (observation, action, *outcome[:4], mask, outcome.next_mask)
            transitions.append(Transition(*transition))
            ended = fresh = outcome.terminated | outcome.truncated
            running += outcome.reward
            finished["episode_return"] += np.where(ended, running, 0).sum(axis=1)
            finished["episodes"] += ended.sum(axis=1)
            running[ended] = 0
            self._seen = outcome.observation, outcome.mask
        state = state._replace(memory=memory, fresh=jnp.asarray(fresh), episode_return=jnp.asarray(running))
        return state, jax.tree.map(lambda *rows: np.stack(rows, axis=1), *transitions), finished

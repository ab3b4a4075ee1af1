"""SADQ as one switch: a learned model that ranks the next actions, and a gate that says how far to listen."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core.bootstrap import legal_values
from sadq.core.gates import GATES
from sadq.core.rollout import bellman_estimate, best_value, rollout_scores
from sadq.dynamics.gaussian import GaussianModel
from sadq.types import Array, Batch, Key, Metrics, Transition

Values = Callable[[Array, Array | None, Key], Array]
"""(observation, legal actions or None, key) -> expected returns f32[A] of the target network."""


@dataclass(frozen=True)
class Guidance:
    """What it takes to guide a base agent's target; a plain agent has none of it."""

    make_model: Callable[[Key], GaussianModel]
    action_count: int
    batch_size: int
    updates: int  # k model updates per collect
    gate: str = "fixed"
    samples: int = 1
    chunk: int | None = None
    candidates: int | None = None  # actions with the best target values that are rolled out; None: all
    legal: Callable[[Array], Array | None] = lambda _: None  # at a predicted state

    def model_loss(self, model: GaussianModel, batch: Transition, key: Key) -> tuple[Array, Metrics]:
        """Eq. (m_loss) over a batch, with its parts per sample."""
        noise_keys = keys.range_of(keys.purpose(key, "noise"), 0, batch.reward.shape[0])
        losses, parts = jax.vmap(model.loss)(batch, noise_keys)
        return jnp.mean(losses), parts

    def alpha_and_scores(
        self,
        model: GaussianModel,
        target: Values,
        target_q: Array,
        transition: Transition,
        terminal: Array,
        batch: Batch,
        alpha: Array,
        discount: Array,
        key: Key,
    ) -> tuple[Array, Array]:
        """The weight f32[B] of the base choice, and the rollout scores f32[B, A] at the next states."""
        scores = self.scores(model, target, target_q, batch, discount, key)
        error = jnp.zeros(terminal.shape)
        if self.gate != "fixed":
            error = self.bellman_error(model, target, transition, terminal, discount, key)
        return GATES[self.gate](alpha, target_q, scores, error, batch.next_mask), scores

    def scores(
        self, model: GaussianModel, target: Values, target_q: Array, batch: Batch, discount: Array, key: Key
    ) -> Array:
        """Eq. (model_bellman): f32[B, A] for every candidate action at every next state, -inf for the others."""
        count = self.action_count if self.candidates is None else min(self.candidates, self.action_count)

        def of_one(observation: Array, values: Array, mask: Array | None, rollout_key: Key) -> Array:
            # One key for all actions, so that they are compared at the same quantile levels.
            level_key = keys.purpose(rollout_key, "levels")
            best = None
            if count < self.action_count:
                best = jax.lax.top_k(legal_values(values, mask), count)[1].astype(jnp.int32)
            scores = rollout_scores(
                model.step,
                lambda successor: target(successor, self.legal(successor), level_key),
                model.encode(observation),
                self.action_count,
                rollout_key,
                discount=discount,
                samples=self.samples,
                chunk=self.chunk,
                legal=self.legal,
                candidates=best,
            )
            return scores if best is None else jnp.full(self.action_count, -jnp.inf).at[best].set(scores)

        rollout_keys = keys.range_of(keys.purpose(key, "rollout"), 0, batch.reward.shape[0])
        return jax.vmap(of_one)(batch.next_observation, target_q, batch.next_mask, rollout_keys)

    def bellman_error(
        self,
        model: GaussianModel,
        target: Values,
        transition: Transition,
        terminal: Array,
        discount: Array,
        key: Key,
    ) -> Array:
        """|the model's Bellman estimate - the observed one| f32[B], on the one-step transitions that happened."""

        def of_one(one: Transition, ends: Array, noise_key: Key) -> Array:
            level_key = keys.purpose(noise_key, "levels")
            prediction = model.step(model.encode(one.observation), one.action, noise_key)
            estimate = bellman_estimate(
                prediction, lambda state: target(state, self.legal(state), level_key), discount, self.legal
            )
            future = best_value(target(one.next_observation, one.next_mask, level_key), one.next_mask)
            return jnp.abs(estimate - (one.reward + discount * jnp.where(ends, 0.0, future)))

        noise_keys = keys.range_of(keys.purpose(key, "gate"), 0, terminal.shape[0])
        return jax.vmap(of_one)(transition, terminal, noise_keys)

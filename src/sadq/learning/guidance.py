"""SADQ as one switch: a learned model that ranks the next actions, and a gate that says how far to listen."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core.bootstrap import Choice, best_value, guided, legal_values
from sadq.core.gates import Fixed, Gate, within_allowance
from sadq.core.hearing import Record
from sadq.core.optimisers import Adam, Optimiser
from sadq.core.rollout import bellman_estimate, rollout_scores
from sadq.core.schedules import EverySlot, Pacing
from sadq.dynamics.protocol import DynamicsModel
from sadq.errors import SadqError
from sadq.learning.legal import Legal
from sadq.networks.network import Network
from sadq.registry import shown
from sadq.types import Array, Batch, Key, Mask, Metrics, Transition, TransitionSequence


class Seen(NamedTuple):
    """What one value update learns from: the same transitions in their n-step and their one-step view."""

    batch: Batch
    transition: Transition
    terminal: Array  # bool[B]: nothing is bootstrapped beyond the one-step s'
    sequence: TransitionSequence | None = None  # [B, L], where the head's auxiliary loss asks for one


class Advice(NamedTuple):
    """Where SADQ's advice for a batch comes from."""

    model: DynamicsModel
    target: Network  # with its noise drawn, which rollouts reuse
    target_q: Array  # f32[B, A], at the next states
    alpha: Array  # f32[]: the member's own; likewise below
    discount: Array
    legal: Legal  # at a predicted state
    key: Key

    def values(self, next_input: Array, mask: Mask, key: Key) -> Array:
        """Expected returns f32[A] of the target network at what the model predicted, or at an observation."""
        sampled = self.target.sampled(key)
        if self.model.space == "features":
            return sampled.head.mean(next_input, mask)
        return sampled.mean(next_input, mask)

    def mask(self, next_input: Array) -> Array | None:
        """The legal actions at a predicted state; all of a member's where only features of it are known."""
        return self.legal(next_input if self.model.space == "observation" else None)


@dataclass(frozen=True)
class Guidance:
    """What it takes to guide a base agent's target; a plain agent has none of it."""

    make_model: Callable[[Key], DynamicsModel]
    action_count: int
    batch_size: int
    updates: int  # k slots for a model update per collect
    pacing: Pacing = field(default_factory=EverySlot)  # which of the slots are taken
    optimiser: Optimiser = field(default_factory=Adam)
    gate: Gate = field(default_factory=Fixed)
    samples: int = 1
    chunk: int | None = None
    candidates: int | None = None  # actions with the best target values that are rolled out; None: all
    agreement: float | None = None  # with the base beyond chance that the model needs to be heard; None: none
    allowance: float | None = None  # value gaps that values may fall by for hearing the model; None: any number

    def model_loss(
        self, model: DynamicsModel, batch: Transition, key: Key, features: Callable[[Array], Array]
    ) -> tuple[Array, Metrics]:
        """Eq. (m_loss) over a batch, with its parts per sample."""
        noise_keys = keys.range_of(keys.purpose(key, "noise"), 0, batch.reward.shape[0])
        losses, parts = jax.vmap(lambda one, noise_key: model.loss(one, noise_key, features))(batch, noise_keys)
        return jnp.mean(losses), parts

    def hearing(self, alpha: Array, record: Record | None) -> Array:
        """The member's alpha, raised where its model has not earned to be heard."""
        if self.agreement is None or record is None:
            return alpha
        # Exact at both ends: the base's target where nothing is heard, that of `alpha` itself where all is.
        return alpha + (1 - alpha) * (1 - record.heard(alpha, self.agreement))

    def guide(self, base: Choice, advice: Advice, seen: Seen) -> tuple[Choice, Metrics, Record | None]:
        """The base's choices [B] mixed with the model's; what was measured, f32[B] each; what goes into the record."""
        scores, mask = self.scores(advice, seen.batch), seen.batch.next_mask
        error, measured = jnp.zeros(seen.terminal.shape), Metrics()
        if self.gate.uses_error:
            error = self.bellman_error(advice, seen)
            measured = {"bellman_error": jnp.abs(error)}
        alpha = self.gate(advice.alpha, base, advice.target_q, scores, error, mask)
        if getattr(alpha, "shape", None) != seen.terminal.shape:
            expected = f"expected the weight of each of {seen.terminal.size} samples, f32[B]"
            raise SadqError(f"gate {type(self.gate).__name__} gave {shown(alpha)}, {expected}: fix it.")
        if self.allowance is not None:
            alpha = within_allowance(alpha, base, advice.target_q, scores, seen.batch.discount, self.allowance, mask)
        choice, record = jax.vmap(guided)(base, scores, alpha, mask), None
        both = base.heaviest, choice.actions[:, -1]
        if self.agreement is not None:
            record = Record.of_batch(*both, self.action_count, seen.batch.discount)
        return choice, {"alpha": alpha, **measured, "disagreement": (both[0] != both[1]) * 1.0}, record

    def scores(self, advice: Advice, batch: Batch) -> Array:
        """Eq. (model_bellman): f32[B, A] for every candidate action at every next state, -inf for the others."""
        count = self.action_count if self.candidates is None else min(self.candidates, self.action_count)

        def of_one(observation: Array, values: Array, mask: Mask, rollout_key: Key) -> Array:
            # One key for all actions, so that they are compared at the same quantile levels.
            level_key = keys.purpose(rollout_key, "levels")
            best = None
            if count < self.action_count:
                best = jax.lax.top_k(legal_values(values, mask), count)[1].astype(jnp.int32)
            scores = rollout_scores(
                advice.model.step,
                lambda successor: advice.values(successor, advice.mask(successor), level_key),
                advice.model.encode(observation),
                self.action_count,
                rollout_key,
                discount=advice.discount,
                samples=self.samples,
                chunk=self.chunk,
                legal=advice.mask,
                candidates=best,
            )
            return scores if best is None else jnp.full(self.action_count, -jnp.inf).at[best].set(scores)

        rollout_keys = keys.range_of(keys.purpose(advice.key, "rollout"), 0, batch.reward.shape[0])
        return jax.vmap(of_one)(batch.next_observation, advice.target_q, batch.next_mask, rollout_keys)

    def bellman_error(self, advice: Advice, seen: Seen) -> Array:
        """The model's Bellman estimate less the observed one, f32[B], on the one-step transitions that happened."""

        def of_one(one: Transition, ends: Array, noise_key: Key) -> Array:
            level_key = keys.purpose(noise_key, "levels")
            prediction = advice.model.step(advice.model.encode(one.observation), one.action, noise_key)
            estimate = bellman_estimate(
                prediction,
                lambda state: advice.values(state, advice.mask(state), level_key),
                advice.discount,
                advice.mask,
            )
            reached = advice.target.sampled(level_key).mean(one.next_observation, one.next_mask)
            future = best_value(reached, one.next_mask)
            return estimate - (one.reward + advice.discount * jnp.where(ends, 0.0, future))

        noise_keys = keys.range_of(keys.purpose(advice.key, "gate"), 0, seen.terminal.shape[0])
        return jax.vmap(of_one)(seen.transition, seen.terminal, noise_keys)

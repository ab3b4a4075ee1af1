"""How far to trust the model: the weight alpha of the base choice, from the batch at hand.

A gate, and the allowance that may come after it, are what sees a whole batch. A gate compares how wrong the model's
Bellman estimate is where the truth is known (`bellman_error`, on transitions that really happened) with what is at stake
at s'. While the model errs more than the actions differ, alpha is 1 and the target is the base agent's own.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from sadq.core.bootstrap import Choice, best_action, legal_values
from sadq.registry import Axis, not_negative, positive
from sadq.types import Array, Mask

GATES = Axis("gate", "how far the model is trusted", "__call__", "uses_error")

SMALLEST = 1e-30
"""Instead of what may be zero below a fraction line."""


class Gate(Protocol):
    """From the base's choice at B next states to the weight f32[B] of that choice."""

    uses_error: ClassVar[bool]
    """Whether it looks at `bellman_error`, which costs a model step and two value evaluations a sample; else zeros."""

    def __call__(
        self,
        alpha: Array,  # f32[]
        choice: Choice,  # [B, K]: the base rule's
        target_q: Array,  # f32[B, A]
        scores: Array,  # f32[B, A]
        bellman_error: Array,  # f32[B]: the model's estimate less the observed one
        mask: Mask = None,  # [B, A]
    ) -> Array: ...


def value_gap(values: Array, mask: Mask = None) -> Array:
    """max_a - min_a of the legal values f32[A]: the paper's Delta-Q."""
    return jnp.max(legal_values(values, mask)) - jnp.min(legal_values(values, mask, jnp.inf))


@GATES.register("fixed")
@dataclass(frozen=True)
class Fixed:
    """The paper: the same alpha for every sample."""

    uses_error: ClassVar[bool] = False

    def __call__(
        self, alpha: Array, choice: Choice, target_q: Array, scores: Array, bellman_error: Array, mask: Mask = None
    ) -> Array:
        return jnp.broadcast_to(alpha, target_q.shape[:1])


class _Contest(NamedTuple):
    """The model's action, which has the best score, against the base's choice at B next states, f32[B] each."""

    preference: Array  # by how much a step ahead prefers the model's
    lowering: Array  # by how much Q' prefers the base's, which is what hearing the model costs the target

    @classmethod
    def at(cls, choice: Choice, target_q: Array, scores: Array, mask: Mask) -> "_Contest":
        def one(base: Choice, values: Array, score: Array, legal: Mask) -> _Contest:
            best = best_action(score, legal)
            # An action that was not rolled out scores -inf. What has no weight does not matter; of a base whose own
            # action is such a one nobody knows by how much the model's is preferred, so that it is not.
            known = jnp.sum(jnp.where(base.weights != 0, base.weights * score[base.actions], 0.0))
            return cls(
                jnp.where(jnp.isfinite(known), score[best] - known, -jnp.inf),
                jnp.sum(base.weights * values[base.actions]) - values[best],
            )

        return jax.vmap(one)(choice, target_q, scores, mask)


@GATES.register("batch")
@dataclass(frozen=True)
class BatchReliability:
    """1 - (1 - alpha) * clip(slope * (1 - error / gap), 0, 1), both averaged over the batch; if asked, less by sample."""

    uses_error: ClassVar[bool] = True
    slope: float = 1.0
    """How soon the model is trusted wholly as its error falls below the gap: at 1 only without any error, at 2 at half."""
    centred: bool = False
    """Whether an error that all samples share is left out, since it hardly changes which action is preferred."""
    margin: float = 0.0
    """The model is heard only where it prefers its action by more than this share of what hearing it costs the target."""

    def __post_init__(self) -> None:
        positive(self, "slope")
        not_negative(self, "margin")

    def __call__(
        self, alpha: Array, choice: Choice, target_q: Array, scores: Array, bellman_error: Array, mask: Mask = None
    ) -> Array:
        shared = jnp.mean(bellman_error) if self.centred else 0.0
        gap, error = jnp.mean(jax.vmap(value_gap)(target_q, mask)), jnp.mean(jnp.abs(bellman_error - shared))
        reliability = jnp.clip(self.slope * (1 - error / jnp.maximum(gap, 1e-8)), 0, 1)
        # A model that has diverged errs by no number at all, which must not become alpha.
        reliability = jnp.where(jnp.isfinite(error), reliability, 0.0)
        if self.margin > 0:
            contest = _Contest.at(choice, target_q, scores, mask)
            reliability = jnp.where(contest.preference > self.margin * contest.lowering, reliability, 0.0)
        return jnp.broadcast_to(1 - (1 - alpha) * reliability, target_q.shape[:1])


@GATES.register("sample")
@dataclass(frozen=True)
class SampleReliability:
    """One alpha per sample: the model is heard only where it prefers its action to the base's by more than its error."""

    uses_error: ClassVar[bool] = True
    share: float = 1.0
    """Of the error, which the preference must exceed."""

    def __post_init__(self) -> None:
        not_negative(self, "share")

    def __call__(
        self, alpha: Array, choice: Choice, target_q: Array, scores: Array, bellman_error: Array, mask: Mask = None
    ) -> Array:
        error = self.share * jnp.mean(jnp.abs(bellman_error))
        return jnp.where(_Contest.at(choice, target_q, scores, mask).preference > error, alpha, 1.0)


def within_allowance(
    alpha: Array,  # f32[B]: what the gate says
    choice: Choice,  # [B, K]: the base rule's
    target_q: Array,  # f32[B, A]
    scores: Array,  # f32[B, A]
    discount: Array,  # f32[B]: of what is bootstrapped, 0 where nothing is
    allowance: float,
    mask: Mask = None,  # [B, A]
) -> Array:
    """`alpha` raised until values fall, over all that a target is made of, by no more than `allowance` value gaps.

    Hearing the model lowers a target a little, the next target is made of lowered ones, and so on: what all targets are
    lowered by accumulates like a reward, to lowering / (1 - discount), both averaged over the batch. Where episodes are
    short that is little. Where they are long it exceeds what actions differ by, and which one is better is lost in it.
    """
    lowering = jnp.mean(discount * (1 - alpha) * _Contest.at(choice, target_q, scores, mask).lowering)
    # What hearing the model does to one target it does to those that the target is made of.
    gap = jnp.maximum(1 - jnp.mean(discount), 1e-8) * jnp.mean(jax.vmap(value_gap)(target_q, mask))
    return 1 - (1 - alpha) * jnp.clip(allowance * gap / jnp.maximum(lowering, SMALLEST), 0, 1)

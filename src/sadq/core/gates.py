"""How far to trust the model: the weight alpha of the base choice, from the batch at hand.

A gate is the one function that sees a whole batch. It compares how wrong the model's Bellman estimate is where the
truth is known (`bellman_error`, on transitions that really happened) with what is at stake at s'. While the model
errs more than the actions differ, alpha is 1 and the target is the base agent's own.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from sadq.core.bootstrap import best_action, legal_values
from sadq.types import Array

Gate = Callable[[Array, Array, Array, Array, Array | None], Array]
"""(alpha f32[], target_q[B,A], scores[B,A], bellman_error[B], mask[B,A] or None) -> alpha f32[B]."""


def value_gap(values: Array, mask: Array | None = None) -> Array:
    """max_a - min_a of the legal values f32[A]: the paper's Delta-Q."""
    return jnp.max(legal_values(values, mask)) - jnp.min(legal_values(values, mask, jnp.inf))


def fixed(alpha: Array, target_q: Array, scores: Array, bellman_error: Array, mask: Array | None = None) -> Array:
    """The paper: the same alpha for every sample."""
    return jnp.broadcast_to(alpha, target_q.shape[:1])


def batch_reliability(
    alpha: Array, target_q: Array, scores: Array, bellman_error: Array, mask: Array | None = None
) -> Array:
    """One alpha for the batch: 1 - (1 - alpha) * clip(1 - error / gap, 0, 1), both averaged over the batch."""
    gap = jnp.mean(jax.vmap(value_gap)(target_q, mask))
    reliability = jnp.clip(1 - jnp.mean(bellman_error) / jnp.maximum(gap, 1e-8), 0, 1)
    return jnp.broadcast_to(1 - (1 - alpha) * reliability, target_q.shape[:1])


def sample_reliability(
    alpha: Array, target_q: Array, scores: Array, bellman_error: Array, mask: Array | None = None
) -> Array:
    """One alpha per sample: the model is heard only where it prefers its action by more than its mean error."""
    error = jnp.mean(bellman_error)

    def weight(target_values: Array, score: Array, legal: Array | None) -> Array:
        preference = score[best_action(score, legal)] - score[best_action(target_values, legal)]
        return jnp.where(preference > error, alpha, 1.0)

    return jax.vmap(weight)(target_q, scores, mask)


GATES: dict[str, Gate] = {"fixed": fixed, "batch": batch_reliability, "sample": sample_reliability}

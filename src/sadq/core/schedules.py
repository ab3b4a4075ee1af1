"""Numbers that change with training: exploration, learning rate, importance exponent, model-update credit."""

from typing import Literal

import jax.numpy as jnp

from sadq.types import Array

Decay = Literal["exponential", "linear"]


def exploration_rate(
    step: Array, start: Array | float, end: Array | float, decay: Array | float, kind: Decay = "exponential"
) -> Array:
    """The probability of exploring at an env step. `decay` is a time constant, or the length of a linear ramp."""
    if kind == "linear":
        return end + (start - end) * jnp.clip(1 - step / decay, 0, 1)
    return end + (start - end) * jnp.exp(-step / decay)


def learning_rate_factor(progress: Array, kind: Literal["constant", "linear"]) -> Array:
    """What to multiply the learning rate with after the share `progress` of the run."""
    return jnp.float32(1) if kind == "constant" else jnp.clip(1 - progress, 0, 1)


def importance_exponent(progress: Array, start: Array | float) -> Array:
    """Prioritised replay's beta: from `start` to 1 over the run."""
    return start + (1 - start) * jnp.clip(progress, 0, 1)


def model_update_credit(credit: Array, reconstruction: Array, threshold: Array, fraction: Array) -> tuple[Array, Array]:
    """The paper's adaptive model schedule: (is an update due, credit left).

    Each slot earns one whole credit while the last reconstruction loss is above the threshold, else only the reduced
    fraction t_f; an update costs one.
    """
    earned = credit + jnp.where(reconstruction >= threshold, 1.0, fraction)
    due = earned >= 1
    return due, jnp.where(due, earned - 1, earned)

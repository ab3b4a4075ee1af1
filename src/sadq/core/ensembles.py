"""What an ensemble's disagreement is used for (SUNRISE, Lee et al., 2021): weighted backups and optimism."""

import jax
import jax.numpy as jnp

from sadq.types import Array


def backup_weight(values: Array, temperature: float) -> Array:
    """sigmoid(-std * T) + 1/2, from the members' bootstrap values f32[K] at one next state: f32[] in (1/2, 1]."""
    return jax.nn.sigmoid(-jnp.std(values) * temperature) + 0.5


def upper_confidence(values: Array, width: float) -> Array:
    """mean + width * std over members, from f32[K, A]: f32[A]."""
    return jnp.mean(values, axis=0) + width * jnp.std(values, axis=0)

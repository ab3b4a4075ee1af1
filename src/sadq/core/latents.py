"""Discrete latents: z is V categorical variables of C classes; their KL is the paper's L_dyn and L_rep.

Everything is a function of one sample. A distribution is its probabilities f32[V, C], already mixed with a little of the
uniform one, so that no class is ever impossible and every KL is finite.
"""

import jax
import jax.numpy as jnp

from sadq.types import Array, Key

UNIMIX = 0.01
"""The share of the uniform distribution in every variable."""


def mixed_probabilities(logits: Array, unimix: float = UNIMIX) -> Array:
    """(1 - unimix) * softmax + unimix / C of logits f32[V, C]."""
    if unimix == 0:
        # Classes far behind would have no probability at all, and a divergence no logarithm.
        return jnp.maximum(jax.nn.softmax(logits, axis=-1), jnp.finfo(logits.dtype).tiny)
    return (1 - unimix) * jax.nn.softmax(logits, axis=-1) + unimix / logits.shape[-1]


def straight_through_sample(probabilities: Array, key: Key) -> Array:
    """One class drawn for every variable, as one-hot rows f32[V, C] whose gradient is that of the probabilities."""
    drawn = jax.random.categorical(key, jnp.log(probabilities), axis=-1)
    one_hot = jax.nn.one_hot(drawn, probabilities.shape[-1])
    # The difference is taken first: it is exactly zero, so that the sample stays exactly one-hot.
    return one_hot + (probabilities - jax.lax.stop_gradient(probabilities))


def divergence(first: Array, second: Array) -> Array:
    """KL[first || second] in nats, summed over the variables: f32[]."""
    return jnp.sum(first * (jnp.log(first) - jnp.log(second)))


def balanced_kl(
    posterior: Array, prior: Array, dynamics: float = 1.0, representation: float = 0.1, free_nats: float = 1.0
) -> Array:
    """dynamics * max(free, KL[sg(q) || p]) + representation * max(free, KL[q || sg(p)]): f32[].

    The first term teaches the prior what the posterior saw, the second keeps the posterior predictable. Neither pulls
    once they agree up to the free nats of this sample.
    """
    stop = jax.lax.stop_gradient
    teach = jnp.maximum(free_nats, divergence(stop(posterior), prior))
    regularise = jnp.maximum(free_nats, divergence(posterior, stop(prior)))
    return dynamics * teach + representation * regularise

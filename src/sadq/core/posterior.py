"""Bayesian linear regression of returns on features, one posterior per action (BDQN, Azizzadenesheli et al., 2018).

covariance_a = (Phi_a Phi_a^T / sigma_n^2 + I / sigma^2)^-1,    mean_a = covariance_a Phi_a y_a / sigma_n^2
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq.types import Array, Key

JITTER = 1e-6
"""Added to a precision's diagonal, relative to its mean, against rounding."""

PRIOR_RETURNS = 6.0
"""How many returns of deviation 1 the belief about their noise is worth before any was seen: where none was rewarded yet,
residuals are zero, and so would be all that is left to explore."""


class Posterior(NamedTuple):
    """A normal distribution over the last layer of every action."""

    mean: Array  # f32[A, H]
    root: Array  # f32[A, H, H]: root @ root^T is the covariance


class Evidence(NamedTuple):
    """What a batch says about the weights; evidence of batches adds up."""

    gram: Array  # f32[A, H, H]: Phi Phi^T
    moment: Array  # f32[A, H]: Phi y
    power: Array  # f32[A]: y^T y
    returns: Array  # f32[A]: how many


def prior(actions: int, width: int, deviation: float) -> Posterior:
    """What is believed before any evidence."""
    return Posterior(jnp.zeros((actions, width)), jnp.tile(deviation * jnp.eye(width), (actions, 1, 1)))


def no_evidence(actions: int, width: int) -> Evidence:
    """What nothing says, to add to."""
    return Evidence(
        jnp.zeros((actions, width, width)), jnp.zeros((actions, width)), jnp.zeros(actions), jnp.zeros(actions)
    )


def evidence(features: Array, actions: Array, returns: Array, weights: Array, action_count: int) -> Evidence:
    """Of features f32[B,H] at which actions i32[B] had the given returns f32[B], each counted by its weight f32[B]."""
    share = weights[:, None] * (actions[:, None] == jnp.arange(action_count))  # f32[B,A]
    by_action = share.T[:, :, None] * features  # f32[A,B,H]
    # Accelerators may round products to fewer bits, of which the inverse below has none to spare.
    gram = jnp.einsum("abh,bg->ahg", by_action, features, precision="highest")
    moment = jnp.einsum("abh,b->ah", by_action, returns, precision="highest")
    return Evidence(gram, moment, jnp.sum(share.T * jnp.square(returns), axis=1), jnp.sum(share, axis=0))


def residual_deviation(seen: Evidence, mean: Array) -> Array:
    """How far returns lie from mean_a . phi, as a root mean square over the evidence and the belief before it: f32[]."""
    explained = 2 * jnp.sum(mean * seen.moment) - jnp.einsum("ah,ahg,ag->", mean, seen.gram, mean, precision="highest")
    unexplained = jnp.maximum(jnp.sum(seen.power) - explained, 0.0)
    return jnp.sqrt((unexplained + PRIOR_RETURNS) / (jnp.sum(seen.returns) + PRIOR_RETURNS))


def infer(seen: Evidence, prior_deviation: float, noise_deviation: Array | float) -> Posterior:
    """The posterior after some evidence."""
    width = seen.moment.shape[-1]
    precision = seen.gram / noise_deviation**2 + jnp.eye(width) / prior_deviation**2
    level = jnp.trace(precision, axis1=-2, axis2=-1) / width
    lower = jnp.linalg.cholesky(precision + JITTER * level[:, None, None] * jnp.eye(width))
    identity = jnp.broadcast_to(jnp.eye(width), lower.shape)
    root = jnp.swapaxes(jax.scipy.linalg.solve_triangular(lower, identity, lower=True), -1, -2)
    whitened = jnp.einsum("ahg,ah->ag", root, seen.moment / noise_deviation**2, precision="highest")
    return Posterior(jnp.einsum("ahg,ag->ah", root, whitened, precision="highest"), root)


def sample(posterior: Posterior, key: Key) -> Array:
    """Weights f32[A, H] drawn from the posterior."""
    noise = jax.random.normal(key, posterior.mean.shape)
    return posterior.mean + jnp.einsum("ahg,ag->ah", posterior.root, noise)

"""The quantile Huber loss of QR-DQN with its gradient: sum_ij w_j |tau_i - 1{u_ij < 0}| H(u_ij) / kappa, u = target - value.

With c = clip(u, -kappa, kappa), Huber's function is H(u) = c (u - c / 2), and its slope is c. Loss and gradient so share
their products, and one sweep over the pairs yields both:

    pull_ij = w_j |tau_i - 1{u_ij < 0}| c_ij
    loss = sum_ij pull_ij (u_ij - c_ij / 2) / kappa
    d loss / d value_i = -sum_j pull_ij / kappa
"""

import functools
import math

import jax
import jax.numpy as jnp

from sadq.errors import SadqError
from sadq.types import Array

UNROLL = 8
"""Targets taken per turn of the loop on a CPU: fewer spend their time on the sums in memory, more gain nothing."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def quantile_huber(values: Array, levels: Array, targets: Array, weights: Array, kappa: float = 1.0) -> Array:
    """Distance f32[] of quantile `values` f32[N] at `levels` f32[N] from atoms `targets` f32[J] that weigh `weights` f32[J].

    `kappa` is static; zero means plain quantile regression, w |tau - 1{u < 0}| |u|. Where the loss has a kink, its slope
    is that of the definition differentiated as it stands: an error of zero counts as not negative. Only `values` carry
    a gradient: to an optimiser the rest is constant.
    """
    return _loss_and_gradient(values, levels, targets, weights, kappa)[0]


def _forward(values: Array, levels: Array, targets: Array, weights: Array, kappa: float) -> tuple[Array, Array]:
    return _loss_and_gradient(values, levels, targets, weights, kappa)


def _backward(kappa: float, gradient: Array, cotangent: Array) -> tuple[Array, None, None, None]:
    return cotangent * gradient, None, None, None


quantile_huber.defvjp(_forward, _backward)


def _loss_and_gradient(
    values: Array, levels: Array, targets: Array, weights: Array, kappa: float
) -> tuple[Array, Array]:
    if not kappa >= 0:
        raise SadqError(f"The quantile loss got kappa = {kappa}, expected zero or more: choose another kappa.")
    loss, pull = jax.lax.platform_dependent(
        values,
        levels,
        targets,
        weights,
        cpu=functools.partial(target_by_target, kappa=kappa),
        default=functools.partial(pairwise, kappa=kappa),
    )
    scale = kappa or 1.0
    return jnp.sum(loss) / scale, -pull / scale


def _terms(values: Array, levels: Array, target: Array, weight: Array, kappa: float) -> tuple[Array, Array]:
    """Loss and pull, both times kappa, of pairs of values and targets whose shapes broadcast."""
    error = target - values
    slope = weight * jnp.where(error < 0, 1 - levels, levels)
    if kappa == 0:
        pull = jnp.where(error < 0, -slope, slope)
        return pull * error, pull
    clipped = jnp.clip(error, -kappa, kappa)
    pull = slope * clipped
    return pull * (error - 0.5 * clipped), pull


def target_by_target(values: Array, levels: Array, targets: Array, weights: Array, kappa: float) -> tuple[Array, Array]:
    """Sums over targets f32[N] for a CPU: a loop over targets whose body is elementwise in the values.

    XLA vectorises such a body, batch included, but neither a sum over a table of pairs nor a sort, so that this beats
    prefix sums over sorted targets too. Nothing else is fused into a loop, and it adds the targets in their order: the
    sums do not depend, to the bit, on what else a program computes, nor on atoms of weight zero at the end.
    """

    def take(sums: tuple[Array, Array], atom: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        loss, pull = _terms(values, levels, *atom, kappa)
        return (sums[0] + loss, sums[1] + pull), None

    nothing = jnp.zeros_like(values)
    # A divisor of the count leaves no remainder, which would run outside the loop; and a loop of one turn would be none.
    count = targets.shape[0]
    unroll = math.gcd(count, UNROLL)
    unroll = unroll if unroll < count else max(1, count // 2)
    return jax.lax.scan(take, (nothing, nothing), (targets, weights), unroll=unroll)[0]


def pairwise(values: Array, levels: Array, targets: Array, weights: Array, kappa: float) -> tuple[Array, Array]:
    """Sums over targets f32[N] for an accelerator: all pairs at once, for there every turn of a loop is a launch."""
    loss, pull = _terms(values[:, None], levels[:, None], targets, weights, kappa)
    return jnp.sum(loss, axis=1), jnp.sum(pull, axis=1)

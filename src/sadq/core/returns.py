"""What a value network predicts for a state: a scalar, a categorical or a quantile return for every action.

All three speak the same words, on one sample (batch with `jax.vmap`):

    z.mean                     expected return of every action, f32[A]
    z.taken(action)            the return of one action
    z.under(choice)            sum_k w_k Z(a_k): what a bootstrap rule's choice is worth
    z.backup(reward, discount) reward + discount * Z
    z.loss_to(target)          distance of a taken return from a backed-up one, f32[]
    z.priority_to(target)      the same as a priority for replay, f32[]
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq.core.bootstrap import Choice
from sadq.core.quantile_loss import quantile_huber
from sadq.types import Array

Mixing = Literal["interpolate", "mixture"]
"""How quantile returns are combined: quantile by quantile (the paper), or as a true mixture of distributions."""


def huber(error: Array, kappa: float | Array = 1.0) -> Array:
    """Quadratic up to `kappa`, linear beyond; the quadratic part has the factor one half."""
    size = jnp.abs(error)
    return jnp.where(size <= kappa, 0.5 * jnp.square(error), kappa * (size - 0.5 * kappa))


def _pick(values: Array, action: Array) -> Array:
    """values[action], written as a selection: the gradient then is one too, rather than a scatter."""
    chosen = (jnp.arange(values.shape[0]) == action).reshape(-1, *(1 for _ in values.shape[1:]))
    return jnp.sum(jnp.where(chosen, values, 0.0), axis=0)


class ScalarReturn(eqx.Module):
    """An expected return: f32[A], or f32[] after `taken` or `under`."""

    values: Array
    huber_at: float | None = eqx.field(static=True, default=None)  # None: squared error without one half

    @property
    def mean(self) -> Array:
        return self.values

    def taken(self, action: Array) -> "ScalarReturn":
        return ScalarReturn(_pick(self.values, action), self.huber_at)

    def under(self, choice: Choice) -> "ScalarReturn":
        return ScalarReturn(jnp.sum(choice.weights * self.values[choice.actions]), self.huber_at)

    def backup(self, reward: Array, discount: Array) -> "ScalarReturn":
        return ScalarReturn(reward + discount * self.values, self.huber_at)

    def loss_to(self, target: "ScalarReturn") -> Array:
        error = self.values - target.values
        return jnp.square(error) if self.huber_at is None else huber(error, self.huber_at)

    def priority_to(self, target: "ScalarReturn") -> Array:
        """The absolute error, as prioritised replay defines it."""
        return jnp.abs(self.values - target.values)


class CategoricalReturn(eqx.Module):
    """A distribution over fixed, evenly spaced atoms: logits f32[A,N], or f32[N] for one action.

    A backed-up return keeps its probabilities and moves its atoms; `loss_to` projects it onto the own atoms.
    """

    logits: Array
    atoms: Array  # f32[N]

    @property
    def probabilities(self) -> Array:
        return jax.nn.softmax(self.logits, axis=-1)

    @property
    def mean(self) -> Array:
        return jnp.sum(self.probabilities * self.atoms, axis=-1)

    def taken(self, action: Array) -> "CategoricalReturn":
        return CategoricalReturn(_pick(self.logits, action), self.atoms)

    def under(self, choice: Choice) -> "CategoricalTarget":
        mixed = jnp.sum(choice.weights[:, None] * self.probabilities[choice.actions], axis=0)
        return CategoricalTarget(mixed, self.atoms)

    def loss_to(self, target: "CategoricalTarget") -> Array:
        """Cross-entropy to the projected target."""
        projected = project(target.atoms, target.probabilities, self.atoms)
        return -jnp.sum(projected * jax.nn.log_softmax(self.logits))

    def priority_to(self, target: "CategoricalTarget") -> Array:
        """The cross-entropy, as Rainbow does."""
        return self.loss_to(target)


class CategoricalTarget(eqx.Module):
    """Probabilities f32[N] on atoms f32[N] that need not be evenly spaced any more."""

    probabilities: Array
    atoms: Array

    @property
    def mean(self) -> Array:
        return jnp.sum(self.probabilities * self.atoms)

    def backup(self, reward: Array, discount: Array) -> "CategoricalTarget":
        return CategoricalTarget(self.probabilities, reward + discount * self.atoms)


def project(from_atoms: Array, probabilities: Array, to_atoms: Array) -> Array:
    """Move probability mass from any atoms onto evenly spaced ones, each split between its two neighbours.

    Written as a triangular kernel over positions in units of the spacing, so that a mass exactly on an atom stays there
    whole and none is lost, wherever the support lies.
    """
    count, low, high = to_atoms.shape[0], to_atoms[0], to_atoms[-1]
    position = (jnp.clip(from_atoms, low, high) - low) / (high - low) * (count - 1)
    share = jnp.clip(1 - jnp.abs(position[:, None] - jnp.arange(count)), 0, 1)
    # Not a matrix product, which accelerators may round to fewer bits. Summed over the first axis, for a CPU vectorises
    # along the last one.
    return jnp.sum(share * probabilities[:, None], axis=0)


class QuantileReturn(eqx.Module):
    """Values of the return at given quantile levels: f32[A,N], or f32[N] for one action.

    `midpoints` are the levels that the values estimate, `widths` the share of probability each stands for.
    """

    values: Array
    midpoints: Array  # f32[N]
    widths: Array  # f32[N], sum to one
    huber_at: float = eqx.field(static=True, default=1.0)
    mixing: Mixing = eqx.field(static=True, default="interpolate")

    @property
    def mean(self) -> Array:
        return jnp.sum(self.values * self.widths, axis=-1)

    def taken(self, action: Array) -> "QuantileReturn":
        return QuantileReturn(_pick(self.values, action), self.midpoints, self.widths, self.huber_at, self.mixing)

    def under(self, choice: Choice) -> "QuantileTarget":
        chosen = self.values[choice.actions]  # f32[K,N]
        if self.mixing == "mixture":
            return QuantileTarget(chosen, choice.weights, self.widths)
        interpolated = jnp.sum(choice.weights[:, None] * chosen, axis=0)
        return QuantileTarget(interpolated[None], jnp.ones(1), self.widths)

    def loss_to(self, target: "QuantileTarget") -> Array:
        """QuantileReturn Huber loss: summed over the own quantiles i, averaged over the target's atoms j.

        The loss is linear in the target's distribution, so a mixture's is the mixture of its parts'. Taken part by part,
        a part without weight leaves the others' arithmetic as it is.
        """

        def to(values: Array) -> Array:
            return quantile_huber(self.values, self.midpoints, values, target.widths, self.huber_at)

        losses, values = jax.vmap(to), target.values
        if values.shape[0] == 1:
            return jnp.sum(target.weights * losses(values))
        # The last part, which is the model's where there is one, apart from the base's: how a loop's last elements are
        # rounded may depend on how many there are.
        return jnp.sum(target.weights * jnp.concatenate([losses(values[:-1]), losses(values[-1:])]))

    def priority_to(self, target: "QuantileTarget") -> Array:
        """The loss itself."""
        return self.loss_to(target)


class QuantileTarget(eqx.Module):
    """A mixture of K returns with N atoms each; K is 1 once they have been interpolated."""

    values: Array  # f32[K,N]
    weights: Array  # f32[K], of the returns; sum to one
    widths: Array  # f32[N], of the atoms in each of them; sum to one

    @property
    def mean(self) -> Array:
        return jnp.sum(self.weights * jnp.sum(self.values * self.widths, axis=-1))

    def backup(self, reward: Array, discount: Array) -> "QuantileTarget":
        return QuantileTarget(reward + discount * self.values, self.weights, self.widths)


Return = ScalarReturn | CategoricalReturn | QuantileReturn

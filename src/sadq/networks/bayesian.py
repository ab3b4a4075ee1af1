"""A head whose last layer is not trained but inferred (BDQN, Azizzadenesheli et al., 2018)."""

from dataclasses import dataclass
from typing import Self

import equinox as eqx
import jax

from sadq.core import posterior as regression
from sadq.core.posterior import Posterior
from sadq.core.returns import ScalarReturn
from sadq.networks.heads import HEADS, Head, Mover
from sadq.networks.layers import Linear
from sadq.networks.stream import HeadShape
from sadq.registry import at_least, positive
from sadq.types import Array, Key, Mask, PyTree


@HEADS.register("bayesian")
@dataclass(frozen=True)
class Bayesian:
    """Expected returns w_a . phi(s), with phi learned and a posterior over w inferred in closed form (BDQN)."""

    prior_deviation: float = 1.0
    """sigma of the prior over last-layer weights."""
    noise_deviation: float | None = None
    """sigma_n of a return around its expectation; None: as large as the residuals are."""
    samples: int = 10_000
    """Transitions that a refit looks at; fewer while the replay holds fewer."""
    chunk: int = 500
    """Of these at a time, to bound memory."""
    refit_interval: int | None = None
    """Env steps between refits; None: at each copy to the target network, 2000 where there is none."""
    resample_interval: int = 1000
    """Env steps after which the weights that it learns by are drawn anew."""
    huber: float | None = None
    """Where the loss turns from quadratic to linear; None: squared error."""

    def __post_init__(self) -> None:
        at_least(self, 1, "samples", "chunk", "resample_interval")
        positive(self, "prior_deviation", *(["noise_deviation"] if self.noise_deviation is not None else []))
        if self.refit_interval is not None:
            at_least(self, 1, "refit_interval")
        if self.huber is not None:
            positive(self, "huber")

    def build(self, shape: HeadShape, key: Key) -> "BayesianHead":
        believed = regression.prior(shape.actions, shape.width, self.prior_deviation)
        return BayesianHead(Linear(shape.features, shape.width, key), believed.mean, believed, self.huber)


class BayesianHead(Head):
    """w_a . phi(s): gradients reach phi only. `weights` are the posterior's mean until they are drawn."""

    hidden: Linear
    weights: Array  # f32[A, H]
    posterior: Posterior
    huber_at: float | None = eqx.field(static=True)

    def phi(self, features: Array) -> Array:
        """What the last layer reads: f32[H]."""
        return jax.nn.relu(self.hidden(features))

    def __call__(self, features: Array, mask: Mask = None) -> ScalarReturn:
        return ScalarReturn(self.mean(features), self.huber_at)

    def mean(self, features: Array, mask: Mask = None) -> Array:
        return jax.lax.stop_gradient(self.weights) @ self.phi(features)

    def drawn(self, key: Key) -> Self:
        return self.holding(regression.sample(self.posterior, key))

    def settled(self) -> Self:
        return self.holding(self.posterior.mean)

    def holding(self, weights: Array) -> Self:
        """The head with these weights in its last layer."""
        return eqx.tree_at(lambda head: head.weights, self, weights)

    def movers(self) -> PyTree:
        inferred = jax.tree.map(lambda _: Mover.NOTHING, (self.weights, self.posterior))
        return eqx.tree_at(lambda head: (head.weights, head.posterior), super().movers(), inferred)

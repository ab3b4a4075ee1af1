"""What a Bayesian head needs beside gradients: its last layer inferred from the replay (BDQN)."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core import posterior as regression
from sadq.core.posterior import Evidence, Posterior
from sadq.networks.value import Network, ValueNetwork
from sadq.replay.samplers import uniform
from sadq.replay.store import Ring
from sadq.learning.targets import Seen
from sadq.types import Array, Key


@dataclass(frozen=True)
class Inference:
    """How the posterior is computed."""

    prior_deviation: float  # sigma
    noise_deviation: float  # sigma_n
    samples: int  # at most so many transitions; fewer while the replay holds fewer
    chunk: int  # of them at a time, to bound memory
    refit_interval: int  # env steps
    resample_interval: int  # env steps

    def prior(self, network: Network) -> Posterior:
        """What is believed before any transition."""
        assert isinstance(network, ValueNetwork)
        actions, width = network.bayesian_head.weights.shape
        return regression.prior(actions, width, self.prior_deviation)

    def refit(
        self,
        before: Posterior,
        target: Network,
        returns: Callable[[Key, Array], tuple[Seen, Array]],
        ring: Ring,
        rows: Array,
        key: Key,
        healthy: Array,
    ) -> Posterior:
        """The posterior from transitions drawn uniformly; `returns` gives theirs, under the agent's own target.

        Shapes are fixed, so `samples` positions are always drawn, and those beyond what the replay holds count nothing.
        """
        assert isinstance(target, ValueNetwork)
        actions = before.mean.shape[0]
        chunks = -(-self.samples // self.chunk)
        held = jnp.minimum(rows, ring.rows) * ring.environments
        wanted = jnp.minimum(held, self.samples)

        def gather(total: Evidence, number: Array) -> tuple[Evidence, None]:
            own_key = keys.at(key, number)
            position = uniform(ring, rows, keys.purpose(own_key, "sample"), self.chunk)
            seen, worth = returns(own_key, position)
            features = jax.vmap(lambda one: target.bayesian_head.features(target.encoder(one)))(seen.batch.observation)
            counted = (number * self.chunk + jnp.arange(self.chunk)) < wanted
            found = regression.evidence(features, seen.batch.action, worth, counted * 1.0, actions)
            return jax.tree.map(jnp.add, total, found), None

        nothing = Evidence(jnp.zeros_like(before.root), jnp.zeros_like(before.mean))
        total, _ = jax.lax.scan(gather, nothing, jnp.arange(chunks))
        after = regression.infer(total, self.prior_deviation, self.noise_deviation)
        finite = healthy & jnp.all(jnp.isfinite(after.mean)) & jnp.all(jnp.isfinite(after.root))
        return jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, before)

"""What a Bayesian head needs beside gradients: its last layer inferred from the replay (BDQN)."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core import posterior as regression
from sadq.core.posterior import Evidence, Posterior
from sadq.learning.guidance import Seen
from sadq.networks.bayesian import Bayesian
from sadq.networks.network import Network
from sadq.replay.samplers import uniform
from sadq.replay.store import Store
from sadq.types import Array, Key


@dataclass(frozen=True)
class Refit:
    """How and how often the posterior is computed."""

    settings: Bayesian
    interval: int  # env steps

    def posterior(
        self, target: Network, returns: Callable[[Key, Array], tuple[Seen, Array]], store: Store, rows: Array, key: Key
    ) -> Posterior:
        """From transitions drawn uniformly; `returns` gives theirs, under the agent's own target.

        Shapes are fixed, so `samples` positions are always drawn, and those beyond what the replay holds count nothing.
        """
        head, settings = target.head, self.settings
        before: Posterior = head.posterior  # type: ignore[attr-defined]
        actions, width = before.mean.shape
        chunk = min(settings.chunk, settings.samples)
        wanted = jnp.minimum(jnp.minimum(rows, store.rows) * store.lanes, settings.samples)

        def gather(total: Evidence, number: Array) -> tuple[Evidence, None]:
            chunk_key = keys.at(key, number)
            position = uniform(store, rows, keys.purpose(chunk_key, "sample"), chunk, store.steps)
            seen, worth = returns(chunk_key, position)
            features = jax.vmap(lambda one: head.phi(target.encode(one)))(seen.batch.observation)  # type: ignore[attr-defined]
            counted = (number * chunk + jnp.arange(chunk)) < wanted
            found = regression.evidence(features, seen.batch.action, worth, counted * 1.0, actions)
            return jax.tree.map(jnp.add, total, found), None

        nothing = regression.no_evidence(actions, width)
        total, _ = jax.lax.scan(gather, nothing, jnp.arange(-(-settings.samples // chunk)))
        return self._inferred(total, before)

    def _inferred(self, total: Evidence, before: Posterior) -> Posterior:
        settings = self.settings
        if settings.noise_deviation is not None:
            return regression.infer(total, settings.prior_deviation, settings.noise_deviation)
        # How far returns lie from what is expected is known only once something is expected: of the posterior before,
        # and then of the one that follows from that.
        noise = regression.residual_deviation(total, before.mean)
        rough = regression.infer(total, settings.prior_deviation, noise)
        noise = regression.residual_deviation(total, rough.mean)
        return regression.infer(total, settings.prior_deviation, noise)

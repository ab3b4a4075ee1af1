"""What a Bayesian head needs beside gradients: its last layer inferred from the replay, and drawn anew (BDQN)."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core import posterior as regression
from sadq.core.posterior import Evidence, Posterior
from sadq.learning.guidance import Seen
from sadq.learning.state import Hyper, LearnerState, Phase
from sadq.networks.bayesian import Bayesian
from sadq.networks.network import Network, ensemble_keys, first_network, over_networks, settled
from sadq.replay.samplers import uniform
from sadq.replay.store import Store
from sadq.types import Array, Key, PyTree

Returns = Callable[[Key, Array], tuple[Seen, Array]]
"""(key, positions of the store) -> what is stored there, and what it is worth under the agent's own target f32[B]."""


@dataclass(frozen=True)
class Refit:
    """How and how often the posterior is computed."""

    settings: Bayesian
    interval: int  # env steps

    def drawn(self, networks: Network, hyper: Hyper, index: Array) -> PyTree:
        """The networks with a new draw of what their heads keep drawn."""
        draw_keys = ensemble_keys(keys.at(hyper.stream("resample"), index), 1)
        return over_networks(lambda network, key: network.with_head(network.head.drawn(key)), networks, draw_keys)

    def resampled(self, state: LearnerState, phase: Phase, due: Array) -> LearnerState:
        """The agent learns by a draw of its last layer that is renewed where that is due."""
        networks: PyTree = state.online.parameters
        weights = jax.lax.cond(
            due, lambda: self.drawn(networks, phase.hyper, phase.collect).head.weights, lambda: networks.head.weights
        )
        held = eqx.tree_at(lambda one: one.head.weights, networks, weights)
        return state._replace(online=state.online._replace(parameters=held))

    def refitted(self, state: LearnerState, phase: Phase, due: Array, returns: Returns, store: Store) -> LearnerState:
        """The posterior inferred anew where that is due; targets are made with its mean."""
        before = state.target.head.posterior  # type: ignore[attr-defined]

        def inferred() -> Posterior:
            after = self.posterior(first_network(state.target), phase, returns, store)
            finite = jnp.all(jnp.isfinite(after.mean)) & jnp.all(jnp.isfinite(after.root))
            usable = (state.online.diverged_at < 0) & finite
            return jax.tree.map(lambda new, old: jnp.where(usable, new[None], old), after, before)

        posterior = jax.lax.cond(due, inferred, lambda: before)

        def believing(networks: Network) -> Network:
            return eqx.tree_at(lambda one: one.head.posterior, networks, posterior)

        online = state.online._replace(parameters=believing(state.online.parameters))
        return state._replace(online=online, target=settled(believing(state.target)))

    def posterior(self, target: Network, phase: Phase, returns: Returns, store: Store) -> Posterior:
        """From transitions drawn uniformly.

        Shapes are fixed, so `samples` positions are always drawn, and those beyond what the replay holds count nothing.
        """
        head, settings, rows = target.head, self.settings, phase.rows
        before: Posterior = head.posterior  # type: ignore[attr-defined]
        actions, width = before.mean.shape
        chunk = min(settings.chunk, settings.samples)
        wanted = jnp.minimum(jnp.minimum(rows, store.rows) * store.lanes, settings.samples)
        stream = keys.at(phase.hyper.stream("refit"), phase.collect)

        def gather(total: Evidence, number: Array) -> tuple[Evidence, None]:
            chunk_key = keys.at(stream, number)
            position = uniform(store, rows, keys.purpose(chunk_key, "sample"), chunk, store.steps)
            seen, worth = returns(chunk_key, position)
            features = jax.vmap(lambda one: head.phi(target.encode(one)))(seen.batch.observation)  # type: ignore[attr-defined]
            counted = (number * chunk + jnp.arange(chunk)) < wanted
            found = regression.evidence(features, seen.batch.action, worth, counted * 1.0, actions)
            return jax.tree.map(jnp.add, total, found), None

        nothing = regression.no_evidence(actions, width)
        total, _ = jax.lax.scan(gather, nothing, jnp.arange(-(-settings.samples // chunk)))
        if settings.noise_deviation is not None:
            return regression.infer(total, settings.prior_deviation, settings.noise_deviation)
        # How far returns lie from what is expected is known only once something is expected: of the posterior before,
        # and then of the one that follows from that.
        noise = regression.residual_deviation(total, before.mean)
        rough = regression.infer(total, settings.prior_deviation, noise)
        noise = regression.residual_deviation(total, rough.mean)
        return regression.infer(total, settings.prior_deviation, noise)

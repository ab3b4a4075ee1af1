"""Two thousand lanes with known values, and small networks to act by."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.core.posterior import Posterior
from sadq.exploration import Behaviour, Situation
from sadq.exploration.situation import draw_noise
from sadq.networks import Bayesian, Dense, HeadShape, Network, make_ensemble

LANES, ACTIONS = 2000, 4
VALUES = jnp.tile(jnp.array([0.0, 3.0, 3.0, -1.0]), (LANES, 1))
MASK = jnp.tile(jnp.array([True, False, True, False]), (LANES, 1))
NOISE = draw_noise(keys.member_key(0), LANES, ACTIONS)
NOTHING: Any = None  # in place of networks that no rule looks at


def situation(values: jax.Array = VALUES, *, key: int = 0, **changes: Any) -> Situation:
    """Lanes with values f32[E, A] or f32[E, K, A] at step 10,000, in the middle of episodes, with epsilon 0."""
    by_network = values if values.ndim == 3 else values[:, None]
    count, _, actions = by_network.shape
    return Situation(
        networks=NOTHING,
        values=by_network,
        observation=jnp.zeros((count, 1)),
        mask=None,
        fresh=jnp.zeros(count, bool),
        step=jnp.int32(10_000),
        stride=count,
        epsilon=jnp.float32(0),
        noise=draw_noise(keys.member_key(key), count, actions),
    )._replace(**changes)


def act(rule: Behaviour, epsilon: float, mask: jax.Array | None = None, **changes: Any) -> np.ndarray:
    """What a behaviour does at the first step of its memory."""
    now = situation(epsilon=jnp.float32(epsilon), mask=mask, **changes)
    return np.asarray(rule.act(now, rule.init(LANES, now.networks))[0])


def small_networks(head: Any, size: int = 1, inputs: int = 2, width: int = 8, seed: int = 1, **shape: Any) -> Network:
    """An ensemble of `size` networks, [K] on every leaf."""

    def make(key: jax.Array) -> Network:
        encoder = Dense((width,)).build((inputs,), keys.purpose(key, "encoder"))
        fields = {"features": width, "actions": ACTIONS} | shape
        return Network(encoder, head.build(HeadShape(**fields), keys.purpose(key, "head")))

    return make_ensemble(make, keys.member_key(seed), size)


def bayesian_networks(mean: jax.Array, root: jax.Array) -> Network:
    """One network with a given posterior over its last layer, f32[A, H] and f32[A, H, H]."""
    networks = small_networks(Bayesian(), width=mean.shape[1], actions=mean.shape[0])
    return eqx.tree_at(lambda one: one.head.posterior, networks, Posterior(mean[None], root[None]))

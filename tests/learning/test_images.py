"""Observations of bytes: a whole learning phase on images."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tables import filled, numbers, state_of

from sadq import keys
from sadq.core.bootstrap import Greedy
from sadq.core.gates import BatchReliability
from sadq.dynamics import Gaussian, ModelShape
from sadq.learning.guidance import Guidance
from sadq.learning.learner import Learner, TargetUpdate
from sadq.networks import Dense, HeadShape, Network, Scalar
from sadq.replay import Ring, Uniform
from sadq.types import Transition
from tiny import KEY, assert_close

ACTIONS = 3


def test_a_whole_phase_on_images_of_bytes():
    """uint8[4, 4, 1] through ring, encoder and model gives what the same numbers as floats give."""
    frames = np.random.default_rng(0).integers(0, 256, size=(7, 2, 4, 4, 1))

    def learned(dtype: Any):
        store = Ring(12, 2, (4, 4, 1), ACTIONS, np.dtype(dtype), steps=2)
        model = Gaussian((8,), state_scale=255.0)

        def make(key):
            encoder = Dense((8,)).build((4, 4, 1), keys.purpose(key, "encoder"))
            return Network(encoder, Scalar().build(HeadShape(8, ACTIONS), keys.purpose(key, "head")))

        guidance = Guidance(
            lambda key: model.build(ModelShape((4, 4, 1), ACTIONS), key), ACTIONS, 4, 1, gate=BatchReliability()
        )
        learner = Learner(
            make, Greedy(), store, Uniform().sampler(store), ACTIONS, 2, 6, 4, 1, 100, TargetUpdate(), guidance=guidance
        )
        seen = jnp.asarray(frames, dtype)
        off, reward = jnp.zeros((6, 2), bool), jnp.arange(12.0).reshape(6, 2) / 10
        collected = Transition(seen[:6], jnp.zeros((6, 2), int), reward, seen[1:], off, off)
        contents = store.add(store.init(), jnp.int32(0), collected)
        assert contents.observation.dtype == dtype
        hyper = numbers(alpha=0.3, learning_rate=1e-3)
        network = jax.tree.map(lambda leaf: leaf[0], filled(jax.eval_shape(learner.init, hyper).target, 1))
        own_model = filled(jax.eval_shape(guidance.make_model, KEY), 2)
        state = state_of(network, None, own_model)
        return jax.jit(learner.learn)(state, hyper, contents, None, jnp.int32(0))

    (state, _, metrics), (expected, _, other) = learned(np.uint8), learned(np.float32)
    assert all(np.isfinite(one) for one in metrics.values())
    assert_close(metrics, other, rtol=1e-4)
    assert_close(
        (state.online.parameters, state.model.parameters), (expected.online.parameters, expected.model.parameters)
    )

"""bfloat16 with float32 parameters: nothing changes where it is off, and gradients stay close where it is on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.dynamics import RSSM, ModelShape
from sadq.networks import (
    Bayesian,
    Categorical,
    Fraction,
    HeadShape,
    Implicit,
    Linear,
    Nature,
    Network,
    Quantile,
    Scalar,
)
from sadq.networks.convolutions import Convolution
from sadq.networks.precision import in_precision
from sadq.types import Transition

KEY = keys.member_key(2)
FRAMES = (2, 36, 48)
FEATURES = 2 * 8  # of two places


def network(head, compute="float32", dueling=False, noisy=False) -> Network:
    encoder = Nature(channels=(4, 6, 8), hidden=16).build(FRAMES, keys.purpose(KEY, "encoder"))
    shape = HeadShape(FEATURES, 3, dueling, noisy, (-5.0, 5.0), 16)
    return Network(encoder, head.build(shape, keys.purpose(KEY, "head")), compute)


def frames(count: int = 4) -> jax.Array:
    return jax.random.randint(KEY, (count, *FRAMES), 0, 256).astype(jnp.uint8)


def cosine(one, other) -> float:
    """Of the angle between two trees of numbers."""
    left, right = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (one, other))
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


def value_loss(made: Network) -> jax.Array:
    """Towards returns that differ by sample and action."""
    values = jax.vmap(made.drawn(KEY).mean)(frames())
    return jnp.mean(jnp.square(values - jnp.arange(12.0).reshape(4, 3)))


def test_off_is_the_network_itself():
    made = network(Scalar())
    assert in_precision(made, "float32") is made
    assert "bf16" not in str(jax.make_jaxpr(value_loss)(made))
    assert "bf16" in str(jax.make_jaxpr(value_loss)(network(Scalar(), "bfloat16")))


def test_off_a_layer_is_a_product_and_a_bias_to_the_bit():
    layer, inputs = Linear(37, 19, KEY), jax.random.normal(KEY, (5, 37))
    expected = jax.jit(lambda x: x @ layer.weight + layer.bias)(inputs)
    np.testing.assert_array_equal(jax.jit(layer)(inputs), expected)
    np.testing.assert_array_equal(jax.jit(layer.precise)(inputs), expected)
    convolution, image = Convolution(2, 5, 4, 2, KEY), jax.random.normal(KEY, (12, 12, 2))
    np.testing.assert_array_equal(convolution(image), convolution.linear(convolution.patches(image)))
    np.testing.assert_array_equal(convolution.precise(image), convolution(image))


def test_on_only_weights_of_layers_are_cast():
    made = network(Bayesian(), "bfloat16").computing()
    assert made.encoder.layers[0].linear.weight.dtype == made.head.hidden.weight.dtype == jnp.bfloat16
    assert made.encoder.layers[0].linear.bias.dtype == made.head.hidden.bias.dtype == jnp.float32
    assert made.head.weights.dtype == made.head.posterior.mean.dtype == jnp.float32


def test_a_precise_product_keeps_what_bfloat16_loses():
    layer = Linear(64, 2, KEY)
    # Two sums of about 10 that differ by 0.01: less than bfloat16 tells apart there.
    weight = jnp.stack([jnp.full(64, 0.15625), jnp.full(64, 0.15625).at[0].add(0.0078125)], axis=1)
    layer = in_precision(layer.replaced(weight, jnp.zeros(2)), "bfloat16")
    near, far = layer.precise(jnp.ones(64)), layer(jnp.ones(64))
    assert near.dtype == jnp.float32 and near[1] - near[0] == 0.0078125
    assert far[1] == far[0]


@pytest.mark.parametrize(
    ("head", "dueling", "noisy"),
    [
        (Scalar(), True, False),
        (Categorical(atoms=5), False, True),
        (Quantile(quantiles=5), True, False),
        (Implicit(levels=4, cosines=6), False, False),
        (Fraction(levels=4, cosines=6), False, False),
        (Bayesian(), False, False),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bool) else "",
)
def test_on_every_head_answers_in_float32_and_nearly_the_same(head, dueling, noisy):
    exact, cast = (network(head, compute, dueling, noisy).drawn(KEY) for compute in ("float32", "bfloat16"))
    mask = jnp.array([True, True, False]) if dueling else None
    for ask in (lambda made: made(frames()[0], mask).mean, lambda made: made.mean(frames()[0], mask)):
        wanted, found = ask(exact), ask(cast)
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, wanted, atol=0.02 * (1 + float(jnp.max(jnp.abs(wanted)))))


def test_on_gradients_are_float32_and_point_the_same_way():
    exact, cast = (jax.grad(value_loss)(network(Quantile(quantiles=5), one)) for one in ("float32", "bfloat16"))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(cast))
    assert 0.999 < cosine(cast, exact) < 1.0


@pytest.mark.parametrize("settings", [{}, {"newest_frame": True}, {"space": "embedding"}], ids=str)
def test_on_the_model_learns_nearly_the_same(settings):
    choice = RSSM(32, 3, 4, 16, (4, 6, 8), (4, 4, 4), continuation=True, **settings)
    seen = frames(2)
    one = Transition(seen[0], jnp.int32(1), jnp.float32(1.0), seen[1], jnp.asarray(False), jnp.asarray(False))

    def loss(made):
        return made.loss(one, KEY, lambda observation: jnp.mean(observation, (1, 2)) / 255.0)

    def asked(compute):
        made = choice.build(ModelShape(FRAMES, 3, 2, compute), KEY)
        (total, parts), slope = jax.value_and_grad(loss, has_aux=True)(made)
        return total, parts, slope, made.step(made.encode(seen[0]), jnp.int32(1), KEY)

    exact, cast = asked("float32"), asked("bfloat16")
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(cast))
    np.testing.assert_allclose(cast[0], exact[0], rtol=0.02)
    for name, part in exact[1].items():
        np.testing.assert_allclose(cast[1][name], part, rtol=0.1, atol=0.02, err_msg=name)
    assert cosine(cast[2], exact[2]) > 0.99
    np.testing.assert_allclose(cast[3].next_input, exact[3].next_input, atol=0.05)
    assert "bf16" not in str(jax.make_jaxpr(loss)(choice.build(ModelShape(FRAMES, 3, 2), KEY)))

"""bfloat16 with float32 parameters: nothing changes where it is off, and gradients stay close where it is on."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.dynamics import RSSM, ModelShape
from sadq.networks import Bayesian, Categorical, Fraction, HeadShape, Linear, Nature, Network, Quantile, Scalar
from sadq.networks.convolutions import Convolution
from sadq.networks.precision import Compute, in_precision
from sadq.types import Transition

KEY = keys.member_key(2)
FRAMES = (2, 36, 48)
FEATURES = 2 * 4  # of two places
SEEN = np.random.default_rng(0).integers(0, 256, (4, *FRAMES), np.uint8)
BOTH: tuple[Compute, ...] = ("float32", "bfloat16")


def filled(make: Any) -> Any:
    """What `make` makes, with weights from NumPy: to compile the drawing of each layer would take longer than the tests."""
    dice = np.random.default_rng(1)

    def weights(leaf: Any) -> jax.Array:
        spread = 1 / np.sqrt(leaf.shape[0])
        return jnp.asarray(dice.uniform(-spread, spread, leaf.shape), leaf.dtype)

    return jax.tree.map(weights, jax.eval_shape(make))


def network(head: Any, compute: Compute = "float32", dueling: bool = False, noisy: bool = False) -> Network:
    shape = HeadShape(FEATURES, 3, dueling, noisy, (-5.0, 5.0), 16)

    def make() -> Network:
        encoder = Nature(channels=(4, 4, 4), hidden=16).build(FRAMES, KEY)
        return Network(encoder, head.build(shape, KEY), compute)

    return filled(make)


def cosine(one: Any, other: Any) -> float:
    """Of the angle between two trees of numbers."""
    left, right = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (one, other))
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


def value_loss(made: Network) -> jax.Array:
    """Towards returns that differ by sample and action."""
    values = jax.vmap(made.drawn(KEY).mean)(jnp.asarray(SEEN))
    return jnp.mean(jnp.square(values - jnp.arange(12.0).reshape(4, 3)))


def test_off_is_the_network_itself():
    shapes = {compute: jax.eval_shape(lambda one=compute: network(Scalar(), one)) for compute in BOTH}
    assert in_precision(shapes["float32"], "float32") is shapes["float32"]
    assert "bf16" not in str(jax.make_jaxpr(jax.grad(value_loss))(shapes["float32"]))
    assert "bf16" in str(jax.make_jaxpr(jax.grad(value_loss))(shapes["bfloat16"]))


def test_off_a_layer_is_compiled_to_a_product_and_a_bias_alone():
    layer, inputs = jax.eval_shape(lambda: Linear(37, 19, KEY)), jnp.zeros((5, 37))
    plain = jax.jit(lambda layer, x: x @ layer.weight + layer.bias).lower(layer, inputs).as_text()
    for ask in (Linear.__call__, Linear.precise):
        assert jax.jit(lambda layer, x, ask=ask: ask(layer, x)).lower(layer, inputs).as_text() == plain


def test_off_a_convolution_is_its_layer_on_patches():
    convolution, image = jax.eval_shape(lambda: Convolution(2, 5, 4, 2, KEY)), jnp.zeros((12, 12, 2))
    plain = jax.jit(lambda one, seen: one.linear(one.patches(seen))).lower(convolution, image).as_text()
    for ask in (Convolution.__call__, Convolution.precise):
        assert jax.jit(lambda one, seen, ask=ask: ask(one, seen)).lower(convolution, image).as_text() == plain


def test_on_only_weights_of_layers_are_cast():
    made = jax.eval_shape(lambda: network(Bayesian(), "bfloat16").computing())
    assert made.encoder.layers[0].linear.weight.dtype == made.head.hidden.weight.dtype == jnp.bfloat16
    assert made.encoder.layers[0].linear.bias.dtype == made.head.hidden.bias.dtype == jnp.float32
    assert made.head.weights.dtype == made.head.posterior.mean.dtype == jnp.float32


def test_a_precise_product_keeps_what_bfloat16_loses():
    # Two sums of about 10 that differ by 0.01: less than bfloat16 tells apart there.
    weight = jnp.stack([jnp.full(64, 0.15625), jnp.full(64, 0.15625).at[0].add(0.0078125)], axis=1)
    layer = in_precision(Linear(64, 2, KEY).replaced(weight, jnp.zeros(2)), "bfloat16")
    near, far = layer.precise(jnp.ones(64)), layer(jnp.ones(64))
    assert near.dtype == jnp.float32 and near[1] - near[0] == 0.0078125
    assert far[1] == far[0]


@pytest.mark.parametrize(
    ("head", "dueling", "noisy"),
    [(Scalar(), True, False), (Categorical(atoms=5), True, True), (Fraction(levels=4, cosines=6), False, False)],
    ids=["dueling", "noisy", "fraction"],
)
def test_on_every_head_answers_in_float32_and_nearly_the_same(head, dueling, noisy):
    mask = jnp.array([True, True, False]) if noisy else None

    @jax.jit
    def asked(*made: Network) -> Any:
        drawn = [one.drawn(KEY) for one in made]
        return [(one(SEEN[0], mask).mean, one.mean(SEEN[0], mask)) for one in drawn]

    (exact, exact_mean), (cast, cast_mean) = asked(*(network(head, compute, dueling, noisy) for compute in BOTH))
    assert cast.dtype == cast_mean.dtype == jnp.float32
    scale = 1 + float(jnp.max(jnp.abs(exact)))
    np.testing.assert_allclose(cast, exact, atol=0.02 * scale)
    np.testing.assert_allclose(cast_mean, exact_mean, atol=0.02 * scale)
    assert (cast != exact).any()


def test_on_gradients_are_float32_and_point_the_same_way():
    slopes = jax.jit(lambda *made: [jax.grad(value_loss)(one) for one in made])
    exact, cast = slopes(*(network(Quantile(quantiles=5), compute) for compute in BOTH))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(cast))
    assert 0.99 < cosine(cast, exact) < 0.9999999


def test_on_the_model_learns_nearly_the_same():
    choice = RSSM(16, 3, 4, 8, (4, 4, 4), (4, 4, 4), continuation=True, newest_frame=True)
    no = jnp.asarray(False)
    one = Transition(jnp.asarray(SEEN[0]), jnp.int32(1), jnp.float32(1.0), jnp.asarray(SEEN[1]), no, no)

    def loss(made: Any) -> Any:
        return made.loss(one, KEY, lambda observation: jnp.mean(observation, (1, 2)) / 255.0)

    def model(compute: Compute) -> Any:
        return filled(lambda: choice.build(ModelShape(FRAMES, 3, 2, compute), KEY))

    @jax.jit
    def asked(*made: Any) -> Any:
        slopes = [jax.value_and_grad(loss, has_aux=True)(each) for each in made]
        return slopes, [each.step(each.encode(one.observation), jnp.int32(1), KEY) for each in made]

    (((total, parts), slope), ((cast_total, cast_parts), cast_slope)), (exact, cast) = asked(*map(model, BOTH))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((cast_total, cast_parts, cast_slope, cast)))
    np.testing.assert_allclose(cast_total, total, rtol=0.02)
    assert cast_total != total
    for name, part in parts.items():
        np.testing.assert_allclose(cast_parts[name], part, rtol=0.1, atol=0.02, err_msg=name)
    assert cosine(cast_slope, slope) > 0.99
    np.testing.assert_allclose(cast.next_input, exact.next_input, atol=0.05)
    assert "bf16" not in str(jax.make_jaxpr(loss)(model("float32")))

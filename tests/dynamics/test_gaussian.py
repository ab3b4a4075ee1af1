"""The one-step model: its loss is the paper's, a rollout is what the loss trains, and it learns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sadq import keys
from sadq.dynamics import Gaussian, GaussianModel, ModelShape
from sadq.errors import SadqError
from sadq.types import Transition

KEY = keys.member_key(1)


def model(**settings) -> GaussianModel:
    return Gaussian((32, 32), **settings).build(ModelShape((4,), 3), KEY)


def features(observation):
    raise AssertionError("a model in the observation's space has no use for features")


def one(terminated: bool = False) -> Transition:
    return Transition(
        jnp.array([0.1, -0.2, 0.3, 0.4]),
        jnp.int32(2),
        jnp.float32(0.7),
        jnp.array([0.2, -0.1, 0.1, 0.5]),
        jnp.asarray(terminated),
        jnp.asarray(False),
    )


def parts(made: GaussianModel, transition: Transition):
    """(mean, sigma, reward) by the textbook: one dense network over [s, onehot a]."""
    weight = np.concatenate([made.state_layer.weight, made.action_rows])
    inputs = np.concatenate(
        [np.asarray(transition.observation) / made.settings.state_scale, np.eye(3)[int(transition.action)]]
    )
    hidden = np.maximum(inputs @ weight + np.asarray(made.state_layer.bias), 0)
    for layer in made.layers:
        hidden = np.maximum(hidden @ np.asarray(layer.weight) + np.asarray(layer.bias), 0)
    output = hidden @ np.asarray(made.output.weight) + np.asarray(made.output.bias)
    return output[:4], np.exp(0.5 * np.clip(output[4:8], -20, 2)), output[8]


@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_the_loss_is_the_squared_error_of_a_sample_and_of_the_reward(scale):
    made = model(state_scale=scale)
    mean, sigma, reward = parts(made, one())
    noise = np.asarray(jax.random.normal(KEY, (4,)))
    state_loss = np.mean((mean + sigma * noise - np.asarray(one().next_observation) / scale) ** 2)
    total, measured = made.loss(one(), KEY, features)
    np.testing.assert_allclose(total, state_loss + (reward - 0.7) ** 2, rtol=1e-5)
    np.testing.assert_allclose(measured["model_state_loss"], state_loss, rtol=1e-5)
    np.testing.assert_allclose(measured["model_reward_loss"], (reward - 0.7) ** 2, rtol=1e-5)
    np.testing.assert_allclose(measured["model_sigma"], sigma.mean(), rtol=1e-5)


def test_the_likelihood_is_the_gaussian_one():
    made = model(loss="nll")
    mean, sigma, reward = parts(made, one())
    expected = np.mean(0.5 * ((np.asarray(one().next_observation) - mean) / sigma) ** 2 + np.log(sigma))
    np.testing.assert_allclose(made.loss(one(), KEY, features)[0], expected + (reward - 0.7) ** 2, rtol=1e-5)


def test_a_rollout_is_in_the_observation_s_own_units():
    made = model(state_scale=5.0)
    mean, sigma, reward = parts(made, one())
    prediction = made.step(made.encode(one().observation), jnp.int32(2), KEY)
    noise = np.asarray(jax.random.normal(KEY, (4,)))
    np.testing.assert_allclose(prediction.next_input, 5 * (mean + sigma * noise), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(prediction.reward, reward, rtol=1e-5)
    assert prediction.continuation == 1.0


def test_a_mean_rollout_ignores_its_key():
    made = model(rollout="mean")
    context = made.encode(one().observation)
    first, second = (made.step(context, jnp.int32(2), keys.at(KEY, index)).next_input for index in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, parts(made, one())[0], rtol=1e-5, atol=1e-6)
    sampled = model().step(model().encode(one().observation), jnp.int32(2), KEY).next_input
    assert (sampled != first).all()


def test_log_variance_is_clamped():
    made = model()
    wild = eqx.tree_at(lambda m: m.output.bias, made, jnp.full(9, 100.0))
    assert np.isfinite(wild.loss(one(), KEY, features)[0])
    np.testing.assert_allclose(wild.loss(one(), KEY, features)[1]["model_sigma"], np.exp(1.0), rtol=1e-5)


def test_the_continuation_head_changes_nothing_else():
    plain, headed = model(), model(continuation=True)
    np.testing.assert_array_equal(plain.output.weight, headed.output.weight)
    logit = float(
        np.log(
            headed.step(headed.encode(one().observation), jnp.int32(2), KEY).continuation
            / (1 - headed.step(headed.encode(one().observation), jnp.int32(2), KEY).continuation)
        )
    )
    for ends in (False, True):
        extra = headed.loss(one(ends), KEY, features)[0] - plain.loss(one(ends), KEY, features)[0]
        np.testing.assert_allclose(extra, np.log1p(np.exp(logit if ends else -logit)), rtol=1e-3)


def test_a_time_limit_is_no_end_to_the_continuation_head():
    headed, cut = model(continuation=True), one()._replace(truncated=jnp.asarray(True))
    assert headed.loss(cut, KEY, features)[0] == headed.loss(one(), KEY, features)[0]


def test_the_sampled_loss_drives_sigma_towards_zero_and_the_mean_towards_the_truth():
    """s' = s + onehot-dependent shift: after training the mean is right and sigma has shrunk."""
    observations = jax.random.uniform(KEY, (256, 4))
    actions = jnp.arange(256) % 3
    batch = Transition(
        observations,
        actions,
        actions * 1.0,
        observations + 0.1 * actions[:, None],
        jnp.zeros(256, bool),
        jnp.zeros(256, bool),
    )
    optimiser = optax.adam(3e-3)

    @jax.jit
    def update(made, moments, key):
        def loss(current):
            losses, measured = jax.vmap(lambda one, own: current.loss(one, own, features))(
                batch, keys.range_of(key, 0, 256)
            )
            return jnp.mean(losses), jax.tree.map(jnp.mean, measured)

        (_, measured), gradient = jax.value_and_grad(loss, has_aux=True)(made)
        change, moments = optimiser.update(gradient, moments)
        return optax.apply_updates(made, change), moments, measured

    made = model()
    moments = optimiser.init(made)
    for index in range(600):
        made, moments, measured = update(made, moments, keys.at(KEY, index))
    assert measured["model_sigma"] < 0.1 and measured["model_state_loss"] < 0.01
    mean, _, reward = parts(made, one()._replace(observation=observations[0]))
    np.testing.assert_allclose(mean, observations[0] + 0.2, atol=0.08)
    np.testing.assert_allclose(reward, 2.0, atol=0.1)


def test_images_of_bytes_are_read_as_numbers_and_predicted_in_their_own_shape():
    """uint8[4, 4, 1] with 0 ... 255 as a scale: the loss is of the numbers, and nothing wraps."""
    made = Gaussian((8,), state_scale=255.0).build(ModelShape((4, 4, 1), 3), KEY)
    frames = jax.random.randint(KEY, (2, 4, 4, 1), 0, 256).astype(jnp.uint8)
    seen = one()._replace(observation=frames[0], next_observation=frames[1])
    numbers = seen._replace(observation=frames[0].astype(jnp.float32), next_observation=frames[1].astype(jnp.float32))
    loss, expected = (made.loss(own, KEY, features)[0] for own in (seen, numbers))
    assert loss.dtype == jnp.float32
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    prediction = made.step(made.encode(seen.observation), jnp.int32(1), KEY)
    assert prediction.next_input.shape == (4, 4, 1) and prediction.next_input.dtype == jnp.float32


@pytest.mark.parametrize(
    "settings",
    [{"hidden": ()}, {"state_scale": 0.0}, {"loss": "both"}, {"rollout": "best"}],
    ids=lambda one: next(iter(one)),
)
def test_settings_that_make_no_model_are_refused(settings):
    with pytest.raises(SadqError, match=next(iter(settings))):
        Gaussian(**settings)

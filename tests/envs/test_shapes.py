"""A native environment that gives other shapes or types than it says is refused; pictures are as good as vectors."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from native_samples import Screen, Walkers

from sadq import keys
from sadq.envs import Acrobot, BitFlip, CartPole, NativeAsHost, base
from sadq.envs.as_gymnasium import NativeEnvironment
from sadq.envs.shapes import check_shapes
from sadq.errors import SadqError


@pytest.mark.parametrize("environment", [CartPole(), Acrobot(), BitFlip(), Walkers(), Screen()])
def test_what_is_as_it_says_is_taken(environment):
    check_shapes(environment)


def of(kind, **replaced):
    """An environment with other answers or attributes than its own."""
    return dataclasses.dataclass(frozen=True)(type("Odd", (kind,), replaced))()


def moved(reward=0.0, terminated=False):
    return lambda self, state, action, key: (state, jnp.asarray(reward), jnp.asarray(terminated))


@pytest.mark.parametrize(
    "environment,words",
    [
        (of(CartPole, observe=lambda self, state: state[:3]), r"an observation of shape \(3,\), expected \(4,\)"),
        (of(CartPole, observe=lambda self, state: state > 0), "an observation of type bool, expected float32"),
        (of(Screen, observe=lambda self, state: jnp.zeros((3, 4, 1))), "of type float32, expected uint8"),
        (of(Screen, observe=lambda self, state: jnp.zeros((3, 4), jnp.uint8)), r"\(3, 4\), expected \(3, 4, 1\)"),
        (of(Walkers, observe=lambda self, state: jnp.zeros(6)), r"of shape \(6,\), expected \(2, 6\)"),
        (of(CartPole, transition=moved(reward=[1.0])), r"a reward of shape \(1,\), expected \(\)"),
        (of(Walkers, transition=moved(reward=1.0)), r"a reward of shape \(\), expected \(2,\)"),
        (of(Walkers, transition=moved([0.0, 0.0], [True, False])), r"terminated of shape \(2,\), expected \(\)"),
        (of(CartPole, transition=moved(terminated=0)), "terminated of type int32, expected bool"),
        (of(CartPole, legal=lambda self, seen: seen > 0), r"legal actions of shape \(4,\), expected \(2,\)"),
        (of(CartPole, legal=lambda self, seen: seen[:2]), "legal actions of type float32, expected bool"),
        (of(CartPole, legal=lambda self, seen: None), "returns None from `legal`, expected 2 booleans"),
        (of(CartPole, observation_shape=(4, 0)), r"observation_shape = \(4, 0\), expected a tuple of whole numbers"),
        (of(CartPole, observation_shape=4), "observation_shape = 4, expected a tuple"),
        (of(CartPole, actors=0), "actors = 0, expected a whole number above 0"),
        (of(CartPole, transition=lambda self, state, action, key: state[9, 9]), "cannot be compiled: "),
    ],
)
def test_what_is_not_is_refused(environment, words):
    with pytest.raises(SadqError, match=f"environment .* {words}") as caught:
        check_shapes(environment)
    assert "\n" not in str(caught.value)


def test_a_picture_is_stepped():
    timed = base.reset(Screen(), keys.member_key(0))
    for column in (1, 2, 3):
        timed, step = base.step(Screen(), timed, jnp.int32(1), keys.member_key(0))
        assert step.observation.dtype == jnp.uint8 and step.observation.shape == (3, 4, 1)
        assert step.observation[timed.state[0], column, 0] == 255 and step.observation.astype(int).sum() == 255
    assert step.terminated and step.reward == 1


def test_a_picture_passes_gymnasium_s_checker():
    environment = NativeEnvironment(Screen())
    assert environment.observation_space.dtype == np.uint8 and environment.observation_space.shape == (3, 4, 1)
    assert environment.observation_space.low.min() == 0 and environment.observation_space.high.max() == 255
    check_env(environment, skip_render_check=True)


def test_native_as_host_keeps_pictures():
    view = NativeAsHost(Screen(), [0, 1], 3)
    assert (view.observation_shape, view.observation_dtype) == ((3, 4, 1), np.uint8)
    observations, masks = view.reset()
    assert observations.shape == (2, 3, 3, 4, 1) and observations.dtype == np.uint8 and masks is None
    step = view.step(np.ones((2, 3), np.int32))
    assert step.next_observation.dtype == np.uint8 and (step.next_observation[..., 1, :].max(axis=(2, 3)) == 255).all()

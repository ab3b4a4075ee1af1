"""A native environment behind the host interface takes the random keys of the compiled loop."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.envs import BitFlip, CartPole, NativeAsHost, base
from sadq.errors import SadqError

SEEDS, COUNT, STEPS = [4, 9], 3, 60


@dataclasses.dataclass(frozen=True)
class Drift(BitFlip):
    """BitFlip with a transition that uses its key, and masks: a bit that is set cannot be chosen."""

    def transition(self, state, action, key):
        reached, reward, terminated = super().transition(state, action, key)
        return reached, reward + jax.random.uniform(key), terminated

    def legal(self, observation):
        return observation[: self.bits] < 0.5


def actions_of(environment):
    return np.random.default_rng(0).integers(0, environment.action_count, (STEPS, len(SEEDS), COUNT)).astype(np.int32)


def compiled_loop(environment, seed, actions):
    """One member's (true next observations, rewards, observations to act on), by the rule written out."""
    root = keys.member_key(seed)
    indices = jnp.arange(COUNT)

    def begin(counter):
        return jax.vmap(lambda e: base.reset(environment, keys.at(keys.purpose(root, "reset"), counter, e)))(indices)

    def advance(timed, inputs):
        t, action = inputs
        key = keys.purpose(root, "transition")
        timed, step = jax.vmap(lambda s, a, e: base.step(environment, s, a, keys.at(key, t, e)))(timed, action, indices)
        over = step.terminated | step.truncated
        choose = jax.vmap(lambda over, new, old: jax.tree.map(lambda a, b: jnp.where(over, a, b), new, old))
        timed = choose(over, begin(t + 1), timed)
        return timed, (step.observation, step.reward, jax.vmap(environment.observe)(timed.state))

    first = begin(0)
    _, outputs = jax.lax.scan(advance, first, (jnp.arange(STEPS), actions))
    return jax.vmap(environment.observe)(first.state), outputs


@pytest.mark.parametrize("environment", [CartPole(), Drift(bits=4)])
def test_its_streams_are_the_compiled_loop_s(environment):
    actions = actions_of(environment)
    view = NativeAsHost(environment, SEEDS, COUNT)
    observations, _ = view.reset()
    steps = [view.step(action) for action in actions]
    for member, seed in enumerate(SEEDS):
        first, (reached, rewards, current) = jax.jit(compiled_loop, static_argnums=0)(
            environment, seed, actions[:, member]
        )
        np.testing.assert_array_equal(observations[member], first)
        np.testing.assert_array_equal(np.stack([step.next_observation[member] for step in steps]), reached)
        np.testing.assert_array_equal(np.stack([step.reward[member] for step in steps]), rewards)
        np.testing.assert_array_equal(np.stack([step.observation[member] for step in steps]), current)
    assert any(step.terminated.any() for step in steps)
    assert steps[0].reward.dtype == np.float32 and steps[0].terminated.dtype == bool


def test_masks_and_attributes():
    view = NativeAsHost(Drift(bits=4), SEEDS, COUNT, workers="auto", purpose="evaluate")
    observations, masks = view.reset()
    np.testing.assert_array_equal(masks, observations[..., :4] < 0.5)
    step = view.step(np.zeros((2, COUNT), np.int64))
    np.testing.assert_array_equal(step.next_mask, step.next_observation[..., :4] < 0.5)
    np.testing.assert_array_equal(step.mask, step.observation[..., :4] < 0.5)
    assert (view.name, view.action_count, view.max_steps, view.has_masks) == ("BitFlip-4", 4, 4, True)
    assert (view.observation_shape, view.observation_dtype) == ((8,), np.float32)
    plain = NativeAsHost(CartPole(), SEEDS, COUNT)
    assert plain.reset()[1] is None and plain.step(np.zeros((2, COUNT), int)).mask is None


def test_resume_is_exact():
    environment = Drift(bits=4)
    actions = actions_of(environment)
    whole, other = NativeAsHost(environment, SEEDS, COUNT), NativeAsHost(environment, SEEDS, COUNT)
    whole.reset()
    for action in actions[:30]:
        last = whole.step(action)
    saved = whole.state()
    assert all(isinstance(value, np.ndarray) for value in saved.values()) and saved["step"] == 30
    observations, masks = other.restore(saved)
    np.testing.assert_array_equal(observations, last.observation)
    np.testing.assert_array_equal(masks, last.mask)
    assert other.exact_resume
    for action in actions[30:]:
        for mine, theirs in zip(whole.step(action), other.step(action), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_purposes_and_starts_differ():
    collect, evaluate = (NativeAsHost(CartPole(), SEEDS, COUNT, purpose=name) for name in ("collect", "evaluate"))
    assert not np.array_equal(collect.reset()[0], evaluate.reset()[0])
    assert not np.array_equal(collect.reset()[0], collect.reset(start=7)[0])


def test_misuse_is_told():
    view = NativeAsHost(CartPole(), SEEDS, COUNT)
    with pytest.raises(SadqError, match="before it was reset"):
        view.step(np.zeros((2, COUNT), int))
    with pytest.raises(SadqError, match="before it was reset"):
        view.state()
    other = NativeAsHost(CartPole(), SEEDS, 2)
    other.reset()
    with pytest.raises(SadqError, match="the seeds and environments it was saved with"):
        view.restore(other.state())

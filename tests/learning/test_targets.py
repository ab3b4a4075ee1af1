"""The target of every agent against the equation written out, and who reads which network, noise and level."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.agents import AGENTS
from sadq.experiment.config import Model
from sadq.learning.learner import Learner, LearnerState
from sadq.networks import Ensemble, ImplicitHead, ValueNetwork
from sadq.learning.targets import Seen
from tiny import BATCH, KEY, assert_close, difference, prepared

ALPHA, GAMMA, ACTIONS = 0.3, 0.9, 3
GUIDED: dict[str, Any] = {"alpha": (ALPHA,), "model": Model(hidden=(8,), rollout="mean")}


def means_of(targets) -> jax.Array:
    """Of the backed-up returns: f32[B], or f32[K, B]."""
    mean = jax.vmap(lambda z: z.mean)
    return (jax.vmap(mean) if targets.bootstrap.ndim == 2 else mean)(targets.returns)


def expected_means(learner: Learner, state: LearnerState, seen: Seen) -> tuple[jax.Array, jax.Array]:
    """(y, how often the two choices differ), sample by sample and network by network, from whole returns alone."""
    batch = seen.batch

    def of_one(online: ValueNetwork, target: ValueNetwork, noise_key, index) -> tuple[jax.Array, jax.Array]:
        target = target.with_noise(keys.purpose(noise_key, "target"))
        online = online.with_noise(keys.purpose(noise_key, "select"))
        following = batch.next_observation[index]

        def values(network: ValueNetwork, where, purpose: str) -> jax.Array:
            return network(where, None, keys.at(keys.purpose(KEY, purpose), index)).mean

        selecting = online if learner.rule == "double" else target
        base = jnp.argmax(values(selecting, following, "select"))
        worth, chosen = values(target, following, "target"), base
        if learner.guidance is not None:
            model = state.model.parameters
            levels = keys.purpose(keys.at(keys.purpose(KEY, "rollout"), index), "levels")
            scores = []
            for action in range(ACTIONS):
                predicted = model.step(model.encode(following), jnp.int32(action), KEY)
                scores.append(predicted.reward + GAMMA * target(predicted.next_input, None, levels).mean.max())
            chosen = jnp.argmax(jnp.stack(scores))
        alpha = 1.0 if learner.guidance is None else ALPHA
        mixed = alpha * worth[base] + (1 - alpha) * worth[chosen]
        return batch.reward[index] + jnp.where(seen.terminal[index], 0, GAMMA) * mixed, base != chosen

    over_samples = jax.vmap(of_one, (None, None, None, 0))
    online, target, noise_key = state.online.parameters, state.target, keys.purpose(KEY, "noise")
    if isinstance(online, Ensemble):
        over_networks = jax.vmap(over_samples, (0, 0, 0, None))
        noise_keys = keys.range_of(noise_key, 0, online.size)
        return over_networks(online.members, target.members, noise_keys, jnp.arange(BATCH))
    return over_samples(online, target, noise_key, jnp.arange(BATCH))


@pytest.mark.parametrize("agent", AGENTS)
def test_the_guided_target_s_mean_is_the_equation_for_every_agent(agent):
    """E y = r + gamma (1 - terminal) [alpha E Z'(s', a_base) + (1 - alpha) E Z'(s', a_hat)]."""
    learner, hyper, state, seen = prepared(f"{agent}+sadq", **GUIDED)
    targets = jax.jit(lambda state: learner.targets(state, hyper, KEY, seen))(state)
    expected, differs = jax.jit(lambda state: expected_means(learner, state, seen))(state)
    np.testing.assert_allclose(means_of(targets), expected, rtol=1e-4, atol=1e-5)
    assert np.any(differs & ~seen.terminal), "where both choices agree, alpha would not show"
    ongoing = ~np.asarray(seen.terminal)
    worth = ((expected - seen.batch.reward) / GAMMA)[..., ongoing]
    np.testing.assert_allclose(targets.bootstrap[..., ongoing], worth, atol=5e-5)
    alone = means_of(targets)[..., ~ongoing] - seen.batch.reward[~ongoing]
    np.testing.assert_allclose(alone, 0, atol=1e-6)


HEADED = ["dqn", "c51", "qrdqn", "iqn", "fqf", "bdqn", "rainbow", "sunrise"]
"""An agent for every head, and those with noise and with several networks."""


@pytest.mark.parametrize("agent", HEADED)
def test_the_loss_moves_with_the_target_network_and_its_gradient_stops_there(agent):
    """The gradient is that of the distance from constants, even right after a copy, when both networks are one."""
    learner, hyper, state, seen = prepared(agent, max_gradient_norm=None, soft_target_rate=0.5)

    @jax.jit
    def update(target, online):
        own = state._replace(target=target, online=state.online._replace(parameters=online))
        after, surprise, measured = learner.value_update(
            own, hyper, hyper.learning_rate, KEY, seen, jnp.ones(BATCH), jnp.int32(0)
        )
        return measured["loss"], surprise, after.online.moments.first, learner.targets(own, hyper, KEY, seen)

    online = state.online.parameters
    before, moved = (
        update(target, online)[0] for target in (state.target, jax.tree.map(lambda x: 1.1 * x, state.target))
    )
    ongoing = np.asarray(seen.batch.discount) > 0
    assert (np.abs(before - moved) > 1e-7)[ongoing].all()
    np.testing.assert_allclose(before[~ongoing], moved[~ongoing], rtol=1e-5)

    losses, surprise, first, targets = update(online, online)
    expected = jax.jit(lambda online: jax.grad(lambda own: distance(learner, own, targets, seen))(online))(online)
    mark_free = online.separately_optimised()
    # Adam's first moment after one step is a tenth of the gradient; what RMSprop moves has none.
    got = jax.tree.map(lambda leaf, skip, wanted: wanted if skip else 10 * leaf, first, mark_free, expected)
    assert_close(got, expected, rtol=2e-3, atol=1e-6)
    if agent in ("c51", "rainbow", "qrdqn", "iqn", "fqf"):
        np.testing.assert_allclose(surprise, losses, rtol=1e-5)  # a distribution's priority is its loss


def distance(learner: Learner, online: Any, targets: Any, seen: Seen) -> jax.Array:
    """The mean loss of the batch to given targets, from whole returns; of an ensemble, weighted and summed."""
    batch = seen.batch

    def of_one(network: ValueNetwork, noise_key, returns) -> jax.Array:
        network = network.with_noise(keys.purpose(noise_key, "online"))

        def loss(index, target):
            level_key = keys.at(keys.purpose(KEY, "online"), index)
            taken = network(batch.observation[index], None, level_key).taken(batch.action[index])
            return taken.loss_to(jax.lax.stop_gradient(target))

        return jax.vmap(loss)(jnp.arange(BATCH), returns)

    noise_key = keys.purpose(KEY, "noise")
    if not isinstance(online, Ensemble):
        return jnp.mean(of_one(online, noise_key, targets.returns))
    losses = jax.vmap(of_one)(online.members, keys.range_of(noise_key, 0, online.size), targets.returns)
    spread = jnp.sqrt(jnp.mean(jnp.square(targets.bootstrap - jnp.mean(targets.bootstrap, axis=0)), axis=0))
    weight = 1 / (1 + jnp.exp(10.0 * spread)) + 0.5
    return jnp.sum(jnp.mean(weight * losses, axis=1))


@pytest.mark.parametrize(("agent", "reads"), [("c51", False), ("rainbow", True), ("bdqn", True), ("iqn", False)])
def test_only_double_reads_the_online_network(agent, reads):
    learner, hyper, state, seen = prepared(agent)
    flipped = jax.tree.map(jnp.negative, state.online.parameters)
    other = state._replace(online=state.online._replace(parameters=flipped))
    targets = jax.jit(lambda own: learner.targets(own, hyper, KEY, seen).returns)
    assert (difference(targets(state), targets(other)) > 0) == reads


# Noise and levels


def test_levels_of_selection_target_online_and_rollouts_are_drawn_apart(monkeypatch):
    """Every sample has four sets of levels; its rollouts share theirs, so that actions are compared at equal levels."""
    drawn: list[np.ndarray] = []
    original = ImplicitHead._levels

    def spied(self, key):
        levels = original(self, key)
        jax.debug.callback(lambda own: drawn.append(np.asarray(own)), levels)
        return levels

    learner, hyper, state, seen = prepared("iqn+sadq", **GUIDED)
    monkeypatch.setattr(ImplicitHead, "_levels", spied)
    arguments = (hyper, hyper.learning_rate, KEY, seen, jnp.ones(BATCH), jnp.int32(0))
    jax.block_until_ready(jax.jit(lambda own: learner.value_update(own, *arguments)[1])(state))
    jax.effects_barrier()
    sets = {own.tobytes() for calls in drawn for own in calls.reshape(-1, 4)}
    assert len(sets) == 4 * BATCH
    midpoints = (np.arange(4, dtype=np.float32) + 0.5) / 4
    assert midpoints.tobytes() not in sets


def test_selection_target_and_online_networks_draw_their_noise_apart():
    """With equal parameters in all of them, a common draw would make a Double choice that of the target itself."""
    learner, hyper, state, seen = prepared("rainbow")
    online = state.online.parameters
    noise_key = keys.purpose(KEY, "noise")
    drawn = [online.with_noise(keys.purpose(noise_key, purpose)) for purpose in ("target", "select", "online")]
    observation = seen.batch.observation[0]
    values = np.stack([network.mean(observation) for network in drawn])
    assert len(np.unique(values)) == values.size
    fresh = online.with_noise(keys.purpose(keys.purpose(keys.member_key(10), "noise"), "target"))
    assert not np.isclose(fresh.mean(observation), values[0]).any(), "another update, another draw"


def test_a_gate_compares_at_the_target_s_own_noise():
    """Rollouts and the gate read the network whose returns are mixed: without noise in it, nothing of theirs moves."""
    fields = GUIDED | {"model": dataclasses.replace(GUIDED["model"], gate="batch")}
    learner, hyper, state, seen = prepared("rainbow+sadq", **fields)
    targets = jax.jit(lambda own, key: learner.targets(own, hyper, key, seen))
    other = keys.member_key(4)
    assert difference(targets(state, KEY).returns, targets(state, other).returns) > 0
    silent = jax.tree_util.tree_map_with_path(
        lambda path, leaf: 0 * leaf if "spread" in jax.tree_util.keystr(path) else leaf,
        (state.target, state.online),
    )
    quiet = state._replace(target=silent[0], online=silent[1])
    assert difference(targets(quiet, KEY).returns, targets(quiet, other).returns) == 0

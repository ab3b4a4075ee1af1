"""The target of every agent against the equation written out, and who reads which network, noise and level."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import phase_of, ready, update_of

from sadq import keys
from sadq.agents import AGENTS
from sadq.core.bootstrap import Double
from sadq.core.gates import BatchReliability
from sadq.dynamics import Gaussian
from sadq.learning.guidance import Seen
from sadq.learning.learner import Learner
from sadq.learning.state import LearnerState
from sadq.networks import ImplicitHead, Network, ensemble_keys
from tiny import BATCH, KEY, difference

ALPHA, GAMMA, ACTIONS = 0.3, 0.9, 3
GUIDED: dict[str, Any] = {"alpha": (ALPHA,), "model": Gaussian(hidden=(8,), rollout="mean")}


def means_of(targets) -> jax.Array:
    """Of the backed-up returns: f32[K, B]."""
    return jax.vmap(jax.vmap(lambda z: z.mean))(targets.returns)


def expected_means(learner: Learner, state: LearnerState, seen: Seen, key: Any) -> tuple[jax.Array, jax.Array]:
    """(y, whether the two choices differ), [K, B], sample by sample and network by network, from whole returns alone."""
    batch = seen.batch

    def of_one(online: Network, target: Network, noise_key, index) -> tuple[jax.Array, jax.Array]:
        target = target.drawn(keys.purpose(noise_key, "target"))
        online = online.drawn(keys.purpose(noise_key, "select"))
        following = batch.next_observation[index]

        def values(network: Network, where, purpose: str) -> jax.Array:
            return network.sampled(keys.at(keys.purpose(key, purpose), index))(where).mean

        selecting = online if isinstance(learner.bootstrap, Double) else target
        base = jnp.argmax(values(selecting, following, "select"))
        worth, chosen = values(target, following, "target"), base
        if learner.guidance is not None:
            model = state.model.parameters
            levels = keys.purpose(keys.at(keys.purpose(key, "rollout"), index), "levels")
            scores = []
            for action in range(ACTIONS):
                predicted = model.step(model.encode(following), jnp.int32(action), key)
                scores.append(predicted.reward + GAMMA * target.sampled(levels)(predicted.next_input).mean.max())
            chosen = jnp.argmax(jnp.stack(scores))
        alpha = 1.0 if learner.guidance is None else ALPHA
        mixed = alpha * worth[base] + (1 - alpha) * worth[chosen]
        return batch.reward[index] + jnp.where(seen.terminal[index], 0, GAMMA) * mixed, base != chosen

    over_samples = jax.vmap(of_one, (None, None, None, 0))
    over_networks = jax.vmap(over_samples, (0, 0, 0, None))
    noise_keys = ensemble_keys(keys.purpose(key, "noise"), learner.ensemble.size)
    return over_networks(state.online.parameters, state.target, noise_keys, jnp.arange(BATCH))


@pytest.mark.parametrize("agent", AGENTS)
def test_the_guided_target_s_mean_is_the_equation_for_every_agent(agent):
    """E y = r + gamma (1 - terminal) [alpha E Z'(s', a_base) + (1 - alpha) E Z'(s', a_hat)]."""
    learner, hyper, state, seen = ready(f"{agent}+sadq", **GUIDED)
    targets = jax.jit(learner.targets)(state, hyper, KEY, seen)
    expected, differs = jax.jit(lambda *given: expected_means(learner, *given))(state, seen, KEY)
    assert targets.bootstrap.shape == expected.shape == (learner.ensemble.size, BATCH)
    np.testing.assert_allclose(means_of(targets), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(targets.diagnostics["disagreement"], differs)
    assert np.any(differs & ~seen.terminal), "where both choices agree, alpha would not show"
    ongoing = ~np.asarray(seen.terminal)
    worth = ((expected - seen.batch.reward) / GAMMA)[..., ongoing]
    np.testing.assert_allclose(targets.bootstrap[..., ongoing], worth, atol=5e-5)
    alone = means_of(targets)[..., ~ongoing] - seen.batch.reward[~ongoing]
    np.testing.assert_allclose(alone, 0, atol=1e-6)


def test_diagnostics_say_how_much_lower_a_mixed_target_is():
    learner, hyper, state, seen = ready("dueling+sadq", **GUIDED)
    targets = jax.jit(learner.targets)(state, hyper, KEY, seen)
    target = jax.tree.map(lambda leaf: leaf[0], state.target)
    best = jax.vmap(lambda one: target(one).mean.max())(seen.batch.next_observation)
    lower = np.asarray(best - targets.bootstrap[0])
    np.testing.assert_allclose(targets.diagnostics["greedy_minus_mixed"][0], lower, atol=1e-5)
    assert (lower > -1e-6).all() and (lower > 1e-2).any()
    np.testing.assert_allclose(targets.diagnostics["alpha"], ALPHA, rtol=1e-6)


@pytest.mark.parametrize("agent", ["dqn", "double", "dueling", "dueling+sadq"])
def test_targets_read_the_target_network_s_values(agent):
    learner, hyper, state, seen = ready(agent)
    moved = state._replace(target=jax.tree.map(lambda leaf: leaf + 0.1, state.target))
    targets = jax.jit(learner.targets)
    before, after = (targets(own, hyper, KEY, seen).returns.values[0] for own in (state, moved))
    ongoing = np.asarray(seen.batch.discount) > 0
    assert (np.abs(before - after) > 1e-4)[ongoing].all()
    np.testing.assert_array_equal(before[~ongoing], np.asarray(seen.batch.reward)[~ongoing])


@pytest.mark.parametrize(
    ("agent", "reads"), [("dqn", False), ("double", True), ("c51", False), ("bdqn", True), ("iqn", False)]
)
def test_only_double_reads_the_online_network(agent, reads):
    learner, hyper, state, seen = ready(agent)
    flipped = jax.tree.map(jnp.negative, state.online.parameters)
    other = state._replace(online=state.online._replace(parameters=flipped))
    targets = jax.jit(learner.targets)
    found = [targets(own, hyper, KEY, seen).returns for own in (state, other)]
    assert (difference(*found) > 0) == reads


# Noise and levels


def test_levels_of_selection_target_online_and_rollouts_are_drawn_apart(monkeypatch):
    """Every sample has four sets of levels; its rollouts share theirs, so that actions are compared at equal levels."""
    drawn: list[np.ndarray] = []
    original = ImplicitHead._levels

    def spied(self):
        levels = original(self)
        jax.debug.callback(lambda own: drawn.append(np.asarray(own)), levels)
        return levels

    learner, hyper, state, seen = ready("iqn+sadq", **GUIDED)
    monkeypatch.setattr(ImplicitHead, "_levels", spied)
    phase = phase_of(learner, hyper)
    jax.block_until_ready(jax.jit(learner.value_update)(state, phase, update_of(seen)))
    jax.effects_barrier()
    sets = {own.tobytes() for calls in drawn for own in calls.reshape(-1, 4)}
    assert len(sets) == 4 * BATCH
    midpoints = (np.arange(4, dtype=np.float32) + 0.5) / 4
    assert midpoints.tobytes() not in sets


@functools.cache
def rainbow() -> tuple[Any, ...]:
    """With a gate that looks at the model's error, and a program for its targets by key."""
    learner, hyper, state, seen = ready("rainbow+sadq", **GUIDED, gate=BatchReliability())
    run = jax.jit(learner.targets)
    return state, seen, lambda own, key, seen: run(own, hyper, key, seen)


def test_selection_target_and_online_networks_draw_their_noise_apart():
    """With equal parameters in all of them, a common draw would make a Double choice that of the target itself."""
    state, seen, _ = rainbow()
    online = jax.tree.map(lambda leaf: leaf[0], state.online.parameters)
    noise_key = keys.purpose(KEY, "noise")
    drawn = [online.drawn(keys.purpose(noise_key, purpose)) for purpose in ("target", "select", "online")]
    observation = seen.batch.observation[0]
    values = np.stack([network.mean(observation) for network in drawn])
    assert len(np.unique(values)) == values.size


def test_a_batch_shares_one_draw_and_another_update_has_another():
    state, seen, targets = rainbow()
    alike = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[1:2], leaf.shape), seen)
    found = np.asarray(targets(state, KEY, alike).bootstrap)
    np.testing.assert_allclose(found, np.broadcast_to(found[:, :1], found.shape), rtol=1e-5)
    assert (np.abs(found - np.asarray(targets(state, keys.member_key(4), alike).bootstrap)) > 1e-4).all()


def test_a_gate_compares_at_the_target_s_own_noise():
    """Rollouts and the gate read the network whose returns are mixed: without noise in it, nothing of theirs moves."""
    state, seen, targets = rainbow()
    other = keys.member_key(4)
    assert difference(targets(state, KEY, seen).returns, targets(state, other, seen).returns) > 0
    silent = jax.tree_util.tree_map_with_path(
        lambda path, leaf: 0 * leaf if "spread" in jax.tree_util.keystr(path) else leaf,
        (state.target, state.online),
    )
    quiet = state._replace(target=silent[0], online=silent[1])
    assert difference(targets(quiet, KEY, seen).returns, targets(quiet, other, seen).returns) == 0

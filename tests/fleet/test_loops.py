"""Both loops are one: over environments in JAX and outside it a fleet explores, waits, obeys and learns alike."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.envs.base import Environment
from sadq.experiment.build import hyper_of
from sadq.experiment.config import Epsilon
from sadq.exploration.situation import settled_values
from sadq.fleet import host_loop as host_module
from sadq.fleet import scan_loop as scan_module
from small_fleets import host_loop, scan_fleet, scan_loop
from tiny import CHUNK, config, corridor_config, difference, member


def kept(state):
    """A copy that the next chunk, which takes over the state's memory, leaves as it is."""
    return jax.tree.map(np.array, state)


def assert_same(scanned, hosted):
    """But for where the environments are."""
    assert scanned.environment is not None and hosted.environment is None
    assert difference(scanned._replace(environment=None), hosted) == 0


STARTS = 80  # in the middle of the third collect of 32 steps, eight at a time
NEVER = Epsilon((0.0,), (0.0,), (1.0,))


@pytest.mark.parametrize("make", [scan_loop, host_loop])
def test_before_learning_starts_actions_are_uniform_and_nothing_is_learned(make):
    made = config("dueling", "BitFlip-4", learning_starts=STARTS, epsilon=NEVER, seeds=(2, 4))
    loop, fleet, hyper = make(made, chunk=1), scan_fleet(made), hyper_of(made)
    start = kept(loop.start())
    state, states = loop.start(), []
    for index in range(4):
        state, metrics = loop.advance(state, index)
        states.append(kept(state))
        learned = (index + 1) * made.collect > STARTS
        for name in ("loss", "q", "delta_q"):
            assert np.isfinite(metrics[name]).all() == learned, name
        assert np.isfinite(metrics["episode_return"]).all()
    for waiting in states[:2]:
        assert difference(start.learner, waiting.learner) == 0
    for before, after in ((start, states[2]), (states[2], states[3])):
        assert difference(before.learner.online.parameters, after.learner.online.parameters) > 0
        assert difference(before.learner.target, after.learner.target) > 0
    steps = made.collect // made.environments
    for index in range(2):
        own = member(hyper, index)
        lottery = np.concatenate([fleet.plan(own, jnp.int32(collect)).noise.lottery for collect in range(3)])
        stored = member(states[2].replay, index)
        uniform, taken = lottery.argmax(axis=-1), stored.action[: 3 * steps]
        waits = STARTS // made.environments
        np.testing.assert_array_equal(taken[:waits], uniform[:waits])
        networks = member(start.learner.online.parameters, index)
        meant = [settled_values(networks, seen, None).argmax(axis=-1) for seen in stored.observation[waits : 3 * steps]]
        np.testing.assert_array_equal(taken[waits:], np.array(meant))
        assert (taken[waits:] != uniform[waits:]).any(), "else uniform actions would look like these"


@dataclasses.dataclass(frozen=True)
class Payday(Environment):
    """Every action pays its own number, four times."""

    name: str = "Payday"
    observation_size: int = 1
    action_count: int = 4
    max_steps: int = 4

    def initial(self, key):
        return jnp.ones(1)

    def transition(self, state, action, key):
        return state, action * 1.0, jnp.bool_(False)

    def observe(self, state):
        return state


OWNED = (2, 4)


def owned_loop(module_loop, made):
    """A fleet whose first member has the first two actions only; its store keeps who could do what."""
    hyper = hyper_of(made)._replace(actions=jnp.int32(OWNED))
    return module_loop(made, Payday(), hyper=hyper)


@pytest.fixture
def masked_store(monkeypatch):
    """A learner whose store has room for masks although the environment has none."""

    def masked(kind):
        def make(*, learner, **fields):
            store = dataclasses.replace(learner.store, has_masks=True)
            return kind(learner=dataclasses.replace(learner, store=store), **fields)

        return make

    import small_fleets

    monkeypatch.setattr(small_fleets, "ScanFleet", masked(scan_module.ScanFleet))
    monkeypatch.setattr(small_fleets, "Fleet", masked(host_module.Fleet))


@pytest.mark.exact
def test_a_member_with_fewer_actions_than_its_fleet_never_acts_or_looks_beyond_them(masked_store):
    """In both loops; nor does its target bootstrap from an action that it does not have, which would be worth more."""
    made = corridor_config("dueling+sadq", discount=(0.5,), seeds=(2, 4), evaluation_episodes=2)
    scan, host = owned_loop(scan_loop, made), owned_loop(host_loop, made)
    scanned, hosted = scan.start(), host.start()
    for index in range(8):
        scanned, _ = scan.advance(scanned, index * CHUNK)
        hosted, _ = host.advance(hosted, index * CHUNK)
    assert_same(scanned, hosted)
    for index, owned in enumerate(OWNED):
        replay = member(scanned.replay, index)
        rows = np.asarray(replay.mask).any(axis=(1, 2))
        assert set(np.unique(np.asarray(replay.action)[rows])) == set(range(owned))
        for mask in (replay.mask, replay.next_mask):
            assert (np.asarray(mask)[rows] == (np.arange(4) < owned)).all()
        mask = jnp.arange(4)[None] < owned
        values = settled_values(member(scanned.learner.online.parameters, index), jnp.ones((1, 1)), mask)[0, :owned]
        # r + gamma * best / (1 - gamma), with gamma 1/2
        np.testing.assert_allclose(values, np.arange(owned) + owned - 1, atol=0.3)
    for loop, state in ((scan, scanned), (host, hosted)):
        np.testing.assert_array_equal(loop.evaluate(state, 0).returns, [[4.0, 4.0], [12.0, 12.0]])

"""A fleet's members are independent: each is its solo run, whatever loop, axis or device carries it."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.envs.host import NativeAsHost
from sadq.envs.native import BitFlip
from sadq.experiment.build import hyper_of, make_learner, members_of, resolve
from sadq.experiment.networks import make_exploration
from sadq.fleet.members import Fleet
from sadq.fleet.host_loop import HostLoop
from sadq.fleet.scan_loop import ScanFleet, ScanLoop
from tiny import CHUNK, MaskedCorridor, advanced, config, corridor_config, difference, loop_of, member


@pytest.fixture(scope="module")
def fleet():
    """Two seeds by two alphas, after two chunks."""
    made = config("dueling+sadq", "CartPole-v1", seeds=(3, 5), alpha=(0.2, 0.7))
    return made, advanced(loop_of(made), 2)


def test_every_member_is_its_solo_run_bit_for_bit(fleet):
    made, state = fleet
    for index in (0, 3):
        own = members_of(made)[index]
        solo = dataclasses.replace(made, seeds=(own["seed"],), alpha=(own["alpha"],))
        assert difference(member(state, index), member(advanced(loop_of(solo), 2), 0)) == 0


def test_members_side_by_side_are_the_same_up_to_the_order_of_sums(fleet):
    """`vectorise=True` is what accelerators use; batched products round differently, so only a short run is compared."""
    made, _ = fleet
    environment = resolve(made.environment)
    loops = [
        ScanLoop(
            ScanFleet(make_learner(made, environment), 4, environment=environment, vectorise=vectorise),
            hyper_of(made),
            1,
        )
        for vectorise in (False, True)
    ]
    states = [loop.advance(loop.start(), 0)[0] for loop in loops]
    for one, other in zip(jax.tree.leaves(states[0]), jax.tree.leaves(states[1]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_same_seed_same_start_and_other_seeds_share_nothing():
    made = config("dqn+sadq", seeds=(3, 5), alpha=(0.2, 0.7))
    state = loop_of(made).start()
    seeds = [own["seed"] for own in members_of(made)]
    assert seeds == [3, 5, 3, 5]
    assert difference(member(state.learner, 0), member(state.learner, 2)) == 0
    for one, other in zip(
        jax.tree.leaves(member(state.learner.online.parameters, 0)),
        jax.tree.leaves(member(state.learner.online.parameters, 1)),
        strict=True,
    ):
        assert not np.isin(np.asarray(one), np.asarray(other)).any()


def test_members_may_differ_in_every_traced_number():
    made = config(
        "dqn",
        learning_rate=(1e-3, 1e-2),
        discount=(0.9, 0.99),
        epsilon=dataclasses.replace(config("dqn").epsilon, start=(1.0, 0.2)),
    )
    assert len(members_of(made)) == 8
    state = advanced(loop_of(made), 1)
    first = jax.tree.leaves(state.learner.online.parameters)[0]
    assert len({first[index].tobytes() for index in range(8)}) == 8


@pytest.mark.parametrize(
    ("agent", "environment"), [("bdqn", "BitFlip-4"), ("teg", "CartPole-v1"), ("dueling+sadq", "Acrobot-v1")]
)
def test_scan_loop_and_host_loop_are_the_same_bit_for_bit(agent, environment):
    """Also where acting has a memory: BDQN's weights, TEG's repetitions."""
    made = config(agent, environment, seeds=(2, 4))
    native = resolve(environment)
    hyper, learner, seeds = hyper_of(made), make_learner(made, native), [2, 4]
    rule = make_exploration(made)
    scan = ScanLoop(ScanFleet(learner, 4, rule, environment=native), hyper, CHUNK)
    host = HostLoop(
        Fleet(learner, 4, rule),
        hyper,
        CHUNK,
        NativeAsHost(native, seeds, made.environments),
        NativeAsHost(native, seeds, made.evaluation_episodes, purpose="evaluate"),
    )
    scanned, hosted = scan.start(), host.start()
    for index in range(3):
        scanned, scan_metrics = scan.advance(scanned, index * CHUNK)
        hosted, host_metrics = host.advance(hosted, index * CHUNK)
    assert difference(scanned.ring, hosted.ring) == 0
    assert difference(scanned.learner, hosted.learner) == 0
    assert difference((scanned.memory, scanned.fresh), (hosted.memory, hosted.fresh)) == 0
    assert set(scan_metrics) == set(host_metrics)
    for name, values in scan_metrics.items():
        np.testing.assert_allclose(values, host_metrics[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("unit", "interval", "copies"), [("steps", 96, [3, 6]), ("updates", 40, [4, 8]), ("steps", 80, [3, 5, 8])]
)
def test_the_target_is_copied_at_its_interval(unit, interval, copies):
    """32 steps and 10 updates a collect; where the interval is not a multiple, the collect that passes it copies."""
    made = config("dqn", soft_target_rate=None, target_update_interval=interval, target_update_unit=unit)
    environment = resolve(made.environment)
    shared = {"target_interval": interval, "target_unit": unit}
    loop = ScanLoop(ScanFleet(make_learner(made, environment), 4, environment=environment, **shared), hyper_of(made), 1)
    state, seen = loop.start(), []
    for index in range(8):
        state, _ = loop.advance(state, index)
        if difference(state.learner.target, state.learner.online.parameters) == 0:
            seen.append(index + 1)
    assert seen == copies


@pytest.mark.parametrize("agent", ["dueling+sadq", "rainbow+sadq"])
def test_agents_learn_a_corridor_where_one_action_is_illegal(agent):
    """Illegal actions are never stored, and the values of the legal ones are known."""
    loop = loop_of(corridor_config(agent, evaluation_episodes=8), MaskedCorridor())
    state = loop.start()
    for index in range(12):
        state, _ = loop.advance(state, index * CHUNK)
    first_cell = np.asarray(state.ring.observation)[0, ..., 0] == 1
    assert first_cell.any() and (np.asarray(state.ring.action)[0][first_cell] == 1).all()
    lengths = np.asarray(loop.evaluate(state, 0).lengths)
    assert (lengths <= 4).all() and len(np.unique(lengths)) > 1
    policy, environment = member(state.learner, 0).actor.policy, MaskedCorridor()
    legal = jax.vmap(environment.legal)(jnp.eye(5)[:4])
    values = jnp.where(legal, jax.vmap(policy.mean)(jnp.eye(5)[:4], legal), -jnp.inf)
    np.testing.assert_allclose(values.max(axis=1), 0.9 ** np.array([3, 2, 1, 0]), atol=0.06)
    np.testing.assert_array_equal(values.argmax(axis=1), 1)


def test_evaluation_depends_on_its_number_and_the_seed_alone():
    made = config("dqn", "CartPole-v1", seeds=(0, 1), evaluation_episodes=4)
    loop = loop_of(made)
    state = loop.start()
    first, again, other = (np.asarray(loop.evaluate(state, number).discounted) for number in (0, 0, 7))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


SHARDED = """
import jax, numpy as np, sys
sys.path.insert(0, {tests!r})
from tiny import advanced, config, loop_of
assert jax.device_count() == {devices}
made = config("dqn+sadq", "CartPole-v1", seeds=(0, 1, 2, 3), steps=320)
loop = loop_of(made)
state = loop.start()
state, metrics = loop.advance(state, 0)
leaf = jax.tree.leaves(state.learner.online.parameters)[0]
assert len(leaf.sharding.device_set) == {devices}
evaluation = loop.evaluate(state, 1)
np.savez({out!r}, *map(np.asarray, jax.tree.leaves((state, evaluation))))
"""


def test_a_fleet_is_spread_over_several_devices(tmp_path):
    results = []
    for devices in (1, 2):
        out = str(tmp_path / f"{devices}.npz")
        script = SHARDED.format(tests=str(Path(__file__).parent), devices=devices, out=out)
        flags = f"--xla_force_host_platform_device_count={devices}"
        subprocess.run([sys.executable, "-c", script], check=True, env=os.environ | {"XLA_FLAGS": flags})
        results.append(np.load(out))
    for name in results[0].files:
        np.testing.assert_allclose(results[0][name], results[1][name], rtol=1e-5, atol=1e-6)


def test_noise_of_a_step_does_not_depend_on_how_collects_are_cut():
    """Keys are those of absolute steps, so a member explores alike whatever the length of its collects."""
    made = config("dqn")
    learner, hyper = make_learner(made, BitFlip(bits=4)), member(hyper_of(made), 0)
    long = Fleet(learner, 8).plan(hyper, jnp.int32(0))
    short = Fleet(learner, 4).plan(hyper, jnp.int32(1))
    np.testing.assert_array_equal(long.step[4:], short.step)
    np.testing.assert_array_equal(long.epsilon[4:], short.epsilon)
    np.testing.assert_array_equal(long.noise.coin[4:], short.noise.coin)
    assert (long.noise.key[4:] == short.noise.key).all()
    assert not np.array_equal(long.noise.coin[:4], short.noise.coin)
    assert keys.at(keys.member_key(0), 1) != keys.at(keys.member_key(0), 2)

"""A fleet's members are independent: each is its solo run, whatever else is in its fleet."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq.envs.native import BitFlip
from sadq.errors import SadqError
from sadq.experiment.build import hyper_of, members_of
from sadq.exploration import Rule
from sadq.exploration.situation import settled_values
from sadq.fleet.members import Fleet
from sadq.networks import Dense, Quantile
from shared_programs import shared
from small_fleets import parts, scan_fleet, scan_loop
from tiny import CHUNK, MaskedCorridor, advanced, config, corridor_config, difference, loop_of, member


@pytest.mark.exact
@pytest.mark.users
def test_every_member_is_its_solo_run_bit_for_bit():
    made = config("dueling+sadq", "CartPole-v1", seeds=(3, 5), alpha=(0.2, 0.7))
    state = advanced(loop_of(made), 2)
    for index in (0, 3):
        own = members_of(made)[index]
        solo = dataclasses.replace(made, seeds=(own["seed"],), alpha=(own["alpha"],))
        with shared("solo", traced=False):
            loop = loop_of(solo)
        assert difference(member(state, index), member(advanced(loop, 2), 0)) == 0
    assert difference(member(state, 0), member(state, 3)) > 0


@pytest.mark.exact
def test_alpha_one_of_a_mixture_whose_loops_leave_a_rest_is_the_base_agent_bit_for_bit():
    """Of 4 samples with 5 quantiles, which are no whole number of vectors."""
    sizes = {"environments": 2, "collect": 8, "batch_size": 4, "updates_per_collect": 2, "buffer_size": 64}
    sizes |= {"encoder": Dense((8,)), "head": Quantile(quantiles=5, mixing="mixture"), "learning_rate": (5e-4,)}
    plain, guided = (
        advanced(loop_of(config(agent, "BitFlip-3", alpha=alpha, **sizes)), 1).learner.online
        for agent, alpha in (("qrdqn", None), ("qrdqn+sadq", (1.0,)))
    )
    assert (plain.steps > 0).all() and difference(plain, guided) == 0


def test_same_seed_same_start_and_other_seeds_share_nothing():
    made = config("dqn+sadq", seeds=(3, 5), alpha=(0.2, 0.7))
    state = loop_of(made).start()
    seeds = [own["seed"] for own in members_of(made)]
    assert seeds == [3, 5, 3, 5]
    assert difference(member(state.learner, 0), member(state.learner, 2)) == 0
    pairs = zip(
        jax.tree.leaves(member(state.learner.online.parameters, 0)),
        jax.tree.leaves(member(state.learner.online.parameters, 1)),
        strict=True,
    )
    compared = [np.isin(np.asarray(one), np.asarray(other)).any() for one, other in pairs]
    assert len(compared) == 8 and not any(compared)


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


@pytest.mark.parametrize("actions", [jnp.zeros(8), jnp.zeros(7, int), jnp.int32(0), jnp.zeros((8, 1), int), None])
def test_a_rule_that_does_not_give_every_lane_an_action_is_refused(actions):
    class Careless(Rule):
        def act(self, now, memory):
            return actions, memory

    made = config("dqn", "BitFlip-3")
    careless = dataclasses.replace(scan_fleet(made), exploration=Careless())
    with pytest.raises(
        SadqError, match=r"^Careless gave the actions .*, expected one for each of 8 lanes, i32\[E\]: fix"
    ):
        jax.eval_shape(lambda own: careless.chunk(careless.init(own), own, jnp.int32(0), 1), member(hyper_of(made), 0))


@pytest.mark.parametrize(
    ("unit", "interval", "copies"), [("steps", 96, [3, 6]), ("updates", 40, [4, 8]), ("steps", 80, [3, 5, 8])]
)
def test_the_target_is_copied_at_its_interval(unit, interval, copies):
    """32 steps and 10 updates a collect; where the interval is not a multiple, the collect that passes it copies."""
    made = config("dqn", soft_target_rate=None, target_update_interval=interval, target_update_unit=unit)
    loop = scan_loop(made, chunk=1)
    state, seen = loop.start(), []
    for index in range(8):
        state, _ = loop.advance(state, index)
        if difference(state.learner.target, state.learner.online.parameters) == 0:
            seen.append(index + 1)
    assert seen == copies


@pytest.mark.parametrize("agent", ["dueling+sadq", pytest.param("rainbow+sadq", marks=pytest.mark.thorough)])
def test_agents_learn_a_corridor_where_one_action_is_illegal(agent):
    """Illegal actions are never stored, and the values of the legal ones are known."""
    environment = MaskedCorridor()
    loop = loop_of(corridor_config(agent, evaluation_episodes=8), environment)
    state = loop.start()
    for index in range(12):
        state, _ = loop.advance(state, index * CHUNK)
    first_cell = np.asarray(state.replay.observation)[0, ..., 0] == 1
    assert first_cell.any() and (np.asarray(state.replay.action)[0][first_cell] == 1).all()
    lengths = np.asarray(loop.evaluate(state, 0).lengths)
    assert (lengths <= 4).all() and len(np.unique(lengths)) > 1
    cells = jnp.eye(5)[:4]
    legal = jax.vmap(environment.legal)(cells)
    networks = member(state.learner.online.parameters, 0)
    values = jnp.where(legal, settled_values(networks, cells, legal), -jnp.inf)
    np.testing.assert_allclose(values.max(axis=1), 0.9 ** np.array([3, 2, 1, 0]), atol=0.06)
    np.testing.assert_array_equal(values.argmax(axis=1), 1)


def test_evaluation_depends_on_its_number_and_the_seed_alone():
    made = config("dqn", "CartPole-v1", seeds=(0, 1), evaluation_episodes=4)
    loop = loop_of(made)
    state = loop.start()
    first, again, other = (np.asarray(loop.evaluate(state, number).predicted) for number in (0, 0, 7))
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first, other).any()
    # The same network in both members' places: only where their episodes begin tells them apart.
    twins = jax.tree.map(lambda leaf: jnp.stack([leaf[0], leaf[0]]), state)
    predicted = np.asarray(loop.evaluate(twins, 0).predicted)
    np.testing.assert_array_equal(predicted[0], first[0])
    assert not np.isin(predicted[1], predicted[0]).any()


def test_noise_of_a_step_does_not_depend_on_how_collects_are_cut():
    """Keys are those of absolute steps, so a member explores alike whatever the length of its collects."""
    made, environment = config("dqn"), BitFlip(bits=4)
    whole, hyper = Fleet(**parts(made, environment)), member(hyper_of(made), 0)

    def cut(steps: int) -> Fleet:
        return dataclasses.replace(whole, learner=dataclasses.replace(whole.learner, collect_steps=steps))

    long, short = cut(8).plan(hyper, jnp.int32(0)), cut(4).plan(hyper, jnp.int32(1))
    np.testing.assert_array_equal(long.step, np.arange(8) * made.environments)
    np.testing.assert_array_equal(long.step[4:], short.step)
    np.testing.assert_array_equal(long.epsilon[4:], short.epsilon)
    for whole_noise, part in ((long.noise.coin, short.noise.coin), (long.noise.lottery, short.noise.lottery)):
        np.testing.assert_array_equal(whole_noise[4:], part)
        assert len(np.unique(whole_noise)) == whole_noise.size, "no two steps, lanes or actions share a number"
    keys = jax.random.key_data(long.noise.key)
    np.testing.assert_array_equal(keys[4:], jax.random.key_data(short.noise.key))
    assert len(np.unique(keys, axis=0)) == 8

"""From a config to a fleet: the grid of steps, the members of a sweep, the learner's parts, the memory it takes."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
import tiny_runs
from hypothesis import given
from hypothesis import strategies as st
from sadq.experiment.networks import make_exploration, support_of
from sadq.exploration.rules import Counteractive, EpsilonGreedy, Greedy, TemporallyExtended, Thompson, UpperConfidence

from sadq.agents import AGENTS
from sadq.envs import registry
from sadq.errors import SadqError
from sadq.experiment import build
from sadq.experiment.build import MAX_CHUNK, Grid, check_memory, hyper_of, make_learner, members_of
from sadq.experiment.config import Bayesian, Behaviour, Config, Distribution
from sadq.experiment.run import create
from sadq.networks import (
    BayesianHead,
    CategoricalHead,
    Ensemble,
    FractionHead,
    ImplicitHead,
    NoisyLinear,
    QuantileHead,
    ScalarHead,
)

PLAIN = Config(agent="dqn", alpha=None, target_update_interval=100)
BITFLIP = registry.make("BitFlip-3")

grids = st.builds(
    lambda steps, evaluations, origin: (steps, origin, Grid.of(planned(origin * 64 + steps, evaluations), origin)),
    steps=st.integers(1, 2_000_000),
    evaluations=st.integers(1, 300),
    origin=st.integers(0, 5_000),
)


def planned(steps, evaluations=100):
    return dataclasses.replace(PLAIN, steps=steps, evaluations=evaluations)


@given(grids)
def test_a_grid_covers_the_steps_and_exceeds_them_by_less_than_a_chunk(case):
    steps, origin, grid = case
    assert 0 <= (grid.end - origin) * 64 - steps < grid.chunk * 64


@given(grids)
def test_a_grid_is_made_of_whole_chunks(case):
    _, origin, grid = case
    assert 1 <= grid.chunk <= MAX_CHUNK
    assert (grid.end - origin) % grid.chunk == 0
    assert grid.interval % grid.chunk == 0


@given(grids)
def test_a_grid_evaluates_at_its_start_at_its_end_and_at_a_fixed_interval(case):
    _, origin, grid = case
    evaluated = [collect for collect in range(origin, grid.end + 1, grid.chunk) if grid.evaluates(collect)]
    assert evaluated[0] == origin
    assert evaluated[-1] == grid.end
    assert {after - before for before, after in itertools.pairwise(evaluated[:-1])} <= {grid.interval}


def test_a_grid_evaluates_at_least_as_often_as_asked():
    for steps in range(64, 64 * 10_000, 640):
        grid = Grid.of(planned(steps))
        evaluations = -(-grid.end // grid.interval)
        assert evaluations >= min(100, grid.end), steps


def test_a_grid_does_not_evaluate_much_more_often_than_asked():
    for steps in range(64 * 2_000, 64 * 10_000, 640):
        grid = Grid.of(planned(steps))
        assert grid.end / grid.interval < 1.1 * 100, steps


def test_where_training_may_pause_does_not_depend_on_where_it_paused_before():
    assert Grid.of(planned(6_400, 10)) == Grid(origin=0, end=100, chunk=10, interval=10)
    assert Grid.of(planned(12_800, 10), origin=100) == Grid(origin=100, end=200, chunk=10, interval=10)


def test_members_are_the_product_of_every_sweep_and_the_seeds():
    config = dataclasses.replace(
        tiny_runs.TINY,
        alpha=(0.0, 0.2, 1.0),
        learning_rate=(1e-3, 1e-4),
        discount=(0.9, 0.99),
        epsilon=dataclasses.replace(tiny_runs.TINY.epsilon, start=(1.0, 0.5), end=(0.1, 0.0), decay=(10.0, 20.0)),
        seeds=(3, 7, 9),
    )
    members = members_of(config)
    seen = {tuple(member.values()) for member in members}
    expected = itertools.product(
        (0.0, 0.2, 1.0), (1e-3, 1e-4), (0.9, 0.99), (1.0, 0.5), (0.1, 0.0), (10.0, 20.0), (3, 7, 9)
    )
    assert len(members) == 3 * 2 * 2 * 2 * 2 * 2 * 3
    assert seen == set(expected)
    assert [member["seed"] for member in members[:4]] == [3, 7, 9, 3], "seeds vary fastest, so pairs stand together"


def test_the_compiled_program_gets_each_members_own_numbers():
    config = dataclasses.replace(tiny_runs.TINY, alpha=(0.0, 0.5), learning_rate=(1e-2, 1e-3), seeds=(4, 2**32 - 1))
    hyper, members = hyper_of(config), members_of(config)
    assert all(leaf.shape == (8,) for leaf in jax.tree.leaves(hyper))
    for name in ("seed", "alpha", "learning_rate", "discount", "epsilon_start", "epsilon_end", "epsilon_decay"):
        own = np.array([member[name] for member in members]).astype(getattr(hyper, name).dtype)
        np.testing.assert_array_equal(getattr(hyper, name), own)


def test_a_plain_agent_is_built_without_any_model():
    learner = make_learner(PLAIN, BITFLIP)
    assert learner.guidance is None
    assert [member["alpha"] for member in members_of(PLAIN)] == [None]
    np.testing.assert_array_equal(hyper_of(PLAIN).alpha, [1.0])


def test_the_config_overrides_the_replay_of_an_agents_row():
    assert make_learner(PLAIN, BITFLIP).prioritised is None
    assert make_learner(PLAIN, BITFLIP).ring.steps == 1
    other = make_learner(dataclasses.replace(PLAIN, replay="prioritised", n_step=3), BITFLIP)
    assert other.prioritised.exponent == PLAIN.priority_exponent
    assert other.ring.steps == 3


#        head             rule      explores by         noisy  dueling networks
ROWS = {
    "dqn": (ScalarHead, "greedy", EpsilonGreedy, False, False, 1),
    "double": (ScalarHead, "double", EpsilonGreedy, False, False, 1),
    "dueling": (ScalarHead, "greedy", EpsilonGreedy, False, True, 1),
    "bdqn": (BayesianHead, "double", Thompson, False, False, 1),
    "sunrise": (ScalarHead, "greedy", UpperConfidence, False, False, 5),
    "c51": (CategoricalHead, "greedy", EpsilonGreedy, False, False, 1),
    "rainbow": (CategoricalHead, "double", Greedy, True, True, 1),
    "qrdqn": (QuantileHead, "greedy", EpsilonGreedy, False, False, 1),
    "iqn": (ImplicitHead, "greedy", EpsilonGreedy, False, False, 1),
    "fqf": (FractionHead, "greedy", EpsilonGreedy, False, False, 1),
    "teg": (CategoricalHead, "double", TemporallyExtended, False, True, 1),
    "coact": (QuantileHead, "greedy", Counteractive, False, False, 1),
}


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_is_built_as_its_row_says(agent):
    head, rule, exploration, noisy, dueling, networks = ROWS[agent]
    config = dataclasses.replace(PLAIN, agent=agent, hidden=(8,))
    learner = make_learner(config, BITFLIP)
    network = jax.eval_shape(learner.make_network, jax.random.key(0))
    single = network.members if isinstance(network, Ensemble) else network
    assert (learner.rule, type(single.head), type(make_exploration(config))) == (rule, head, exploration)
    assert getattr(network, "size", 1) == learner.ensemble_size == networks
    kinds = [
        type(node).__name__ for node in jax.tree.leaves(single, is_leaf=lambda node: isinstance(node, NoisyLinear))
    ]
    assert ("NoisyLinear" in kinds) == noisy
    if not isinstance(single.head, BayesianHead):
        stream = single.head.at.stream if hasattr(single.head, "at") else single.head.stream
        assert (stream.value is not None) == dueling
    assert (learner.inference is not None) == (agent == "bdqn")
    assert (learner.backup_temperature is not None) == (agent == "sunrise")
    assert (learner.prioritised is not None, learner.ring.steps) == (
        (True, 3) if agent in ("rainbow", "teg") else (False, 1)
    )


def test_the_numbers_of_axes_reach_what_they_describe():
    distribution = Distribution(atoms=7, support=(-2.0, 3.0), quantiles=9, levels=5, cosines=6, huber=0.5)
    behaviour = Behaviour(repeat_exponent=1.5, repeat_longest=9, counteractive_starts=11, ucb_width=2.5)
    config = dataclasses.replace(PLAIN, hidden=(8,), distribution=distribution, behaviour=behaviour)

    def built(agent: str):
        own = dataclasses.replace(config, agent=agent)
        return jax.eval_shape(make_learner(own, BITFLIP).make_network, jax.random.key(0)), make_exploration(own)

    categorical = built("c51")[0].head
    assert (categorical.atoms, categorical.low, categorical.high) == (7, -2.0, 3.0)
    assert categorical.stream.advantage.weight.shape == (8, 3 * 7)
    quantile, counteractive = built("coact")
    assert (quantile.head.quantiles, quantile.head.huber_at, counteractive.starts) == (9, 0.5, 11)
    implicit = built("iqn")[0].head
    assert (implicit.levels, implicit.at.cosines, implicit.huber_at) == (5, 6, 0.5)
    assert built("fqf")[0].head.proposal.weight.shape == (8, 5)
    assert built("teg")[1] == TemporallyExtended(1.5, 9)
    assert built("sunrise")[1] == UpperConfidence(2.5)


@pytest.mark.parametrize(
    ("environment", "support"),
    [
        ("CartPole-v1", (0.0, 100.0)),
        ("BitFlip-9", (0.0, 1.0)),
        ("Acrobot-v1", (-100.0, 0.0)),
        ("Other", (-100.0, 100.0)),
    ],
)
def test_a_support_is_the_config_s_or_the_environment_s(environment, support):
    assert support_of(PLAIN, environment) == support
    own = dataclasses.replace(PLAIN, distribution=Distribution(support=(1.0, 2.0)))
    assert support_of(own, environment) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("changes", "interval"),
    [
        ({"target_update_interval": 640}, 640),
        ({"target_update_interval": 50, "target_update_unit": "updates", "collect": 64, "updates_per_collect": 4}, 800),
        ({"target_update_interval": None, "soft_target_rate": 0.1}, build.REFIT_INTERVAL),
        ({"target_update_interval": 640, "bayesian": Bayesian(refit_interval=96)}, 96),
    ],
)
def test_a_posterior_is_refitted_with_the_target_s_copy_unless_told_otherwise(changes, interval):
    learner = make_learner(dataclasses.replace(PLAIN, agent="bdqn", **changes), BITFLIP)
    assert learner.inference.refit_interval == interval
    assert learner.inference.chunk <= learner.inference.samples


def test_the_encoder_has_the_configs_layers_and_the_head_adds_one():
    network = make_learner(dataclasses.replace(PLAIN, hidden=(16, 8)), BITFLIP).make_network(jax.random.key(0))
    assert [layer.weight.shape for layer in network.encoder.layers] == [(6, 16), (16, 8)]
    assert network.head.stream.hidden.weight.shape == (8, 8)
    assert network.head.stream.advantage.weight.shape == (8, 3)


def test_the_predicted_bytes_are_those_that_the_replay_takes():
    ring = make_learner(tiny_runs.TINY, BITFLIP).ring
    assert ring.nbytes == sum(leaf.nbytes for leaf in jax.tree.leaves(ring.init()))


def test_a_replay_that_cannot_fit_is_refused_with_the_figures(monkeypatch):
    learner = make_learner(tiny_runs.TINY, BITFLIP)
    monkeypatch.setattr(build, "free_bytes", lambda device: 4 * learner.ring.nbytes)
    assert check_memory(learner, 4) == 4 * learner.ring.nbytes
    huge = make_learner(dataclasses.replace(tiny_runs.TINY, buffer_size=10**9), BITFLIP)
    with pytest.raises(
        SadqError, match=r"needs 580\.00 GB for 10 members of 1,000,000,000 transitions, but .* has 0\.0"
    ):
        check_memory(huge, 10)


def test_memory_that_nobody_tells_is_not_refused(monkeypatch):
    monkeypatch.setattr(build, "free_bytes", lambda device: None)
    learner = make_learner(dataclasses.replace(tiny_runs.TINY, buffer_size=10**12), BITFLIP)
    assert check_memory(learner, 1) == learner.ring.nbytes


def test_this_machine_tells_its_free_memory():
    assert 10**6 < build.free_bytes(jax.devices("cpu")[0]) < 10**15


def test_a_refused_run_leaves_no_folder(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(SadqError, match="The replay needs"):
        create(dataclasses.replace(tiny_runs.TINY, buffer_size=10**13), out)
    with pytest.raises(SadqError, match="unknown environment"):
        create(dataclasses.replace(tiny_runs.TINY, environment="Nowhere-v0"), out)
    assert not out.exists()


def test_what_is_about_to_run_is_told_with_the_replays_bytes():
    config = dataclasses.replace(tiny_runs.TINY, buffer_size=200_000, seeds=(0, 1, 2))
    needed = make_learner(config, BITFLIP).ring.nbytes * 3 / 1e6
    expected = f"dueling+sadq on BitFlip-3: 3 members of 8,000 steps, replay {needed:,.1f} MB"
    assert create(config, None).describe() == expected

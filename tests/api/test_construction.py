"""What an agent is made from in Python: a name, numbers, choices, and the sentences that refuse the rest."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import MANY, PLAIN, STATES, networks_of

import sadq
from sadq import SADQ, SadqError
from sadq.axes import AXES
from sadq.experiment.presets import PRESETS
from sadq.exploration import Behaviour, Best, EpsilonZ, UpperConfidence
from sadq.exploration.situation import settled_values
from sadq.networks import Categorical, Quantile


def test_the_packages_front_gives_the_names_that_users_need():
    assert set(sadq.__all__) == {
        "SADQ",
        "AgentSpec",
        "Environment",
        "SadqError",
        "SadqWarning",
        "compare",
        "register",
        "register_agent",
    }
    assert all(getattr(sadq, name) for name in sadq.__all__)
    with pytest.raises(AttributeError, match="no attribute 'DQN'"):
        _ = sadq.DQN


@pytest.mark.parametrize(
    ("agent", "alpha", "expected"),
    [
        ("dueling+sadq", 0.3, ("dueling+sadq", (0.3,))),
        ("dqn+sadq", 1, ("dqn+sadq", (1.0,))),
        ("DQN+SADQ", None, ("dqn+sadq", (0.2,))),
        ("double+sadq", [0.0, 0.5], ("double+sadq", (0.0, 0.5))),
        ("sadq", None, ("dueling+sadq", (0.2,))),
        ("sadq", 0.0, ("dueling+sadq", (0.0,))),
        ("dqn", None, ("dqn", None)),
        ("double", None, ("double", None)),
    ],
)
def test_an_agent_is_named_as_on_the_command_line_and_alpha_is_the_presets_unless_given(agent, alpha, expected):
    config = SADQ("CartPole-v1", agent=agent, alpha=alpha).config
    assert (config.agent, config.alpha) == expected


def test_without_further_words_it_is_dueling_with_sadq_and_one_seed():
    config = SADQ("CartPole-v1").config
    assert (config.agent, config.alpha, config.seeds) == ("dueling+sadq", (0.2,), (0,))


@pytest.mark.parametrize(
    ("seeds", "expected"), [(1, (0,)), (5, (0, 1, 2, 3, 4)), ([7, 3], (7, 3)), (range(2, 4), (2, 3))]
)
def test_seeds_are_a_count_or_a_list(seeds, expected):
    assert SADQ("CartPole-v1", seeds=seeds).config.seeds == expected


def test_any_field_may_be_given_and_the_rest_comes_from_the_preset():
    config = SADQ("CartPole-v1", preset="cartpole", learning_rate=1e-2, discount=[0.9, 0.99], batch_size=7).config
    assert (config.learning_rate, config.discount, config.batch_size) == ((1e-2,), (0.9, 0.99), 7)
    assert config.encoder == PRESETS["cartpole"].encoder
    assert config.environment == "CartPole-v1"


def test_an_axis_takes_a_choice_its_class_or_its_name():
    for head in (Quantile(), Quantile, "quantile"):
        assert SADQ("CartPole-v1", agent="dqn", head=head).config.head == Quantile()
    acrobot = SADQ("Acrobot-v1", preset="acrobot", agent="dqn", head="categorical").config
    assert acrobot.head == Categorical(support=(-100.0, 0.0)), "by its name it is as the preset has it"
    assert SADQ("Acrobot-v1", preset="acrobot", head=Categorical(7)).config.head == Categorical(7)


@pytest.fixture
def own_rule(monkeypatch):
    """A whole behaviour of a user's own, taken back afterwards."""
    monkeypatch.setattr(AXES["exploration"], "_entries", {})

    @AXES["exploration"].register("contrary")
    @dataclasses.dataclass(frozen=True)
    class Contrary(Behaviour):
        def act(self, now, memory):
            return jnp.argmin(now.expected, axis=1).astype(jnp.int32), memory

    return Contrary


def test_a_rule_of_exploration_replaces_a_part_of_the_behaviour_or_the_whole(own_rule):
    agent = {"env": "BitFlip-3", "agent": "sunrise", **PLAIN}
    for rule in (EpsilonZ(), EpsilonZ, "epsilon-z"):
        config = SADQ(**agent | {"exploration": rule}).config
        assert (config.intended, config.deviation, config.exploration) == (None, EpsilonZ(), None)
        assert config.behaviour == Behaviour(UpperConfidence(), EpsilonZ())
    assert SADQ(**agent | {"exploration": "best"}).config.intended == Best()
    for rule in (own_rule(), own_rule, "contrary"):
        model = SADQ(**agent | {"exploration": rule})
        assert (model.config.behaviour, model.config.deviation) == (own_rule(), None)
    values = settled_values(networks_of(model), jnp.asarray(MANY), None)
    np.testing.assert_array_equal(model.predict(MANY, deterministic=False)[0], values.argmin(axis=1))


def test_before_learning_starts_exploring_is_uniform():
    early = SADQ("BitFlip-3", agent="rainbow", **PLAIN | {"learning_starts": 64})
    share = np.bincount(early.predict(np.repeat(STATES[:1], 9_000, axis=0), deterministic=False)[0]) / 9_000
    assert share == pytest.approx([1 / 3] * 3, abs=0.03)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"agent": "ppo"}, "Unknown agent 'ppo'"),
        ({"alpha": 1.1}, r"alpha = \(1.1,\) must lie in \[0, 1\]"),
        ({"agent": "dqn", "alpha": 0.5}, "alpha = 0.5 was given, but dqn is a plain agent that has none: use dqn"),
        ({"exploration": 3}, "exploration was given 3, expected an entry that is registered as intended, deviation or"),
        ({"exploration": "nope"}, "exploration was given 'nope', expected an entry"),
        ({"exploration": "ucb", "intended": "best"}, "exploration = 'ucb' was given beside intended"),
        ({"exploration": "ucb"}, "intended ucb needs an ensemble of 2 or more"),
        ({"head": "nope"}, "head = 'nope' is unknown"),
        ({"environment": "CartPole-v0"}, "Unknown field 'environment'"),
        ({"alpha": []}, "needs alpha"),
        ({"seeds": 0}, "seeds = 0 must be how many, from 1 to"),
        ({"seeds": [1, 1]}, "A seed appears twice"),
        ({"preset": "nope"}, "Unknown preset 'nope': expected one of default, acrobot"),
        ({"stepz": 3}, "Unknown field 'stepz': expected one of adjusted, agent, alpha, batch_size"),
        ({"batch_size": 0}, "batch_size = 0 must be a whole number of at least 1"),
        ({"buffer_size": 10**9, "seeds": 10_000}, "The fleet needs"),
        ({"buffer_size": 10**13}, r"buffer_size = 10000000000000 must be below 2\^31"),
        ({"env": "Pendulum-v1"}, "expected Discrete"),
        ({"env": "Nothing-v7"}, "unknown environment 'Nothing-v7'"),
        ({"env": 3}, "3 is no environment, expected a name"),
    ],
)
def test_what_cannot_be_made_is_refused_in_a_sentence(arguments, sentence):
    with pytest.raises(SadqError, match=sentence):
        SADQ(**{"env": "CartPole-v1"} | arguments)

"""Rankings judged by the emulator: a model that knows the truth is always right, and numbers by hand."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sadq import keys
from sadq.core.rollout import Prediction
from sadq.dynamics import RSSM
from sadq.envs.atari.foresight import Foresight, Outcomes
from sadq.experiment.build import hyper_of, make_learner, resolve
from sadq.experiment.presets import preset
from sadq.experiment.ranking import Judge, Ranked, interval, measured, summary
from sadq.learning.comparing import Comparison
from sadq.learning.optimiser import trainable
from sadq.networks import Nature, Quantile
from sadq.networks.network import first_network

pytest.importorskip("ale_py", reason="Atari games need ale-py: install sadq[atari]")

KEY = keys.member_key(4)
WAYS = [([1, 3, 3, 0, 3, 3, 2] * 3)[:length] for length in (15, 18, 21)]
"""Actions that lead to three states of Breakout."""


class Told(eqx.Module):
    """A model that was told what follows each action at some states, and recognises them."""

    states: jax.Array  # u8[S, 4, 84, 84]
    reached: jax.Array  # u8[S, A, 4, 84, 84]
    reward: jax.Array  # f32[S, A]

    @property
    def space(self):
        return "observation"

    def encode(self, observation):
        apart = jnp.sum(self.states != observation, axis=(1, 2, 3))
        return jnp.argmin(apart)

    def step(self, context, action, key):
        frames = self.reached[context, action].astype(jnp.float32) / 255.0
        return Prediction(self.reward[context, action], frames)


@pytest.fixture(scope="module")
def member():
    """A learner of Breakout with its first networks, and one member's numbers."""
    config = dataclasses.replace(
        preset("atari/Breakout", "qrdqn+sadq"),
        seeds=(3,),
        encoder=Nature(channels=(4, 4, 4), hidden=16),
        model=RSSM(deterministic=8, variables=2, classes=3, hidden=6, channels=(4, 4, 4), decoder=(4, 4, 4)),
        adjusted=(Quantile(quantiles=5),),
        buffer_size=100,
        environment_settings=("noop_max=0",),
    )
    spec = resolve(config.environment, config.settings)
    learner = make_learner(config, spec)
    hyper = jax.tree.map(lambda leaf: leaf[0], hyper_of(config))
    # Weights from NumPy, for to compile the drawing of every layer takes longer than all the tests here.
    dice = np.random.default_rng(0)

    def weights(leaf):
        spread = 1.5 / np.sqrt(leaf.shape[-2]) if leaf.ndim > 1 else 0.1
        return jnp.asarray(dice.normal(scale=spread, size=leaf.shape), leaf.dtype)

    return spec, learner, hyper, jax.tree.map(weights, jax.eval_shape(learner.init, hyper)), Judge(learner)


@pytest.fixture
def play(member):
    made = Foresight(member[0], "Breakout", 3, 2, "ranking")
    made.reset()
    yield made
    made.close()


@pytest.fixture
def outcomes(member):
    """By the emulator that goes back, at the states that `WAYS` lead to."""
    made, found = Foresight(member[0], "Breakout", 3, 1, "ranking"), []
    for way in WAYS:
        made.reset()
        for action in way:
            made.step([action])
        found.append(made.outcomes())
    made.close()
    return Outcomes(*map(np.concatenate, zip(*found, strict=True)))


def told(opened) -> Told:
    """By the environments that agents learn in: as many games as there are actions, which part at the last step."""
    games = opened("Breakout", environments=4, noop_max=0)
    states, reached, reward = [], [], []
    for way in WAYS:
        observation, _ = games.reset()
        for action in way:
            observation = games.step(np.full((1, 4), action)).observation
        states.append(observation[0, 0])
        step = games.step(np.arange(4)[None])
        reached.append(step.next_observation[0])
        reward.append(step.reward[0])
    return Told(*(jnp.asarray(np.stack(part)) for part in (states, reached, reward)))


@pytest.fixture
def opened():
    from sadq.envs.atari import AtariEnvironments, AtariSpec

    made = []

    def open_games(game, environments, **settings):
        made.append(AtariEnvironments(AtariSpec((game,), **settings), (3,), environments))
        return made[-1]

    yield open_games
    for games in made:
        games.close()


@jax.jit
def best_values(target, reached):
    """max Q' f32[S, A] at what each action leads to."""
    return jax.vmap(jax.vmap(lambda frames: target.mean(frames).max()))(reached)


def test_a_model_that_was_told_the_truth_always_agrees(member, outcomes, opened):
    _, _, hyper, state, judge = member
    knowing = told(opened)
    np.testing.assert_array_equal(knowing.reached, outcomes.reached)
    ranked = judge.at(outcomes, state._replace(model=trainable(knowing)), hyper, KEY)
    np.testing.assert_allclose(ranked.scores, ranked.truth, rtol=1e-5, atol=1e-6)
    assert np.ptp(ranked.truth, axis=1).max() > 1e-3, "there is something to choose between"
    numbers = summary([ranked])["as_scored"]
    assert numbers["model_agrees"]["mean"] == 1.0 and numbers["model_regret"]["mean"] < 1e-6

    shifted = eqx.tree_at(lambda one: one.reached, knowing, jnp.roll(knowing.reached, 1, axis=1))
    wrong = judge.at(outcomes, state._replace(model=trainable(shifted)), hyper, KEY)
    np.testing.assert_array_equal(wrong.truth, ranked.truth)
    assert measured(wrong.truth, wrong.advised, wrong.greedy)["model_agrees"].mean() < 1


def test_the_truth_is_scored_by_the_formula(member, outcomes):
    _, _, hyper, state, judge = member
    ends = outcomes._replace(terminated=np.array([[False, True, False, False]] * 3))
    ranked = judge.at(ends, state, hyper, KEY)
    target = first_network(state.target)
    best = best_values(target, jnp.asarray(outcomes.reached))
    np.testing.assert_allclose(ranked.truth, outcomes.reward + 0.99 * best, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ranked.with_ends[:, 1], outcomes.reward[:, 1])
    np.testing.assert_allclose(ranked.with_ends[:, 2:], ranked.truth[:, 2:], rtol=1e-6)


def test_what_is_drawn_is_what_was_scored(member, outcomes):
    _, learner, hyper, state, _ = member
    model, target = state.model.parameters, first_network(state.target)
    comparison = Comparison(learner.guidance, target, hyper, learner.legal_for(hyper), KEY)
    seen = jnp.asarray(outcomes.observation)
    compared = jax.jit(comparison.__call__)(model, seen)
    predicted = jax.jit(comparison.predictions)(model, seen)
    best = best_values(target, predicted.next_input)
    np.testing.assert_allclose(predicted.reward + 0.99 * best, compared.scores, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(compared.greedy, np.argmax(compared.values, axis=1))
    np.testing.assert_array_equal(compared.advised, np.argmax(compared.scores, axis=1))


def test_states_are_those_of_the_agents_own_play(member, play):
    _, _, hyper, state, judge = member
    ranked = judge(play, state, hyper, states=5, every=3, epsilon=0.0, key=KEY)
    assert ranked.truth.shape == (6, 4) and ranked.group.tolist() == [0, 1] * 3
    # Without exploration both games are the same one, whose ninth step is the last that was looked at.
    np.testing.assert_allclose(ranked.truth[::2], ranked.truth[1::2], rtol=1e-5)
    assert len(np.unique(ranked.truth[::2], axis=0)) > 1


def test_choices_are_measured_against_the_best_ones():
    truth = np.array([[1.0, 2.0, 2.0, 0.0], [0.5, 0.0, 0.0, 0.0]])
    found = measured(truth, advised=np.array([2, 1]), greedy=np.array([0, 0]))
    expected = {
        "model_agrees": [1, 0],
        "greedy_agrees": [0, 1],
        "random_agrees": [0.5, 0.25],
        "model_regret": [0, 0.5],
        "greedy_regret": [1, 0],
        "random_regret": [0.75, 0.375],
        "gain_over_greedy": [1, -0.5],
        "model_better": [1, 0],
        "model_worse": [0, 1],
        "at_stake": [2, 0.5],
    }
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, err_msg=name)


def test_intervals_count_games_not_states():
    values, apart = np.repeat([0.0, 1.0], 50), np.repeat([0, 1], 50)
    assert interval(values, apart) == {"mean": 0.5, "low": 0.0, "high": 1.0}
    many = interval(values, np.arange(100))
    assert 0.35 < many["low"] < many["high"] < 0.65
    assert interval(values, np.zeros(100, int)) == {"mean": 0.5, "low": None, "high": None}


def test_members_are_summed_up_together():
    truth = np.array([[0.0, 1.0]])
    one = Ranked(truth + 0.5, truth, truth, np.array([1]), np.array([0]), np.array([0]))
    other = one._replace(advised=np.array([0]), greedy=np.array([0]))
    found = summary([one, other])
    assert (found["members"], found["states"], found["actions"]) == (2, 2, 2)
    assert found["disagree"]["mean"] == 0.5 and found["score_error"]["mean"] == 0.5
    assert found["with_ends"]["model_regret"] == {"mean": 0.5, "low": 0.0, "high": 1.0}
    few = one._replace(scores=np.array([[-np.inf, 1.25]]))
    assert summary([few, few])["score_error"]["mean"] == 0.25, "of the candidates"

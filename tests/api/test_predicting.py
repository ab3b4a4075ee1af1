"""Acting: one observation or many, with and without chance, on environments of every kind."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from odd_environments import Drift
from tiny_models import MANY, PLAIN, STATES, networks_of, plain
from tiny_runs import TINY

from sadq import SADQ, SadqError
from sadq.envs.base import Environment
from sadq.exploration import UpperConfidence
from sadq.exploration.situation import settled_values
from sadq.networks import ensemble_means


def test_one_observation_gets_one_action(model):
    action, state = model.predict(STATES[0])
    assert state is None
    assert np.shape(action) == ()
    assert np.issubdtype(type(action), np.integer)
    assert 0 <= action < 3


def test_many_observations_get_as_many_actions_the_same_as_one_by_one(model):
    actions, _ = model.predict(STATES)
    assert actions.shape == (4,)
    assert actions.tolist() == [int(model.predict(state)[0]) for state in STATES]


def test_the_action_is_the_best_one_of_the_members_own_network(model):
    states = np.random.default_rng(0).integers(0, 2, (64, 6)).astype(np.float32)
    chosen = []
    for member in range(2):
        values = settled_values(networks_of(model, member), jnp.asarray(states), None)
        chosen.append(model.predict(states, member=member)[0])
        np.testing.assert_array_equal(chosen[-1], values.argmax(axis=1))
    assert (chosen[0] != chosen[1]).any(), "two members that never disagree would not show whose network was asked"


@pytest.mark.parametrize("kind", [np.float64, np.int64, bool, list])
def test_observations_of_any_number_type_are_taken(model, kind):
    given = STATES.tolist() if kind is list else STATES.astype(kind)
    np.testing.assert_array_equal(model.predict(given)[0], model.predict(STATES)[0])


@pytest.mark.parametrize("shape", [(), (5,), (7,), (2, 7), (1, 2, 6)])
def test_an_observation_of_another_shape_is_refused(model, shape):
    with pytest.raises(SadqError, match=r"Cannot act on an observation of shape \(.*\): expected \(6,\) or \(n, 6\)"):
        model.predict(np.zeros(shape))


@pytest.mark.parametrize(
    "observation", ["text", None, {}, [[0, 1], [0]], np.array(["a"] * 6), np.array([None] * 6), 1j]
)
def test_an_observation_that_is_no_numbers_is_refused(model, observation):
    with pytest.raises(
        SadqError, match=r"Cannot act on .*: expected an array of numbers of shape \(6,\) or \(n, 6\)"
    ) as error:
        model.predict(observation)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("masks", "sentence"),
    [
        (np.ones(4, bool), r"of shape \(4,\) and type bool: expected booleans of shape \(3,\)"),
        (np.ones((2, 3), bool), r"of shape \(2, 3\) and type bool: expected booleans of shape \(3,\)"),
        (np.ones(3), r"of shape \(3,\) and type float64: expected booleans of shape \(3,\)"),
        ("all", "action_masks are 'all': expected booleans"),
        (np.zeros(3, bool), "action_masks allow no action at all"),
    ],
)
def test_masks_of_another_size_or_kind_are_refused(model, masks, sentence):
    with pytest.raises(SadqError, match=sentence):
        model.predict(STATES[0], action_masks=masks)


def test_a_mask_for_one_is_none_for_many(model):
    with pytest.raises(SadqError, match=r"expected booleans of shape \(4, 3\)"):
        model.predict(STATES, action_masks=np.ones(3, bool))
    assert model.predict(STATES[0], action_masks=[[0, 0, 1]])[0] == 2


@pytest.mark.parametrize("member", [2, -1, "0", 0.0, None, True])
def test_a_member_that_is_not_there_is_refused(model, member):
    with pytest.raises(SadqError, match=f"There is no member {member!r}: this fleet has members 0 to 1"):
        model.predict(STATES, member=member)


def test_without_deterministic_it_explores_as_often_as_at_this_point_of_training(model):
    states = np.repeat(STATES[:1], 20_000, axis=0)
    greedy = model.predict(STATES[0])[0]
    share = np.mean(model.predict(states, deterministic=False)[0] != greedy)
    epsilon = 0.1 + 0.4 * np.exp(-TINY.steps / 500)
    assert share == pytest.approx(epsilon * 2 / 3, abs=0.01), "one in three random actions is the greedy one"
    assert (model.predict(states)[0] == greedy).all()


@pytest.mark.parametrize(
    ("agent", "varies"),
    [
        ("rainbow", True),
        ("bdqn", True),
        ("teg", True),
        pytest.param("coact", True, marks=pytest.mark.thorough),
        ("iqn", True),
        ("sunrise", False),
    ],
)
def test_every_exploration_predicts_with_and_without_chance(agent, varies):
    """Deterministic is the policy that evaluation plays; exploring is behaviour at an episode's first step."""
    sunrise = {"intended": UpperConfidence(20.0), "deviation": "never"} if agent == "sunrise" else {}
    own = SADQ("BitFlip-3", agent=agent, **PLAIN | sunrise)
    sure, again = own.predict(MANY)[0], own.predict(MANY)[0]
    np.testing.assert_array_equal(sure, again)
    networks = networks_of(own)
    np.testing.assert_array_equal(sure, settled_values(networks, jnp.asarray(MANY), None).argmax(axis=1))
    tries = [own.predict(MANY, deterministic=False)[0] for _ in range(2)]
    assert np.array_equal(*tries) != varies
    if agent == "sunrise":
        members = np.asarray(jax.vmap(lambda seen: ensemble_means(networks, seen))(MANY))
        optimistic = members.mean(axis=1) + 20 * members.std(axis=1)
        np.testing.assert_array_equal(tries[0], optimistic.argmax(axis=1))
        assert (tries[0] != sure).any()
    mask = np.tile([False, True, False], (256, 1))
    for deterministic in (True, False):
        assert (own.predict(MANY, deterministic=deterministic, action_masks=mask)[0] == 1).all()


@pytest.mark.parametrize("deterministic", [True, False])
def test_masked_actions_are_never_taken(model, deterministic):
    for legal in range(3):
        mask = np.arange(3) == legal
        assert model.predict(STATES[0], deterministic=deterministic, action_masks=mask)[0] == legal
        masks = np.tile(mask, (4, 1))
        assert (model.predict(STATES, deterministic=deterministic, action_masks=masks)[0] == legal).all()


def test_predicting_needs_no_learning():
    fresh = plain()
    assert 0 <= fresh.predict(STATES[0])[0] < 3
    assert fresh.num_timesteps == 0
    assert [row["step"] for row in fresh.evaluations] == [0]


def test_it_answers_as_evaluate_policy_asks(model):
    """Stable-Baselines3 passes n_env observations, its last state and which episodes have just begun."""
    actions, state = model.predict(STATES, state=None, episode_start=np.ones(4, bool), deterministic=True)
    assert actions.shape == (4,)
    again, _ = model.predict(STATES, state=state, episode_start=np.zeros(4, bool), deterministic=True)
    np.testing.assert_array_equal(actions, again)


@pytest.fixture(scope="module")
def cartpole(cache) -> SADQ:
    """An agent on an environment object of Gymnasium's, learned for a moment."""
    return plain(gymnasium.make("CartPole-v1")).learn(64)


def test_its_actions_drive_a_vector_of_gymnasium_environments(cartpole):
    vector = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    observations, _ = vector.reset(seed=0)
    for _ in range(12):
        actions, _ = cartpole.predict(observations, episode_start=np.zeros(3, bool))
        observations, *_ = vector.step(actions)
    vector.close()
    assert observations.shape == (3, 4)


def test_stable_baselines3_evaluates_it(cartpole):
    evaluation = pytest.importorskip(
        "stable_baselines3.common.evaluation", reason="Stable-Baselines3 has an environment of its own"
    )
    environment = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    mean, deviation = evaluation.evaluate_policy(cartpole, environment, n_eval_episodes=3, warn=False)
    assert 8 <= mean <= 500
    assert deviation >= 0


def test_a_gymnasium_object_is_copied_and_remembered_by_its_id(cartpole):
    assert cartpole.config.environment == "gymnasium:CartPole-v1"
    assert cartpole.num_timesteps == 64
    assert cartpole.metrics


def test_an_agent_on_a_gymnasium_object_with_an_id_loads_without_the_object(cartpole, tmp_path):
    cartpole.save(tmp_path / "agent")
    loaded = SADQ.load(tmp_path / "agent")
    observations = np.random.default_rng(0).normal(size=(32, 4))
    np.testing.assert_array_equal(loaded.predict(observations)[0], cartpole.predict(observations)[0])


class Wanderer(Drift):
    """An environment that nobody registered."""


def test_an_object_without_an_id_is_needed_again_to_learn_on(tmp_path):
    model = plain(Wanderer())
    model.predict(np.zeros(4))
    model.save(tmp_path / "agent")
    with pytest.raises(SadqError, match="To learn on, give this agent its environment.*unknown environment 'Wanderer'"):
        SADQ.load(tmp_path / "agent").learn(8)
    loaded = SADQ.load(tmp_path / "agent", env=Wanderer())
    observations = np.random.default_rng(0).normal(size=(32, 4))
    np.testing.assert_array_equal(loaded.predict(observations)[0], model.predict(observations)[0])


def test_actions_are_in_the_environments_own_numbers():
    class Shifted(Drift):
        action_space = gymnasium.spaces.Discrete(2, start=5)

    model = plain(Shifted())
    observations = np.random.default_rng(0).normal(size=(200, 4))
    assert set(model.predict(observations, deterministic=False)[0].tolist()) == {5, 6}


@dataclasses.dataclass(frozen=True)
class Gates(Environment):
    """A native environment in which the observation says which of three actions are open."""

    name = "Gates"
    observation_size = 3
    action_count = 3
    max_steps = 4

    def initial(self, key):
        return jax.random.bernoulli(key, 0.3, (3,)).astype(jnp.float32).at[0].set(1.0)

    def transition(self, state, action, key):
        return self.initial(key), state[action], jnp.bool_(False)

    def observe(self, state):
        return state

    def legal(self, observation):
        return observation > 0.5


def test_a_native_object_works_and_its_masks_are_obeyed():
    model = plain(Gates())
    assert model.config.environment == "Gates"
    states = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1]], np.float32)
    for deterministic in (True, False):
        for _ in range(10):
            actions, _ = model.predict(states, deterministic=deterministic)
            assert actions[:3].tolist() == [0, 1, 2]
            assert actions[3] in (1, 2)


def test_an_agent_that_was_loaded_without_the_environment_whose_masks_it_obeys_asks_for_them(tmp_path):
    plain(Gates()).save(tmp_path / "agent")
    state, loaded = np.array([0, 1, 0], np.float32), SADQ.load(tmp_path / "agent")
    with pytest.raises(SadqError, match="Which actions are legal, only environment Gates can tell: give action_masks"):
        loaded.predict(state)
    assert loaded.predict(state, action_masks=state > 0.5)[0] == 1
    loaded.set_env(Gates())
    assert loaded.predict(state)[0] == SADQ.load(tmp_path / "agent", env=Gates()).predict(state)[0] == 1
    with pytest.raises(SadqError, match="environment Drift has observation_shape .4., but this agent was made for .3."):
        SADQ.load(tmp_path / "agent", env=Drift())

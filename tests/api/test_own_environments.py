"""A user's own environment from Python: its spaces, masks, measures and limits, learned in and acted in."""

import warnings

import numpy as np
import pytest
from PIL import Image
from tiny_models import plain

from own_environments import Endless, Narrow, Sorting, Switches
from sadq import SADQ
from sadq.errors import SadqError, SadqWarning
from sadq.fleet import host_loop


def acts(model, environment, masks=None, episodes=3):
    """Greedy and exploring episodes by hand, as any user would play them; an illegal action is an error."""
    for episode in range(episodes):
        observation, info = environment.reset(seed=episode)
        over = False
        while not over:
            told = {} if masks is None else {"action_masks": masks(environment, info)}
            action, _ = model.predict(observation, deterministic=episode == 0, **told)
            observation, _, terminated, truncated, info = environment.step(action)
            over = terminated or truncated


@pytest.fixture(scope="module")
def sorting():
    return plain(Sorting, measures=("success", "right")).learn(64)


def test_a_nested_dict_is_learned_in_acted_in_and_acted_on_without_it(sorting, tmp_path):
    acts(sorting, Sorting())
    sorting.save(tmp_path / "agent", policy_only=True)
    loaded = SADQ.load(tmp_path / "agent")
    space = Sorting().observation_space
    space.seed(0)
    for _ in range(8):
        seen = space.sample()
        action = loaded.predict(seen)[0]
        assert action == sorting.predict(seen)[0] and action in (5, 6, 7)
    many = [space.sample() for _ in range(4)]
    batch = {
        "where": np.stack([one["where"] for one in many]),
        "asked": np.array([one["asked"] for one in many]),
        "flags": tuple(np.stack([one["flags"][index] for one in many]) for index in range(2)),
        "level": np.array([one["level"] for one in many]),
    }
    np.testing.assert_array_equal(loaded.predict(batch)[0], [loaded.predict(one)[0] for one in many])
    with pytest.raises(
        SadqError, match="Cannot act on an observation with the keys where: expected a dictionary of asked"
    ):
        loaded.predict({"where": np.zeros((2, 2))})
    with pytest.raises(SadqError, match="environment Switches has observation_shape"):
        SADQ.load(tmp_path / "agent", env=Switches)


def test_what_info_measures_reaches_evaluations(sorting):
    for row in sorting.evaluations:
        assert row["measures"]["right"] == np.mean(row["returns"])
        assert row["measures"]["success"] == np.mean(np.array(row["returns"]) == 4)
    assert set(sorting.evaluate(2)[0]["measures"]) == {"success", "right"}


def test_a_measure_that_info_lacks_is_told():
    with pytest.raises(
        SadqError, match=r"returned no info\['goals'\] from the last step of an episode, expected a number"
    ):
        plain(Sorting, measures=("goals",)).learn(16)


def test_joint_actions_are_taken_in_their_own_form(tmp_path):
    model = plain(lambda: Switches(render_mode="rgb_array")).learn(32)
    acts(model, Switches())
    model.save(tmp_path / "agent")
    action = SADQ.load(tmp_path / "agent").predict(np.array([1, 2]))[0]
    assert action.shape == (2,) and Switches().action_space.contains(action)
    assert model.predict(np.array([[1, 2], [0, 0], [1, 1]]))[0].shape == (3, 2)
    first = np.array([1, 0]), np.array([0, 0, 1])
    np.testing.assert_array_equal(model.predict(np.array([0, 0]), action_masks=first)[0], [0, 2])
    assert Image.open(model.film(tmp_path / "film.gif")).n_frames == 5
    joint = np.tile(np.arange(6) == 4, (2, 1))
    np.testing.assert_array_equal(model.predict(np.zeros((2, 2), int), action_masks=joint)[0], [[1, 1], [1, 1]])


def test_an_environment_without_a_limit_is_warned_of_and_stopped(monkeypatch):
    monkeypatch.setattr(host_loop, "LONGEST_EPISODE", 30)
    with (
        pytest.warns(SadqWarning, match="environment Endless names no time limit.*max_episode_steps sets a limit"),
        pytest.raises(SadqError, match="An evaluation in Endless has not ended after 30 steps.*give max_episode_steps"),
    ):
        plain(Endless).learn(16)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SadqWarning)
        model = plain(Endless, max_episode_steps=6).learn(16)
    assert set(model.evaluations[0]["lengths"]) == {6}


@pytest.mark.parametrize("how", ["method", "info"])
def test_a_masked_environment_never_gets_an_illegal_action(how):
    model = plain(lambda: Narrow(how)).learn(32)

    def masks(environment, info):
        return environment.action_masks() if how == "method" else info["action_mask"]

    acts(model, Narrow(how), masks)
    with pytest.raises(SadqError, match="only environment Narrow can tell: give action_masks, from its info"):
        model.predict(np.zeros(4, np.float32))

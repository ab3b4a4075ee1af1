"""A fleet of host environments: episodes, seeds, masks, and resuming."""

import gymnasium
import numpy as np
import pytest
from fleet_helpers import SEEDS, actions_of, assert_same, run
from sample_environments import Film, Unseeded, Walk

from sadq.envs import make
from sadq.envs.group import Slot, episode_seed
from sadq.errors import SadqError


def test_steps_are_gymnasium_s(started):
    """Each environment's stream is what a loop over gymnasium.make's own gives, with the true last observations."""
    spec = make("gymnasium:CartPole-v1")
    assert (spec.observation_shape, spec.observation_dtype) == ((4,), np.float32)
    assert (spec.action_count, spec.max_steps, spec.has_masks) == (2, 500, False)
    environments = started(spec, workers=0)
    observations, masks = environments.reset()
    assert observations.shape == (2, 3, 4) and observations.dtype == np.float32 and masks is None
    actions = actions_of(spec, 80)
    steps = [environments.step(action) for action in actions]
    ends = 0
    for member, seed in enumerate(SEEDS):
        for index in range(3):
            reference, episode = gymnasium.make("CartPole-v1"), 0
            current, _ = reference.reset(seed=episode_seed(Slot(seed, index), "collect", 0))
            np.testing.assert_array_equal(observations[member, index], current)
            for step, action in zip(steps, actions, strict=True):
                current, reward, terminated, truncated, _ = reference.step(int(action[member, index]))
                np.testing.assert_array_equal(step.next_observation[member, index], current)
                assert step.reward[member, index] == reward
                assert step.terminated[member, index] == terminated and step.truncated[member, index] == truncated
                if terminated or truncated:
                    ends, episode = ends + 1, episode + 1
                    current, _ = reference.reset(seed=episode_seed(Slot(seed, index), "collect", episode))
                np.testing.assert_array_equal(step.observation[member, index], current)
    assert ends > 6


def test_time_limits_truncate(started):
    spec = make(lambda: gymnasium.wrappers.TimeLimit(Walk(), 4))
    assert spec.max_steps == 4
    environments = started(spec, workers=0)
    environments.reset()
    for index in range(8):
        step = environments.step(np.zeros((2, 3), int))
        assert not step.terminated.any() and (step.truncated == (index % 4 == 3)).all()


def test_members_depend_on_their_own_seed_only(started):
    spec = make(Walk)
    fleet, alone = started(spec, workers=0), started(spec, seeds=[8], workers=0)
    actions = actions_of(spec, 40)
    np.testing.assert_array_equal(fleet.reset()[0][1:], alone.reset()[0])
    for action in actions:
        np.testing.assert_array_equal(fleet.step(action).observation[1:], alone.step(action[1:]).observation)


def test_seeds_differ_by_member_environment_episode_and_purpose():
    seeds = {
        episode_seed(Slot(seed, index), purpose, episode)
        for seed in range(4)
        for index in range(4)
        for episode in range(4)
        for purpose in ("collect", "evaluate")
    }
    assert len(seeds) == 128 and all(0 <= seed < 2**31 for seed in seeds)


def test_reset_can_begin_at_any_episode(started):
    environments = started(make(Walk), workers=0)
    first, third = environments.reset()[0], environments.reset(start=2)[0]
    assert not np.array_equal(first, third)
    environments.reset(start=1)
    assert (environments.state()["episodes"] == 1).all()
    np.testing.assert_array_equal(environments.reset()[0], first)
    np.testing.assert_array_equal(environments.reset(start=2)[0], third)


def test_masks(started):
    environments = started(make(lambda: Walk(masks=True, actions=3)), workers=0)
    assert environments.has_masks
    _, masks = environments.reset()
    np.testing.assert_array_equal(masks, np.broadcast_to([False, True, True], (2, 3, 3)))
    for _ in range(2):
        step = environments.step(np.zeros((2, 3), int))
    np.testing.assert_array_equal(step.next_mask, np.broadcast_to([True, True, False], (2, 3, 3)))
    np.testing.assert_array_equal(step.mask, step.next_mask)
    step = environments.step(np.array([[1, 0, 0], [0, 0, 1]]))
    assert step.terminated.sum() == 2
    np.testing.assert_array_equal(step.next_mask, np.broadcast_to([False, True, True], (2, 3, 3)))
    np.testing.assert_array_equal(step.mask, np.broadcast_to([False, True, True], (2, 3, 3)))


@pytest.mark.parametrize("name", ["gymnasium:CartPole-v1", "LunarLander-v3"])
def test_resume_is_exact(started, name):
    if name.startswith("Lunar"):
        pytest.importorskip("Box2D", reason="LunarLander needs sadq[box2d]")
    spec = make(name)
    whole, other = started(spec, workers=0), started(spec, workers=2)
    actions = actions_of(spec, 230)
    whole.reset()
    run(whole, actions[:150])
    saved = whole.state()
    assert saved["episodes"].max() >= 1 and saved["lengths"].max() >= 1
    assert len(saved["actions"]) == saved["lengths"].sum()
    observations, _ = other.restore(saved)
    assert other.exact_resume
    np.testing.assert_array_equal(observations, saved["observations"])
    assert_same(run(whole, actions[150:]), run(other, actions[150:]))
    assert_same(list(whole.state().values()), list(other.state().values()))


@pytest.mark.parametrize("space_dtype,dtype", [(np.uint8, np.uint8), (np.int16, np.float32)])
def test_pictures_are_stepped_and_resumed(started, space_dtype, dtype):
    """They keep their shape, and uint8 its type, also in workers and in what is saved."""
    spec = make(lambda: Film(dtype=space_dtype))
    assert (spec.observation_shape, spec.observation_dtype) == ((4, 5, 2), dtype)
    whole, other = started(spec, workers=0), started(spec, workers=2)
    actions = actions_of(spec, 70)
    first, pooled = whole.reset()[0], other.reset()[0]
    assert first.shape == (2, 3, 4, 5, 2) and first.dtype == dtype
    reference = Film(dtype=space_dtype)
    shown, _ = reference.reset(seed=episode_seed(Slot(SEEDS[1], 2), "collect", 0))
    np.testing.assert_array_equal(first[1, 2], shown)
    np.testing.assert_array_equal(first, pooled)
    step = whole.step(actions[0])
    assert step.next_observation.shape == step.observation.shape == first.shape
    assert step.next_observation.dtype == step.observation.dtype == dtype
    np.testing.assert_array_equal(step.next_observation[1, 2], reference.step(int(actions[0][1, 2]))[0])
    run(whole, actions[1:40])
    saved = whole.state()
    assert saved["observations"].shape == first.shape and saved["observations"].dtype == dtype
    np.testing.assert_array_equal(other.restore(saved)[0], saved["observations"])
    assert other.exact_resume and saved["episodes"].max() >= 1
    assert_same(run(whole, actions[40:]), run(other, actions[40:]))


def test_long_episodes_are_recorded_whole(started):
    spec = make(lambda: gymnasium.make("Acrobot-v1"))
    whole, other = started(spec, seeds=[0], workers=0), started(spec, seeds=[0], workers=0)
    whole.reset()
    run(whole, actions_of(spec, 150, (1, 3)))
    saved = whole.state()
    assert (saved["lengths"] == 150).all()
    np.testing.assert_array_equal(saved["actions"].reshape(3, 150), actions_of(spec, 150, (1, 3))[:, 0].T)
    other.restore(saved)
    assert other.exact_resume


def test_what_cannot_be_replayed_is_flagged(started):
    spec = make(Unseeded)
    environments = started(spec, workers=0)
    environments.reset()
    run(environments, actions_of(spec, 10))
    saved = environments.state()
    observations, _ = environments.restore(saved)
    assert not environments.exact_resume
    assert not np.array_equal(observations, saved["observations"])
    step = environments.step(np.zeros((2, 3), int))
    assert not np.array_equal(step.observation, observations)


def test_a_replay_that_ends_early_begins_the_next_episode(started):
    environments = started(make(Walk), seeds=[0], environments=2, workers=0)
    environments.reset()
    run(environments, np.zeros((5, 1, 2), np.int32))
    saved = environments.state()
    saved["actions"] = np.array([0, 0, 1, 0, 0, 0, 0, 0, 0, 0], np.int32)  # the first one ends after its third
    observations, _ = environments.restore(saved)
    assert not environments.exact_resume
    np.testing.assert_array_equal(observations[0, 1], saved["observations"][0, 1])
    state = environments.state()
    np.testing.assert_array_equal(state["episodes"], [[1, 0]])
    np.testing.assert_array_equal(state["lengths"], [[0, 5]])
    environments.restore(state)
    assert environments.exact_resume


def test_a_state_of_another_fleet_is_refused(started):
    spec = make(Walk)
    environments, other = started(spec, workers=0), started(spec, environments=2, workers=0)
    environments.reset()
    with pytest.raises(SadqError, match=r"shape \(2, 3, 3\), expected \(2, 2, 3\)"):
        other.restore(environments.state())


def test_results_are_not_overwritten(started):
    environments = started(make(Walk), workers=0)
    environments.reset()
    step = environments.step(np.zeros((2, 3), int))
    before = [part.copy() for part in step if part is not None]
    environments.step(np.ones((2, 3), int))
    assert_same(before, [part for part in step if part is not None])


@pytest.mark.parametrize("count", [0, 2])
def test_an_evaluation_s_environments_are_left_as_they_ended(started, count):
    """The next evaluation resets them, so beginning an episode that nobody looks at would be for nothing."""
    spec = make(lambda: Walk(masks=True))
    evaluation = started(spec, workers=count, purpose="evaluate")
    first, _ = evaluation.reset(start=4)
    for number in range(3):
        step = evaluation.step(np.full((2, 3), int(number == 2)))
    assert step.terminated.all()
    np.testing.assert_array_equal(step.observation, step.next_observation)
    np.testing.assert_array_equal(step.mask, step.next_mask)
    np.testing.assert_array_equal(evaluation.reset(start=4)[0], first)

"""The contract of a fleet of games: episodes, seeds, idling, evaluation, and what is refused."""

import os
import sys

import numpy as np
import pytest

from sadq.envs.atari import AtariEnvironments, AtariSpec, human_normalised
from sadq.envs.atari.environments import PATIENCE
from sadq.envs.group import IDLE
from sadq.errors import SadqError

pytest.importorskip("ale_py", reason="Atari games need sadq[atari]")


def test_seeds_decide(opened):
    """Members with the same seed play the same games, those with other seeds others, whatever the fleet."""
    fleet = opened("Freeway", seeds=[3, 3, 8], purpose="evaluate")
    alone = opened("Freeway", seeds=[8], purpose="evaluate")
    first, _ = fleet.reset()
    np.testing.assert_array_equal(first[0], first[1])
    np.testing.assert_array_equal(first[2:], alone.reset()[0])
    assert not np.array_equal(first[0], first[2])
    for action in np.random.default_rng(0).integers(0, 3, 12):
        step, other = fleet.step(np.full((3, 1), action)), alone.step(np.full((1, 1), action))
        np.testing.assert_array_equal(step.observation[0], step.observation[1])
        np.testing.assert_array_equal(step.observation[2:], other.observation)
        assert not np.array_equal(step.observation[0], step.observation[2])
    later, _ = alone.reset(start=1)
    assert not np.array_equal(later, first[2:])
    np.testing.assert_array_equal(alone.reset()[0], first[2:])


def test_a_fleet_of_two_games(opened):
    environments = opened("Breakout", "Pong", seeds=[1, 1], purpose="evaluate", members=["Pong", "Breakout"])
    assert environments.shape == (2, 1) and environments.action_count == 6 and not environments.has_masks
    environments.reset()
    for _ in range(70):
        step = environments.step(np.array([[5], [3]]))
    assert step.observation.shape == (2, 1, 4, 84, 84) and step.mask is None and step.next_mask is None
    measures = environments.measures()
    raw = measures["raw_score"]
    assert raw.shape == (2, 1) and raw[0, 0] < 0
    np.testing.assert_allclose(
        measures["human_normalised"], [human_normalised("Pong", raw[0]), human_normalised("Breakout", raw[1])]
    )
    with pytest.raises(SadqError, match="action 4 for member 1, which plays Breakout, expected 0 to 3"):
        environments.step(np.array([[4], [4]]))


def test_idle_games_wait(opened):
    """Interrupted by idling or not, a game is the same; without no-ops so are the two here."""
    environments = opened("Breakout", environments=2, purpose="evaluate", noop_max=0)
    first, _ = environments.reset()
    np.testing.assert_array_equal(first[0, 0], first[0, 1])
    ahead = []
    for action in (1, 2, 3, 0, 2, 2):
        step = environments.step(np.array([[action, IDLE]]))
        ahead.append(step)
        assert not step.observation[0, 1].any() and not step.next_observation[0, 1].any()
        assert not step.reward[0, 1] and not step.terminated[0, 1] and not step.truncated[0, 1]
        assert step.going.all()
    for action, before in zip((1, 2, 3, 0, 2, 2), ahead, strict=True):
        step = environments.step(np.array([[IDLE, action]]))
        np.testing.assert_array_equal(step.next_observation[0, 1], before.next_observation[0, 0])
        assert not step.observation[0, 0].any()
    assert np.array_equal(environments.state()["lengths"], [[6, 6]])


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux alone")
@pytest.mark.parametrize(("purpose", "nicer"), [("collect", 0), ("evaluate", PATIENCE)])
def test_evaluation_lets_training_go_first(opened, purpose, nicer):
    """All threads of its games, also those that ALE makes, yield to training's; nothing else in the process does."""
    own, before = os.nice(0), set(os.listdir("/proc/self/task"))
    opened("Pong", environments=2, purpose=purpose).reset()
    threads = set(os.listdir("/proc/self/task")) - before
    niceness = [os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in threads]
    assert len(niceness) >= 4 and set(niceness) == {own + nicer}
    assert os.nice(0) == own


def test_evaluation_plays_whole_games(opened):
    """Episodes are lives, but a game goes on to its end, and then nothing moves until the next reset."""
    environments = opened("Breakout", environments=2, purpose="evaluate")
    environments.reset(start=4)
    random, total, lives, signed = np.random.default_rng(0), np.zeros((1, 2)), np.zeros((1, 2), int), 0.0
    going = np.ones((1, 2), bool)
    while going.any():
        before = going
        step = environments.step(random.integers(0, 4, (1, 2)))  # also for games that are over
        assert not step.observation[~before].any() and not step.reward[~before].any()
        assert not step.truncated.any() and (before | ~step.terminated).all()
        total, lives, signed = total + environments.raw_reward, lives + step.terminated, signed + step.reward.sum()
        going = step.going
        assert (going | step.terminated | ~before).all()
    assert (lives == 5).all()
    np.testing.assert_array_equal(environments.measures()["raw_score"], total)
    np.testing.assert_allclose(environments.measures()["human_normalised"], (total - 1.7) / (30.5 - 1.7))
    assert 0 < signed <= total.sum()
    saved = environments.state()
    assert not environments.step(np.ones((1, 2), int)).going.any()
    np.testing.assert_array_equal(environments.state()["lengths"], saved["lengths"])
    environments.restore(saved)
    assert environments.exact_resume and not environments.step(np.ones((1, 2), int)).going.any()
    environments.reset(start=5)
    assert environments.step(np.ones((1, 2), int)).going.all() and not environments.measures()["raw_score"].any()


def test_training_goes_from_game_to_game(opened):
    """Each game's score is that of the first one since the reset; a time limit truncates and counts as no life."""
    environments = opened("Pong", max_frames=120)
    environments.reset()
    for index in range(70):
        step = environments.step(np.zeros((1, 1), int))
        assert step.going is None and not step.terminated.any()
        assert step.truncated[0, 0] == (index % 30 == 29)
        cut = step.observation[0, 0, :3].any(axis=(1, 2))
        np.testing.assert_array_equal(cut, np.arange(3) > 1 - index % 30 if index % 30 < 29 else [False] * 3)
    assert environments.state()["games"] == 2 and environments.state()["lengths"] == 10


def test_halves_of_a_step(opened):
    environments = opened("Pong", purpose="evaluate")
    for call in (environments.state, environments.receive, lambda: environments.send(np.array([[0]]))):
        with pytest.raises(SadqError, match="reset|send actions first"):
            call()
    environments.reset()
    assert environments.send(np.array([[2]])) is None
    for call in (environments.reset, environments.state, lambda: environments.step(np.array([[0]]))):
        with pytest.raises(SadqError, match="step under way"):
            call()
    assert environments.receive().observation.shape == (1, 1, 4, 84, 84)
    with pytest.raises(SadqError, match="send actions first"):
        environments.receive()


def test_an_interrupted_step_is_not_taken_for_a_whole_one(opened, monkeypatch):
    environments = opened("Pong", purpose="evaluate")
    environments.reset()

    def interrupted(reached):
        raise KeyboardInterrupt

    monkeypatch.setattr(environments._cabinets[0], "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        environments.step(np.array([[0]]))
    with pytest.raises(SadqError, match="interrupted"):
        environments.step(np.array([[0]]))


@pytest.mark.parametrize("actions", [np.zeros((1, 2), int), np.zeros((1, 1)), np.array([[6]]), np.array([[-2]])])
def test_bad_actions_are_refused(opened, actions):
    environments = opened("Pong", purpose="evaluate")
    environments._started = True  # what is wrong is found before any game is touched
    with pytest.raises(SadqError, match="Pong got action.*expected.*: pass"):
        environments.step(actions)


@pytest.mark.parametrize(
    "seeds,environments,games",
    [([], 1, None), ([-1], 1, None), ([0], 0, None), ([0], 1, ["Pong", "Pong"]), ([0], 1, ["Breakout"])],
)
def test_bad_fleets_are_refused(seeds, environments, games):
    with pytest.raises(SadqError, match="expected.*: (choose|name)"):
        AtariEnvironments(AtariSpec(("Pong",)), seeds, environments, games=games)

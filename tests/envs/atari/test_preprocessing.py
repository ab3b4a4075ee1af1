"""What the games show, frame by frame, against Gymnasium's preprocessing and against ALE's plain interface."""

import gymnasium
import numpy as np
import pytest
from plain_games import PlainGame, first_stack, lend_opencv, pushed

from sadq.envs.atari import GAMES

pytest.importorskip("ale_py", reason="Atari games need sadq[atari]")


def reference(game, max_frames):
    """Gymnasium's own stack of wrappers."""
    import ale_py

    gymnasium.register_envs(ale_py)
    plain = gymnasium.make(
        f"ALE/{game}-v5",
        frameskip=1,
        repeat_action_probability=0.0,
        full_action_space=False,
        max_num_frames_per_episode=max_frames,
        disable_env_checker=True,
    )
    small = gymnasium.wrappers.AtariPreprocessing(plain.unwrapped, noop_max=0)
    return gymnasium.wrappers.FrameStackObservation(small, 4, padding_type="zero")


@pytest.mark.parametrize(
    "game,max_frames,steps", [("Breakout", 108_000, 400), ("Seaquest", 990, 300), ("Pong", 1001, 300)]
)
def test_steps_are_gymnasium_s(opened, monkeypatch, game, max_frames, steps):
    """Frames, points and ends; the stack starts anew with every life, which there is no game of theirs that does."""
    lend_opencv(monkeypatch)
    environments = opened(game, noop_max=0, fire_on_reset=False, max_frames=max_frames)
    expected, number = reference(game, max_frames), 0
    (current, information), since = expected.reset(seed=0), 0
    observation, _ = environments.reset()
    np.testing.assert_array_equal(observation[0, 0], current)
    ends, lost = np.zeros(2, int), 0
    for action in np.random.default_rng(1).integers(0, GAMES[game].actions, steps):
        lives = information["lives"]
        current, points, over, late, information = expected.step(action)
        since += 1
        step = environments.step(np.array([[action]]))
        died = not over and 0 < information["lives"] < lives
        reached = current.copy()
        reached[: max(0, 3 - since)] = 0
        np.testing.assert_array_equal(step.next_observation[0, 0], reached)
        assert environments.raw_reward[0, 0] == points and step.reward[0, 0] == np.sign(points)
        assert (step.terminated[0, 0], step.truncated[0, 0]) == (over or died, late and not (over or died))
        if over or late:
            number += 1
            (reached, information), since = expected.reset(seed=number), 0
        elif died:
            reached, since = first_stack(reached[-1]), 0
        np.testing.assert_array_equal(step.observation[0, 0], reached)
        ends, lost = ends + (over, late), lost + died
    assert environments.state()["games"][0, 0] == number == ends.sum()
    # Every kind of end was seen in some game: it is over, out of time, or goes on after a life.
    assert {"Breakout": ends[0] > 0 and lost > 4, "Seaquest": ends[1] > 0 and lost > 0, "Pong": ends[1] > 0}[game]


@pytest.mark.parametrize("game,fires", [("Breakout", True), ("Asterix", False)])
def test_fire_starts_a_game_and_each_of_its_lives(opened, game, fires):
    """Where a game has it: one frame of it at the start, a step of it after a lost life, seen by nobody."""
    environments = opened(game, noop_max=0)
    plain = PlainGame(GAMES[game].rom)
    if fires:
        plain.act(1)
    stack = first_stack(plain.frame)
    np.testing.assert_array_equal(environments.reset()[0][0, 0], stack)
    lives = 0
    for action in np.random.default_rng(2).integers(0, GAMES[game].actions, 250):
        points, died, over = plain.step(action)
        step = environments.step(np.array([[action]]))
        np.testing.assert_array_equal(step.next_observation[0, 0], pushed(stack, plain.frame))
        assert environments.raw_reward[0, 0] == points and step.terminated[0, 0] == (died or over)
        if over:
            break
        stack = pushed(stack, plain.frame)
        if died:
            lives += 1
            if fires:
                assert plain.step(1) == (0, False, False)
            stack = first_stack(plain.frame)
        np.testing.assert_array_equal(step.observation[0, 0], stack)
    assert lives >= 2


def test_a_game_starts_after_some_frames_of_nothing(opened):
    """Fewer than `noop_max`, a number that depends on the game's seed; Freeway's cars tell how many there were."""
    environments = opened("Freeway", environments=2, purpose="evaluate", noop_max=12)
    plain, starts = PlainGame("freeway"), []
    for _ in range(12):
        starts.append(plain.frame)
        plain.act(0)
    assert len(np.unique(starts, axis=0)) > 6
    seen = np.concatenate([environments.reset(start=number)[0][0, :, -1] for number in range(3)])
    matches = [{count for count, start in enumerate(starts) if np.array_equal(start, frame)} for frame in seen]
    assert all(matches) and len({min(match) for match in matches}) > 2

"""Emulators that go back: the same games as the environments', and what every action leads to."""

import numpy as np
import pytest

from sadq.envs.atari import AtariSpec
from sadq.envs.atari.emulator import Emulator
from sadq.envs.atari.foresight import Foresight

pytest.importorskip("ale_py", reason="Atari games need sadq[atari]")


@pytest.fixture
def foreseen():
    made = []

    def open_games(spec, environments=1, seed=3, single=False):
        made.append(Foresight(spec, spec.games[0], seed, environments, "collect", single))
        made[-1].reset()
        return made[-1]

    yield open_games
    for play in made:
        play.close()


@pytest.mark.parametrize("game,max_frames,steps", [("Breakout", 108_000, 300), ("Seaquest", 222, 90)])
def test_outcomes_are_what_the_environments_reach(opened, foreseen, game, max_frames, steps):
    """Frames, rewards and ends of the action that is taken then, in games with lost lives, ends and time limits."""
    settings = {"noop_max": 0, "max_frames": max_frames}
    environments, play = opened(game, environments=2, **settings), foreseen(AtariSpec((game,), **settings), 2)
    np.testing.assert_array_equal(environments.reset()[0][0], play.observations)
    dice, each, ended, late = np.random.default_rng(0), np.arange(2), False, 0
    for number in range(steps):
        actions = dice.integers(play.actions, size=2)
        around_the_limit = abs(4 * number - max_frames) < 16
        outcomes = play.outcomes() if number % 16 == 0 or ended or around_the_limit else None
        step = environments.step(actions[None])
        play.step(actions)
        if outcomes is not None:
            np.testing.assert_array_equal(outcomes.reached[each, actions], step.next_observation[0])
            np.testing.assert_array_equal(outcomes.reward[each, actions], step.reward[0])
            np.testing.assert_array_equal(outcomes.terminated[each, actions], step.terminated[0])
        np.testing.assert_array_equal(play.observations, step.observation[0])
        ended, late = (step.terminated | step.truncated).any(), late + step.truncated.sum()
    np.testing.assert_array_equal([one.number for one in play.cabinets], environments.state()["games"][0])
    assert max(one.number for one in play.cabinets) > 0, "a game was played to its end"
    assert late == (2 if game == "Seaquest" else 0)
    np.testing.assert_array_equal([one.score for one in play.cabinets], environments.measures()["raw_score"][0])


def test_actions_differ_and_those_a_game_lacks_lead_nowhere(foreseen):
    play = foreseen(AtariSpec(("Breakout",), noop_max=0, actions=6))
    for _ in range(12):
        play.step([0])
    outcomes = play.outcomes()
    assert outcomes.reached.shape == (1, 6, 4, 84, 84) and outcomes.reward.shape == (1, 6)
    right, left = outcomes.reached[0, 2:4, -1]
    assert (right != left).any(), "the paddle moves"
    np.testing.assert_array_equal(outcomes.reached[0, :4, :-1], np.repeat(outcomes.observation[:, 1:], 4, axis=0))
    np.testing.assert_array_equal(outcomes.reached[0, 4:], np.repeat(outcomes.observation, 2, axis=0))


def test_a_moment_is_taken_up_again_any_number_of_times():
    emulator = Emulator("Breakout", AtariSpec(("Breakout",)))
    first = emulator.begin(5).frame
    for action in (1, 2, 2, 3):
        emulator.step(action)
    kept = emulator.keep()
    ways = []
    for _ in range(2):
        emulator.take_up(kept)
        ways.append([emulator.step(action) for action in (2, 2, 0, 3, 1)])
    for one, other in zip(*ways, strict=True):
        np.testing.assert_array_equal(one.frame, other.frame)
        assert one[1:] == other[1:]
    np.testing.assert_array_equal(emulator.begin(5).frame, first)
    assert emulator.colours.shape == (210, 160, 3)
    assert emulator.action_names == ["NOOP", "FIRE", "RIGHT", "LEFT"]


def test_a_seed_decides_how_long_nothing_is_done():
    emulator = Emulator("Freeway", AtariSpec(("Freeway",), noop_max=12))
    starts = [emulator.begin(seed).frame.tobytes() for seed in (0, 1, 2, 0)]
    assert starts[0] == starts[3] and len(set(starts)) > 1


def test_a_single_game_stays_over(foreseen):
    play = foreseen(AtariSpec(("Pong",), noop_max=0, max_frames=40), single=True)
    for _ in range(12):
        play.step([0])
    assert play.cabinets[0].over and play.cabinets[0].number == 0

"""Random episodes of any environment, the range of returns that they suggest, and films of what renders."""

import io
import re
import time

import gymnasium
import numpy as np
import pytest
from PIL import Image

from own_environments import Endless, Narrow, Sorting, Switches
from sadq.envs import make, random_play
from sadq.envs.atari import AtariSpec
from sadq.envs.filming import animation, check_renders, frames_of
from sadq.envs.limits import limited
from sadq.envs.random_play import estimated_range, play_randomly
from sadq.errors import SadqError


@pytest.mark.parametrize("made", [Narrow, lambda: Narrow("info"), Sorting, Switches])
def test_random_episodes_are_legal_as_many_as_asked_and_the_same_again(made):
    spec = make(made)
    first, again, other = (play_randomly(spec, 11, seed) for seed in (3, 3, 4))
    assert first.rewards.shape[0] == 11 and (first.running.sum(1) == (5 if spec.name == "Narrow" else 4)).all()
    np.testing.assert_array_equal(first.rewards, again.rewards)
    assert not np.array_equal(first.rewards, other.rewards)


def test_an_episode_that_never_ends_is_told(monkeypatch):
    monkeypatch.setattr(random_play, "LONGEST_EPISODE", 40)
    with pytest.raises(SadqError, match="A random episode of Endless has not ended after 40 steps.*max_episode_steps"):
        play_randomly(make(Endless), 1, 0)
    assert play_randomly(limited(make(Endless), 6), 2, 0).rewards.sum(1).tolist() == [6, 6]


def plain(rewards):
    return rewards


def test_a_range_is_wider_than_random_returns_but_no_wider_than_rewards_allow():
    assert estimated_range(make(Endless), 0.9, plain) == (0.0, 10.0)
    assert estimated_range(make(Endless), 0.9, lambda rewards: -2 * rewards) == (-20.0, 0.0)
    assert estimated_range(limited(make(Sorting), 4), 1.0, plain) == (0.0, 4.0)
    assert estimated_range(make("CartPole-v1"), 0.99, plain)[0] == 0.0
    assert 60 < estimated_range(make("CartPole-v1"), 0.99, plain)[1] < 100
    with pytest.raises(SadqError, match="Random episodes of Sorting earn nothing.*give return_range"):
        estimated_range(make(Sorting), 0.9, lambda rewards: 0 * rewards)


def test_a_fleet_of_games_is_asked_for_a_range():
    with pytest.raises(SadqError, match="atari/Pong,Breakout names several games.*: give return_range"):
        estimated_range(AtariSpec(("Pong", "Breakout")), 0.99, plain)


def test_what_renders_is_filmed():
    spec = make(lambda: Switches(render_mode="rgb_array"))
    check_renders(spec)
    frames, speed = frames_of(limited(spec, 3), 0, 0, lambda seen, mask, step: step, most=10)
    assert [int(frame[0, 0, 0]) for frame in frames] == [0, 20, 40, 60] and speed == 5
    image = Image.open(io.BytesIO(animation(frames, speed)))
    assert image.n_frames == 4 and image.size == (16, 12) and image.info["duration"] == 200
    assert len(frames_of(spec, 0, 0, lambda *_: 0, most=2)[0]) == 3


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (Switches, "Switches has render_mode None, expected 'rgb_array' to be filmed: make it with that"),
        (lambda: Unpainted(render_mode="rgb_array"), "Unpainted rendered an array of shape () and type object"),
        (lambda: Failing(render_mode="rgb_array"), "Failing cannot be filmed: OSError: no screen"),
    ],
)
def test_what_does_not_render_is_refused_before_anything_is_played(made, sentence):
    with pytest.raises(SadqError, match=re.escape(sentence)):
        check_renders(make(made))


class Unpainted(Switches):
    def render(self):
        return None


class Failing(Switches):
    def render(self):
        raise OSError("no screen")


def test_gymnasiums_own_are_made_to_render():
    gymnasium.register("Local/Switches-v0", entry_point=Switches, max_episode_steps=2)
    spec = limited(make("Local/Switches-v0"), 3)
    assert len(frames_of(spec, 0, 0, lambda *_: 0, most=10)[0]) == 4


def test_a_city_of_too_many_joint_actions_is_refused_at_once():
    began = time.perf_counter()
    with pytest.raises(SadqError, match=r"rows=50 and columns=50, 2,500 signals with at least 2\^2500 joint actions"):
        make("CityFlow", settings={"rows": 50, "columns": 50})
    assert time.perf_counter() - began < 5

"""Evaluations of any environment: played in batches, at random, filmed; and ranges of returns that are found and said."""

import dataclasses
import json
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest
from PIL import Image
from tiny_runs import TINY

from own_environments import Sorting, Switches
from sadq.cli.commands import Evaluate
from sadq.cli.main import main
from sadq.errors import SadqError
from sadq.experiment import evaluate, video
from sadq.experiment.build import make_learner, resolve
from sadq.experiment.evaluate import UNSEEN, evaluate_policy
from sadq.experiment.opening import create
from sadq.experiment.ranges import of_earlier_version, settled
from sadq.fleet.members import Evaluation
from sadq.networks import Categorical
from sadq.studies.sweep import Job, check

UNKNOWN = dataclasses.replace(TINY, environment="", agent="c51", alpha=None, replay=None, discount=(0.9,))


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register("Own/Switches-v0", entry_point=Switches, max_episode_steps=9)
    yield
    del gymnasium.registry["Own/Switches-v0"]


class Loop:
    """Evaluations of two members, three episodes at a time."""

    def __init__(self):
        self.numbers = []

    def evaluate(self, state, number):
        self.numbers.append(number)
        returns = np.full((2, 3), number - UNSEEN, float)
        return Evaluation(returns, returns, returns, returns, {"success": returns})


def test_episodes_are_played_a_batch_at_a_time():
    loop = Loop()
    played = evaluate._played(loop, None, 7)
    assert loop.numbers == [UNSEEN, UNSEEN + 1, UNSEEN + 2]
    assert played.returns.tolist() == [[0, 0, 0, 1, 1, 1, 2]] * 2 and played.measures["success"].shape == (2, 7)


def test_no_more_environments_than_the_run_has_are_made_for_it(monkeypatch):
    monkeypatch.setattr(evaluate, "make_loop", lambda config, *_: config.evaluation_episodes)
    host = create(dataclasses.replace(TINY, agent="dqn", alpha=None), None, Sorting)
    native = create(dataclasses.replace(TINY, agent="dqn", alpha=None), None)
    assert [evaluate._loop_of(host, count) for count in (1, 100)] == [1, TINY.evaluation_episodes]
    assert [evaluate._loop_of(native, count) for count in (1, 100, 1000)] == [1, 100, 100]


def test_every_environment_has_a_random_policy_and_what_renders_a_film(tmp_path, capsys):
    path = tmp_path / "deep" / "film.gif"
    line = f"evaluate --policy random --episodes 10 --video-out {path} Own/Switches-v0 --json"
    with pytest.raises(SystemExit) as caught:
        main(line.split())
    assert caught.value.code == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(result["returns"]) == 10 and result["mean_length"] == 4 and result["video"] == str(path)
    assert Image.open(path).n_frames > 1
    with pytest.raises(SadqError, match="Own/Switches-v0 has no policy 'best': expected random"):
        evaluate_policy("Own/Switches-v0", "best", 1, 0)
    with pytest.raises(SadqError, match=r"cannot draw .*film.mov, expected a name that ends in .gif"):
        evaluate_policy("Own/Switches-v0", "random", 1, 0, video=Path("film.mov"))


@pytest.mark.parametrize("place", ["/proc/film.gif", "file/film.gif", f"{'x' * 300}.gif"])
def test_a_film_that_cannot_be_written_is_refused_before_anything_is_played(tmp_path, monkeypatch, place):
    monkeypatch.setattr(evaluate, "play_randomly", lambda *_: pytest.fail("it was played"))
    (tmp_path / "file").write_text("")
    with pytest.raises(SadqError, match="cannot draw .*: .*; give another name"):
        evaluate_policy("Own/Switches-v0", "random", 1, 0, video=tmp_path / place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_measure_that_is_no_number_is_null_and_said():
    played = {"returns": [1.0], "lengths": [1], "measures": {"vague": np.array([np.nan]), "clear": np.array([0.5])}}
    assert evaluate._numbers(played)["measures"] == {"vague": None, "clear": 0.5}
    words = Evaluate("any")._in_words(evaluate._numbers(played))
    assert words.endswith("vague no number, clear 0.5")


def test_a_native_environment_is_filmed_by_its_gymnasium_twin():
    cartpole = resolve("CartPole-v1")
    assert video.rendered_twin(cartpole).name == "gymnasium:CartPole-v1"
    assert video.rendered_twin(resolve("BitFlip-3")) is None


def test_an_unknown_range_is_estimated_kept_and_said():
    config, said = settled(UNKNOWN, resolve(Sorting))
    assert (
        config.return_range == (0.0, 8.13) and "return_range = 0 8.13 for the categorical head, estimated from" in said
    )
    experiment = create(UNKNOWN, None, Sorting)
    assert experiment.config.return_range == (0.0, 8.13)
    told = []
    experiment.warn = told.append
    experiment._look_back()
    assert said in told
    head = make_learner(experiment.config, experiment.environment).make_network(jax.random.key(0)).head
    assert (head.low, head.high) == (0.0, 8.13)


@pytest.mark.parametrize(
    ("changes", "environment"),
    [
        ({"head": Categorical(support=(0.0, 1.0))}, Sorting),
        ({"return_range": (0.0, 2.0)}, Sorting),
        ({}, "BitFlip-3"),
        ({"agent": "dqn"}, Sorting),
    ],
)
def test_what_is_known_is_not_estimated(changes, environment, monkeypatch):
    monkeypatch.setattr("sadq.experiment.ranges.estimated_range", lambda *_: pytest.fail("it was"))
    config = dataclasses.replace(UNKNOWN, **changes)
    assert settled(config, resolve(environment)) == (config, None)
    assert of_earlier_version(config, resolve(environment)) is None


def test_a_run_of_an_earlier_version_keeps_its_range_and_says_so():
    sentence = of_earlier_version(UNKNOWN, resolve(Sorting))
    assert "returns from -100 to 100, as versions before this one had it" in sentence


@pytest.mark.parametrize("span", [(1.0,), (2.0, 1.0), (0.0, float("inf")), (0.0, 1.0, 2.0)])
def test_a_range_is_two_numbers(span):
    with pytest.raises(SadqError, match="return_range"):
        dataclasses.replace(UNKNOWN, return_range=span)


def test_a_study_takes_up_a_run_whose_range_was_estimated(tmp_path):
    config = dataclasses.replace(UNKNOWN, environment="Own/Switches-v0")
    create(config, tmp_path / "run").close()
    check(Job("c51", config, "run"), tmp_path / "run")
    with pytest.raises(SadqError, match="another return_range"):
        check(Job("c51", dataclasses.replace(config, return_range=(0.0, 1.0)), "run"), tmp_path / "run")

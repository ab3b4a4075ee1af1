"""Atari end to end, in small: agents with and without SADQ on two games, exact resume, and members that are padded."""

import dataclasses
import shutil
from typing import Any

import jax
import numpy as np
import pytest
import tiny_runs
from PIL import Image

from sadq.dynamics import RSSM
from sadq.errors import SadqError
from sadq.experiment import build, checkpoint, evaluate
from sadq.experiment.build import check_memory, hyper_of, make_learner, members_of, resolve
from sadq.experiment.config import Config
from sadq.experiment.evaluate import evaluate_run
from sadq.experiment.folder import CHECKPOINTS
from sadq.experiment.presets import PRESETS, preset
from sadq.networks import Implicit, Nature, Quantile
from sadq.replay.frames import FrameRing

pytest.importorskip("ale_py", reason="Atari games need ale-py: install sadq[atari]")

TWO_GAMES, STEPS = "atari/Breakout,Pong", 72
SHORT = "max_frames=160"  # 40 steps: an episode ends in training, too


def small(agent: str, environment: str = TWO_GAMES, **fields: Any) -> Config:
    """A fleet of a member for each game, whose networks compile in seconds."""
    values: dict[str, Any] = {
        "seeds": (3,),
        "steps": STEPS,
        "learning_starts": 24,
        "buffer_size": 56,  # which wraps
        "batch_size": 2,
        "target_update_interval": 10,
        "encoder": Nature(channels=(4, 4, 4), hidden=8),
        "model": RSSM(deterministic=8, variables=2, classes=3, hidden=6, channels=(4, 4, 4), decoder=(4, 4, 4)),
        "adjusted": (Quantile(quantiles=5), Implicit(levels=4, cosines=6)),
        "evaluations": 1,
        "evaluation_episodes": 2,
        "environment_settings": (SHORT,),
        "checkpoint_seconds": 1e9,
    }
    base = preset(environment, agent)
    guidance = dataclasses.replace(base.guidance, batch_size=2)
    return dataclasses.replace(base, **(values | {"guidance": guidance} | fields))


@pytest.fixture(scope="module", autouse=True)
def short_chunks():
    """So that a short run can be stopped in its middle."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "MAX_CHUNK_STEPS", STEPS // 2)
        patch.setattr(build, "MAX_CHUNK", STEPS // 8)
        yield


def leaves(state: Any) -> dict[str, np.ndarray]:
    return checkpoint.named_leaves(state)


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray], names=None) -> None:
    for name in names or one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> tiny_runs.Experiment:
    """QR-DQN on both games. Not to be changed."""
    return tiny_runs.train(tmp_path_factory.mktemp("plain") / "run", small("qrdqn"))


ALPHAS = (1.0, 0.2)  # of a guided fleet's members, for each game


@pytest.fixture(scope="module")
def guided(tmp_path_factory) -> tiny_runs.Experiment:
    """QR-DQN with SADQ on both games, saved after every chunk. Not to be changed."""
    made = small("qrdqn+sadq", alpha=ALPHAS, checkpoint_seconds=0.0)
    return tiny_runs.train(tmp_path_factory.mktemp("guided") / "run", made)


def of_member(experiment: tiny_runs.Experiment, index: int) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """The leaves of a member, and its evaluations, whatever its number in its fleet is."""
    rows = [row for row in experiment.folder.evaluations if row["member"] == index]
    own = {name: leaf[index] for name, leaf in leaves(experiment.state).items()}
    return own, [{name: value for name, value in row.items() if name != "member"} for row in rows]


def assert_same_member(left: tuple[Any, Any], right: tuple[Any, Any]) -> None:
    """All that the left one has."""
    assert_same(left[0], right[0])
    assert left[1] == right[1] and left[1]


@pytest.mark.exact
@pytest.mark.parametrize("agent", ["qrdqn", "iqn", "coact"])
def test_at_alpha_one_it_is_its_base(agent, plain, guided, tmp_path):
    base, twin, stride = plain, guided, len(ALPHAS)
    if agent != "qrdqn":
        base = tiny_runs.train(tmp_path / "base", small(agent))
        twin, stride = tiny_runs.train(tmp_path / "guided", small(f"{agent}+sadq", alpha=(1.0,))), 1
    assert twin.step == base.step == STEPS
    for game in range(2):
        assert_same_member(of_member(base, game), of_member(twin, game * stride))


@pytest.mark.exact
def test_a_padded_members_run_is_that_of_the_member_resumed_or_alone(guided, tmp_path):
    """Breakout has 4 actions, Pong 6: its network has two that are never taken, and never looked at."""
    fleet = guided
    last = fleet.folder.metrics[-1]
    assert last["model_state_loss"] > 0 and last["model_updates"] == 1 and np.isfinite(last["loss"])
    assert set(fleet.folder.evaluations[-1]["measures"]) == {"raw_score", "human_normalised"}

    half = tiny_runs.copied(fleet.folder.path, tmp_path / "half")
    shutil.rmtree(checkpoint.latest(half / CHECKPOINTS))
    (half / "result.json").unlink()
    assert checkpoint.latest(half / CHECKPOINTS) is not None, "saved halfway"
    resumed = tiny_runs.resume(half)
    assert resumed.exact and resumed.step == fleet.step == STEPS
    assert_same(leaves(fleet.state), leaves(resumed.state))  # the model among them
    assert fleet.folder.evaluations == resumed.folder.evaluations

    padded = (SHORT, "actions=6")
    alone = tiny_runs.train(tmp_path / "alone", small("qrdqn+sadq", "atari/Breakout", environment_settings=padded))
    heard = ALPHAS.index(alone.config.alpha[0])
    assert_same_member(of_member(alone, 0), of_member(fleet, heard))
    action = leaves(fleet.state)[".replay.rows.action"]
    assert action[:2].max() < 4 and action[2:].max() < 6
    assert [member["game"] for member in fleet.members] == ["Breakout", "Breakout", "Pong", "Pong"]
    assert hyper_of(fleet.config).actions.tolist() == [4, 4, 6, 6]

    film = tmp_path / "films" / "breakout.gif"
    result = evaluate_run(fleet.folder.path, 1, film)
    with Image.open(film) as frames:
        assert result["video"] == str(film) and 10 < frames.n_frames <= 40
    assert [member["game"] for member in result["members"]] == [member["game"] for member in fleet.members]
    assert result["members"][-1]["measures"]["raw_score"] <= 0


def test_what_could_not_be_written_is_refused_before_anything_is_played(tmp_path, monkeypatch):
    tiny_runs.create(small("qrdqn"), tmp_path / "run")
    monkeypatch.setattr(evaluate, "make_loop", lambda *_: pytest.fail("something was built"))
    for name, sentence in (("film.mp4", "ends in .gif or .png"), ("run", "ends in .gif or .png")):
        with pytest.raises(SadqError, match=sentence):
            evaluate_run(tmp_path / "run", 1, tmp_path / name)
    (tmp_path / "folder.gif").mkdir()
    with pytest.raises(SadqError, match="is a folder"):
        evaluate_run(tmp_path / "run", 1, tmp_path / "folder.gif")


def test_members_of_a_fleet_are_games_and_seeds():
    config = small("qrdqn", seeds=(1, 2))
    assert [(member["game"], member["seed"]) for member in members_of(config)] == [
        ("Breakout", 1),
        ("Breakout", 2),
        ("Pong", 1),
        ("Pong", 2),
    ]
    alone = small("qrdqn", "atari/Breakout")
    assert "game" not in members_of(alone)[0] and hyper_of(alone).actions is None
    assert not make_learner(alone, resolve(alone.environment)).store.has_masks


def test_the_preset_has_the_papers_numbers():
    config = PRESETS["atari100k"]
    learner = make_learner(config, resolve(config.environment))
    assert isinstance(learner.store, FrameRing) and learner.store.rows == 100_000
    assert learner.store.nbytes == pytest.approx(0.75e9, rel=0.01)
    learning = (config.steps - config.learning_starts) // config.collect * config.updates_per_collect
    assert learning == 49_200
    assert (config.batch_size, config.discount, config.learning_rate) == (32, (0.99,), (1e-4,))
    assert config.optimiser.epsilon == pytest.approx(0.001 / 32) and config.optimiser.weight_decay == 1e-4
    assert (config.target_update_interval, config.target_update_unit) == (1000, "updates")
    assert config.epsilon.start == (1.0,) and config.epsilon.end == (0.001,) and config.epsilon.decay == (40_000.0,)
    assert (config.pacing.threshold, config.pacing.fraction) == (0.001, 0.4)
    assert config.guidance.learning_rate == 3e-4 and config.guidance.optimiser.weight_decay == 1e-4
    made = jax.eval_shape(lambda key: learner.guidance.make_model(key), jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(made)) == pytest.approx(34.6e6, rel=0.02)
    network = jax.eval_shape(learner.make_network, jax.random.key(0))
    assert network.head.stream.hidden.weight.shape == (3136, 2048)


def test_a_fleet_that_does_not_fit_says_how_many_members_would(monkeypatch):
    config = preset("atari/Breakout", "qrdqn+sadq")
    learner = make_learner(config, resolve(config.environment))

    def hyper(members: int) -> Any:
        return hyper_of(dataclasses.replace(config, seeds=tuple(range(members))))

    monkeypatch.setattr(build, "free_bytes", lambda device: 10**15)
    each = check_memory(learner, hyper(1)) // 2  # a member is worked on beside the fleet's own memory
    monkeypatch.setattr(build, "free_bytes", lambda device: int(4.5 * each))
    assert check_memory(learner, hyper(3)) == 4 * each
    with pytest.raises(SadqError, match=r"The fleet needs .* for 5 members .* enough for 3: lower"):
        check_memory(learner, hyper(5))


def test_a_checkpoint_of_a_game_with_other_actions_is_refused(plain, tmp_path):
    saved = checkpoint.latest(plain.folder.path / CHECKPOINTS)
    other = tmp_path / "other"
    experiment = tiny_runs.create(small("qrdqn", "atari/Breakout,Alien"), other)
    with pytest.raises(SadqError, match="does not belong to this run"):
        experiment.begin(saved)
    experiment.close()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("atari/Brekout", "did you mean Breakout"), ("atari/", "unknown Atari game"), ("atari/Pong,Pong", "none twice")],
)
def test_an_unknown_game_is_refused_with_what_is_near(name, sentence):
    with pytest.raises(SadqError, match=sentence):
        preset(name, "qrdqn")

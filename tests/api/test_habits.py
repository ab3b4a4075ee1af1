"""The habits of Stable-Baselines3: load and act anywhere, learn on in an environment, run folders, small policies."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stub_runs import CHUNKS, CONFIG, gone_on
from tiny_models import FIELDS, STATES, assert_same_state, plain

from sadq import SADQ, SadqError
from sadq.errors import SadqWarning
from sadq.experiment.evaluate import evaluate_run
from sadq.experiment.folder import EVALUATIONS
from sadq.experiment.lock import LOCK
from sadq.experiment.opening import reopen
from sadq.experiment.storage import write_json


class Bandit(gymnasium.Env):
    """Four arms, of which what is seen points to the best; nobody registered it."""

    observation_space = spaces.Box(0, 1, (4,), np.float32)
    action_space = spaces.Discrete(4, start=1)

    def __init__(self, pulls: int = 5):
        self.pulls = pulls

    def seen(self):
        return np.eye(4, dtype=np.float32)[self.best]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.best = self.pulls, int(self.np_random.integers(4))
        return self.seen(), {}

    def step(self, action):
        reward, self.left = float(action - 1 == self.best), self.left - 1
        self.best = int(self.np_random.integers(4))
        return self.seen(), reward, self.left == 0, False, {}


ARMS = np.eye(4, dtype=np.float32)


@pytest.fixture(scope="module")
def bandit(cache) -> SADQ:
    """Learned for a moment, on an environment object."""
    return plain(Bandit(), environments=2).learn(64)


@pytest.fixture
def saved(bandit, tmp_path):
    bandit.save(tmp_path / "agent")
    return tmp_path / "agent"


def test_a_loaded_agent_acts_without_its_environment(bandit, saved):
    loaded = SADQ.load(saved)
    actions, _ = loaded.predict(ARMS)
    np.testing.assert_array_equal(actions, bandit.predict(ARMS)[0])
    assert set(loaded.predict(np.repeat(ARMS, 50, axis=0), deterministic=False)[0].tolist()) == {1, 2, 3, 4}
    assert (loaded.num_timesteps, loaded.metrics, loaded.evaluations) == (64, bandit.metrics, bandit.evaluations)
    with pytest.raises(SadqError, match=r"Cannot act on an observation of shape \(5,\)"):
        loaded.predict(np.zeros(5))


def test_a_loaded_agent_plays_as_evaluate_policy_would_have_it(saved):
    environment, loaded = Bandit(), SADQ.load(saved)
    try:
        from stable_baselines3.common.evaluation import evaluate_policy
    except ImportError:  # which has an environment of its own; this is its loop
        total, (seen, _), ended = 0.0, environment.reset(seed=0), False
        while not ended:
            action, state = loaded.predict(seen[None], state=None, episode_start=np.ones(1, bool), deterministic=True)
            seen, reward, ended, _, _ = environment.step(action[0])
            total += reward
        assert state is None
    else:
        total, _ = evaluate_policy(loaded, environment, n_eval_episodes=3, warn=False)
    assert 0 <= total <= 5


def test_learning_on_needs_the_environment_and_goes_on_in_it(bandit, saved):
    with pytest.raises(SadqError, match=r"To learn on, give this agent its environment, with SADQ.load\(path, env=...\) or "
                                        r"set_env: unknown environment 'Bandit'"):  # fmt: skip
        SADQ.load(saved).learn(16)
    given, set_later = SADQ.load(saved, env=Bandit()), SADQ.load(saved)
    set_later.set_env(Bandit())
    assert_same_state(given.learn(16), set_later.learn(16))
    assert given.num_timesteps == 80


def test_another_environment_may_be_learned_on_in_if_it_has_the_same_spaces(saved):
    model = SADQ.load(saved, env=Bandit())
    model.learn(16)
    model.set_env(Bandit(pulls=3))
    assert model.learn(16).num_timesteps == 96
    assert set(model.evaluations[-1]["lengths"]) == {3}
    for odd, told in [("CartPole-v1", "action_count 2, but this agent was made for 4"), (lambda: Bandit, "expected")]:
        for agent in (model, SADQ.load(saved)):
            with pytest.raises(SadqError, match=told):
                agent.set_env(odd)
    assert model.num_timesteps == 96


def test_a_policy_alone_is_small_and_acts_and_learns_no_more(bandit, saved, tmp_path):
    bandit.save(tmp_path / "policy", policy_only=True)
    large, small = (
        sum(file.stat().st_size for file in (path / "checkpoints").rglob("*.*"))
        for path in (saved, tmp_path / "policy")
    )
    assert small < large / 2
    loaded = SADQ.load(tmp_path / "policy", env=Bandit())
    np.testing.assert_array_equal(loaded.predict(ARMS)[0], bandit.predict(ARMS)[0])
    with pytest.raises(SadqError, match="policy holds networks to act with and nothing to learn on from"):
        loaded.learn(16)


def test_networks_that_a_file_says_are_enormous_are_compared_and_not_made(saved):
    record = json.loads((saved / "config.json").read_text())
    record["config"]["encoder"]["hidden"] = [2**30, 2**30]
    write_json(saved / "config.json", record)
    with pytest.raises(SadqError, match="does not belong to this run: .* should be"):
        SADQ.load(saved)


def test_a_link_that_leads_to_itself_is_no_folder(bandit, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(SadqError, match="loop"):
        SADQ.load(tmp_path / "loop")
    with pytest.raises(SadqError, match="Cannot write to .*loop"):
        bandit.save(tmp_path / "loop")


def test_a_policy_alone_can_be_evaluated(tmp_path):
    model = plain().learn(64)
    for name, policy_only in (("whole", False), ("policy", True)):
        model.save(tmp_path / name, policy_only)
    results = [evaluate_run(tmp_path / name, 3)["members"] for name in ("whole", "policy")]
    assert results[0] == results[1] and len(results[0][0]["returns"]) == 3


def test_a_run_folder_of_a_version_that_recorded_no_spaces_is_loaded_by_its_environments_name(model, tmp_path):
    model.save(tmp_path / "agent")
    record = json.loads((tmp_path / "agent" / "config.json").read_text())
    del record["spaces"]
    write_json(tmp_path / "agent" / "config.json", record)
    np.testing.assert_array_equal(SADQ.load(tmp_path / "agent").predict(STATES)[0], model.predict(STATES)[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"observation_shape": "x"},
        {"observation_shape": []},
        {"observation_shape": [0]},
        {"action_count": None},
        {"observation_dtype": "object"},
        {"action_count": float("inf")},
    ],
)
def test_spaces_that_make_no_sense_are_refused(saved, changes):
    record = json.loads((saved / "config.json").read_text())
    record["spaces"] |= changes
    (saved / "config.json").write_text(json.dumps(record))
    with pytest.raises(SadqError, match="The spaces of environment Bandit in its config.json are damaged"):
        SADQ.load(saved)


class Fragile(Bandit):
    """Breaks when it has been pulled too often."""

    pulled = 0

    def step(self, action):
        Fragile.pulled += 1
        return None if Fragile.pulled > 60 else super().step(action)


def test_of_an_agent_whose_training_was_broken_off_the_networks_are_left(tmp_path):
    model = plain(Fragile(), environments=2)
    with pytest.raises(SadqError, match="environment Fragile returned None from step"):
        model.learn(640)
    model.save(tmp_path / "left", policy_only=True)
    np.testing.assert_array_equal(SADQ.load(tmp_path / "left").predict(ARMS)[0], model.predict(ARMS)[0])
    for use in (lambda: model.learn(8), lambda: model.result, lambda: model.save(tmp_path / "whole")):
        with pytest.raises(SadqError, match="but networks to act with, which policy_only saves: load its newest"):
            use()
    assert not (tmp_path / "whole").exists()


class Spoilt(Bandit):
    """Pays for every arm but the best."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, 1.0 - reward, *rest


def test_an_agent_that_moved_is_saved_with_where_it_is_now(saved, tmp_path):
    loaded = SADQ.load(saved, env=Spoilt())
    assert loaded.config.environment == "Spoilt"
    with pytest.warns(SadqWarning, match="names no time limit"):
        loaded.learn(16)
    assert loaded.num_timesteps == 80
    loaded.save(tmp_path / "moved")
    with pytest.raises(SadqError, match="To learn on, give this agent its environment"):
        SADQ.load(tmp_path / "moved").learn(16)
    again = SADQ.load(tmp_path / "moved", env=Spoilt())
    assert again.config.environment == "Spoilt" and again.learn(16).result["exact_resume"]


@pytest.mark.parametrize("how", ["load", "set_env"])
def test_a_native_environment_may_be_left_for_one_outside_and_entered_from_there(tmp_path, how):
    def in_place(path, env):
        if how == "load":
            return SADQ.load(path, env=env)
        model = SADQ.load(path)
        model.set_env(env)
        return model

    plain("CartPole-v1").learn(64).save(tmp_path / "native")
    outside = in_place(tmp_path / "native", gymnasium.make("CartPole-v1"))
    assert outside.learn(32).num_timesteps == 96 and outside.config.environment == "gymnasium:CartPole-v1"
    outside.save(tmp_path / "outside")
    inside = in_place(tmp_path / "outside", "CartPole-v0")
    assert inside.learn(32).num_timesteps == 128 and inside.config.environment == "CartPole-v0"


@pytest.mark.parametrize("policy_only", [False, True])
def test_a_loaded_agent_is_saved_again_without_its_environment(bandit, saved, tmp_path, policy_only):
    SADQ.load(saved).save(tmp_path / "copy", policy_only=policy_only)
    copy = SADQ.load(tmp_path / "copy", env=Bandit())
    np.testing.assert_array_equal(copy.predict(ARMS)[0], bandit.predict(ARMS)[0])
    assert copy.evaluations == SADQ.load(saved).evaluations
    if policy_only:
        SADQ.load(tmp_path / "copy").save(tmp_path / "again")
        with pytest.raises(SadqError, match="again holds networks to act with and nothing to learn on from"):
            SADQ.load(tmp_path / "again", env=Bandit()).learn(16)
    else:
        assert_same_state(copy.learn(16), SADQ.load(saved, env=Bandit()).learn(16))


def test_an_agent_goes_on_where_it_was_closed(tmp_path):
    """With environments in workers that closing ended, and updates in a thread that it ended too."""
    fields = {"workers": 2, "environments": 2, "overlap": True}
    whole = plain(Bandit(), **fields).learn(64).learn(64)
    with plain(Bandit(), **fields) as model:
        model.learn(64)
    assert_same_state(model.learn(64), whole)
    model.close()
    whole.close()


# Run folders, with runs that cost nothing.


def made(**more) -> SADQ:
    return SADQ("BitFlip-3", agent="dueling+sadq", alpha=0.2, seeds=2, **FIELDS | {"evaluations": CHUNKS} | more)


def test_out_gives_a_run_folder_that_the_command_line_knows(stub_loops, tmp_path):
    with made(out=tmp_path / "run") as agent:
        agent.learn(CONFIG.steps)
        assert (tmp_path / "run" / LOCK).exists()
    gone_on(tmp_path / "whole")
    mine, theirs = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("run", "whole"))
    told = ("steps", "metrics_interval", "evaluation_interval", "data", "spaces", "members", "exact_resume")
    assert {name: mine[name] for name in told} == {name: theirs[name] for name in told}
    assert mine["config"]["steps"] == CONFIG.steps
    assert (tmp_path / "run" / EVALUATIONS).read_text() == (tmp_path / "whole" / EVALUATIONS).read_text()
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        path.name for path in (tmp_path / "whole").iterdir()
    }
    with pytest.raises(SadqError, match="already holds a run"):
        made(out=tmp_path / "run")


def test_a_run_folder_follows_several_goes_and_is_resumed_to_the_end_of_the_last(stub_loops, tmp_path):
    agent = made(out=str(tmp_path / "run"))
    agent.learn(CONFIG.steps).learn(40, callback=[lambda _: None, lambda progress: progress.step < CONFIG.steps + 16])
    assert not (tmp_path / "run" / "result.json").exists()
    agent.close()
    resumed = gone_on(tmp_path / "run")
    assert (resumed.step, resumed.origin) == (CONFIG.steps + 40, CHUNKS)
    in_memory = made().learn(CONFIG.steps).learn(40)
    assert [json.loads(line) for line in (tmp_path / "run" / EVALUATIONS).open()] == in_memory.evaluations
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == CONFIG.steps + 40


def test_ctrl_c_saves_to_the_run_folder(stub_loops, tmp_path):
    import os
    import signal

    with made(out=tmp_path / "run") as agent, pytest.raises(KeyboardInterrupt):
        agent.learn(
            CONFIG.steps, callback=lambda progress: os.kill(os.getpid(), signal.SIGINT) if progress.step == 16 else None
        )
    assert SADQ.load(tmp_path / "run").num_timesteps == 16
    assert gone_on(tmp_path / "run").step == CONFIG.steps


def test_saving_to_the_own_run_folder_is_a_checkpoint(stub_loops, tmp_path):
    with made(out=tmp_path / "run", checkpoint_seconds=3600.0) as agent:
        agent.learn(
            CONFIG.steps, callback=lambda progress: agent.save(tmp_path / "run") if progress.step == 16 else None
        )
        with pytest.raises(SadqError, match="is the folder of this run, which needs more than a policy"):
            agent.save(tmp_path / "run", policy_only=True)
    assert [path.name for path in sorted((tmp_path / "run" / "checkpoints").iterdir())] == ["0000000002", "0000000004"]
    assert reopen(tmp_path / "run").config.steps == CONFIG.steps


def test_a_run_folder_is_taken_again_after_it_was_closed(stub_loops, tmp_path):
    with made(out=tmp_path / "run") as agent:
        agent.learn(16)
    assert not (tmp_path / "run" / LOCK).exists()

    def holds(progress):
        with pytest.raises(SadqError, match="is in use by process"):
            reopen(tmp_path / "run").folder.take()

    agent.learn(16, callback=holds)
    agent.close()
    agent.save(tmp_path / "run")
    assert (tmp_path / "run" / LOCK).exists()
    agent.close()
    with SADQ.load(tmp_path / "run") as other:
        assert other.num_timesteps == 32


def test_a_run_that_others_went_on_with_after_it_was_closed_is_left_alone(stub_loops, tmp_path):
    with made(out=tmp_path / "run") as agent:
        agent.learn(CONFIG.steps, callback=lambda progress: progress.step < 16)
    gone_on(tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    for use in (lambda: agent.learn(16), lambda: agent.save(tmp_path / "run")):
        with pytest.raises(SadqError, match="has gone on since it was closed: load it again"):
            use()
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_paths_are_of_where_they_were_given(stub_loops, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with made(out="run") as agent:
        agent.learn(16)
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert agent.learn(16).num_timesteps == 32
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_comparison_of_numpy_s_stops_it_too(stub_loops):
    assert made().learn(CONFIG.steps, callback=lambda progress: np.float64(progress.step) < 16).num_timesteps == 16


def test_steps_go_by_two_names(stub_loops):
    assert made().learn(total_timesteps=16).num_timesteps == made().learn(16).num_timesteps == 16
    with pytest.raises(SadqError, match="steps and total_timesteps, which are the same: give one"):
        made().learn(16, total_timesteps=16)
    with pytest.raises(SadqError, match="learn was asked for None steps"):
        made().learn()


def test_one_of_several_callbacks_stops_it(stub_loops):
    seen = []
    agent = made().learn(CONFIG.steps, callback=(seen.append, lambda progress: progress.step < 16))
    assert agent.num_timesteps == 16 and len(seen) == 2
    with pytest.raises(SadqError, match="callback = 3 must be a function"):
        agent.learn(8, callback=[print, 3])


def test_an_agent_that_was_loaded_from_a_run_that_went_on_says_so(stub_loops, tmp_path):
    gone_on(tmp_path / "run", callback=lambda progress: progress.step < 8)
    loaded = SADQ.load(tmp_path / "run")
    gone_on(tmp_path / "run")
    with pytest.raises(SadqError, match="has gone on since it was loaded, and its checkpoint is gone: load it again"):
        loaded.learn(8)

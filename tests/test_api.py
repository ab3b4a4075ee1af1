"""`SADQ` as a library: learn, predict, save and load, with the habits of Stable-Baselines3."""

import dataclasses
import errno
import json
import os
import sys
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "experiment"))

import tiny_runs
from odd_environments import Drift
from tiny_runs import TINY

import sadq
from sadq import SADQ, SadqError
from sadq.axes import AXES
from sadq.envs.base import Environment
from sadq.experiment.config import Epsilon
from sadq.experiment.presets import PRESETS
from sadq.exploration import Behaviour, Best, EpsilonZ, UpperConfidence
from sadq.exploration.situation import settled_values
from sadq.networks import Categorical, Quantile, ensemble_means

NAMED_APART = ("preset", "environment", "agent", "seeds", "alpha", "steps")
FIELDS = {field.name: getattr(TINY, field.name) for field in dataclasses.fields(TINY) if field.name not in NAMED_APART}
# A plain agent on one member, cheap to compile again and again; nothing in it depends on how long it will train.
PLAIN = FIELDS | {
    "replay": None,
    "n_step": None,
    "learning_rate_schedule": "constant",
    "evaluations": 4,
    "epsilon": Epsilon((0.5,), (0.5,), (1.0,)),
}
STATES = np.array([[0, 0, 0, 1, 1, 1], [1, 0, 0, 1, 1, 1], [0, 1, 0, 0, 0, 1], [1, 1, 1, 0, 0, 0]], np.float32)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with tiny_runs.compilation_cache(tmp_path_factory.getbasetemp()) as home:
        yield home


@pytest.fixture(scope="module")
def model(cache) -> SADQ:
    """The tiny run, learned in memory."""
    return SADQ("BitFlip-3", agent="dueling+sadq", alpha=0.2, seeds=2, **FIELDS).learn(TINY.steps)


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("api") / "agent"
    model.save(path)
    return path


def plain(env="BitFlip-3", **changes) -> SADQ:
    return SADQ(env, agent="dqn", **PLAIN | changes)


def weights(model: SADQ) -> dict[str, np.ndarray]:
    return tiny_runs.checkpoint.named_leaves(model._experiment.state)


def assert_same_state(left: SADQ, right: SADQ) -> None:
    mine, theirs = weights(left), weights(right)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        assert value.tobytes() == theirs[name].tobytes(), name


def test_the_packages_front_gives_the_names_that_users_need():
    assert set(sadq.__all__) == {"SADQ", "AgentSpec", "Environment", "SadqError", "register", "register_agent"}
    assert all(getattr(sadq, name) for name in sadq.__all__)
    with pytest.raises(AttributeError, match="no attribute 'DQN'"):
        _ = sadq.DQN


@pytest.mark.parametrize(
    ("agent", "alpha", "expected"),
    [
        ("dueling+sadq", 0.3, ("dueling+sadq", (0.3,))),
        ("dqn+sadq", 1, ("dqn+sadq", (1.0,))),
        ("DQN+SADQ", None, ("dqn+sadq", (0.2,))),
        ("double+sadq", [0.0, 0.5], ("double+sadq", (0.0, 0.5))),
        ("sadq", None, ("dueling+sadq", (0.2,))),
        ("sadq", 0.0, ("dueling+sadq", (0.0,))),
        ("dqn", None, ("dqn", None)),
        ("double", None, ("double", None)),
    ],
)
def test_an_agent_is_named_as_on_the_command_line_and_alpha_is_the_presets_unless_given(agent, alpha, expected):
    config = SADQ("CartPole-v1", agent=agent, alpha=alpha).config
    assert (config.agent, config.alpha) == expected


def test_without_further_words_it_is_dueling_with_sadq_and_one_seed():
    config = SADQ("CartPole-v1").config
    assert (config.agent, config.alpha, config.seeds) == ("dueling+sadq", (0.2,), (0,))


@pytest.mark.parametrize(
    ("seeds", "expected"), [(1, (0,)), (5, (0, 1, 2, 3, 4)), ([7, 3], (7, 3)), (range(2, 4), (2, 3))]
)
def test_seeds_are_a_count_or_a_list(seeds, expected):
    assert SADQ("CartPole-v1", seeds=seeds).config.seeds == expected


def test_any_field_may_be_given_and_the_rest_comes_from_the_preset():
    config = SADQ("CartPole-v1", preset="cartpole", learning_rate=1e-2, discount=[0.9, 0.99], batch_size=7).config
    assert (config.learning_rate, config.discount, config.batch_size) == ((1e-2,), (0.9, 0.99), 7)
    assert config.encoder == PRESETS["cartpole"].encoder
    assert config.environment == "CartPole-v1"


def test_an_axis_takes_a_choice_its_class_or_its_name():
    for head in (Quantile(), Quantile, "quantile"):
        assert SADQ("CartPole-v1", agent="dqn", head=head).config.head == Quantile()
    acrobot = SADQ("Acrobot-v1", preset="acrobot", agent="dqn", head="categorical").config
    assert acrobot.head == Categorical(support=(-100.0, 0.0)), "by its name it is as the preset has it"
    assert SADQ("Acrobot-v1", preset="acrobot", head=Categorical(7)).config.head == Categorical(7)


@pytest.fixture
def own_rule(monkeypatch):
    """A whole behaviour of a user's own, taken back afterwards."""
    monkeypatch.setattr(AXES["exploration"], "_entries", {})

    @AXES["exploration"].register("contrary")
    @dataclasses.dataclass(frozen=True)
    class Contrary(Behaviour):
        def act(self, now, memory):
            return jnp.argmin(now.expected, axis=1).astype(jnp.int32), memory

    return Contrary


def test_a_rule_of_exploration_replaces_a_part_of_the_behaviour_or_the_whole(own_rule):
    agent = {"env": "BitFlip-3", "agent": "sunrise", **PLAIN}
    for rule in (EpsilonZ(), EpsilonZ, "epsilon-z"):
        config = SADQ(**agent | {"exploration": rule}).config
        assert (config.intended, config.deviation, config.exploration) == (None, EpsilonZ(), None)
        assert config.behaviour == Behaviour(UpperConfidence(), EpsilonZ())
    assert SADQ(**agent | {"exploration": "best"}).config.intended == Best()
    for rule in (own_rule(), own_rule, "contrary"):
        model = SADQ(**agent | {"exploration": rule})
        assert (model.config.behaviour, model.config.deviation) == (own_rule(), None)
    values = settled_values(networks_of(model), jnp.asarray(MANY), None)
    np.testing.assert_array_equal(model.predict(MANY, deterministic=False)[0], values.argmin(axis=1))


def networks_of(model: SADQ, member: int = 0):
    model._begun()
    return jax.tree.map(lambda leaf: leaf[member], model._experiment.state.learner.online.parameters)


def test_before_learning_starts_exploring_is_uniform():
    early = SADQ("BitFlip-3", agent="rainbow", **PLAIN | {"learning_starts": 64})
    share = np.bincount(early.predict(np.repeat(STATES[:1], 9_000, axis=0), deterministic=False)[0]) / 9_000
    assert share == pytest.approx([1 / 3] * 3, abs=0.03)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"agent": "ppo"}, "Unknown agent 'ppo'"),
        ({"alpha": 1.1}, r"alpha = \(1.1,\) must lie in \[0, 1\]"),
        ({"agent": "dqn", "alpha": 0.5}, "alpha = 0.5 was given, but dqn is a plain agent that has none: use dqn"),
        ({"exploration": 3}, "exploration was given 3, expected an entry that is registered as intended, deviation or"),
        ({"exploration": "nope"}, "exploration was given 'nope', expected an entry"),
        ({"exploration": "ucb", "intended": "best"}, "exploration = 'ucb' was given beside intended"),
        ({"exploration": "ucb"}, "intended ucb needs an ensemble of 2 or more"),
        ({"head": "nope"}, "head = 'nope' is unknown"),
        ({"environment": "CartPole-v0"}, "Unknown field 'environment'"),
        ({"alpha": []}, "needs alpha"),
        ({"seeds": 0}, "No seeds were given"),
        ({"seeds": [1, 1]}, "A seed appears twice"),
        ({"preset": "nope"}, "Unknown preset 'nope': expected one of default, acrobot"),
        ({"stepz": 3}, "Unknown field 'stepz': expected one of adjusted, agent, alpha, batch_size"),
        ({"batch_size": 0}, "batch_size = 0 must be a whole number of at least 1"),
        ({"buffer_size": 10**13}, "The replay needs"),
        ({"env": "Pendulum-v1"}, "expected Discrete"),
        ({"env": "Nothing-v7"}, "unknown environment 'Nothing-v7'"),
        ({"env": 3}, "3 is no environment, expected a name"),
    ],
)
def test_what_cannot_be_made_is_refused_in_a_sentence(arguments, sentence):
    with pytest.raises(SadqError, match=sentence):
        SADQ(**{"env": "CartPole-v1"} | arguments)


def test_learning_is_that_of_the_command_line(model, tmp_path):
    experiment = tiny_runs.train(tmp_path / "run")
    mine, theirs = weights(model), tiny_runs.checkpoint.named_leaves(experiment.state)
    assert all(value.tobytes() == theirs[name].tobytes() for name, value in mine.items())
    assert model.evaluations == experiment.folder.evaluations
    assert tiny_runs.untimed(model.metrics) == tiny_runs.untimed(experiment.folder.metrics)


def test_learning_tells_its_steps_and_its_result(model):
    assert model.num_timesteps == TINY.steps
    assert (model.result["run"], model.result["steps"]) == (None, TINY.steps)
    assert [member["seed"] for member in model.result["members"]] == [0, 1]


def test_nothing_to_learn_is_refused():
    with pytest.raises(SadqError, match="learn was asked for 0 steps: expected at least 1"):
        plain().learn(0)


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


@pytest.mark.parametrize("member", [2, -1])
def test_a_member_that_is_not_there_is_refused(model, member):
    with pytest.raises(SadqError, match=f"There is no member {member}: this fleet has members 0 to 1"):
        model.predict(STATES, member=member)


def test_without_deterministic_it_explores_as_often_as_at_this_point_of_training(model):
    states = np.repeat(STATES[:1], 20_000, axis=0)
    greedy = model.predict(STATES[0])[0]
    share = np.mean(model.predict(states, deterministic=False)[0] != greedy)
    epsilon = 0.1 + 0.4 * np.exp(-TINY.steps / 500)
    assert share == pytest.approx(epsilon * 2 / 3, abs=0.01), "one in three random actions is the greedy one"
    assert (model.predict(states)[0] == greedy).all()


MANY = np.random.default_rng(1).integers(0, 2, (256, 6)).astype(np.float32)


@pytest.mark.parametrize(
    ("agent", "varies"),
    [("rainbow", True), ("bdqn", True), ("teg", True), ("coact", True), ("iqn", True), ("sunrise", False)],
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


def test_an_object_without_an_id_is_needed_again_to_load(tmp_path):
    model = plain(Wanderer())
    model.predict(np.zeros(4))
    model.save(tmp_path / "agent")
    with pytest.raises(SadqError, match="unknown environment 'Wanderer'"):
        SADQ.load(tmp_path / "agent")
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


@pytest.fixture(scope="module")
def twice(cache) -> SADQ:
    """Learned in two goes of 64 steps."""
    return plain().learn(64).learn(64)


def test_learning_again_goes_on_from_where_it_was(twice):
    assert twice.num_timesteps == 128
    assert [row["step"] for row in twice.metrics] == [16, 32, 48, 64, 80, 96, 112, 128]
    assert [row["step"] for row in twice.evaluations] == [0, 16, 32, 48, 64, 80, 96, 112, 128]


def test_two_goes_end_in_the_state_of_one_where_no_schedule_spans_the_run(twice):
    assert_same_state(twice, plain().learn(128))


def test_a_saved_agent_learns_on_exactly_as_the_one_that_was_saved(twice, tmp_path):
    plain().learn(64).save(tmp_path / "agent")
    loaded = SADQ.load(tmp_path / "agent").learn(64)
    assert_same_state(loaded, twice)
    assert tiny_runs.untimed(loaded.metrics) == tiny_runs.untimed(twice.metrics)
    assert loaded.evaluations == twice.evaluations


def test_steps_are_rounded_up_to_whole_collects():
    assert plain().learn(61).num_timesteps == 64


def test_a_callback_sees_each_chunk_and_stops_by_false():
    seen = []
    model = plain().learn(64, callback=lambda progress: seen.append(progress.step) or len(seen) < 2)
    assert seen == [16, 32]
    assert model.num_timesteps == 32


def test_a_progress_bar_is_shown_only_where_it_is_asked_for(capsys):
    plain().learn(64)
    assert capsys.readouterr().err == ""
    plain().learn(64, progress_bar=True)
    assert "step 64/64" in capsys.readouterr().err


def test_a_saved_agent_comes_back_as_it_was(model, saved):
    loaded = SADQ.load(saved)
    assert_same_state(loaded, model)
    assert loaded.config == model.config
    assert loaded.num_timesteps == model.num_timesteps
    assert (loaded.metrics, loaded.evaluations) == (model.metrics, model.evaluations)
    for member in range(2):
        np.testing.assert_array_equal(loaded.predict(STATES, member=member)[0], model.predict(STATES, member=member)[0])


def test_a_saved_agent_is_a_folder_without_any_code(saved):
    files = {str(path.relative_to(saved)) for path in saved.rglob("*") if path.is_file()}
    assert {Path(name).suffix for name in files} == {".json", ".jsonl", ".safetensors"}
    assert json.loads((saved / "config.json").read_text())["config"]["agent"] == "dueling+sadq"


def test_saving_again_replaces_the_agent(model, tmp_path):
    model.save(tmp_path / "agent")
    model.save(str(tmp_path / "agent"))
    assert_same_state(SADQ.load(tmp_path / "agent"), model)
    assert len(list((tmp_path / "agent" / "checkpoints").iterdir())) == 1


def test_saving_over_something_else_is_refused(model, tmp_path):
    (tmp_path / "thesis.tex").write_text("three years of work")
    with pytest.raises(SadqError, match="exists and is no saved agent"):
        model.save(tmp_path)
    with pytest.raises(SadqError, match="exists and is no saved agent"):
        model.save(tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "three years of work"


def test_a_full_disk_while_saving_leaves_the_agent_that_was_there(model, tmp_path):
    model.save(tmp_path / "agent")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises((SadqError, OSError)):
            model.save(tmp_path / "agent")
    assert_same_state(SADQ.load(tmp_path / "agent"), model)


@pytest.mark.parametrize("content", [None, "{}"])
def test_loading_what_is_no_agent_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(SadqError, match="is no run folder|is not of a run of this version"):
        SADQ.load(tmp_path)


def test_loading_a_run_without_a_checkpoint_is_refused(saved, tmp_path):
    run = tiny_runs.copied(saved, tmp_path / "run")
    tiny_runs.shutil.rmtree(run / "checkpoints")
    with pytest.raises(SadqError, match="has no checkpoint: give the folder of a saved agent or of a run that has one"):
        SADQ.load(run)


def test_a_run_of_the_command_line_can_be_loaded_and_saved_elsewhere(tmp_path, model):
    tiny_runs.train(tmp_path / "run")
    loaded = SADQ.load(tmp_path / "run")
    assert_same_state(loaded, model)
    loaded.save(tmp_path / "elsewhere")
    assert (tmp_path / "run" / "result.json").exists()
    assert_same_state(SADQ.load(tmp_path / "elsewhere"), model)


def test_loading_a_run_that_is_still_going_leaves_its_files_alone(saved, tmp_path):
    run = tiny_runs.copied(saved, tmp_path / "run")
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": TINY.steps + 200, "member": 0}) + "\n")
    before = (run / "metrics.jsonl").read_bytes()
    SADQ.load(run)
    assert (run / "metrics.jsonl").read_bytes() == before

"""A config through JSON and back, its row, and every sentence that refuses one."""

import dataclasses
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sadq.agents import AGENTS, REFUSALS, AgentSpec
from sadq.axes import AXES
from sadq.core.bootstrap import Greedy
from sadq.core.ensembles import Agreement
from sadq.core.optimisers import RMSprop
from sadq.dynamics.gaussian import Gaussian
from sadq.errors import SadqError
from sadq.experiment.config import Config, Epsilon, GuidanceSettings
from sadq.experiment.opening import create
from sadq.experiment.presets import PRESETS, preset
from sadq.experiment.records import from_json, to_json
from sadq.exploration import Behaviour, Best, Counteractive, EpsilonZ, RandomAction, Thompson, UpperConfidence
from sadq.networks import Bayesian, Categorical, Dense, Fraction, Implicit, Quantile, Scalar
from sadq.replay.samplers import Prioritised, Uniform

SOUND = Config(agent="dqn", alpha=None, target_update_interval=100)
CHOICES = [(field, name) for field, axis in AXES.items() for name in axis]


def changed(config: Config, changes: dict) -> Config:
    """`config` with fields replaced, nested ones by their dotted names."""
    plain = {name: value for name, value in changes.items() if "." not in name}
    for name in [name for name in changes if "." in name]:
        part, field = name.split(".")
        plain[part] = dataclasses.replace(plain.get(part, getattr(config, part)), **{field: changes[name]})
    return dataclasses.replace(config, **plain)


def stored(config) -> dict:
    """What config.json holds of it, read back."""
    return json.loads(json.dumps(to_json(config)))


@pytest.fixture
def own_entries(monkeypatch):
    """Entries of a user's own, taken back afterwards."""
    for axis in AXES.values():
        monkeypatch.setattr(axis, "_entries", dict(axis._entries))

    @AXES["head"].register("mine")
    @dataclass(frozen=True)
    class Mine:
        atoms: int = 3
        widths: tuple[float, ...] = (1.0, 2.0)
        named: dict | None = None
        either: int | str = 4
        anything: Any = None
        model: str = "not a choice"

        build = Scalar.build

    @AXES["exploration"].register("whole")
    @dataclass(frozen=True)
    class Whole(Behaviour):
        power: float = 2.0

    return Mine, Whole


@pytest.mark.parametrize("config", [SOUND, *PRESETS.values()], ids=lambda config: config.preset)
def test_a_config_survives_json(config):
    assert from_json(Config, stored(config)) == config


@pytest.mark.parametrize(("field", "name"), CHOICES)
def test_every_choice_survives_json_and_is_stored_by_its_name(field, name):
    choice = AXES[field].choice(name)
    config = unchecked(**{field: choice})
    data = stored(config)
    assert data[field] == {"kind": name} | json.loads(json.dumps(dataclasses.asdict(choice)))
    assert from_json(type(config), data) == config


def unchecked(**changes) -> Config:
    """A config whose combination may make no sense: some choices only go with others."""

    class Unchecked(Config):
        def __post_init__(self):
            pass

    return Unchecked(**vars(SOUND) | changes)


def test_other_settings_survive_json_too():
    config = changed(
        SOUND,
        {
            "agent": "qrdqn+sadq",
            "alpha": (0.1, 0.2),
            "head": Categorical(atoms=7, support=(-1.0, 2.0)),
            "replay": Prioritised(0.1, 0.9),
            "model": Gaussian((8,), continuation=True),
            "guidance.optimiser": RMSprop(0.5),
            "guidance.candidates": 3,
            "adjusted": (Quantile(7), EpsilonZ(3.0)),
        },
    )
    data = stored(config)
    assert data["adjusted"][1] == {"axis": "deviation", "kind": "epsilon-z", "exponent": 3.0, "longest": 100}
    assert data["guidance"]["optimiser"] == {"kind": "rmsprop", "decay": 0.5, "epsilon": 1e-5}
    assert from_json(Config, data) == config


def test_a_users_own_choices_survive_json(own_entries):
    mine, whole = own_entries
    head = mine(5, (0.5,), {"a": 1}, "word", [1, 2])
    config = changed(SOUND, {"head": head, "exploration": whole(UpperConfidence(2.0), Counteractive(), 3.0)})
    data = stored(config)
    assert data["exploration"]["intended"] == {"kind": "ucb", "width": 2.0}
    assert data["head"]["model"] == "not a choice"
    assert from_json(Config, data) == config


@pytest.fixture
def own_rule(own_entries) -> type:
    @AXES["bootstrap"].register("mixed")
    @dataclass(frozen=True)
    class Mixed(Greedy):
        pair: tuple[int, float] = (1, 0.5)
        named: tuple[str, int, bool] = ("a", 1, True)
        bare: tuple = ()
        anything: Any = None

    return Mixed


def test_a_users_tuple_has_a_type_for_every_place(own_rule):
    config = changed(SOUND, {"bootstrap": own_rule((2, 2.5), ("b", 3, False), (1, "c"))})
    data = stored(config)
    assert from_json(Config, data) == config
    data["bootstrap"]["pair"] = [2, 2.5, 3]
    with pytest.raises(SadqError, match=r"config.bootstrap.pair has 3 entries, expected 2\."):
        from_json(Config, data)


@pytest.mark.parametrize(
    "setting", [math.inf, math.nan, math.sqrt, Path("here"), np.ones(2), {1, 2}, {"a": [math.inf]}]
)
def test_a_setting_that_no_json_can_hold_is_refused_before_anything_is_made(own_rule, setting, tmp_path):
    config = changed(SOUND, {"bootstrap": own_rule(anything=setting)})
    for out in (None, tmp_path / "run"):
        with pytest.raises(SadqError, match="^anything = .* cannot be written into a config.json: expected finite"):
            create(config, out)
    assert not list(tmp_path.iterdir())


def test_whole_numbers_in_json_serve_as_floats():
    data = stored(SOUND) | {"discount": [1], "soft_target_rate": 1}
    read = from_json(Config, data)
    assert (read.discount, read.soft_target_rate) == ((1.0,), 1.0)
    assert type(read.discount[0]) is type(read.soft_target_rate) is float


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"stepz": 3}, "config has the unknown field 'stepz'"),
        ({"epsilon": {"shape": 1}}, "config.epsilon has the unknown field 'shape'"),
        ({"steps": "many"}, "config.steps is 'many', expected int"),
        ({"steps": 1.5}, "config.steps is 1.5, expected int"),
        ({"steps": True}, "config.steps is True, expected int"),
        ({"discount": 0.9}, "config.discount is 0.9, expected a list"),
        ({"discount": ["a"]}, "config.discount is 'a', expected float"),
        ({"encoder": {"kind": "dense", "hidden": [8, None]}}, "config.encoder.hidden is None, expected int"),
        ({"encoder": {"kind": "dense", "hidden": [8], "x": 1}}, "config.encoder has the unknown field 'x'"),
        (
            {"replay": {"kind": "lifo"}},
            "replay = 'lifo' is unknown: expected uniform, prioritised; an entry of your own is",
        ),
        ({"head": {"kind": "mine"}}, "known once its module is imported (--import)"),
        ({"gate": {"kind": ["x"]}}, "gate = ['x'] is unknown"),
        ({"replay": "lifo"}, "replay = 'lifo' is unknown"),
        ({"model": [1]}, "model was given [1], expected one of gaussian"),
        ({"model": None}, "model was given None"),
        ({"guidance": [1]}, "config.guidance is not a table of fields"),
        ({"adjusted": {}}, "config.adjusted is {}, expected a list"),
        ({"adjusted": [{"kind": "scalar", "huber": 1.0}]}, "adjusted has {'kind': 'scalar', 'huber': 1.0}"),
        ({"adjusted": [3]}, "config.adjusted is 3, expected dict"),
        ({"adjusted": [{"axis": "head", "kind": "lifo"}]}, "head = 'lifo' is unknown"),
        ({"deterministic": 1}, "config.deterministic is 1, expected bool"),
        ({"learning_rate_schedule": "cosine"}, "is 'cosine', expected one of ('constant', 'linear')"),
        ({"agent": "ppo"}, "Unknown agent 'ppo'"),
    ],
)
def test_json_of_another_kind_is_refused_by_name(change, sentence):
    with pytest.raises(SadqError, match=re.escape(sentence)):
        from_json(Config, stored(SOUND) | change)


def test_json_that_is_no_table_is_refused():
    with pytest.raises(SadqError, match="config is not a table of fields"):
        from_json(Config, [1, 2])


def test_json_without_a_field_gets_its_default_and_the_field_is_named():
    data, filled = stored(SOUND), []
    for name in ("steps", "head", "adjusted", "compute"):
        del data[name]
    del data["guidance"]["optimiser"]["beta1"], data["encoder"]["hidden"]
    assert from_json(Config, data, filled=filled) == SOUND
    default = ("steps = 50000", "head = None", "compute = 'float32'", "adjusted = ()")
    assert filled == [*default, f"encoder.hidden = {SOUND.encoder.hidden}", "guidance.optimiser.beta1 = 0.9"]


def test_json_without_a_field_that_has_no_default_is_refused_by_name(own_entries):
    @AXES["head"].register("demanding")
    @dataclass(frozen=True)
    class Demanding:
        width: int

        build = Scalar.build

    with pytest.raises(SadqError, match="config.head lacks the field 'width', which has no default"):
        from_json(Config, stored(SOUND) | {"head": {"kind": "demanding"}})


# The row.


def test_a_row_is_the_agents_where_the_config_says_nothing():
    for name, row in AGENTS.items():
        assert changed(SOUND, {"agent": name}).row == row


def test_a_configs_own_choice_comes_before_the_adjusted_one_and_that_before_the_rows():
    adjusted = (Categorical(support=(0.0, 1.0)), Prioritised(0.5))
    c51 = changed(SOUND, {"agent": "c51", "adjusted": adjusted})
    assert c51.row.head == Categorical(support=(0.0, 1.0))
    assert c51.row.replay == Uniform(), "adjusted settings choose nothing"
    assert changed(c51, {"head": Categorical(atoms=7)}).row.head == Categorical(atoms=7)
    assert changed(c51, {"agent": "rainbow"}).row.replay == Prioritised(0.5)
    assert changed(SOUND, {"agent": "dqn", "adjusted": adjusted}).row == AGENTS["dqn"]


def test_a_name_or_class_takes_the_adjusted_settings():
    adjusted = (Categorical(support=(0.0, 1.0)),)
    for value in ("categorical", Categorical):
        assert changed(SOUND, {"head": value, "adjusted": adjusted}).head == adjusted[0]
    assert changed(SOUND, {"head": "categorical"}).head == Categorical()


def test_what_a_users_row_sets_itself_is_not_adjusted(monkeypatch):
    monkeypatch.setitem(AGENTS, "mine", AgentSpec(Categorical(atoms=21)))
    config = changed(SOUND, {"agent": "mine", "adjusted": (Categorical(support=(0.0, 1.0)),)})
    assert config.row.head == Categorical(atoms=21, support=(0.0, 1.0))


def test_names_and_classes_become_choices_in_every_axis_field():
    config = Config(
        agent="dqn",
        soft_target_rate=0.1,
        encoder=Dense,
        head="implicit",
        ensemble="agreement",
        bootstrap="double",
        intended="ucb",
        deviation="epsilon-z",
        replay="prioritised",
        optimiser="adamw",
        model="gaussian",
        gate="sample",
        guidance=GuidanceSettings(optimiser="rmsprop"),
    )
    for field, axis in AXES.items():
        if field != "exploration":
            assert type(getattr(config, field)) in map(axis.entry, axis), field
    assert (config.head, config.guidance.optimiser) == (Implicit(), RMSprop())
    assert config.row.ensemble == Agreement()


def test_behaviour_is_two_choices_or_one_of_the_users_own(own_entries):
    assert SOUND.behaviour == Behaviour(Best(), RandomAction())
    assert changed(SOUND, {"agent": "coact"}).behaviour == Behaviour(Best(), Counteractive())
    whole = own_entries[1]()
    assert changed(SOUND, {"exploration": whole}).behaviour is whole
    assert changed(SOUND, {"exploration": "whole", "agent": "bdqn"}).behaviour == whole
    with pytest.raises(SadqError, match="exploration was given beside intended or deviation, which it replaces"):
        changed(SOUND, {"exploration": whole, "deviation": "random"})


def test_an_exploration_of_the_users_own_is_not_refused_for_what_it_replaces(own_entries):
    changed(SOUND, {"agent": "rainbow", "noisy": False, "exploration": "whole"})
    changed(SOUND, {"agent": "sunrise", "ensemble": "single", "exploration": "whole"})
    with pytest.raises(SadqError, match="neither dueling nor noisy"):
        changed(SOUND, {"agent": "bdqn", "noisy": True, "exploration": "whole"})


# Refusals.

WHOLE, WHOLE_OR_NONE = "must be a whole number of at least", ", or None."
COUNTS = {
    "Config": [
        "steps",
        "batch_size",
        "environments",
        "collect",
        "updates_per_collect",
        "buffer_size",
        "evaluations",
        "evaluation_episodes",
    ],
    "GuidanceSettings": ["guidance.batch_size", "guidance.updates_per_collect", "guidance.samples"],
}
COUNTS_OR_NONE = {
    "Config": ["n_step", "target_update_interval"],
    "GuidanceSettings": ["guidance.action_chunk", "guidance.candidates"],
}


def named(name: str) -> str:
    return name.rpartition(".")[2]


REFUSED = [
    *[({name: 0}, f"{kind}: {named(name)} = 0 {WHOLE} 1.") for kind, names in COUNTS.items() for name in names],
    *[
        ({name: bad}, f"{kind}: {named(name)} = {bad} {WHOLE} 1{WHOLE_OR_NONE}")
        for kind, names in COUNTS_OR_NONE.items()
        for name in names
        for bad in (0, -5)
    ],
    *[
        ({name: 2**31}, f"{name} = 2147483648 must be below 2^31")
        for name in ("steps", "batch_size", "n_step", "workers")
    ],
    ({"learning_starts": -1}, f"learning_starts = -1 {WHOLE} 0."),
    ({"workers": -1}, f"workers = -1 {WHOLE} 0, or None."),
    *[
        ({name: (1.0, bad)}, f"{named(name)} = (1.0, {bad}) must be positive.")
        for name in ("learning_rate", "epsilon.decay")
        for bad in (0.0, -1.0, float("nan"), float("inf"))
    ],
    *[({"guidance.learning_rate": bad}, "learning_rate = ") for bad in (0.0, float("inf"))],
    *[
        ({name: (0.5, bad)}, f"{named(name)} = (0.5, {bad}) must lie in [0, 1].")
        for name in ("epsilon.start", "epsilon.end", "discount")
        for bad in (-0.1, 1.1, float("nan"))
    ],
    *[
        ({name: ()}, f"{named(name)} = () must be a tuple of numbers: one, or several for a sweep.")
        for name in ("learning_rate", "discount", "epsilon.start", "epsilon.end", "epsilon.decay")
    ],
    *[
        ({name: bad}, f"{name} = {bad} must be positive, or None.")
        for name in ("soft_target_rate", "max_gradient_norm")
        for bad in (0.0, -1.0, float("nan"), float("inf"))
    ],
    ({"soft_target_rate": 1.5}, "soft_target_rate = 1.5 must be at most 1"),
    *[({"checkpoint_seconds": bad}, "checkpoint_seconds = ") for bad in (-1.0, float("nan"))],
    *[({name: "maybe"}, f"{name} = 'maybe' must be True or False or None.") for name in ("dueling", "noisy")],
    ({"learning_rate_schedule": "cosine"}, "learning_rate_schedule = 'cosine' must be one of constant, linear."),
    ({"target_update_unit": "days"}, "target_update_unit = 'days' must be one of steps, updates."),
    ({"epsilon.schedule": "cosine"}, "schedule = 'cosine' must be one of exponential, linear."),
    ({"environment_settings": ("hour",)}, "environment_settings has 'hour': expected name=value"),
    ({"seeds": ()}, "No seeds were given"),
    ({"seeds": (1, 2, 1)}, "A seed appears twice in (1, 2, 1)"),
    ({"seeds": (-1,)}, "Seeds (-1,) must lie in 0 ... 2^32 - 1"),
    ({"seeds": (2**32,)}, "must lie in 0 ... 2^32 - 1"),
    ({"agent": "nope"}, "Unknown agent 'nope'"),
    ({"alpha": (0.5,)}, "alpha = 0.5 was given, but dqn is a plain agent that has none: use dqn+sadq"),
    ({"agent": "dqn+sadq"}, "Agent dqn+sadq needs alpha"),
    ({"agent": "sadq", "alpha": ()}, "Agent sadq needs alpha"),
    *[
        ({"agent": "sadq", "alpha": (0.5, bad)}, f"alpha = (0.5, {bad}) must lie in [0, 1].")
        for bad in (1.01, -0.01, float("nan"))
    ],
    ({"adjusted": (3,)}, "adjusted has 3, expected choices that are registered on an axis."),
    ({"adjusted": (Scalar,)}, "expected choices that are registered on an axis."),
    ({"adjusted": (Scalar(), Scalar(1.0))}, "adjusted = Scalar, Scalar has an entry twice"),
    ({"guidance.optimiser": "sgd"}, "optimiser = 'sgd' is unknown: expected adam, adamw, rmsprop"),
    ({"target_update_interval": None}, "The target network would never move"),
    ({"collect": 60}, "collect = 60 must be a multiple of environments = 8"),
    ({"collect": 4}, "collect = 4 must be a multiple of environments = 8"),
    ({"buffer_size": 63}, "buffer_size = 63 is too small: it must hold at least one collect, 64 transitions."),
    ({"buffer_size": 71, "n_step": 3}, "it must hold at least one collect, 80 transitions."),
    ({"n_step": 9}, "n_step = 9 must not exceed the 8 steps of a collect"),
    ({"agent": "rainbow", "collect": 16}, "n_step = 3 must not exceed the 2 steps of a collect"),
    *[({axis: "nope"}, f"{axis} = 'nope' is unknown") for axis in AXES],
    *[({axis: 3.5}, f"{axis} was given 3.5, expected one of") for axis in AXES],
]


MISTYPED = [
    *[
        ({"steps": bad}, f"Config: steps = {bad!r} must be a whole number.")
        for bad in ("many", 1e1, True, None, [3], 3j)
    ],
    *[({"n_step": bad}, f"n_step = {bad!r} must be a whole number or None.") for bad in (1.5, "3", False)],
    *[
        ({name: bad}, f"{named(name)} = {bad!r} must be a tuple of numbers.")
        for name in ("learning_rate", "discount", "epsilon.start", "epsilon.end", "epsilon.decay")
        for bad in (0.5, ("x",), "0.5", (True,), None, {0.5})
    ],
    ({"learning_rate": (10**400,)}, "must be a tuple of numbers."),
    ({"guidance.learning_rate": "fast"}, "GuidanceSettings: learning_rate = 'fast' must be a number."),
    ({"epsilon": 0.1}, "Config: epsilon = 0.1 must be Epsilon(start=..., end=..., decay=..., schedule=...)."),
    ({"epsilon": None}, "epsilon = None must be Epsilon("),
    ({"guidance": {"samples": 3}}, "guidance = {'samples': 3} must be GuidanceSettings("),
    ({"seeds": (0.7,)}, "seeds = (0.7,) must be a tuple of whole numbers."),
    ({"seeds": 3}, "seeds = 3 must be a tuple of whole numbers."),
    ({"agent": None}, "agent = None must be a text."),
    ({"environment": b"CartPole-v1"}, "environment = b'CartPole-v1' must be a text."),
    ({"environment_settings": "a=b"}, "environment_settings = 'a=b' must be a tuple of texts."),
    ({"environment_settings": (("a", 1),)}, "must be a tuple of texts."),
    ({"time_limit_is_terminal": 1}, "time_limit_is_terminal = 1 must be True or False."),
    ({"deterministic": "yes"}, "deterministic = 'yes' must be True or False."),
    ({"compute": "float16"}, "compute = 'float16' must be one of float32, bfloat16."),
    ({"adjusted": 3}, "adjusted = 3 must be a tuple of values."),
    ({"batch_size": np.array([64])}, "batch_size = array([64]) must be a whole number."),
    ({"learning_rate": np.ones((2, 2))}, "learning_rate = array([[1., 1.], [1., 1.]]) must be a tuple of numbers."),
    *[({axis: {}}, f"{axis} was given {{}}, expected one of") for axis in AXES],
    *[({axis: np.zeros(2)}, f"{axis} was given array([0., 0.]), expected one of") for axis in AXES],
]


@pytest.mark.parametrize(("changes", "sentence"), MISTYPED, ids=[str(changes) for changes, _ in MISTYPED])
def test_what_is_of_another_type_is_refused_in_a_sentence(changes, sentence):
    with pytest.raises(SadqError, match=re.escape(sentence)) as refusal:
        changed(SOUND, changes)
    assert "\n" not in str(refusal.value)


def test_numbers_and_arrays_of_numpy_and_lists_are_taken_for_what_they_hold():
    given = {
        "seeds": np.arange(3),
        "batch_size": np.int64(32),
        "learning_rate": np.array([1e-3, 1e-4]),
        "soft_target_rate": np.float64(0.5),
        "discount": [1, np.float32(0.5)],
        "dueling": np.bool_(True),
        "encoder": Dense(np.array([8, 4])),
        "epsilon": Epsilon(start=[0.5], end=np.zeros(1)),
    }
    config = changed(SOUND, given)
    assert (config.seeds, config.batch_size, config.learning_rate) == ((0, 1, 2), 32, (1e-3, 1e-4))
    assert (config.soft_target_rate, config.discount, config.dueling) == (0.5, (1.0, 0.5), True)
    assert (config.encoder.hidden, config.epsilon.start, config.epsilon.end) == ((8, 4), (0.5,), (0.0,))
    assert type(config.batch_size) is int and type(config.discount[0]) is float and config.dueling is True
    assert from_json(Config, stored(config)) == config


@pytest.mark.parametrize(("changes", "sentence"), REFUSED, ids=[str(changes) for changes, _ in REFUSED])
def test_what_cannot_run_is_refused_in_a_sentence(changes, sentence):
    with pytest.raises(SadqError, match=re.escape(sentence)) as refusal:
        changed(SOUND, changes)
    assert "\n" not in str(refusal.value)


NONSENSE = {
    "intended ucb": {"intended": "ucb"},
    "intended thompson": {"intended": "thompson"},
    "noisy layers": {"agent": "sunrise", "noisy": True},
    "deviation never": {"deviation": "never"},
    "head bayesian infers": {"agent": "bdqn", "dueling": True},
    "head bayesian is": {"agent": "bdqn", "ensemble": "agreement"},
}


@pytest.mark.parametrize("sentence", REFUSALS)
def test_a_combination_that_makes_no_sense_is_refused_with_the_sentence_that_is_listed(sentence):
    changes = next(changes for start, changes in NONSENSE.items() if sentence.startswith(start))
    with pytest.raises(SadqError, match=re.escape(f"cannot be combined like that: {sentence}.")):
        changed(SOUND, changes)


def test_a_bayesian_head_is_neither_noisy_and_blurs_no_thompson():
    with pytest.raises(SadqError, match="neither dueling nor noisy|noisy layers"):
        changed(SOUND, {"agent": "bdqn", "noisy": True})


@pytest.mark.parametrize(
    "changes",
    [
        {"discount": (0.0, 1.0), "epsilon.start": (0.0, 1.0), "epsilon.end": (0.0, 1.0)},
        {"agent": "dqn+sadq", "alpha": (0.0, 1.0)},
        {"buffer_size": 64},
        {"buffer_size": 80, "n_step": 3},
        {"n_step": 8, "buffer_size": 120},
        {"seeds": (0, 2**32 - 1)},
        {"target_update_interval": None, "soft_target_rate": 1.0},
        {"collect": 8},
        {"learning_starts": 1600},
        {"agent": "sunrise", "deviation": "never"},
        {"agent": "rainbow", "deviation": "random"},
        {"agent": "sunrise", "ensemble": Agreement(2)},
        {"agent": "bdqn", "intended": "best", "deviation": "random"},
        {"noisy": True, "deviation": "never"},
        {"head": Bayesian(), "intended": Thompson(), "deviation": "never"},
    ],
    ids=str,
)
def test_the_limits_themselves_are_allowed(changes):
    assert changed(SOUND, changes) != SOUND


# A choice refuses its own settings wherever it is made, so a config never sees them.
SETTINGS = [
    (lambda: Dense(()), "hidden = () must name at least one layer"),
    (lambda: Dense((8, 0)), "hidden = (8, 0) must name at least one layer"),
    (lambda: Gaussian(()), "hidden = () must name at least one layer"),
    (lambda: Gaussian(state_scale=0.0), "state_scale = 0.0 must be positive"),
    (lambda: Gaussian(loss="l1"), "loss = 'l1' must be one of sample, nll"),
    (lambda: Gaussian(loss=3), "loss = 3 must be one of sample, nll"),
    (lambda: Scalar(0.0), "huber = 0.0 must be positive"),
    (lambda: Categorical(1), "atoms = 1 must be a whole number of at least 2"),
    *[
        (lambda bad=bad: Categorical(support=bad), "must be two numbers, the smaller one first")
        for bad in ((1.0, 1.0), (2.0, 1.0), (0.0, float("inf")), (float("nan"), 1.0))
    ],
    *[
        (lambda bad=bad: Categorical(support=bad), "must be a tuple of 2 numbers or None")
        for bad in ((1.0,), (1.0, 2.0, 3.0), 3.0, ("a", "b"))
    ],
    (lambda: Dense(64), "Dense: hidden = 64 must be a tuple of whole numbers"),
    (lambda: Dense((8.0,)), "hidden = (8.0,) must be a tuple of whole numbers"),
    (lambda: Gaussian(continuation="yes"), "continuation = 'yes' must be True or False"),
    (lambda: Thompson("often"), "interval = 'often' must be a whole number"),
    (lambda: AgentSpec("scalar", dueling=3), "AgentSpec: dueling = 3 must be True or False"),
    (lambda: Quantile(0), "quantiles = 0 must be"),
    (lambda: Quantile(mixing="blend"), "mixing = 'blend' must be one of interpolate, mixture"),
    (lambda: Implicit(huber=-0.1), "huber = -0.1 must be 0 or more"),
    (lambda: Fraction(levels=1), "levels = 1 must be a whole number of at least 2"),
    (lambda: Fraction(learning_rate=0.0), "learning_rate = 0.0 must be positive"),
    (lambda: Bayesian(refit_interval=0), "refit_interval = 0 must be"),
    (lambda: Bayesian(noise_deviation=0.0), "noise_deviation = 0.0 must be positive"),
    (lambda: Agreement(0), "size = 0 must be"),
    (lambda: Agreement(bootstrap_share=0.0), "bootstrap_share = 0.0 must lie in (0, 1]"),
    (lambda: Agreement(temperature=float("nan")), "temperature = nan must be 0 or more"),
    (lambda: Prioritised(-1.0), "exponent = -1.0 must lie in [0, 1]"),
    (lambda: Prioritised(importance=2.0), "importance = 2.0 must lie in [0, 1]"),
    (lambda: EpsilonZ(longest=0), "longest = 0 must be"),
    (lambda: Counteractive(-1), "starts = -1 must be"),
    (lambda: UpperConfidence(-0.1), "width = -0.1 must be 0 or more"),
    (lambda: Thompson(0), "interval = 0 must be"),
    (lambda: RMSprop(decay=1.0), "decay = 1.0 must lie in [0, 1)"),
]


@pytest.mark.parametrize("number", range(len(SETTINGS)), ids=[sentence for _, sentence in SETTINGS])
def test_a_choice_refuses_its_own_settings_in_a_sentence(number):
    make, sentence = SETTINGS[number]
    with pytest.raises(SadqError, match=re.escape(sentence)) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_a_config_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SOUND.steps = 3


def test_only_guided_agents_are_guided():
    assert not SOUND.guided
    assert changed(SOUND, {"agent": "sadq", "alpha": (0.2,)}).guided


def test_environment_settings_are_json_where_they_can_be():
    config = changed(SOUND, {"environment_settings": ("bits=4", "source=hour", "flat=true")})
    assert config.settings == {"bits": 4, "source": "hour", "flat": True}


def test_every_axis_is_a_field_of_the_config_and_none_is_what_the_row_says():
    fields = {field.name: field.default for field in dataclasses.fields(Config)}
    assert set(AXES) <= set(fields)
    of_rows = {field.name for field in dataclasses.fields(AgentSpec)} & set(fields)
    assert all(fields[name] is None for name in of_rows | {"exploration"})
    assert set(AXES) - of_rows == {"encoder", "model", "pacing", "gate", "optimiser", "exploration"}


def test_every_field_explains_itself():
    """`--help` shows these sentences; a field without one would show nothing."""
    import ast
    import inspect

    entries = [axis.entry(name) for axis in AXES.values() for name in axis]
    for kind in (Config, Epsilon, GuidanceSettings, *entries):
        body = ast.parse(inspect.getsource(kind)).body[0].body
        for field, after in zip(body, body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field.annotation):
                assert isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant), ast.unparse(field)


def test_a_preset_and_its_fields_are_checked_together(monkeypatch):
    """An agent whose row the preset alone could not hold."""
    monkeypatch.setitem(AGENTS, "far", AgentSpec("scalar", n_step=20))
    with pytest.raises(SadqError, match="n_step = 20 must not exceed"):
        preset("acrobot", "far")
    assert preset("acrobot", "far", collect=160).row.n_step == 20

"""A config through JSON and back, and every sentence that refuses one."""

import dataclasses
import json
import re

import pytest
import tiny_runs

from sadq.errors import SadqError
from sadq.experiment.config import Config
from sadq.experiment.presets import PRESETS
from sadq.experiment.records import from_json, to_json

SOUND = Config(agent="dqn", alpha=None, target_update_interval=100)
PARTS = ("epsilon", "behaviour", "distribution", "bayesian", "agreement", "model")


def changed(config: Config, changes: dict) -> Config:
    """`config` with fields replaced, nested ones by their dotted names."""
    parts = {name: getattr(config, name) for name in PARTS}
    for name in [name for name in changes if "." in name]:
        part, field = name.split(".")
        parts[part] = dataclasses.replace(parts[part], **{field: changes[name]})
    plain = {name: value for name, value in changes.items() if "." not in name}
    return dataclasses.replace(config, **parts, **plain)


def stored(config) -> dict:
    """What config.json holds of it, read back."""
    return json.loads(json.dumps(to_json(config)))


@pytest.mark.parametrize("config", [tiny_runs.TINY, SOUND, *PRESETS.values()], ids=lambda config: config.preset)
def test_a_config_survives_json(config):
    assert from_json(Config, stored(config)) == config


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
        ({"discount": 0.9}, "config.discount is 0.9, expected a list"),
        ({"discount": ["a"]}, "config.discount is 'a', expected float"),
        ({"hidden": [8, None]}, "config.hidden is None, expected int"),
        ({"replay": "lifo"}, "config.replay is 'lifo', expected one of ('uniform', 'prioritised')"),
        ({"model": [1]}, "config.model is not a table of fields"),
        ({"deterministic": 1}, "config.deterministic is 1, expected bool"),
        ({"agent": "ppo"}, "Unknown agent 'ppo'"),
    ],
)
def test_json_of_another_kind_is_refused_by_name(change, sentence):
    with pytest.raises(SadqError, match=re.escape(sentence)):
        from_json(Config, stored(SOUND) | change)


def test_json_that_is_no_table_is_refused():
    with pytest.raises(SadqError, match="config is not a table of fields"):
        from_json(Config, [1, 2])


def test_json_without_a_field_is_refused_by_name():
    data = stored(SOUND)
    del data["steps"]
    with pytest.raises(SadqError, match="steps"):
        from_json(Config, data)


COUNTS = [
    "steps",
    "batch_size",
    "environments",
    "collect",
    "updates_per_collect",
    "buffer_size",
    "evaluations",
    "evaluation_episodes",
    "model.batch_size",
    "model.updates_per_collect",
    "model.samples",
    "behaviour.repeat_longest",
    "distribution.quantiles",
    "distribution.levels",
    "distribution.cosines",
    "bayesian.samples",
    "bayesian.chunk",
    "bayesian.resample_interval",
]
COUNTS_OR_NONE = ["n_step", "ensemble", "model.action_chunk", "model.candidates", "bayesian.refit_interval"]
POSITIVE = [
    "model.learning_rate",
    "model.state_scale",
    "distribution.fraction_learning_rate",
    "bayesian.prior_deviation",
    "bayesian.noise_deviation",
]
NOT_NEGATIVE = [
    "behaviour.repeat_exponent",
    "behaviour.ucb_width",
    "distribution.huber",
    "agreement.temperature",
]
REFUSED = [
    *[({name: 0}, f"{name} = 0 must be at least 1.") for name in COUNTS],
    *[({name: 0}, f"{name} = 0 must be at least 1, or None.") for name in COUNTS_OR_NONE],
    ({"target_update_interval": -5}, "target_update_interval = -5 must be at least 1, or None."),
    *[({name: ()}, f"{name} =  must name at least one layer") for name in ("hidden", "model.hidden")],
    *[({name: (8, 0)}, f"{name} = 8 0 must name at least one layer") for name in ("hidden", "model.hidden")],
    *[
        ({name: (1.0, bad)}, f"{name} = {bad} must be a positive number.")
        for name in ("learning_rate", "epsilon.decay")
        for bad in (0.0, -1.0, float("nan"), float("inf"))
    ],
    *[({name: bad}, f"{name} = {bad} must be a positive number.") for name in POSITIVE for bad in (0.0, float("inf"))],
    *[({name: bad}, f"{name} = {bad} must be 0 or more.") for name in NOT_NEGATIVE for bad in (-0.1, float("nan"))],
    ({"behaviour.counteractive_starts": -1}, "behaviour.counteractive_starts = -1 must be 0 or more."),
    ({"distribution.atoms": 1}, "distribution.atoms = 1 must be at least 2."),
    *[
        (
            {"distribution.support": bad},
            f"distribution.support = {bad[0]} {bad[1]} must be two numbers, the smaller one first.",
        )
        for bad in ((1.0, 1.0), (2.0, 1.0), (0.0, float("inf")), (float("nan"), 1.0))
    ],
    ({"agent": "fqf", "distribution.levels": 1}, "distribution.levels = 1 must be at least 2 for head fraction"),
    ({"distribution.mixing": "mixture"}, "distribution.mixing = mixture was given, but head scalar has no quantiles"),
    ({"agent": "c51", "distribution.mixing": "mixture"}, "but head categorical has no quantiles to mix"),
    *[
        ({"agreement.bootstrap_share": bad}, f"agreement.bootstrap_share = {bad} must lie in (0, 1].")
        for bad in (0.0, 1.1, float("nan"))
    ],
    *[
        ({name: (0.5, bad)}, f"{name} = {bad} must lie in [0, 1].")
        for name in ("epsilon.start", "epsilon.end", "discount")
        for bad in (-0.1, 1.1, float("nan"))
    ],
    *[
        ({name: bad}, f"{name} = {bad} must be a positive number, or None.")
        for name in ("soft_target_rate", "max_gradient_norm", "huber")
        for bad in (0.0, -1.0, float("nan"), float("inf"))
    ],
    ({"seeds": ()}, "No seeds were given"),
    ({"seeds": (1, 2, 1)}, "A seed appears twice in (1, 2, 1)"),
    ({"seeds": (-1,)}, "Seeds (-1,) must lie in 0 ... 2^32 - 1"),
    ({"seeds": (2**32,)}, "must lie in 0 ... 2^32 - 1"),
    ({"agent": "nope"}, "Unknown agent 'nope'"),
    ({"alpha": (0.5,)}, "alpha = 0.5 was given, but dqn is a plain agent that has none: use dqn+sadq"),
    ({"agent": "dqn+sadq"}, "Agent dqn+sadq needs alpha"),
    ({"agent": "sadq", "alpha": ()}, "Agent sadq needs alpha"),
    ({"agent": "sadq", "alpha": (0.5, 1.01)}, "alpha = 1.01 is outside [0, 1]"),
    ({"agent": "sadq", "alpha": (-0.01,)}, "alpha = -0.01 is outside [0, 1]"),
    ({"agent": "sadq", "alpha": (float("nan"),)}, "alpha = nan is outside [0, 1]"),
    ({"target_update_interval": None}, "The target network would never move"),
    ({"collect": 60}, "collect = 60 must be a multiple of environments = 8"),
    ({"collect": 4}, "collect = 4 must be a multiple of environments = 8"),
    ({"buffer_size": 63}, "buffer_size = 63 is too small: it must hold at least one collect, 64 transitions."),
    ({"buffer_size": 71, "n_step": 3}, "it must hold at least one collect, 80 transitions."),
    ({"n_step": 9}, "n_step = 9 must not exceed the 8 steps of a collect"),
    ({"agent": "rainbow", "collect": 16}, "n_step = 3 must not exceed the 2 steps of a collect"),
]


@pytest.mark.parametrize(("changes", "sentence"), REFUSED, ids=[str(changes) for changes, _ in REFUSED])
def test_what_cannot_run_is_refused_in_a_sentence(changes, sentence):
    with pytest.raises(SadqError, match=re.escape(sentence)) as refusal:
        changed(SOUND, changes)
    assert "\n" not in str(refusal.value)


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
        {"distribution.atoms": 2, "distribution.support": (-1.0, 0.0), "agent": "c51"},
        {"distribution.levels": 1, "agent": "iqn"},
        {"distribution.levels": 2, "agent": "fqf", "distribution.mixing": "mixture"},
        {"distribution.huber": 0.0, "agent": "qrdqn"},
        {"behaviour.counteractive_starts": 0, "agent": "coact"},
        {"agreement.bootstrap_share": 1.0, "agreement.temperature": 0.0, "agent": "sunrise", "ensemble": 2},
    ],
    ids=str,
)
def test_the_limits_themselves_are_allowed(changes):
    assert changed(SOUND, changes) != SOUND


@pytest.mark.parametrize("name", ["learning_rate", "discount", "epsilon.start", "epsilon.end", "epsilon.decay"])
def test_a_sweep_over_no_values_is_refused(name):
    with pytest.raises(SadqError, match=name):
        changed(SOUND, {name: ()})


@pytest.mark.parametrize(
    "changes",
    [
        {"soft_target_rate": 1.5},
        {"priority_exponent": -1.0},
        {"importance_exponent": 2.0},
        {"checkpoint_seconds": float("nan")},
        {"checkpoint_seconds": -1.0},
        {"workers": -1},
    ],
    ids=str,
)
def test_a_number_that_makes_no_sense_is_refused(changes):
    with pytest.raises(SadqError, match=next(iter(changes))):
        changed(SOUND, changes)


def test_a_config_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SOUND.steps = 3


def test_only_guided_agents_are_guided():
    assert not SOUND.guided
    assert changed(SOUND, {"agent": "sadq", "alpha": (0.2,)}).guided


def test_every_field_explains_itself():
    """`--help` shows these sentences; a field without one would show nothing."""
    import ast
    import inspect

    for kind in (Config, *(type(getattr(SOUND, part)) for part in PARTS)):
        body = ast.parse(inspect.getsource(kind)).body[0].body
        for field, after in zip(body, body[1:], strict=False):
            if isinstance(field, ast.AnnAssign):
                assert isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant), ast.unparse(field)

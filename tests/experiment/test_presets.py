"""The presets against the paper's table "Training Configurations", written out here once more from the paper."""

import dataclasses

import pytest

from sadq.core.gates import Fixed
from sadq.core.optimisers import Adam
from sadq.dynamics.gaussian import Gaussian
from sadq.envs import registry
from sadq.envs.base import Environment
from sadq.errors import SadqError
from sadq.experiment.build import Timetable, make_learner, members_of
from sadq.experiment.presets import DEFAULT, PRESETS, preset, return_range
from sadq.exploration import Counteractive, EpsilonZ, Never, RandomAction
from sadq.networks import Bayesian, Categorical, Scalar

#                             acrobot       lunarlander   cartpole         bitflip
PAPER = {
    "environment":            ("Acrobot-v1", "LunarLander-v3", "CartPole-v0", "BitFlip-8"),
    "discount":               ((0.99,),     (0.99,),      (0.97,),         (0.99,)),
    "encoder.hidden":         ((256, 256),  (512, 64),    (128, 128, 64),  (128, 128, 64)),
    "batch_size":             (128,         64,           64,              128),
    "learning_rate":          ((1e-4,),     (1e-3,),      (1e-3,),         (5e-4,)),
    "updates_per_collect":    (10,          10,           1,               10),
    "target_update_interval": (2400,        640,          8000,            4800),
    "steps":                  (960_000,     128_000,      160_000,         960_000),
    "buffer_size":            (100_000,     100_000,      100_000,         4_000),
    "collect":                (96,          64,           80,              96),
    "epsilon.start":          ((1.0,),      (0.95,),      (0.95,),         (0.2,)),
    "epsilon.end":            ((0.05,),     (0.1,),       (0.1,),          (0.2,)),
    "epsilon.decay":          ((250_000,),  (50_000,),    (10_000,),       (100,)),
    "model.hidden":           ((256, 256),  (256, 256),   (256, 256),      (256, 256)),
    "guidance.batch_size":    (256,         128,          128,             256),
    "guidance.learning_rate": (4e-5,        4e-5,         4e-5,            4e-4),
    "guidance.updates_per_collect": (1,        1,            1,               1),
    "model.state_scale":      (1,           1,            1,               1),
    "alpha":                  ((0.2,),      (0.2,),       (0.2,),          (0.2,)),
    "evaluation_episodes":    (8,           8,            5,               8),
    "total updates":          (100_000,     20_000,       2_000,           100_000),
}  # fmt: skip
NAMES = ("acrobot", "lunarlander", "cartpole", "bitflip")
TABLE = [
    (name, field, values[column])
    for field, values in PAPER.items()
    for column, name in enumerate(NAMES)
    if field != "total updates"
]
UNTOUCHED = {
    "agent": "dueling+sadq",
    "seeds": (0, 1, 2, 3, 4),
    "environments": 8,
    "target_update_unit": "steps",
    "time_limit_is_terminal": True,
    "learning_rate_schedule": "constant",
    "soft_target_rate": None,
    "max_gradient_norm": None,
    "learning_starts": 0,
    "optimiser": Adam(),
    "guidance.optimiser": Adam(),
    "head": None,
    "dueling": None,
    "noisy": None,
    "ensemble": None,
    "bootstrap": None,
    "intended": None,
    "deviation": None,
    "exploration": None,
    "replay": None,
    "n_step": None,
    "epsilon.schedule": "exponential",
    "model.loss": "sample",
    "model.rollout": "sample",
    "model.continuation": False,
    "guidance.samples": 1,
    "guidance.action_chunk": None,
    "guidance.candidates": None,
    "gate": Fixed(),
}


def field_of(config, name):
    for part in name.split("."):
        config = getattr(config, part)
    return config


@pytest.mark.parametrize(("name", "field", "value"), TABLE)
def test_a_number_of_the_papers_table(name, field, value):
    assert field_of(PRESETS[name], field) == value


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_ours_is_on_in_a_preset_of_the_paper(name):
    assert {field: field_of(PRESETS[name], field) for field in UNTOUCHED} == UNTOUCHED


@pytest.mark.parametrize(("name", "total"), list(zip(NAMES, PAPER["total updates"], strict=True)))
def test_the_total_of_value_updates_follows_from_the_table(name, total):
    config = PRESETS[name]
    assert Timetable.of(config).end * config.updates_per_collect == total


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_of_the_paper_makes_exactly_its_steps_and_101_evaluations(name):
    config = PRESETS[name]
    plan = Timetable.of(config)
    assert plan.end * config.collect == config.steps
    assert sum(plan.evaluates(collect) for collect in range(0, plan.end + 1, plan.chunk)) == 101


def test_the_model_frequency_sweep_changes_the_models_updates_only():
    cartpole = PRESETS["cartpole"]
    for k in (1, 5, 10, 20):
        swept = dataclasses.replace(cartpole, guidance=dataclasses.replace(cartpole.guidance, updates_per_collect=k))
        learner = make_learner(swept, registry.make(swept.environment))
        assert (learner.guidance.updates, learner.updates) == (k, 1)


@pytest.mark.parametrize("name", [name for name in PRESETS if not name.startswith(("lunarlander", "atari"))])
def test_a_preset_builds_its_learner_on_a_native_environment(name):
    environment = registry.make(PRESETS[name].environment)
    assert isinstance(environment, Environment)
    learner = make_learner(PRESETS[name], environment)
    assert learner.guidance is not None
    assert len(members_of(PRESETS[name])) == len(PRESETS[name].seeds)


@pytest.mark.parametrize("name", NAMES)
def test_each_preset_of_the_paper_has_a_quick_variant(name):
    quick, full = PRESETS[f"{name}-quick"], PRESETS[name]
    assert quick.preset == f"{name}-quick"
    assert quick.steps * len(quick.seeds) < full.steps * len(full.seeds) / 2
    assert quick.environment.split("-")[0] == full.environment.split("-")[0]
    assert (quick.encoder, quick.model, quick.guidance) == (full.encoder, full.model, full.guidance)
    assert preset(f"{name}-quick", "c51").row.head == preset(name, "c51").row.head


#                             acrobot    lunarlander  cartpole   bitflip     what figures were made by
QUICK = {
    "steps":                  (60_000,   50_000,      40_000,    40_000),
    "learning_rate":          ((1e-3,),  (1e-3,),     (1e-3,),   (5e-4,)),
    "learning_rate_schedule": ("linear", "linear",    "linear",  "linear"),
    "collect":                (64,       64,          64,        64),
    "updates_per_collect":    (8,        8,           8,         16),
    "n_step":                 (3,        3,           3,         1),
    "target_update_interval": (None,     None,        None,      None),
    "soft_target_rate":       (0.01,     0.01,        0.01,      0.01),
    "max_gradient_norm":      (10.0,     10.0,        10.0,      10.0),
    "epsilon.start":          ((1.0,),   (1.0,),      (1.0,),    (0.2,)),
    "epsilon.end":            ((0.05,),  (0.05,),     (0.05,),   (0.2,)),
    "epsilon.decay":          ((1e4,),   (1e4,),      (1e4,),    (100,)),
    "evaluations":            (20,       20,          20,        20),
    "gate":                   (Fixed(),  Fixed(),     Fixed(),   Fixed()),
}  # fmt: skip


@pytest.mark.parametrize("field", QUICK)
def test_the_quick_presets_keep_their_numbers_whatever_the_default_is(field):
    assert tuple(field_of(PRESETS[f"{name}-quick"], field) for name in NAMES) == QUICK[field]


SUPPORTS = {
    "acrobot": (-100.0, 0.0),
    "lunarlander": (-30.0, 30.0),
    "cartpole": (0.0, 35.0),
    "bitflip": (0.0, 1.0),
    "ocloud": (-14.1, -0.786),
    "cityflow": (-733.0, 123.0),
    "cityflow-light": (-475.0, 75.2),
    "atari100k": (-10.0, 10.0),
    "atari100k-fast": (-10.0, 10.0),
}


@pytest.mark.parametrize("name", PRESETS)
def test_heads_take_their_settings_from_the_preset_whatever_agent_names_them(name):
    paper = name in SUPPORTS
    for agent in ("c51", "rainbow", "teg"):
        assert preset(name, agent).row.head == Categorical(support=SUPPORTS.get(name.removesuffix("-quick")))
    assert preset(name, "dqn").row.head == Scalar(huber=None if paper else 1.0)
    refit = 500 if name == "bitflip-quick" else None
    assert preset(name, "bdqn").row.head == Bayesian(huber=None if paper else 1.0, refit_interval=refit)
    assert preset(name, "iqn").row.head.huber == 1.0


def test_the_default_hears_a_model_that_knows_ends_within_an_allowance():
    assert DEFAULT.model == Gaussian(hidden=(128, 128), continuation=True)
    assert (DEFAULT.gate, DEFAULT.guidance.allowance, DEFAULT.learning_starts) == (Fixed(), 1.0, 0)
    assert all(one.guidance.allowance is None for name, one in PRESETS.items() if name != "default"), (
        "the paper has none"
    )


@pytest.mark.parametrize(
    ("agent", "deviation"),
    [
        ("dqn", RandomAction(longest=100)),
        ("sunrise+sadq", RandomAction(longest=100)),
        ("teg", EpsilonZ()),
        ("coact", Counteractive()),
        ("rainbow", Never()),
    ],
)
def test_the_default_holds_random_actions_of_agents_that_take_them(agent, deviation):
    assert preset("CartPole-v1", agent).row.deviation == deviation
    assert preset("acrobot", "dqn").row.deviation == RandomAction(longest=1)  # the paper's


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ("Acrobot-v1", (-100.0, 0.0)),
        ("BitFlip", (0.0, 1.0)),
        ("BitFlip-12", (0.0, 1.0)),
        ("CartPole-v1", (0.0, 100.0)),
        ("LunarLander-v3", (-300.0, 300.0)),
        ("Nobody-v0", None),
    ],
)
def test_returns_are_known_for_some_environments_and_bounded_for_all(environment, expected):
    assert return_range(environment) == expected


def test_every_preset_knows_its_own_name():
    assert {name: config.preset for name, config in PRESETS.items()} == {name: name for name in PRESETS}


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (None, ("dueling+sadq", (0.2,))),
        ("sadq", ("dueling+sadq", (0.2,))),
        ("dqn", ("dqn", None)),
        ("double+sadq", ("double+sadq", (0.2,))),
        ("Dueling+SADQ", ("dueling+sadq", (0.2,))),
    ],
)
def test_a_preset_takes_any_agent_and_alpha_goes_with_sadq(agent, expected):
    config = preset("cartpole", agent)
    assert (config.agent, config.alpha) == expected


@pytest.mark.parametrize("name", ["CartPole-v1", "MountainCar-v0", "BitFlip-5", "gymnasium:CartPole-v1"])
def test_an_environments_name_stands_for_the_default_preset_on_it(name):
    config = preset(name)
    assert config == dataclasses.replace(DEFAULT, environment=name)


@pytest.mark.parametrize(
    ("name", "offer"),
    [
        ("cartpol", "did you mean cartpole"),
        ("Acrobot-v9", "did you mean Acrobot-v1"),
        ("ALE/Pong-v9", r"did you mean atari/Pong\?"),
        ("PongNoFrameskip-v9", r"did you mean atari/Pong\?"),
        ("qqqqqqq", "presets are default, acrobot, bitflip"),
    ],
)
def test_an_unknown_name_is_answered_with_what_is_near(name, offer):
    with pytest.raises(SadqError, match=f"Unknown preset or environment '{name}'.*{offer}"):
        preset(name)


def test_an_unknown_agent_is_answered_with_those_there_are():
    with pytest.raises(SadqError, match="Unknown agent 'ppo': expected one of dqn, double, dueling"):
        preset("cartpole", "ppo")

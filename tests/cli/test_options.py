"""Options that follow from the axes, modules of a user's own, and what is imported to answer."""

import dataclasses
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sadq.agents import AGENTS, AgentSpec
from sadq.axes import AXES
from sadq.cli import commands
from sadq.cli import main as cli
from sadq.cli.commands import Train
from sadq.cli.options import axis_options, import_modules, read_config, split, take
from sadq.core.ensembles import Agreement
from sadq.core.gates import BatchReliability
from sadq.core.optimisers import Adam, AdamW
from sadq.dynamics.gaussian import Gaussian
from sadq.errors import SadqError
from sadq.experiment.config import Config
from sadq.experiment.presets import PRESETS, agent_fields, preset
from sadq.exploration import EpsilonZ, UpperConfidence
from sadq.networks import Bayesian, Categorical, Dense, Implicit, Scalar
from sadq.replay.samplers import Prioritised


def config_of(line: str) -> Config:
    """What `sadq train LINE` would run."""
    positional, flags = split(import_modules(shlex.split(line)))
    base = preset(positional[0])
    return read_config(Train, flags, base, "sadq train", **agent_fields(base, (positional + [None])[1]))[1]


def main(*arguments: str) -> int | str | None:
    """The exit code, in this process."""
    with pytest.raises(SystemExit) as exit:
        cli.main(list(arguments))
    return exit.value.code


GIVEN = {
    "acrobot c51": {},
    "acrobot c51 --head categorical": {"head": Categorical(support=(-100.0, 0.0))},
    "acrobot c51 --head.atoms 21": {"head": Categorical(atoms=21, support=(-100.0, 0.0))},
    "acrobot dqn --head categorical --head.atoms 21": {"head": Categorical(atoms=21, support=(-100.0, 0.0))},
    "acrobot dqn --head.atoms 21 --head categorical": {"head": Categorical(atoms=21, support=(-100.0, 0.0))},
    "acrobot c51 --head.support -5 5": {"head": Categorical(support=(-5.0, 5.0))},
    "acrobot dqn --head=implicit": {"head": Implicit()},
    "acrobot dqn --head scalar --head implicit": {"head": Implicit()},
    "default dqn --head.huber None": {"head": Scalar(None)},
    "default dqn --head scalar": {"head": Scalar(1.0)},
    "acrobot dqn --head None": {},
    "acrobot dqn --gate=batch --encoder.hidden 8 4": {"gate": BatchReliability(), "encoder": Dense((8, 4))},
    "acrobot dqn --ensemble agreement --ensemble.size 3": {"ensemble": Agreement(3)},
    "acrobot sunrise --intended.width 2": {"intended": UpperConfidence(2.0)},
    "acrobot teg --deviation.longest 7": {"deviation": EpsilonZ(longest=7)},
    "acrobot dqn --replay prioritised --replay.exponent 1": {"replay": Prioritised(1.0)},
    "acrobot dqn --optimiser adamw --optimiser.weight-decay 0": {"optimiser": AdamW(weight_decay=0.0)},
    "acrobot dqn --optimiser.beta1 0": {"optimiser": Adam(beta1=0.0)},
    "ocloud sadq --model.hidden 8": {"model": Gaussian(hidden=(8,), state_scale=50.0)},
    "acrobot sadq --model.continuation --steps 960": {"model": Gaussian(continuation=True), "steps": 960},
    "acrobot rainbow --head bayesian --dueling False --noisy False --deviation random --intended best": {
        "head": Bayesian(),
        "dueling": False,
        "noisy": False,
        "deviation": AXES["deviation"].choice("random"),
        "intended": AXES["intended"].choice("best"),
    },
    "default sadq --n-step None": {"n_step": None},
    "cartpole sadq --environment_settings max_steps=7": {"environment_settings": ("max_steps=7",)},
}


@pytest.mark.parametrize("line", GIVEN)
def test_only_what_is_given_changes_the_config(line):
    positional, _ = split(line.split())
    before, after = preset(*positional), config_of(line)
    assert type(after) is Config
    assert {name: value for name, value in vars(after).items() if value != getattr(before, name)} == GIVEN[line]
    for name, value in GIVEN[line].items():
        assert type(getattr(after, name)) is type(value)


def test_a_part_of_the_config_has_axes_too():
    line = "acrobot sadq --guidance.optimiser adamw --guidance.optimiser.weight-decay 0.5 --guidance.batch-size 7"
    guidance = config_of(line).guidance
    expected = dataclasses.replace(PRESETS["acrobot"].guidance, optimiser=AdamW(weight_decay=0.5), batch_size=7)
    assert guidance == expected and type(guidance) is type(expected)
    assert config_of("acrobot sadq --guidance.optimiser.epsilon 1").guidance.optimiser == Adam(epsilon=1.0)


@pytest.mark.parametrize(("option", "name"), [(option, name) for option, axis in axis_options() for name in axis])
def test_every_entry_of_every_axis_can_be_chosen_and_each_of_its_settings_given(option, name):
    """With the default as the value: what it reads is what it has."""
    entry = dict(axis_options())[option].entry(name)
    default, words = entry(), [option, name]
    for field in dataclasses.fields(entry):
        value = getattr(default, field.name)
        if isinstance(value, bool):
            words.append(f"{option}.{'' if value else 'no-'}{field.name}".replace("_", "-"))
        else:
            shown = map(str, value) if isinstance(value, tuple) else [str(value)]
            words += [f"{option}.{field.name.replace('_', '-')}", *shown]
    if name in ("ucb", "thompson"):
        words += ["--ensemble", "agreement"] if name == "ucb" else ["--head", "bayesian"]
    if name == "never":
        words += ["--noisy", "True"]
    value = config_of(f"acrobot dqn+sadq {' '.join(words)}")
    for part in option.removeprefix("--").split("."):
        value = getattr(value, part)
    assert value == default


REFUSED = {
    "acrobot dqn --head nope": "head = 'nope' is unknown: expected scalar, categorical",
    "acrobot dqn --head categorial": "(did you mean categorical?)",
    "acrobot dqn --head": "--head was given without a name: write one after it.",
    "acrobot dqn --head --steps 3": "--head was given without a name",
    "acrobot dqn --gate None": "gate = 'None' is unknown: expected fixed, batch, sample",
    "acrobot dqn --ensemble 5": "ensemble = '5' is unknown: expected single, agreement",
    "acrobot dqn --exploration ucb": "exploration = 'ucb' is unknown: expected one of your own, which is known once",
    "acrobot dqn --head.atoms 21": "Unknown field --head.atoms: the chosen head has --head.huber; --head NAME chooses",
    "acrobot dqn --bootstrap.depth 2": "Unknown field --bootstrap.depth: the chosen bootstrap has no settings",
    "acrobot dqn --head.hubr 3": "Unknown field --head.hubr: did you mean --head.huber?",
    "acrobot dqn --heads scalar": "Unknown field --heads: did you mean --head?",
    "acrobot dqn --guidance.optimizer adam": "Unknown field --guidance.optimizer: did you mean --guidance.optimiser?",
    "acrobot dqn --head.huber abc": "--head.huber cannot be 'abc': it takes float | None",
    "acrobot dqn --head.huber -1": "Scalar: huber = -1.0 must be positive",
    "acrobot c51 --head.support 3": "--head.support cannot be '3': it takes tuple[float, float] | None",
    "acrobot c51 --head.support 3 1": "support = (3.0, 1.0) must be two numbers, the smaller one first",
    "acrobot sadq --model.loss l1": "--model.loss cannot be 'l1': it takes Literal['sample', 'nll']",
    "acrobot dqn --agent c51": "Unknown field --agent",
    "acrobot dqn --preset x": "Unknown field --preset",
    "acrobot dqn --adjusted x": "Unknown field --adjusted",
    "acrobot dqn --import no_such_module": "--import no_such_module failed: ModuleNotFoundError: No module named",
    "acrobot dqn --import": "--import was given without a name",
    "acrobot dqn --import ..x": "--import ..x failed: TypeError",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_bad_option_is_refused_in_a_sentence(line):
    with pytest.raises(SadqError, match=re.escape(REFUSED[line])) as refusal:
        config_of(line)
    assert "\n" not in str(refusal.value)


def test_take_finds_options_in_any_place_and_leaves_the_rest():
    words = ["a", "--head", "x", "--b=1", "--head=y", "--head.z", "3"]
    assert take(words, "--head") == ([("--head", "x"), ("--head", "y")], ["a", "--b=1", "--head.z", "3"])


# Help.


def help_of(*arguments: str) -> str:
    finished = run("train", *arguments, "--help")
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def run(*arguments: str, code: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess:
    """`python -m sadq ...`, or a program, in a process of its own."""
    path = os.pathsep.join(filter(None, sys.path))
    words = ["-c", code] if code else ["-m", "sadq", *arguments]
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "160"},
    )


def test_help_shows_the_entries_of_every_axis_and_the_settings_of_those_in_use():
    shown = help_of("acrobot", "c51", "--optimiser", "rmsprop")
    assert re.search(r"--head +NAME +scalar, categorical.*\(default: categorical\)", shown)
    assert "How many returns have a probability of their own. (default: 51)" in shown
    assert re.search(r"--head\.support .*\s*│.*\s.*default: -100\.0 0\.0", shown)
    assert all(
        name in shown for name in ("--optimiser.decay", "--guidance.optimiser.beta1", "--epsilon.decay", "--out")
    )
    assert not any(
        name in shown for name in ("--head.huber", "--optimiser.beta1 ", "--adjusted", "--agent", "--preset")
    )
    assert "Train a fleet of agents and write a run folder." in shown


LIGHT = {
    "--help": 0,
    "--version": 0,
    "": 2,
    "bogus": 2,
    "train": 2,
    "resume": 2,
    "evaluate": 2,
    "report": 2,
    "watch": 2,
    "simulate": 2,
}


@pytest.mark.parametrize("line", LIGHT)
def test_help_and_usage_errors_import_nothing_heavy(line):
    code = f"""
import sys
from sadq.cli.main import main
try:
    main({line.split()!r})
except SystemExit as stop:
    print("code", stop.code, *({{"jax", "tyro", "gymnasium", "numpy", "equinox", "rich"}} & set(sys.modules)))
"""
    finished = run(code=code)
    assert finished.stdout.splitlines()[-1] == f"code {LIGHT[line]}"
    assert len(finished.stderr.splitlines()) == (line not in ("--help", "--version", ""))


@pytest.mark.parametrize("first", ["sadq", "gymnasium", "gymnasium.envs.registration"])
def test_our_environments_are_gymnasiums_whichever_is_imported_first(first):
    code = f"""
import sys, {first}, sadq
light = "gymnasium" not in sys.modules
import gymnasium
print(light, "sadq/OCloud-v0" in gymnasium.registry, "jax" in sys.modules)
"""
    assert run(code=code).stdout.split() == [str(first == "sadq"), "True", "False"]


# Modules of a user's own.

OWN = '''
from __future__ import annotations

from dataclasses import dataclass

from sadq import AgentSpec, register_agent
from sadq.axes import EXPLORATIONS, HEADS
from sadq.exploration import Behaviour
from sadq.networks import Scalar


@HEADS.register("NAME")
@dataclass(frozen=True)
class Mine:
    """A head of one's own."""

    atoms: int = 3
    """How many of something."""

    build = Scalar.build


@EXPLORATIONS.register("NAME")
@dataclass(frozen=True)
class Whole(Behaviour):
    """A whole behaviour."""

    power: float = 2.0
    """How strong."""


register_agent("NAME", AgentSpec(Mine(atoms=5), n_step=2))
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The name of a user's module in the folder that we are in, which is also what it registers; taken back afterwards."""
    name = f"own_{abs(hash(tmp_path)) % 10**8}"
    (tmp_path / f"{name}.py").write_text(OWN.replace("NAME", name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for axis in AXES.values():
        monkeypatch.setattr(axis, "_entries", dict(axis._entries))
    before = dict(AGENTS)
    yield name
    AGENTS.clear()
    AGENTS.update(before)
    sys.modules.pop(name, None)


def test_an_imported_module_brings_its_entries_and_agents(own):
    config = config_of(
        f"acrobot dqn --import {own} --head {own} --head.atoms 9 --exploration {own} --exploration.power 3"
    )
    assert (config.head.atoms, config.exploration.power) == (9, 3.0)
    assert type(config.head).__name__ == "Mine"
    agent = config_of(f"acrobot {own}+sadq --import={own}")
    assert agent.row == AgentSpec(agent.row.head, n_step=2) and agent.row.head.atoms == 5
    assert config_of(f"acrobot {own} --head.atoms 7 --import {own}").row.head.atoms == 7


def test_without_the_import_the_sentence_names_it(own):
    for line in (f"acrobot dqn --head {own}", f"acrobot {own}"):
        with pytest.raises(SadqError, match=r"is imported \(--import\)"):
            config_of(line)


def test_the_listing_and_the_help_show_what_a_module_brings(own, tmp_path):
    shown = run("list", "--import", own, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert re.search(rf"^ +{own} +atoms=3$", shown.stdout, re.MULTILINE)
    assert re.search(rf"^ +{own} +{own} \(atoms 5\) ", shown.stdout, re.MULTILINE), "a row with its own settings"
    helped = run("train", "acrobot", own, "--import", own, "--help", cwd=tmp_path)
    assert "How many of something. (default: 5)" in helped.stdout


@pytest.mark.parametrize("line", ["train acrobot dqn", "resume nowhere", "evaluate nowhere", "report nowhere", "list"])
def test_every_command_imports_first_and_refuses_a_module_that_fails(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken_module.py").write_text("raise ValueError('two\\nlines')")
    assert main(*line.split(), "--import", "broken_module") == 2
    said = capsys.readouterr().err.splitlines()
    assert said == ["sadq: --import broken_module failed: ValueError: two lines; give a module that can be imported."]


def test_a_listing_takes_sections(capsys):
    assert main("list", "axes") == 0
    shown = capsys.readouterr().out
    for axis in AXES.values():
        assert f"{axis.name}: {axis.meaning} (--" in shown
        for name in axis:
            entry = axis.entry(name)
            line = next(line for line in shown.splitlines() if line.split()[:1] == [name])
            assert all(f"{field.name}=" in line for field in dataclasses.fields(entry)), line


def test_seeds_are_counted_once_the_config_is_whole(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(commands, "_drive", lambda experiment, *_: seen.append(experiment.config) or 0)
    assert main("train", "bitflip", "dqn", "--seeds", "3", "--head", "quantile", "--out", str(tmp_path / "run")) == 0
    assert seen[0].seeds == (0, 1, 2)
    assert type(seen[0]) is Config

"""Words of the command line in any order: what belongs to an option stays with it, a single seed can be asked for."""

import dataclasses
import sys
from unittest import mock

import pytest

from sadq.cli import commands, main, studies
from sadq.cli.arrangement import arranged
from sadq.cli.commands import Evaluate, Report, Train
from sadq.cli.words import single_seed
from sadq.envs import registry
from sadq.errors import SadqError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("acrobot dqn --steps 9", "acrobot dqn --steps 9"),
        ("--steps 9 acrobot --quiet dqn", "acrobot dqn --steps 9 --quiet"),
        ("--alpha 0 0.2 1e-1 acrobot sadq", "acrobot sadq --alpha 0 0.2 1e-1"),
        ("--head.support -10 10 acrobot c51", "acrobot c51 --head.support -10 10"),
        ("--dueling True acrobot --no-deterministic dqn", "acrobot dqn --dueling True --no-deterministic"),
        ("--model.continuation acrobot --head=scalar", "acrobot --model.continuation --head=scalar"),
        ("--environment-settings a=1 b=x ocloud", "ocloud --environment-settings a=1 b=x"),
        ("--log csv tensorboard acrobot", "acrobot --log csv tensorboard"),
        ("acrobot --measures a b --steps 3 dqn", "acrobot dqn --measures a b --steps 3"),
        ("--help acrobot", "acrobot --help"),
        ("--model.continuation true acrobot dqn", "acrobot dqn --model.continuation"),
        ("acrobot --model.continuation False dqn", "acrobot dqn --model.no-continuation"),
        ("acrobot --no-normalise-observations false", "acrobot --normalise-observations"),
        ("--dueling false acrobot", "acrobot --dueling False"),
        (
            "--guidance.optimiser adamw --encoder.hidden 8 8 acrobot",
            "acrobot --guidance.optimiser adamw --encoder.hidden 8 8",
        ),
    ],
)
def test_words_for_themselves_come_first(given, expected):
    assert arranged(given.split(), Train) == expected.split()


def test_every_command_knows_its_own_options():
    assert arranged(["--video", "--policy", "random", "--episodes", "3", "cartpole"], Evaluate)[0] == "cartpole"
    assert arranged(["--figures", "png", "pdf", "A", "B", "--out", "x"], Report)[:2] == ["A", "B"]
    assert (
        arranged(["--quick", "controlled", "--only", "acrobot", "bitflip"], studies.KINDS["reproduce"])[0]
        == "controlled"
    )


@pytest.mark.parametrize(
    ("line", "option"), [("controlled --only", "--only"), ("--only --quick controlled", "--only"), ("x --log", "--log")]
)
def test_an_option_of_several_values_takes_at_least_one(line, option):
    with pytest.raises(SadqError, match=f"^{option} was given without a value: "):
        arranged(line.split(), studies.KINDS["reproduce"], Train)


class Made(Exception):
    """What would be run."""


@pytest.fixture
def made(monkeypatch, tmp_path):
    """The config that a line of `sadq train` makes."""
    monkeypatch.chdir(tmp_path)

    def create(config, out):
        raise Made(config)

    monkeypatch.setattr("sadq.experiment.opening.create", create)
    monkeypatch.setattr(commands, "prepare_jax", lambda _: None)

    def config(line):
        with pytest.raises(Made) as caught:
            commands.run("train", line.split())
        return caught.value.args[0]

    return config


def test_a_single_seed_and_a_count_of_seeds(made):
    assert made("acrobot dqn --seed 7").seeds == (7,)
    assert made("--seed=7 acrobot dqn").seeds == (7,)
    assert made("acrobot dqn --seeds 7").seeds == tuple(range(7))
    assert made("--seeds 3 7 acrobot dqn").seeds == (3, 7)
    with pytest.raises(SadqError, match="^seeds = 300000000 must be how many, from 1 to 100,000"):
        commands.run("train", ["acrobot", "dqn", "--seeds", "300000000"])
    assert made("--steps 99 acrobot dqn") == dataclasses.replace(made("acrobot dqn"), steps=99)


@pytest.mark.parametrize("flags", ["--seed 7 --seeds 2", "--seed 1 --seed 2", "--seed -1", "--seed seven", "--seed"])
def test_what_is_no_single_seed_is_refused(flags):
    with pytest.raises(SadqError, match="--seed "):
        single_seed(flags.split())


def test_a_module_may_be_imported_before_the_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_flips.py").write_text(
        "from sadq.envs import BitFlip, register\nregister('MyFlips', lambda: BitFlip(bits=3))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with mock.patch.dict(registry._FACTORIES), mock.patch.dict(sys.modules):
        for line in ("--import my_flips list environments", "list environments --import=my_flips"):
            with pytest.raises(SystemExit) as caught:
                main.main(line.split())
            assert caught.value.code == 0 and "MyFlips" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main.main(["--import", "my_flips"])
    assert "without a module and a command" in capsys.readouterr().err

"""The examples run as a reader would run them, and do what they say."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pytest

from sadq.axes import ENCODERS, HEADS
from sadq.cli.main import main
from sadq.experiment.build import make_learner, resolve
from sadq.experiment.presets import preset

ROOT = Path(__file__).parents[1]
pytest.importorskip("gymnasium")
pytest.importorskip("tyro")


SHORT = ["--steps", "600", "--report-every", "100", "--learning-starts", "50", "--exploration-steps", "200"]
"""Short, but greedy early: the curve must depend on what is learned."""


def run_plug_in(*arguments: str) -> str:
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    finished = subprocess.run(
        [sys.executable, "examples/plug_in.py", *SHORT, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def plain() -> str:
    return run_plug_in()


def test_plug_in_prints_a_return_curve(plain: str):
    steps = re.findall(r"^step +(\d+) +return +[\d.]+", plain, flags=re.MULTILINE)
    assert [int(step) for step in steps] == [100, 200, 300, 400, 500, 600]


def test_plug_in_learns_something_else_with_sadq(plain: str):
    assert run_plug_in("--sadq") != plain


def test_plug_in_with_alpha_one_is_the_plain_agent(plain: str):
    """From the first action that differs, the episodes would part and the curves with them."""
    assert run_plug_in("--sadq", "--alpha", "1") == plain


def test_plug_in_needs_nothing_but_the_core():
    source = (ROOT / "examples/plug_in.py").read_text()
    assert re.findall(r"sadq\.\w+(?= import)|import sadq\S*", source) == ["sadq.core"]


@pytest.fixture
def servers(monkeypatch):
    """The module, and what it registers, for one test."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    with mock.patch.dict(ENCODERS._entries), mock.patch.dict(HEADS._entries):
        yield importlib.import_module("servers")
    del sys.modules["servers"]


def test_the_network_of_servers_values_them_alike_whatever_their_numbers(servers):
    """O-Cloud's observation is the task, then each of four measures of all servers in turn."""
    config = preset("ocloud", "double", encoder=servers.Servers(width=8), head=servers.Shared())
    environment = resolve("OCloud")
    network = make_learner(config, environment).make_network(jax.random.key(0))
    observation = np.random.default_rng(0).uniform(0, 5, environment.observation_size).astype(np.float32)
    order = np.random.default_rng(1).permutation(environment.servers)
    task, measures = observation[:3], observation[3:].reshape(4, -1)
    renumbered = np.concatenate([task, measures[:, order].reshape(-1)])

    values, others = (np.asarray(network.head.mean(network.encoder(one))) for one in (observation, renumbered))
    assert np.ptp(values) > 1e-3
    np.testing.assert_allclose(others, values[order], rtol=1e-4, atol=1e-7)
    longer = observation + 3 * np.eye(1, len(observation), 2, dtype=np.float32)[0]  # the task takes three seconds more
    assert np.abs(np.asarray(network.head.mean(network.encoder(longer))) - values).max() > 1e-4


def test_the_network_of_servers_trains_from_the_command_line(servers, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT / "examples")
    sizes = ["--environment-settings", "servers=3", "warmup_tasks=6", "max_steps=8", "--environments", "2"]
    short = ["--collect", "8", "--steps", "16", "--evaluations", "1", "--evaluation-episodes", "2", "--seeds", "2"]
    choices = ["--import", "servers", "--encoder", "servers", "--encoder.width", "4", "--head", "servers"]
    with pytest.raises(SystemExit) as ended:
        main(["train", "ocloud", "double", *choices, *sizes, *short, "--out", str(tmp_path / "run"), "--quiet"])
    assert ended.value.code == 0
    assert "seed 1: final return" in capsys.readouterr().out

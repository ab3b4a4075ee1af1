"""Modules of a user's own, each as the docs show it: trained, killed halfway, resumed to the bit, evaluated, reported."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_runs

from sadq.experiment import progress
from sadq.experiment.folder import CHECKPOINTS

STEPS, CHUNK = 1280, 64
SIZES = (
    f"--environment BitFlip-3 --seeds 2 --steps {STEPS} --batch-size 4 --environments 2 --collect 16 "
    "--updates-per-collect 1 --buffer-size 128 --evaluations 20 --evaluation-episodes 2 --checkpoint-seconds 0"
)
NARROW = "--encoder.hidden 8"
USES = {
    "an agent, a gate, a model and a pacing": (
        "my_agent my_gate my_model my_pacing",
        "rainbow-iqn+sadq --head.levels 4 --head.cosines 8 --gate gap --model linear --guidance.batch-size 4 "
        f"--pacing head-start --pacing.slots 20 {NARROW}",
    ),
    "a head, an encoder, a bootstrap rule and an intention": (
        "my_head my_encoder my_bootstrap my_exploration",
        "dqn --head bounded --head.high 1.5 --encoder waves --encoder.features 8 --bootstrap softmax "
        "--intended boltzmann --intended.temperature 0.5",
    ),
    "a replay, an optimiser and a deviation": (
        "my_replay my_optimiser my_exploration",
        f"dqn --replay capped --replay.ceiling 0.5 --optimiser lion --deviation again {NARROW}",
    ),
    "a whole behaviour, an ensemble and a return": (
        "my_exploration my_ensemble my_return",
        f"dqn --exploration ladder --exploration.base 0.3 --ensemble relative --ensemble.size 3 --head log-cosh {NARROW}",
    ),
}
"""Which modules, and how they are asked for."""

CHOSEN = {
    "an agent, a gate, a model and a pacing": {
        "agent": "rainbow-iqn+sadq",
        "gate": {"kind": "gap"},
        "model": {"kind": "linear"},
        "pacing": {"kind": "head-start", "slots": 20},
    },
    "a head, an encoder, a bootstrap rule and an intention": {
        "head": {"kind": "bounded", "low": 0.0, "high": 1.5},
        "encoder": {"kind": "waves", "features": 8},
        "bootstrap": {"kind": "softmax", "temperature": 0.1},
        "intended": {"kind": "boltzmann", "temperature": 0.5},
    },
    "a replay, an optimiser and a deviation": {
        "replay": {"kind": "capped", "ceiling": 0.5},
        "optimiser": {"kind": "lion", "beta1": 0.9, "beta2": 0.99},
        "deviation": {"kind": "again"},
    },
    "a whole behaviour, an ensemble and a return": {
        "exploration": {"kind": "ladder", "base": 0.3},
        "ensemble": {"kind": "relative", "size": 3},
        "head": {"kind": "log-cosh"},
    },
}
"""What config.json then says."""


def imports(names: str) -> str:
    return " ".join(f"--import {name}" for name in names.split())


@contextlib.contextmanager
def copying(run: Path, to: Path, step: int):
    """A progress display under which a run's folder is copied at a step, before that chunk's checkpoint is written.

    The copy is what would be left if the process were killed there: nothing of ours would run after it. In the last test
    of this module that happens.
    """

    @contextlib.contextmanager
    def display(experiment, quiet=False):
        def update(now):
            if now.step >= step and not to.exists():
                shutil.copytree(run, to)

        yield update

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "display", display)
        yield


def test_every_module_of_the_docs_is_short_and_used_here(modules):
    assert all(len(content.splitlines()) < 40 for content in modules.values())
    assert set(modules) == {name for names, _ in USES.values() for name in names.split()}


@pytest.mark.parametrize("use", USES)
def test_a_users_modules_train_resume_to_the_bit_evaluate_and_report(use, sadq, desk):
    names, choices = USES[use]
    agent, flags = choices.split(maxsplit=1)
    command = f"train bitflip-quick {agent} {imports(names)} {flags} {SIZES} --out"
    with copying(desk / "whole", desk / "halves", STEPS // 2):
        done = sadq(command, "whole")
    assert done.code == 0, done.err
    config = json.loads((desk / "whole" / "config.json").read_text())["config"]
    assert {name: config[name] for name in CHOSEN[use]} == CHOSEN[use]

    assert not (desk / "halves" / "result.json").exists()
    assert tiny_runs.checkpoint.latest(desk / "halves" / CHECKPOINTS).name == f"{(STEPS // 2 - CHUNK) // 16:010d}"
    for first in range(len(names.split())):
        too_few = " ".join(name for index, name in enumerate(names.split()) if index != first)
        unknown = sadq("resume halves", imports(too_few))
        assert unknown.code == 2 and "--import" in unknown.err and unknown.err.count("\n") == 1, unknown.err
    resumed = sadq("resume halves", imports(names))
    assert resumed.code == 0, resumed.err
    tiny_runs.assert_same_run(desk / "halves", desk / "whole")

    judged = sadq("evaluate halves --episodes 2 --json", imports(names))
    assert judged.code == 0, judged.err
    members = json.loads(judged.out.splitlines()[-1])["members"]
    assert [member["seed"] for member in members] == [0, 1]
    assert all(set(member["returns"]) <= {0.0, 1.0} for member in members)
    page = sadq("report whole halves --out report", imports(names))
    assert page.code == 0, page.err
    written = (desk / "report" / "index.html").read_text()
    assert all(f"{agent} ({run})" in written for run in ("whole", "halves"))


def test_the_list_and_the_help_of_the_command_line_know_a_users_entries(sadq):
    assert "boltzmann" not in sadq("list axes").out
    listed = sadq("list axes", imports("my_head my_gate my_exploration"))
    assert listed.code == 0 and all(name in listed.out for name in ("bounded", "gap", "boltzmann", "ladder"))
    assert "rainbow-iqn" in sadq("list agents", imports("my_agent")).out
    shown = sadq("train bitflip-quick dqn --head bounded --help", imports("my_head"))
    assert shown.code == 0 and "--head.high" in shown.out and "The largest return." in shown.out
    refused = sadq("train bitflip-quick dqn --head bounded --head.high -1", imports("my_head"))
    assert refused.code == 2 and refused.err == "sadq: Bounded: high = -1.0 must be above low.\n"


KILLED_HALFWAY = """
import os, signal
from sadq.experiment import progress
from contextlib import contextmanager

@contextmanager
def display(experiment, quiet=False):
    yield lambda now: os.kill(os.getpid(), signal.SIGKILL) if now.step >= {step} else None

progress.display = display
from sadq.cli.main import main
main()
"""


def test_processes_that_are_really_killed_resume_to_the_same_bits(desk, sadq):
    """What the tests above do in one process, in four: only files and --import tell them of each other."""
    command = f"train bitflip-quick dqn {imports('my_head my_replay')} --head bounded --replay capped {NARROW} {SIZES}"
    whole = sadq(command, "--out whole")
    assert whole.code == 0, whole.err

    def process(*words: str) -> subprocess.CompletedProcess:
        settings = tiny_runs.variables() | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        return subprocess.run([sys.executable, *words], env=settings, capture_output=True, text=True, timeout=300)

    killed = process("-c", KILLED_HALFWAY.format(step=STEPS // 2), *command.split(), "--out", "halves")
    assert killed.returncode == -signal.SIGKILL and os.path.exists("halves/config.json"), killed.stderr
    unknown = process("-m", "sadq", "resume", "halves")
    assert unknown.returncode == 2 and "--import" in unknown.stderr and "Traceback" not in unknown.stderr
    resumed = process("-m", "sadq", "resume", "halves", *imports("my_head my_replay").split())
    assert resumed.returncode == 0, resumed.stderr
    tiny_runs.assert_same_run(desk / "halves", desk / "whole")

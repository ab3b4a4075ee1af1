"""The modules that the docs show, used as their readers would: trained, killed halfway, resumed, evaluated, reported."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TINY = (
    "--environment BitFlip-3 --seeds 2 --steps 1280 --encoder.hidden 8 --batch-size 4 --environments 2 --collect 16 "
    "--updates-per-collect 1 --buffer-size 128 --evaluations 20 --evaluation-episodes 2 --checkpoint-seconds 0 --quiet"
)
USES = {
    "my_agent": "rainbow-iqn+sadq --head.levels 4",
    "my_head": "dqn --head bounded --head.low 0 --head.high 1",
    "my_exploration": "dqn --exploration ladder",
    "my_gate": "dqn+sadq --gate gap",
    "my_replay": "dqn --replay capped",
}
"""How each is asked for; with a model as small as the rest where one is learned."""

MODEL = " --model.hidden 8 --guidance.batch-size 4"

KILLED_HALFWAY = """
import os, signal, sys
from sadq.experiment import run
advance = run.Experiment._advance
def advance_and_die(experiment):
    progress = advance(experiment)
    if experiment.step >= 640:
        os.kill(os.getpid(), signal.SIGKILL)  # this chunk's checkpoint is not written any more
    return progress
run.Experiment._advance = advance_and_die
from sadq.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """A folder with all the modules of the docs, as their reader would have them."""
    folder = tmp_path_factory.mktemp("desk")
    for page in [ROOT / "docs" / "README.md", *(ROOT / "docs" / "axes").glob("*.md")]:
        for name, content in MODULE.findall(page.read_text()):
            assert len(content.splitlines()) < 40, f"{name} on {page.name} is no short module"
            (folder / f"{name}.py").write_text(content)
    return folder


def sadq(desk: Path, *arguments: str, program: tuple[str, ...] = ("-m", "sadq")) -> subprocess.CompletedProcess:
    settings = {**os.environ, "XDG_CACHE_HOME": str(desk / "cache"), "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *program, *arguments], cwd=desk, env=settings, capture_output=True, text=True, timeout=300
    )


def checksum(run: Path) -> str:
    newest = sorted((run / "checkpoints").glob("[0-9]*"))[-1]
    return json.loads((newest / "checkpoint.json").read_text())["sha256"]


@pytest.mark.parametrize("module", USES)
def test_a_users_module_trains_resumes_bitwise_evaluates_and_reports(module, desk):
    agent, *choices = (USES[module] + (MODEL if "+sadq" in USES[module] else "")).split()
    command = ["train", "bitflip-quick", agent, "--import", module, *choices, *TINY.split(), "--out"]
    whole, halves = desk / f"{module}-whole", desk / f"{module}-halves"
    done = sadq(desk, *command, str(whole))
    assert done.returncode == 0, done.stderr
    killed = sadq(desk, *command, str(halves), program=("-c", KILLED_HALFWAY))
    assert killed.returncode == -9 and not (halves / "result.json").exists(), killed.stderr
    unknown = sadq(desk, "resume", str(halves))
    assert unknown.returncode == 2 and "--import" in unknown.stderr and "Traceback" not in unknown.stderr
    resumed = sadq(desk, "resume", str(halves), "--import", module, "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    assert checksum(halves) == checksum(whole)
    lines = [(run / "evaluations.jsonl").read_text() for run in (whole, halves)]
    assert lines[0] == lines[1]
    judged = sadq(desk, "evaluate", str(halves), "--import", module, "--episodes", "2", "--json")
    assert judged.returncode == 0 and len(json.loads(judged.stdout.splitlines()[-1])["members"]) == 2, judged.stderr
    page = sadq(desk, "report", str(whole), str(halves), "--import", module, "--out", str(desk / f"{module}-report"))
    assert page.returncode == 0 and list((desk / f"{module}-report").iterdir()), page.stderr

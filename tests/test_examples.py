"""The examples run as a reader would run them: as scripts, from the command line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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

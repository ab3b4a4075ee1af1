"""What docs/architecture.md says is so: the rooms in their order, the walk of one transition, the random streams."""

import dataclasses
import importlib.util
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import jax

from sadq.experiment.build import hyper_of, make_learner, resolve
from sadq.experiment.presets import preset
from sadq.fleet.scan_loop import ScanFleet

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sadq"
TEXT = (ROOT / "docs" / "architecture.md").read_text()
WALK = re.findall(r"^\| (\d+) \| `([\w.]+)` \| `([\w/.]+)` \|", TEXT, flags=re.MULTILINE)
HELPERS = {"scan_with_metrics", "over_networks"}
"""Functions that only apply another one along an axis."""


def test_the_rooms_stand_in_the_order_of_imports():
    specification = importlib.util.spec_from_file_location("check_imports", ROOT / "tools" / "check_imports.py")
    checker: Any = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(checker)
    lines = TEXT.split("```")[1].strip().splitlines()
    rooms = [room for line in lines for room in re.findall(r"\w+", re.split(r" {3,}", line)[0])]
    assert [*rooms, "__main__"] == checker.ORDER


def test_the_walk_is_short_and_its_functions_are_where_it_says():
    assert [int(number) for number, *_ in WALK] == list(range(1, len(WALK) + 1)) and len(WALK) <= 12
    for _, function, file in WALK:
        owner, _, name = function.rpartition(".")
        source = (SOURCE / file).read_text()
        assert f"def {name}(" in source and (not owner or f"class {owner}" in source), function


def test_a_transition_walks_through_these_functions_in_this_order():
    """Found by tracing a guided agent's chunk: every function on the way to the loss is in the table, or only a helper."""
    config = preset("BitFlip-3", "dqn+sadq", environments=2, collect=8, updates_per_collect=1)
    environment = resolve("BitFlip-3")
    fleet = ScanFleet(learner=make_learner(config, environment), exploration=config.behaviour, environment=environment)
    hyper = jax.tree.map(lambda leaf: leaf[0], hyper_of(config))
    member = jax.eval_shape(fleet.init, hyper)
    entered: list[str] = []
    above: dict[str, set[str]] = {}

    def ours(frame: FrameType | None) -> str | None:
        known = frame is not None and frame.f_code.co_filename.startswith(str(SOURCE))
        name = frame.f_code.co_qualname if known else ""
        return None if "<" in name else name or None

    def watch(frame: FrameType, event: str, _: Any) -> None:
        name = ours(frame) if event == "call" else None
        if name is None or name in above:
            return
        entered.append(name)
        above[name], caller = set(), frame.f_back
        while caller is not None:
            above[name] |= {found} if (found := ours(caller)) else set()
            caller = caller.f_back

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        jax.eval_shape(lambda *state: fleet.chunk(*state, 0, 1), member, hyper)
    finally:
        sys.setprofile(before)

    walk = [function for _, function, _ in WALK]
    assert [name for name in entered if name in walk] == walk
    assert above[walk[-1]] - set(walk) == {"ScanFleet.chunk"} | HELPERS
    assert above["Guidance.guide"] - set(walk) == {"ScanFleet.chunk"} | HELPERS


def test_every_stream_of_random_numbers_is_listed():
    listed = set(
        re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\| (`[^|]*) \| (?:the|an?) ", TEXT, flags=re.MULTILINE)))
    )
    used: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        used |= set(re.findall(r"""(?:stream\(|_keys\(hyper, )"([\w-]+)\"""", path.read_text()))
    assert used == listed


def test_the_glossary_has_the_words_of_the_code():
    words = set(re.findall(r"^\| (\w+) \| ", TEXT.split("## Glossary")[1], flags=re.MULTILINE))
    assert {
        "member",
        "fleet",
        "collect",
        "chunk",
        "lane",
        "phase",
        "choice",
        "row",
        "axis",
        "entry",
        "adjusted",
    } <= words
    assert {"store", "sampler", "gate", "guidance"} <= words
    assert "adjusted" in {field.name for field in dataclasses.fields(preset("acrobot"))}

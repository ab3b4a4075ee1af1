"""The rule meant never to lose: what is read from run folders, and what is judged by what."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(Path(__file__).parent)]

import rule as tool  # noqa: E402
from claims import never_loses  # noqa: E402
from claims.never_loses import AGENTS, BELOW, FORMS, HOLDS, NO_FLOOR, OPEN, PRESETS, Evidence  # noqa: E402
from synthetic_fleets import Course, write_fleet  # noqa: E402

from sadq.errors import SadqError  # noqa: E402

SEEDS = np.arange(12)


def evidence(preset: str, base: float, literal: float, rule: np.ndarray | float, random: float = 0.0) -> Evidence:
    """One preset whose agents all have the same scores, seed by seed."""
    values = {"base": base + 0 * SEEDS, "literal": literal + 0 * SEEDS, "rule": rule + 0 * SEEDS}
    scores = {form: {"final_return": each.tolist(), "area_under_curve": each.tolist()} for form, each in values.items()}
    return Evidence({"scores": {preset: dict.fromkeys(AGENTS, scores)}, "random": {preset: {"mean_return": random}}})


def test_what_is_kept_is_a_share_of_the_literal_gain():
    found = evidence("bitflip", 1.0, 2.0, 1.9 + 0.1 * (-1.0) ** SEEDS).kept("bitflip", "final_return")
    assert found.value == pytest.approx(0.9) and found.count == 12
    assert 0.8 <= found.low < 0.9 < found.high <= 1.0


@pytest.mark.parametrize(
    ("rule", "random", "verdict"),
    [
        (99.0, 0.0, HOLDS),  # a loss of 1, of 5 that it may lose
        (90.0, 0.0, BELOW),
        (95.0 + 30.0 * (-1.0) ** SEEDS, 0.0, OPEN),
        (99.0, 100.5, NO_FLOOR),
    ],
)
def test_a_loss_is_held_against_what_the_base_has_learned(rule, random, verdict):
    assert evidence("acrobot", 100.0, 100.0, rule, random).verdict("acrobot", "final_return") == verdict


def test_the_mean_is_over_agents_and_the_pairs_are_of_seeds():
    made = evidence("acrobot", 0.0, 0.0, 1.0)
    one = made.data["scores"]["acrobot"]["dqn"]
    made.data["scores"]["acrobot"] = made.data["scores"]["acrobot"] | {"dqn": one | {"rule": one["base"]}}
    pooled = made.pooled("acrobot", "rule", "final_return")
    assert pooled.value == pytest.approx(0.8) and pooled.count == 12
    del one["literal"]
    made.data["scores"]["acrobot"]["dqn"] = one
    assert made.pooled("acrobot", "literal", "final_return") is None, "four agents are not the five"


def test_run_folders_are_read_into_one_file(tmp_path, monkeypatch):
    arms = {agent + suffix: Course(level=80 + 10 * len(suffix)) for agent in AGENTS[:1] for suffix in FORMS.values()}
    for label, course in arms.items():
        write_fleet(tmp_path / "pool", "bitflip", label, course)
    for name, value in (("PRESETS", ("bitflip",)), ("AGENTS", AGENTS[:1]), ("EPISODES", {"bitflip": 64})):
        monkeypatch.setattr(tool, name, value)
    out = tmp_path / "rule.json"
    monkeypatch.setattr(sys, "argv", ["rule.py", str(tmp_path / "pool"), "--out", str(out)])
    tool.main()
    found = json.loads(out.read_text())
    assert found["rule"] == never_loses.RULE and found["random"]["bitflip"]["episodes"] == 64
    assert set(found["scores"]["bitflip"]["dqn"]) == {"base", "literal", "rule"}
    assert len(found["scores"]["bitflip"]["dqn"]["rule"]["final_return"]) == 12
    assert len(found["course"]["bitflip"]["dqn"]["base"]["return"]) == 10
    assert never_loses.load(out).data == found
    out.write_text(json.dumps(found | {"rule": "gate=sample"}))
    with pytest.raises(SadqError, match="make it anew"):
        never_loses.load(out)
    monkeypatch.setattr(sys, "argv", ["rule.py", str(tmp_path / "none"), "--out", str(out)])
    with pytest.raises(SystemExit, match="holds no run of the rule"):
        tool.main()


def test_the_file_has_every_agent_on_every_native_preset():
    found = never_loses.load(ROOT / "results" / "rule.json")
    for preset in PRESETS:
        for agent in AGENTS:
            forms = found.data["scores"][preset][agent]
            assert {"base", "rule"} <= set(forms)
            assert all(one["seed"] == list(range(20)) for one in forms.values())

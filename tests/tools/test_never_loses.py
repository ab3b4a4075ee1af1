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
from claims.never_loses import AGENTS, BELOW, HOLDS, NO_FLOOR, OPEN, RULE, RULES, Evidence, forms_of  # noqa: E402
from synthetic_fleets import Course, write_fleet  # noqa: E402

from sadq.errors import SadqError  # noqa: E402

SEEDS = np.arange(12)
FORMS = forms_of(RULE)


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


@pytest.fixture
def small(monkeypatch):
    """One preset and one agent are all that there is."""
    for name, value in (("PRESETS", ("bitflip",)), ("AGENTS", AGENTS[:1]), ("EPISODES", {"bitflip": 64})):
        monkeypatch.setattr(tool, name, value)


def test_what_pools_lack_is_an_earlier_file_s_but_for_the_rule(tmp_path, small):
    pool, label = tmp_path / "pool", f"dqn{FORMS['rule']}"
    write_fleet(pool, "bitflip", label, Course(level=80))
    known = {form: {"final_return": [1.0]} for form in FORMS}
    parts = {part: {"bitflip": {"dqn": known}} for part in ("scores", "course")}
    earlier = parts | {"origins": [{"commit": "old"}], "random": {"bitflip": {"mean_return": 0.5}}}
    found = tool.collect([pool], None, earlier)
    assert found["random"] == earlier["random"]
    assert [one["commit"] for one in found["origins"]] == ["old", "abc1234"]
    scores = found["scores"]["bitflip"]["dqn"]
    assert scores["base"] == scores["literal"] == known["base"] and len(scores["rule"]["final_return"]) == 12
    assert found["cut"] == {}


@pytest.mark.parametrize(("rows", "share"), [(20, 0.95), (19, None)])
def test_a_run_that_was_cut_off_near_its_end_counts_and_is_named(tmp_path, small, rows, share):
    """Of 21 evaluations of 12 members so many are whole, and the next is half there."""
    write_fleet(tmp_path, "bitflip", "dqn", Course())
    folder = tmp_path / "bitflip" / "dqn"
    (folder / "result.json").unlink()
    lines = (folder / "evaluations.jsonl").read_text().splitlines(keepends=True)
    (folder / "evaluations.jsonl").write_text("".join(lines[: 12 * rows + 6]))
    if share is None:
        with pytest.raises(SadqError, match="90% of its run, expected 95%"):
            tool.collect([tmp_path], None, {})
        return
    found = tool.collect([tmp_path], None, {})
    assert found["cut"] == {"bitflip/dqn": share}
    assert np.isfinite(found["scores"]["bitflip"]["dqn"]["base"]["final_return"]).all()
    assert never_loses.cut_line(Evidence(found)) == [
        "Cut off before the end of the run, and judged by what there is: `bitflip/dqn` at 95%.\n"
    ]


def test_with_few_seeds_every_agent_s_pairs_count():
    values = {"base": np.zeros(5), "rule": np.arange(5.0)}
    scores = {form: {"final_return": each.tolist()} for form, each in values.items()}
    found = Evidence({"scores": {"lunarlander": dict.fromkeys(AGENTS, scores)}})
    pooled = found.pooled("lunarlander", "rule", "final_return")
    assert pooled.count == 25 and pooled.value == 2.0 and 0 < pooled.low < 2.0 < pooled.high
    assert found.presets == ["lunarlander"]


def test_scores_of_runs_whose_folders_are_gone_are_cut_to_common_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "PRESETS", ("acrobot", "bitflip"))
    values = {"final_return": [1.0, 2.0, 3.0], "area_under_curve": [4.0, 5.0, 6.123456]}
    origin = [{"commit": "c0ffee", "command": "fleets", "device": "cpu", "versions": {}, "fleets": 1}]
    name = f"dqn+sadq-{RULE.replace(',', '-')}"
    files = {
        "study.json": {
            "origins": [{"commit": "abc", "fleets": 7}],
            "environments": [{"preset": "acrobot", "arms": [{"arm": "dqn", "members": {"seed": [0, 1, 2]} | values}]}],
        },
        "found.json": {
            "fleets": {
                f"acrobot/{name}": {"origin": origin, "scores": [{"seeds": [1, 2, 3]} | values]},
                "acrobot/iqn": {"origin": [{"commit": "unused"}], "scores": [{"seeds": [1]} | values]},
                f"bitflip/{name}": {"origin": [{"commit": "in the pool"}], "scores": [{"seeds": [1, 2, 3]} | values]},
            }
        },
    }
    for file, content in files.items():
        (tmp_path / file).write_text(json.dumps(content))
    stored = tool._stored([tmp_path / file for file in files], FORMS, {"bitflip"}, sources := [])
    assert [(one["commit"], one["fleets"]) for one in sources] == [("abc", 7), ("c0ffee", 1)]
    assert stored == {
        ("acrobot", "dqn", "base"): {"seed": [1, 2], "area_under_curve": [5.0, 6.1235], "final_return": [2.0, 3.0]},
        ("acrobot", "dqn", "rule"): {"seed": [1, 2], "area_under_curve": [4.0, 5.0], "final_return": [1.0, 2.0]},
    }


@pytest.mark.parametrize(("name", "least"), [("hearing", {"acrobot", "bitflip", "cartpole", "lunarlander"}),
                                             ("allowance", {"acrobot", "bitflip", "cartpole", "ocloud"})])  # fmt: skip
def test_the_files_have_every_agent_on_the_same_seeds(name, least):
    found = never_loses.load(ROOT / "results" / "rule" / f"{name}.json")
    assert found.data["rule"] == RULES[name] and set(found.presets) >= least
    first = {"hearing": 200, "allowance": 0}[name]
    for preset in found.presets:
        seeds = range(5) if preset == "lunarlander" else range(first, first + 20)
        for agent in AGENTS:
            assert all(one["seed"] == [*seeds] for one in found.data["scores"][preset][agent].values())


def test_seeds_of_two_rules_add_up_unless_they_are_the_same():
    rule, earlier = (never_loses.load(ROOT / "results" / "rule" / f"{name}.json") for name in RULES)
    both = rule.with_seeds_of(earlier, "bitflip")
    alone = [one.gains("bitflip", "rule", "final_return").mean() for one in (rule, earlier)]
    assert both.gains("bitflip", "rule", "final_return").shape == (5, 40)
    assert both.gains("bitflip", "rule", "final_return").mean() == pytest.approx(np.mean(alone))
    with pytest.raises(SadqError, match="same seeds of bitflip"):
        rule.with_seeds_of(rule, "bitflip")

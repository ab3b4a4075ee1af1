"""What the cards at the top say, where it is easily said wrong."""

import json
from collections.abc import Callable
from pathlib import Path

from report.reader import read
from sadq.report.page import write_report

Make = Callable[..., Path]


def rising(seeds: int, *shifts: float) -> list[list[float]]:
    return [[0.0, *(0.1 * seed + shift for shift in shifts)] for seed in range(seeds)]


def lose_evaluations(folder: Path, member: int) -> None:
    """As of a member whose environment broke down after its beginning."""
    path = folder / "evaluations.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["returns"] = [None, None] if row["member"] == member and row["step"] else row["returns"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_only_seeds_with_a_score_are_counted(make_run: Make, tmp_path: Path) -> None:
    base, other = make_run("base", "dqn", rising(4, 1.0)), make_run("other", "dqn+sadq", rising(4, 1.1))
    lose_evaluations(base, member=2)
    text = read(write_report([base, other], tmp_path / "out")).text
    assert "is detectable on BitFlip with 8 bits at 3 seeds" in text
    assert "is detectable at 3 seeds" in text and "at 4 seeds" not in text


def test_untrained_agents_are_not_compared(make_run: Make, tmp_path: Path) -> None:
    """They are equal seed by seed, for they share their initial weights: no finding about how they learn."""
    base = make_run("base", "dqn", rising(7, 0.5, 1.0), finished=False)
    begun = make_run("begun", "dqn+sadq", [[0.0]] * 7, finished=False, config={"steps": 2000})
    third = make_run("third", "c51", rising(7, 0.5, 1.0))
    text = read(write_report([base, begun, third], tmp_path / "out")).text
    assert "dqn+sadq (α = 0.2) and dqn on BitFlip with 8 bits cannot be compared" in text
    assert "not both were evaluated after their training began" in text
    assert "after Holm's correction for 1 pair." in text  # of every pair only that of the two that have learned
    (told,) = (
        each
        for each in json.loads((tmp_path / "out" / "report.json").read_text())["comparisons"]
        if each["other"]["label"] == "dqn+sadq"
    )
    assert told["outcome"] == "unknown" and told["until_step"] == 0 and told["measures"] == {}


def test_a_card_says_where_its_numbers_end(make_run: Make, tmp_path: Path) -> None:
    base = make_run("base", "dqn", rising(7, 0.5, 0.6, 1.0))
    going = make_run("going", "dqn+sadq", rising(7, 0.7, 0.8), finished=False, config={"steps": 3000})
    ends = "All of this is over the first 2,000 steps, as far as both have come."
    assert ends in read(write_report([base, going], tmp_path / "going")).text
    whole = make_run("whole", "dqn+sadq", rising(7, 0.7, 0.8, 1.0))
    assert "as far as both have come" not in read(write_report([base, whole], tmp_path / "whole")).text


def test_an_agent_without_a_score_is_not_said_to_end_anywhere(make_run: Make, tmp_path: Path) -> None:
    run = make_run("run", "dqn", rising(2, 1.0))
    lose_evaluations(run, 0)
    lose_evaluations(run, 1)
    text = read(write_report([run], tmp_path / "out")).text
    assert "On BitFlip with 8 bits, dqn has no final return: evaluations are missing." in text


def test_a_lower_level_is_named_wherever_its_interval_stands(make_run: Make, tmp_path: Path) -> None:
    base, other = make_run("base", "dqn", rising(4, 1.0)), make_run("other", "dqn+sadq", rising(4, 1.1))
    text = read(write_report([base, other], tmp_path / "few")).text
    assert text.count("] at 88%") == 3 * 3  # of each measure: on the card, in its words, in the table
    base, other = make_run("b", "dqn", rising(6, 1.0)), make_run("o", "dqn+sadq", rising(6, 1.1))
    assert "] at " not in read(write_report([base, other], tmp_path / "enough")).text

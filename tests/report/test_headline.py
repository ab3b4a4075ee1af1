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

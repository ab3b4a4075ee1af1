"""What claims are decided by: where intervals lie, and rules for what no result file has yet."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from claims import document, judging, records, tables, training  # noqa: E402
from claims.atari import ATARI  # noqa: E402
from claims.judging import FAILS, HOLDS, LATER, OPEN  # noqa: E402
from claims.training import BASELINES, REAL_WORLD, SADQ, degradation  # noqa: E402

from sadq.report.stats import Estimate  # noqa: E402
from sadq.studies import artefacts  # noqa: E402

MADE = {"judged": {"command": "sadq reproduce runtime"}, "origins": [{"commit": "abc1234"}]}


def test_an_interval_decides():
    def found(low, high):
        return Estimate(0.0, low, high, 9)

    assert [judging.below(found(*ends), 1.0) for ends in ((0, 0.9), (1.1, 2), (0, 2), (None, None))] == [
        HOLDS,
        FAILS,
        OPEN,
        OPEN,
    ]
    assert [judging.above(found(*ends), 1.0) for ends in ((0, 0.9), (1.1, 2), (0, 2))] == [FAILS, HOLDS, OPEN]
    assert [judging.within(found(*ends), 1.0) for ends in ((-0.9, 0.9), (-3, -2), (2, 3), (0, 2))] == [
        HOLDS,
        FAILS,
        FAILS,
        OPEN,
    ]
    assert judging.all_of([HOLDS, OPEN]) == OPEN and judging.all_of([HOLDS]) == HOLDS
    assert judging.all_of([HOLDS, OPEN, FAILS, LATER]) == FAILS and judging.all_of([OPEN, LATER]) == LATER


def test_commits_are_short_and_changes_stay_marked():
    long = "436c342b14643f10419c0fe7b76ce53fe67263dc"
    assert [records.short(one) for one in (long, "436c342b1-dirty", None)] == ["436c342", "436c342-dirty", "not known"]


@pytest.mark.parametrize(
    ("said", "seeds", "command"),
    [
        ("sadq reproduce alpha --pool FOLDER --partial", (20,), "sadq reproduce alpha --seeds 20"),
        ("sadq reproduce alpha --partial --seeds 9 --out FOLDER", (9,), "sadq reproduce alpha --seeds 9"),
        ("sadq reproduce alpha", (5,), "sadq reproduce alpha"),
        ("sadq reproduce alpha --partial", (10, 20), "sadq reproduce alpha --seeds 20"),
        ("sadq reproduce theory --out FOLDER", (), "sadq reproduce theory"),
        ("python benchmarks/atari100k.py", (20,), "python benchmarks/atari100k.py"),
    ],
)
def test_the_command_is_one_that_makes_the_row_from_nothing(said, seeds, command):
    source = records.Record((MADE | {"judged": {"command": said}},)).source
    claim = judging.Claim("x", "Fig. 0", "says", lambda _: judging.NOT_RUN, "alpha")
    row = document.Row(claim, judging.Finding(HOLDS, "so", seeds, source))
    assert row.cells(1)[-1] == f"`{command}`, abc1234"


def test_seeds_that_not_all_arms_have_are_left_out_of_what_is_paired_over_all():
    arms = [
        {"arm": label, "members": {"seed": list(range(count)), "late_fluctuation": [value] * 4 + [99.0] * (count - 4)}}
        for label, count, value in [(SADQ, 8, 1.0), *((label, 4, 3.0) for label in BASELINES)]
    ]
    place = records.Place("acrobot", {"preset": "acrobot", "steps": [], "arms": arms})
    verdict, measured = training._steadier(place)
    assert measured.startswith("late evaluations fluctuate by 1.00, the baselines' by 3.00 on average: −2.00")
    assert training.seeds_of(place, [SADQ, "dqn"]) == (4, 8)
    assert training.seeds_of(place, [SADQ, "dqn"], together=True) == (4,)


def test_a_trend_is_a_slope_of_every_seed():
    rising = [{seed: 2.0 * rank + seed for seed in range(8)} for rank in range(4)]
    slope = judging.trend(rising, "x")
    assert slope.value == pytest.approx(2.0) and slope.low == pytest.approx(2.0) and slope.count == 8


def game(name: str, agent: str, signed: list[float]) -> dict:
    members = [
        {"seed": seed, "signed": [0.0, value], "raw": [0.0, 9 * value], "human_normalised": [0.0, value / 9]}
        for seed, value in enumerate(signed)
    ]
    return {"game": name, "agent": agent, "members": members, "machine": {"commit": "abc1234"}}


def test_games_are_counted_once_all_are_played():
    games = {}
    for index, name in enumerate(ATARI):
        gain = 1.0 if index < 21 else -1.0
        for agent, more in (("qrdqn", 0.0), ("qrdqn+sadq", gain)):
            games[name, agent] = game(name, agent, [index + more + seed / 100 for seed in range(5)])
    rows = {row.claim.name: row.finding for row in document.rows_of(records.Results({}, games))}
    assert rows["qrdqn, wins"].verdict == HOLDS and rows["qrdqn, wins"].measured == "21 [21, 21] of 24"
    assert rows["qrdqn, mean"].verdict == HOLDS and rows["qrdqn, mean"].seeds == (5,)
    assert rows["qrdqn, mean"].source == records.Source("python benchmarks/atari100k.py", ("abc1234",))
    assert rows["iqn, mean"].verdict == LATER
    table = tables.games_table(records.Results({}, games))
    assert len(table) == 2 + 48 and table[2].startswith("| Alien | `qrdqn` | 5 | 12.49 | 0.020 [")
    del games["Pong", "qrdqn"]
    rows = {row.claim.name: row.finding for row in document.rows_of(records.Results({}, games))}
    assert rows["qrdqn, median"].verdict == LATER
    assert rows["qrdqn, median"].measured == "23 of the paper's 24 games played with both arms"


def test_the_papers_own_numbers():
    says = {claim.name: claim.says for claim in document.all_claims()}
    wins = [says[f"{agent}, wins"] for agent in ("qrdqn", "iqn", "coact")]
    assert [words.split(" on ")[1] for words in wins] == ["20 of 24 games", "18 of 24 games", "22 of 24 games"]
    assert "6.31 → 7.05" in says["qrdqn, mean"] and "434 min" in says["runtime, 10M, 20%"]
    assert len(says) == len(document.all_claims()), "every claim has a name of its own"


def runtime(minutes: dict[str, float]) -> records.Record:
    arms = [
        {"arm": label, "minutes_100k": value, "minutes_10m": 100 * value}
        | {"model_parameters": 34_600_000 if "+sadq" in label else None}
        for label, value in minutes.items()
    ]
    return records.Record((MADE | {"artefact": "runtime", "arms": arms},))


def test_a_cost_is_held_against_the_papers():
    found = runtime({"qrdqn": 1.0, "qrdqn+sadq:pacing.fraction=0.4": 3.0, "qrdqn+sadq:pacing.fraction=0.2": 1.3})
    rows = {row.claim.name: row.finding for row in document.rows_of(records.Results({"runtime": found}))}
    assert (
        rows["runtime, 100K, 40%"].verdict == FAILS
        and "3.00 times (paper: 1.50)" in rows["runtime, 100K, 40%"].measured
    )
    assert rows["runtime, 100K, 20%"].verdict == HOLDS and rows["runtime, schedule"].verdict == HOLDS
    assert "extrapolated" in rows["runtime, 10M, 20%"].measured
    assert rows["parameters"].verdict == HOLDS and rows["parameters"].measured == "34.6M"


def test_a_seed_that_gained_nothing_can_lose_nothing():
    members = {"seed": [0, 1], "best_return": [10.0, 1.0], "first_return": [0.0, 1.0], "final_return": [5.0, 0.0]}
    lost = degradation(records.Arm("dqn", {"members": members}, []))
    assert lost[0] == 0.5 and math.isnan(lost[1])


def test_baselines_are_those_of_the_artefacts():
    assert artefacts.BASELINES == BASELINES and artefacts.ARTEFACTS["real-world"].arms == (SADQ, *REAL_WORLD)
    assert np.all([name in document.ORDER for name in artefacts.ARTEFACTS])

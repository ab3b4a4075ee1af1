"""Scores against numbers worked out by hand; what is compared with what, and what is not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sadq.errors import SadqError
from sadq.experiment.scores import area_under_curve, final_return
from sadq.report import verdicts
from sadq.report.comparison import Summary as summarise
from sadq.report.comparison import apart, comparisons_of, thresholds_of
from sadq.report.headline import finding
from sadq.report.lines import lines_of
from sadq.report.runs import Run as load
from sadq.report.runs import load_all
from sadq.report.verdicts import MEASURES

Make = Callable[..., Path]


def test_final_return_is_the_mean_of_the_last_five() -> None:
    returns = np.array([[100.0, 1, 2, 3, 4, 5], [100, 0, 0, 0, 0, 10]])
    np.testing.assert_allclose(final_return(returns), [3, 2])
    np.testing.assert_allclose(final_return(returns[:, :2]), [50.5, 50])
    assert np.isnan(final_return(np.zeros((2, 0)))).all()
    assert np.isnan(final_return(np.array([[1.0, np.nan]]))).all()


def test_area_is_the_time_average_of_the_line_through_the_evaluations() -> None:
    steps = np.array([0, 1000, 4000])
    # By hand: (0 + 2) / 2 * 1000 + (2 + 4) / 2 * 3000 = 10,000 over 4,000 steps.
    np.testing.assert_allclose(area_under_curve(steps, np.array([[0.0, 2, 4], [7, 7, 7]])), [2.5, 7])
    np.testing.assert_allclose(area_under_curve(steps + 500, np.array([[0.0, 2, 4]])), [2.5])
    np.testing.assert_allclose(area_under_curve(steps[:1], np.array([[3.0]])), [3])
    assert np.isnan(area_under_curve(steps[:0], np.zeros((1, 0)))).all()


def test_summary_numbers(make_run: Make) -> None:
    (line,) = lines_of([load(make_run("a", "dqn", [(0, 2), (0, 4), (0, 6), (0, 100)]))])
    summary = summarise(line)
    assert summary.mean["final_return"].value == pytest.approx(14)
    assert summary.interquartile_mean["final_return"].value == pytest.approx(2.5)
    assert summary.mean["area_under_curve"].value == pytest.approx(14)
    assert summary.overestimation.value == pytest.approx(0.5)
    assert [member["final_return"] for member in summary.as_dict()["members"]] == [1, 2, 3, 50]


def test_intervals_do_not_depend_on_the_other_runs(make_run: Make) -> None:
    first, second = (
        make_run("a", curves=[(0, index**1.5) for index in range(9)]),
        make_run("b", "dqn", [(0, 1), (0, 3)]),
    )
    alone = summarise(lines_of(load_all([first]))[0])
    beside = summarise(lines_of(load_all([second, first]))[1])
    assert alone.mean == beside.mean
    assert summarise(alone.line, seed=1).mean != alone.mean


def test_twins_are_paired_by_seed_whatever_their_order(make_run: Make) -> None:
    base = make_run("base", "dueling", [(0, 2), (0, 4), (0, 6)], seeds=[3, 1, 2])
    guided = make_run("guided", "dueling+sadq", [(0, 100), (0, 6), (0, 8)], seeds=[9, 1, 3])
    far = make_run("far", "dueling+sadq", [(0, 1)], environment="Acrobot")
    (comparison,) = comparisons_of(lines_of(load_all([guided, base, far])))
    assert comparison.seeds == (1, 3) and comparison.alike
    final = comparison.contrast("final_return")
    assert comparison.values["final_return"] == ({3: 1.0, 1: 2.0, 2: 3.0}, {9: 50.0, 1: 3.0, 3: 4.0})
    assert final is not None and sorted(final.difference.differences) == [1, 3]


def test_a_comparison_has_the_statistics_of_its_verdicts(make_run: Make) -> None:
    base = make_run("base", "dqn", [(0, value) for value in (1.0, 1.2, 1.4, 1.6, 1.8, 2.0)])
    guided = make_run("guided", "dqn+sadq", [(0, value) for value in (2.2, 2.5, 2.5, 3.0, 3.0, 3.2)])
    (comparison,) = comparisons_of(lines_of(load_all([base, guided])))
    # 80% of the way from 0 to the guided arm's interquartile mean of final returns, 2.75 / 2.
    assert comparison.threshold == pytest.approx(0.8 * 1.375)
    names = ("BitFlip", "dqn", "dqn+sadq")
    raw = [verdicts.contrast(MEASURES[name], *values, 0, *names) for name, values in comparison.values.items()]
    assert comparison.contrasts == verdicts.corrected(raw) and len(raw) == 3
    assert comparison.outcome == verdicts.overall(comparison.contrasts) == "undecided"  # 6 pairs, three measures
    assert comparison.verdict() == verdicts.verdict("dqn+sadq (α = 0.2)", "dqn", comparison.contrasts)


def test_p_values_are_corrected_over_an_environment(make_run: Make) -> None:
    curves = [(0, 1 + 0.01 * seed) for seed in range(9)]
    better = [(0, 2 + 0.03 * seed) for seed in range(9)]
    folders = [make_run("a", "dqn", curves)] + [
        make_run(f"b{alpha}", "dqn+sadq", better, alphas=[alpha] * 9) for alpha in (0, 1)
    ]
    found = comparisons_of(lines_of(load_all(folders)))
    # Both arms are alike, seed by seed: the same p-value six times, times six by Holm's method.
    assert [one.corrected_p for each in found for one in each.contrasts] == pytest.approx([6 / 256] * 6)
    assert {each.outcome for each in found} == {"better"}
    elsewhere = [make_run(f"c{agent}", agent, curves, environment="Acrobot") for agent in ("iqn", "iqn+sadq")]
    beside = comparisons_of(lines_of(load_all([*folders, *elsewhere])))
    assert [each.contrasts for each in beside[:2]] == [each.contrasts for each in found]


def test_unequal_runs_are_compared_up_to_the_step_both_reached(make_run: Make) -> None:
    base = make_run("base", "dqn", [(0, 2, 50, 90)], config={"steps": 3000})
    guided = make_run("guided", "dqn+sadq", [(0, 4)], finished=False, config={"steps": 3000})
    (comparison,) = comparisons_of(lines_of(load_all([base, guided])))
    assert comparison.until == 1000 and comparison.alike
    assert comparison.values["final_return"] == ({0: 1.0}, {0: 2.0})


def test_twins_of_equal_settings_go_before_others(make_run: Make) -> None:
    rates = [{"learning_rate": 1e-3}, {"learning_rate": 1e-4}]
    base = make_run("base", "dqn", [(0, 1)] * 2, seeds=[0, 0], settings=rates)
    guided = make_run("guided", "dqn+sadq", [(0, 1)] * 2, seeds=[0, 0], settings=rates)
    pairs = [(each.base.indices, each.other.indices) for each in comparisons_of(lines_of(load_all([base, guided])))]
    assert pairs == [((0,), (1,)), ((0,), (0,)), ((1,), (1,))]  # the base's own sweep first, then the twins
    third = make_run("third", "dqn+sadq", [(0, 1)], settings=[{"learning_rate": 0.5}])
    _, *unlike = comparisons_of(lines_of(load_all([base, third])))
    assert [list(each.unlike) for each in unlike] == [["learning_rate"]] * 2


def test_unlike_runs_get_a_warning_and_no_verdict(make_run: Make) -> None:
    small = {"encoder": {"kind": "dense", "hidden": [8]}, "n_step": 3}
    large = {"encoder": {"kind": "dense", "hidden": [16, 16]}, "n_step": 1}
    base = make_run("base", "dueling", [(0, 1 + seed) for seed in range(9)], config=small)
    guided = make_run("guided", "dueling+sadq", [(0, 9 + seed) for seed in range(9)], config=large)
    (comparison,) = comparisons_of(lines_of(load_all([base, guided])))
    assert comparison.outcome == "unlike"
    for words in ("encoder hidden ([8] against [16, 16])", "n-step (3 against 1)", "no verdict"):
        assert words in comparison.verdict()
    assert all(one.comparisons == 1 for one in comparison.contrasts)  # it does not count among those corrected


def test_a_range_that_only_one_head_must_know_makes_no_two_runs_unlike(make_run: Make) -> None:
    ranges = {"dqn": None, "c51": [-18.2, 0.0], "c51+sadq": [-9.0, 0.0], "rainbow": [-9.0, 0.0]}
    folders = [make_run(agent, agent, [(0, 1)] * 2, config={"return_range": span}) for agent, span in ranges.items()]
    found = {each.other.run.agent: list(each.unlike) for each in comparisons_of(lines_of(load_all(folders)))}
    assert found == {"c51": [], "rainbow": [], "c51+sadq": ["return_range"]}
    plain = make_run("plain", "c51", [(0, 1)] * 2, config={"return_range": None})
    (twins,) = comparisons_of(lines_of(load_all([plain, folders[2]])))
    assert list(twins.unlike) == ["return_range"], "of one agent, both have the head"


@pytest.mark.parametrize(
    ("arm", "config"),
    [
        ("dqn:head=categorical", {"head": {"kind": "categorical"}, "return_range": [0.0, 3.0]}),
        ("c51:head.support=[0,9]", {"head": {"kind": "categorical", "support": [0, 9]}, "return_range": None}),
        ("c51:head.atoms=21", {"head": {"kind": "categorical", "atoms": 21}}),
        ("c51:discount=0.9", {"discount": [0.9], "return_range": [0.0, 2.0]}),
        ("c51:reward_scale=0.1", {"reward_scale": 0.1, "return_range": [0.0, 0.3]}),
    ],
)
def test_what_follows_from_a_setting_that_an_arm_declares_is_its_own_too(
    make_run: Make, arm: str, config: dict[str, Any]
) -> None:
    """Else the page would refuse the verdict that the study gives, and correct for fewer comparisons."""
    agent = arm.partition(":")[0]
    held = {"head": None, "discount": [0.99], "reward_scale": 1.0}
    held["return_range"] = None if agent == "dqn" else [0.0, 3.0]
    folders = [make_run("a", agent, [(0, 1)] * 2, config=held, arm=agent)]
    folders += [make_run("b", agent, [(0, 1)] * 2, config=held | config, arm=arm)]
    (comparison,) = comparisons_of(lines_of(load_all(folders)))
    assert comparison.alike
    folders += [make_run("c", agent, [(0, 1)] * 2, config=held | {"return_range": [0.0, 5.0]}, arm=f"{agent}:n_step=1")]
    given = comparisons_of(lines_of(load_all([folders[0], folders[2]])))
    assert list(given[0].unlike) == ["return_range"], "nothing else explains it"


def test_what_a_study_declares_is_an_arm_s_own(make_run: Make) -> None:
    folders = [make_run("a", "dqn", [(0, 1)] * 2, config={"n_step": 1, "batch_size": 64})]
    folders += [make_run("b", "c51", [(0, 1)] * 2, config={"n_step": 3, "batch_size": 32})]
    declared = lines_of(load_all(folders, ["dqn", "c51:n_step=3,batch_size=32"]))
    (comparison,) = comparisons_of(declared)
    assert comparison.alike and comparison.other.spoken == "c51:n_step=3,batch_size=32"
    (part,) = comparisons_of(lines_of(load_all(folders, ["dqn", "c51:n_step=3"])))
    assert list(part.unlike) == ["batch_size"]
    assert comparisons_of(declared, threshold=0.25)[0].threshold == 0.25


def test_a_study_s_run_folders_say_themselves_what_they_declare(make_run: Make) -> None:
    noted = [make_run("a", "dqn", [(0, 1)] * 2, config={"n_step": 1}, arm="dqn")]
    noted += [make_run("b", "c51", [(0, 1)] * 2, config={"n_step": 3}, arm="c51:n_step=3")]
    (comparison,) = comparisons_of(lines_of(load_all(noted)))
    assert comparison.alike and comparison.other.label == "c51:n_step=3"
    (part,) = comparisons_of(lines_of(load_all(noted, ["dqn", "c51"])))
    assert list(part.unlike) == ["n_step"], "what is said here goes before what the folder says"


def test_the_plain_arm_of_equal_settings_is_the_twin_and_else_that_of_the_plain_name(make_run: Make) -> None:
    arms = {"dqn": 1, "dqn:n_step=3": 3, "dqn+sadq:n_step=3": 3, "dqn+sadq:n_step=5": 5}
    folders = [
        make_run(str(index), arm.partition(":")[0], [(0, 1)] * 2, config={"n_step": steps}, arm=arm)
        for index, (arm, steps) in enumerate(arms.items())
    ]
    pairs = [(each.base.label, each.other.label) for each in comparisons_of(lines_of(load_all(folders)))]
    twins = [("dqn:n_step=3", "dqn+sadq:n_step=3"), ("dqn", "dqn+sadq:n_step=5")]
    assert pairs == [("dqn", "dqn:n_step=3"), *twins], "as a study pairs them"


def test_a_study_says_what_is_compared_and_so_what_is_corrected(make_run: Make) -> None:
    arms = ("dqn+sadq", "dqn", "c51")
    folders = [make_run(arm, arm, [(0, 1 + seed / 7) for seed in range(6)]) for arm in arms]
    lines = lines_of(load_all(folders, arms))
    found = comparisons_of(lines, bases={"dqn": "dqn+sadq", "c51": "dqn+sadq"})
    assert [(each.base.label, each.other.label) for each in found] == [("dqn+sadq", "dqn"), ("dqn+sadq", "c51")]
    assert comparisons_of(lines_of(load_all(folders)), bases={"c51": "dqn"}) == [], "none of them is an arm"


def test_other_settings_make_another_environment(make_run: Make) -> None:
    short = make_run("short", "dqn", [(0, 1)], config={"environment_settings": ["max_steps=20"]})
    long = make_run("long", "dqn+sadq", [(0, 1)], config={"environment_settings": ["max_steps=500"]})
    lines = lines_of(load_all([short, long]))
    assert [line.environment for line in lines] == ["BitFlip, max_steps=20", "BitFlip, max_steps=500"]
    assert comparisons_of(lines) == []
    (sentence,) = apart(lines)
    assert "max_steps=20" in sentence and "max_steps=500" in sentence and "kept apart" in sentence


def test_any_against_any(make_run: Make) -> None:
    lines = lines_of(load_all([make_run(agent, agent) for agent in ("c51", "rainbow", "dqn", "dqn+sadq")]))

    def pairs(against: str | None = None, some: slice = slice(None)) -> list[tuple[str, str]]:
        return [(each.base.label, each.other.label) for each in comparisons_of(lines[some], against=against)]

    assert pairs() == [("c51", "rainbow"), ("c51", "dqn"), ("dqn", "dqn+sadq")]
    assert pairs(some=slice(3)) == [("c51", "rainbow"), ("c51", "dqn")]  # no twins: the first is the base
    assert pairs("rainbow") == [("rainbow", "c51"), ("rainbow", "dqn"), ("rainbow", "dqn+sadq")]
    with pytest.raises(SadqError, match="called 'iqn': compare against one of c51, dqn"):
        pairs("iqn")


def test_nothing_learned_has_no_threshold(make_run: Make) -> None:
    lines = lines_of(load_all([make_run("a", "dqn", [(1, 0)]), make_run("b", "c51", [()], environment="Acrobot")]))
    assert thresholds_of(lines) == {"BitFlip": None, "Acrobot": None}


def test_twins_without_a_common_seed(make_run: Make) -> None:
    base, guided = make_run("base", "dqn", [(0, 1)], seeds=[0]), make_run("guided", "dqn+sadq", [(0, 1)], seeds=[1])
    (comparison,) = comparisons_of(lines_of(load_all([base, guided])))
    assert comparison.seeds == () and comparison.outcome == "unknown"


def test_a_mixed_finding_names_what_speaks_against_the_first_of_it(make_run: Make) -> None:
    """Sooner at the threshold and more area, but a lower end: the second measure agrees with the first."""
    curves = {"dqn": [0.0] * 7 + [10.0] * 5, "c51": [0.0] + [9.0] * 11}
    folders = [
        make_run(agent, agent, [[value + seed / 100 for value in curve] for seed in range(8)])
        for agent, curve in curves.items()
    ]
    (comparison,) = comparisons_of(lines_of(load_all(folders)))
    assert [one.outcome for one in comparison.contrasts] == ["better", "better", "worse"]
    assert comparison.outcome == "mixed" and finding(comparison).endswith(" than dqn, but ends lower")

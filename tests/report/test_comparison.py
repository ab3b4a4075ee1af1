"""Scores against numbers worked out by hand; sweeps into lines; twins into pairs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sadq.experiment.scores import area_under_curve, final_return
from sadq.report.comparison import Summary as summarise
from sadq.report.comparison import comparisons_of, lines_of, notes_on
from sadq.report.runs import Run as load
from sadq.report.runs import load_all

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


def test_a_run_of_one_setting_is_one_line(make_run: Make) -> None:
    (line,) = lines_of([load(make_run("a", "dqn+sadq", [(0, 1)] * 3))])
    assert (line.label, line.indices, line.alpha, line.seeds) == ("dqn+sadq", (0, 1, 2), 0.2, [0, 1, 2])


def test_a_sweep_is_a_line_per_value(make_run: Make) -> None:
    run = load(make_run("a", "dqn+sadq", [(0, m) for m in range(4)], seeds=[0, 0, 1, 1], alphas=[0.2, 0.5, 0.2, 0.5]))
    lines = lines_of([run])
    assert [(line.label, line.indices) for line in lines] == [
        ("dqn+sadq, α = 0.2", (0, 2)),
        ("dqn+sadq, α = 0.5", (1, 3)),
    ]
    np.testing.assert_array_equal(lines[1].returns[:, 1], [1, 3])


def test_labels_tell_runs_of_one_agent_apart(make_run: Make) -> None:
    slow = make_run("slow", settings=[{"learning_rate": 1e-4}])
    fast = make_run("fast", settings=[{"learning_rate": 1e-3}])
    assert [line.label for line in lines_of(load_all([slow, fast]))] == [
        "dueling, learning rate = 0.0001",
        "dueling, learning rate = 0.001",
    ]
    again = make_run("again", settings=[{"learning_rate": 1e-3}])
    assert lines_of(load_all([fast, again]))[1].label == "dueling (again)"
    elsewhere = make_run("elsewhere", environment="Acrobot")
    assert [line.label for line in lines_of(load_all([fast, elsewhere]))] == ["dueling", "dueling"]


def test_a_repeated_member_counts_once_and_is_named(make_run: Make) -> None:
    run = load(make_run("a", "dqn", [(0, 1)] * 3, seeds=[0, 1, 1]))
    (line,) = lines_of([run])
    assert line.indices == (0, 1)
    assert any("member 2 repeats" in note for note in notes_on(run, [line]))


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
    other = make_run("other", "dqn+sadq", [(0, 1)])
    far = make_run("far", "dueling+sadq", [(0, 1)], environment="Acrobot")
    (comparison,) = comparisons_of(lines_of(load_all([guided, base, other, far])))
    assert comparison.seeds == (1, 3)
    measured = comparison.measures["final_return"]
    np.testing.assert_array_equal(measured.base_values, [2, 1])
    np.testing.assert_array_equal(measured.guided_values, [3, 4])
    assert measured.difference.differences == (1, 3)
    assert measured.difference.mean.value == 2


def test_a_comparison_repeats_the_intervals_of_the_summaries(make_run: Make) -> None:
    values = [(0, index**1.5) for index in range(9)]
    lines = lines_of(
        load_all([make_run("a", "dqn", values, seeds=[*range(8, -1, -1)]), make_run("b", "dqn+sadq", values)])
    )
    measured = comparisons_of(lines)[0].measures["final_return"]
    assert (measured.base, measured.guided) == tuple(summarise(line).mean["final_return"] for line in lines)


def test_unequal_runs_are_compared_up_to_the_step_both_reached(make_run: Make) -> None:
    base = make_run("base", "dqn", [(0, 2, 50, 90)])
    guided = make_run("guided", "dqn+sadq", [(0, 4)], finished=False)
    (comparison,) = comparisons_of(lines_of(load_all([base, guided])))
    assert comparison.until == 1000
    assert comparison.measures["final_return"].difference.differences == (1,)


def test_twins_of_equal_settings_go_before_others(make_run: Make) -> None:
    rates = [{"learning_rate": 1e-3}, {"learning_rate": 1e-4}]
    base = make_run("base", "dqn", [(0, 1)] * 2, seeds=[0, 0], settings=rates)
    guided = make_run("guided", "dqn+sadq", [(0, 1)] * 2, seeds=[0, 0], settings=rates)
    pairs = [(each.base.indices, each.guided.indices) for each in comparisons_of(lines_of(load_all([base, guided])))]
    assert pairs == [((0,), (0,)), ((1,), (1,))]
    third = make_run("third", "dqn+sadq", [(0, 1)], settings=[{"learning_rate": 0.5}])
    assert len(comparisons_of(lines_of(load_all([base, third])))) == 2


def test_twins_without_a_common_seed(make_run: Make) -> None:
    base, guided = make_run("base", "dqn", [(0, 1)], seeds=[0]), make_run("guided", "dqn+sadq", [(0, 1)], seeds=[1])
    (comparison,) = comparisons_of(lines_of(load_all([base, guided])))
    assert comparison.seeds == () and comparison.measures["final_return"].difference.differences == ()


def test_notes_name_what_is_missing(make_run: Make) -> None:
    folder = make_run("a", "dqn", [(0, 1), (0, float("nan"))], diverged={1: 1234})
    run = load(folder)
    text = " ".join(notes_on(run, lines_of([run])))
    assert "seed 1 diverged at step 1,234" in text and "seed 1 lacks an evaluation" in text
    assert summarise(lines_of([run])[0]).mean["final_return"].count == 1
    lone = load(make_run("b", finished=False, config={"steps": 96000}))
    text = " ".join(notes_on(lone, lines_of([lone])))
    assert "first 1,000 of 96,000 steps" in text and "one seed" in text

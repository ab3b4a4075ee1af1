"""Sweeps into lines, labels that tell them apart, and notes on what is missing."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from sadq.report.comparison import Summary as summarise
from sadq.report.lines import lines_of, notes_on
from sadq.report.runs import Run as load
from sadq.report.runs import load_all

Make = Callable[..., Path]


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


def test_labels_name_any_setting_that_differs_if_they_are_few(make_run: Make) -> None:
    gates = [make_run(name, "dqn+sadq", config={"gate": {"kind": name, "floor": 0.1}}) for name in ("fixed", "sample")]
    assert [line.label for line in lines_of(load_all(gates))] == ["dqn+sadq, gate = fixed", "dqn+sadq, gate = sample"]
    # What guides a target is not there in a plain agent, whatever its config holds.
    plain = [make_run(f"plain-{name}", "dqn", config={"gate": {"kind": name}}) for name in ("fixed", "sample")]
    assert [line.label for line in lines_of(load_all(plain))] == ["dqn (plain-fixed)", "dqn (plain-sample)"]
    many = [make_run(f"many-{value}", "c51", config=dict.fromkeys("abcd", value)) for value in (1, 2)]
    assert [line.label for line in lines_of(load_all(many))] == ["c51 (many-1)", "c51 (many-2)"]


def test_a_fleet_of_games_is_a_line_per_game(make_run: Make) -> None:
    games = [{"game": "Pong"}, {"game": "Alien"}]
    run = make_run("a", "iqn", [(0, 1), (0, 2)], environment="atari/Pong,Alien", seeds=[0, 0], settings=games)
    lines = lines_of(load_all([run]))
    assert [(line.environment, line.label) for line in lines] == [("atari/Pong", "iqn"), ("atari/Alien", "iqn")]


def test_what_an_environment_measures_is_kept(make_run: Make) -> None:
    (line,) = lines_of(load_all([make_run("a", curves=[(0, 1), (0, 1)], measures={"throughput": 10.0})]))
    steps, values = line.measures["throughput"]
    np.testing.assert_array_equal(steps, [0, 1000])
    np.testing.assert_array_equal(values, [[10, 20], [10, 20]])
    assert summarise(line).measured["throughput"].value == 15


def test_notes_name_what_is_missing(make_run: Make) -> None:
    folder = make_run("a", "dqn", [(0, 1), (0, float("nan"))], diverged={1: 1234})
    run = load(folder)
    text = " ".join(notes_on(run, lines_of([run])))
    assert "seed 1 diverged at step 1,234" in text and "seed 1 lacks an evaluation" in text
    assert "are included" not in text  # for one is missing
    assert summarise(lines_of([run])[0]).mean["final_return"].count == 1
    lone = load(make_run("b", finished=False, config={"steps": 96000}))
    text = " ".join(notes_on(lone, lines_of([lone])))
    assert "first 1,000 of 96,000 steps" in text and "one seed" in text

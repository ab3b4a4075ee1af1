"""Where numbers come from: changes to a preset, machines, and the paper's own numbers."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sadq.experiment.presets import preset
from sadq.experiment.records import to_json
from sadq.report import paper
from sadq.report.aggregate import aggregate, normalised
from sadq.report.lines import lines_of
from sadq.report.origins import origins
from sadq.report.runs import load_all

Make = Callable[..., Path]


def made(make_run: Make, name: str, **changes: object) -> Path:
    """A run whose config is the preset's with these changes."""
    config = to_json(preset("bitflip-quick", "dueling")) | changes
    folder = make_run(name, "dueling", environment="BitFlip-6", config={**config, "steps": 1000, "agent": "dueling"})
    header = json.loads((folder / "config.json").read_text()) | {"preset": "bitflip-quick", "python": "3.11.7"}
    header["command"] = ["/somewhere/bin/sadq", "train", "bitflip-quick", "--title", "two words"]
    (folder / "config.json").write_text(json.dumps(header))
    return folder


def test_only_what_differs_from_the_preset_is_shown(make_run: Make) -> None:
    shown = origins(load_all([made(make_run, "changed", batch_size=7, encoder={"kind": "dense", "hidden": [8]})]))
    table = shown.partition("Settings that differ from the preset")[2].partition("</table>")[0]
    for name, before, after in (
        ("batch_size", "128", "7"),
        ("encoder.hidden", "[128, 128, 64]", "[8]"),
        ("steps", "40000", "1000"),
    ):
        assert f'<tr><th scope="row">{name}</th><td>{before}</td><td>{after}</td></tr>' in table
    assert table.count("<tr>") == 4
    assert "3.11.7" in shown and "62 s" in shown


def test_a_command_is_shown_without_the_program_s_place(make_run: Make) -> None:
    shown = origins(load_all([made(make_run, "a")]))
    assert "sadq train bitflip-quick --title &#x27;two words&#x27;" in shown and "/somewhere" not in shown


def test_a_preset_or_agent_of_one_s_own_is_no_error(make_run: Make) -> None:
    assert "the preset bitflip is not known here" in origins(load_all([make_run("a", "my-own")]))
    assert "the preset mine is not known here" in origins(load_all([make_run("b", environment="mine")]))


def test_the_paper_has_a_word_on_its_environments(make_run: Make) -> None:
    assert "far below every baseline" in str(paper.claim("CartPole-v0"))
    assert paper.claim("BitFlip-6, max_steps=9") == paper.claim("Acrobot-v1") != paper.claim("OCloud")
    assert paper.claim("MountainCar-v0") is None
    lines = lines_of(
        load_all([make_run(agent, agent, environment="atari/Breakout") for agent in ("qrdqn", "qrdqn+sadq", "c51")])
    )
    assert paper.scores(lines) == {"qrdqn": 2.0, "qrdqn+sadq": 2.38}


def test_the_paper_s_counts_of_wins_follow_from_its_table() -> None:
    wins = [sum(row[index + 1] > row[index] for row in paper.ATARI.values()) for index in (0, 2, 4)]
    assert len(paper.ATARI) == 24 and wins == [20, 18, 22]
    means = np.mean([*paper.ATARI.values()], axis=0)
    np.testing.assert_allclose(means, [6.31, 7.12, 2.90, 4.69, 5.87, 6.61], atol=0.006)


def test_normalised_scores_have_untrained_agents_at_zero_and_the_best_at_one(make_run: Make) -> None:
    lines = lines_of(load_all([make_run("a", "dqn", [(-100, 0)] * 4), make_run("b", "c51", [(-100, -50)] * 4)]))
    found = normalised(lines)
    assert found is not None  # final returns are -50 and -75, from -100
    np.testing.assert_allclose(found["dqn"], 1)
    np.testing.assert_allclose(found["c51"], 0.5)
    assert normalised(lines_of(load_all([make_run("c", "dqn", [(1, 0)])]))) is None
    games = lines_of(load_all([make_run("d", environment="atari/Pong", measures={"human_normalised": 0.5})]))
    assert normalised(games) == {"dueling": pytest.approx(0.75)}


def test_only_arms_that_every_environment_has_are_aggregated(make_run: Make) -> None:
    places = (("dqn", "BitFlip"), ("dqn", "Acrobot"), ("c51", "BitFlip"))
    lines = lines_of(load_all([make_run(f"{agent}-{place}", agent, environment=place) for agent, place in places]))
    found = aggregate(lines)
    assert found is not None and list(found.strata) == ["dqn"] and found.improvement == {}
    assert aggregate(lines[:1]) is None

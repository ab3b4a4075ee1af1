"""`sadq compare` and `sadq reproduce`: what their words and options mean, and one sentence for whatever is wrong."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from sadq.cli import main as cli
from sadq.core.gates import SampleReliability
from sadq.experiment.presets import preset
from sadq.studies import compare, reproduce
from sadq.studies.sweep import Stopped


def main(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    return ended.value.code


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What a command asks of the studies, which answer without training."""
    seen = {}

    class Answer:
        report, record, words = Path("page"), {"artefact": "alpha"}, ("a table",)
        path = page = Path("place")
        judged = SimpleNamespace(diverged=False)

        def as_dict(self):
            return {"verdict": "none"}

        def __str__(self):
            return "a table"

    def answer(*given, **options):
        seen.update(options, given=given)
        return Answer()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "compare_configs", answer)
    monkeypatch.setattr(reproduce, "reproduce", answer)
    return seen


def test_arms_stand_after_the_preset_and_options_are_shared(asked, capsys):
    assert main("compare", "acrobot-quick", "dqn", "dqn+sadq@0.5", "--gate", "sample", "--steps", "999") == 0
    shared, arms, out = asked["given"]
    assert arms == ["dqn", "dqn+sadq@0.5"]
    assert shared == preset("acrobot-quick", seeds=tuple(range(10)), gate=SampleReliability(), steps=999)
    assert out.parent == Path("runs") and out.name.startswith("compare-acrobot-quick-")
    assert asked["runner"] is None and asked["against"] is None and not asked["quiet"]
    assert capsys.readouterr().out == "a table\nreport: page\n"


def test_a_member_that_diverged_is_in_the_exit_code_as_of_a_run(monkeypatch, tmp_path):
    found = SimpleNamespace(report=Path("page"), judged=SimpleNamespace(diverged=True))
    monkeypatch.setattr(compare, "compare_configs", lambda *_, **__: found)
    assert main("compare", "acrobot", "dqn", "c51", "--seeds", "3", "--out", str(tmp_path)) == cli.DIVERGED


def test_seeds_are_a_number_or_a_list_and_json_is_alone_on_stdout(asked, capsys):
    assert main("compare", "acrobot", "dqn", "c51", "--seeds", "3", "--json") == 0
    assert asked["given"][0].seeds == (0, 1, 2)
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"verdict": "none"} and "a table" in printed.err
    main("compare", "acrobot", "dqn", "c51", "--seeds", "7", "9", "--against", "c51", "--threshold", "-90")
    assert asked["given"][0].seeds == (7, 9) and asked["against"] == "c51" and asked["threshold"] == -90


def test_reproduce_takes_an_artefact(asked, capsys):
    assert main("reproduce", "alpha", "--quick", "--seeds", "3", "--only", "Qbert", "--beside", "gate=batch") == 0
    assert asked["given"] == ("alpha",)
    expected = {"quick": True, "seeds": 3, "only": ("Qbert",), "beside": "gate=batch", "out": None, "runner": None}
    assert {name: asked[name] for name in expected} == expected
    assert capsys.readouterr().out == "a table\nresult: place\nreport: place\n"
    assert not asked["partial"] and asked["pool"] is None
    assert main("reproduce", "alpha", "--pool", "fleets", "--partial", "--json") == 0
    assert asked["partial"] and asked["pool"] == Path("fleets")
    assert json.loads(capsys.readouterr().out) == {"artefact": "alpha"}


@pytest.mark.parametrize(("how", "words"), [(Stopped, "stopped and saved"), (KeyboardInterrupt, "stopped at once")])
def test_a_stopped_study_says_how_to_go_on(how, words, asked, capsys, monkeypatch):
    def stop(*_, **__):
        raise how

    monkeypatch.setattr(reproduce, "reproduce", stop)
    assert main("reproduce", "alpha") == cli.INTERRUPTED
    assert capsys.readouterr().err == f"sadq: {words}; the same command goes on from the newest checkpoints.\n"


def test_a_cluster_is_declared_by_options(asked, monkeypatch):
    made = []
    monkeypatch.setitem(
        __import__("sys").modules, "sadq.studies.on_ray", SimpleNamespace(RayRunner=lambda *given: made.append(given))
    )
    main(
        "compare",
        "acrobot",
        "dqn",
        "c51",
        "--on",
        "ray",
        "--ray-address",
        "auto",
        "--ray-gpus",
        "1",
        "--import",
        "json",
    )
    assert made == [("auto", 1.0, 1.0, ("json",))]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("compare", "`sadq compare` takes a preset and at least two arms"),
        ("compare acrobot dqn", "not ['acrobot', 'dqn']: for instance `sadq compare"),
        ("compare acrobat dqn c51", "Unknown preset or environment 'acrobat'"),
        ("compare acrobot dqn c51 --ray-gpus 1", "--ray-gpus was given without --on ray"),
        ("compare acrobot dqn c51 --sedes 3", "Unknown field --sedes: did you mean --seeds?"),
        ("compare acrobot dqn c51 --seeds 1000000000", "seeds = 1000000000 must be how many, from 1 to 100,000"),
        ("reproduce", "`sadq reproduce` takes the name of an artefact"),
        ("reproduce alfa", "Unknown artefact 'alfa': expected one of motivation"),
        ("reproduce alpha --seeds many", "--seeds cannot be 'many'"),
    ],
)
def test_bad_input_is_one_sentence(line, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(*line.split()) == cli.BAD_INPUT
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and sentence in said[0], said

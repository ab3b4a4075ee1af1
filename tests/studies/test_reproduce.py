"""The paper's artefacts: their plans, in full and cut down, and what a reproduction leaves."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from sadq.errors import SadqError
from sadq.experiment.presets import PAPER_SEEDS, preset
from sadq.studies import artefacts, reproduce, runtime, sweep, tables
from sadq.studies.arms import Arm
from sadq.studies.artefacts import ARTEFACTS
from sadq.studies.curves import extras, metric_curve
from sadq.studies.reproduce import plan

VECTOR = ["motivation", "conventional", "model-frequency", "cartpole", "real-world", "controlled"]
TEN = [*VECTOR, "atari100k", "alpha", "runtime", "theory"]


def test_there_are_the_ten_of_the_paper():
    assert list(ARTEFACTS) == TEN


@pytest.mark.parametrize("name", [name for name in TEN if name != "theory"])
@pytest.mark.parametrize("quick", [False, True])
def test_every_plan_can_be_built_and_its_folders_differ(name, quick):
    parts = plan(name, quick, None, (), None)
    jobs = [job for part in parts for job in part.jobs]
    assert len({job.folder for job in jobs}) == len(jobs) == len({job.name for job in jobs})
    for part in parts:
        paper = preset(part.preset)
        assert set(part.bases) | set(part.bases.values()) in ({arm.label for arm in part.arms}, set())
        for arm, job in zip(part.arms, part.jobs, strict=True):
            assert job.config.environment == paper.environment
            if not quick:
                assert job.config.steps == paper.steps
                assert job.config.seeds == (PAPER_SEEDS if name != "runtime" else (0,))
                assert arm.settings or job.config == preset(
                    part.preset, arm.agent, seeds=job.config.seeds, **_alpha(arm)
                )
            else:
                assert job.config.steps < paper.steps / 20 and len(job.config.seeds) <= 2


def _alpha(arm: Arm) -> dict[str, tuple[float, ...]]:
    return {} if arm.alpha is None else {"alpha": (arm.alpha,)}


def test_the_papers_arms():
    labels = {
        name: [arm.label for arm in plan(name, False, None, (), None)[0].arms] for name in TEN if name != "theory"
    }
    assert len(labels["conventional"]) == 11 and labels["conventional"] == labels["cartpole"]
    assert [label.count("+sadq") for label in labels["controlled"]] == [0, 1] * 4
    assert labels["alpha"] == [f"qrdqn+sadq@{alpha}" for alpha in ("1", "0.8", "0.5", "0.2", "0")]
    counts = [job.config.guidance.updates_per_collect for job in plan("model-frequency", False, None, (), None)[0].jobs]
    assert counts[:4] == [1, 5, 10, 20]
    fractions = [job.config.pacing.fraction for job in plan("runtime", False, None, (), None)[0].jobs]
    assert fractions[1:] == [0.4, 0.2]
    assert len(plan("atari100k", False, None, (), None)) == 26


def test_a_part_of_an_artefact_and_a_rule_beside_the_papers():
    parts = plan("controlled", False, 20, ("bitflip",), "gate=batch")
    assert [part.preset for part in parts] == ["bitflip"]
    labels = [arm.label for arm in parts[0].arms]
    assert labels[8:] == [f"{agent}+sadq:gate=batch" for agent in ("dqn", "double", "dueling", "sunrise")]
    assert parts[0].bases["sunrise+sadq:gate=batch"] == "sunrise" and parts[0].jobs[0].config.seeds == tuple(range(20))
    assert [part.preset for part in plan("alpha", True, None, ("qbert",), None)] == ["atari/Qbert"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("controlled", False, None, ("pong",), None), "--only pong is no part of this artefact"),
        (("motivation", False, None, (), "gate=batch"), "motivation has no guided arm"),
        (("controlled", False, 0, (), None), "seeds = 0 must be at least 1"),
        (("figure-1", False, None, (), None), "Unknown artefact 'figure-1'"),
    ],
)
def test_what_cannot_be_planned_is_said(given, sentence):
    with pytest.raises(SadqError, match=sentence):
        plan(*given)


def test_a_reproduction_leaves_a_record_and_a_page(shared, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "shared_config", lambda name, quick, seeds: shared)
    found = reproduce.reproduce("motivation", quick=True, only=["cartpole"], out=tmp_path, quiet=True)
    assert found.page == tmp_path / "report" / "index.html" and found.page.exists()
    record = json.loads((tmp_path / "result.json").read_text())
    assert record == found.record
    assert record["artefact"] == "motivation" and record["quick"] and set(record["versions"]) >= {"sadq", "jax"}
    assert record["command"].startswith("sadq") and {"commit", "machine"} <= set(record)
    (environment,) = record["environments"]
    (arm,) = environment["arms"]
    assert environment["preset"] == "cartpole" and environment["contrasts"] == []
    assert [member["seed"] for member in arm["members"]] == [0, 1, 2]
    assert arm["curve"]["steps"][-1] == 1600 and len(arm["curve"]["mean"]) == len(arm["curve"]["deviation"]) == 9
    curve = arm["metrics"]["delta_q"]
    assert arm["delta_q_peak"]["value"] == pytest.approx(max(curve["mean"]))
    assert arm["delta_q_peak"]["step"] == curve["steps"][int(np.argmax(curve["mean"]))]
    # Again, with nothing to train, the same numbers.
    monkeypatch.setattr(sweep, "carry_out", lambda *_: pytest.fail("trained again"))
    again = reproduce.reproduce("motivation", quick=True, only=["cartpole"], out=tmp_path, quiet=True)
    assert again.record["environments"] == record["environments"]


def test_the_theory_is_a_table(tmp_path, monkeypatch):
    monkeypatch.setitem(reproduce.THEORY_MDPS, True, 2)
    found = reproduce.reproduce("theory", quick=True, out=tmp_path)
    assert [row["holds"] for row in found.record["claims"]] == [True, True, True, False, False]
    page = found.page.read_text()
    assert "does not hold" in page and "http" not in page
    with pytest.raises(SadqError, match="theory has neither presets nor arms nor seeds"):
        reproduce.reproduce("theory", seeds=3, out=tmp_path)


def outcome(rates: list[float], steps: int, members: int = 1, **more) -> SimpleNamespace:
    """A run whose chunks were equally long and went at these rates."""
    chunk = steps // len(rates)
    rows = [
        {"step": chunk * (index + 1), "member": member, "steps_per_second": rate, "loss": float(index)}
        for index, rate in enumerate(rates)
        for member in range(members)
    ]
    result = {"steps": steps, "wall_seconds": 300.0, "compile_seconds": 30.0, "members": [{}] * members}
    run = SimpleNamespace(metrics=rows, evaluations=more.get("evaluations", []))
    return SimpleNamespace(arm=Arm.parse("qrdqn"), run=run, result=result, seeds=list(range(members)))


def test_ten_million_steps_are_extrapolated_and_say_so():
    # The first half is slower, as before everything is warm; then 100 and 300 steps/s over equally long stretches.
    found = runtime.measure(outcome([10, 10, 100, 300], 100_000), quick=False)
    assert found["steady_steps_per_second"] == 150
    assert found["minutes_100k"] == 5.0 and found["minutes_100k_is"] == "measured, with evaluations"
    assert found["minutes_10m"] == pytest.approx((30 + 10_000_000 / 150) / 60, abs=0.1)
    assert "extrapolated from the steady rate of 100,000 steps" in found["minutes_10m_is"]
    assert (found["paper_minutes_100k"], found["paper_minutes_10m"]) == (4, 434)
    short = runtime.measure(outcome([50, 100], 320, members=2), quick=True)
    assert short["minutes_100k_is"] == "extrapolated from 320 steps"
    assert short["minutes_100k"] == pytest.approx((30 + 200_000 / 100) / 60, abs=0.01)
    said = "\n".join(tables.runtime_table([found]).lines())
    assert "10M steps: extrapolated" in said and "434" in said


def test_curves_are_thinned_to_means_of_stretches():
    found = outcome([1.0] * 200, 200, members=2)
    steps, values = metric_curve(found, "loss")
    assert steps.tolist() == list(range(1, 201)) and values.tolist() == list(range(200))
    found.steps, found.returns = np.array([0, 200]), np.array([[0.0, 1.0], [2.0, 3.0]])
    found.result |= {"steps_per_second": 9.0}
    found.run.evaluations = [
        {"step": 0, "member": member, "measures": {"travel_time": time + member}}
        for time in range(7)
        for member in (0, 1)
    ]
    kept = extras(found, ("loss", "unknown"))
    assert kept["curve"] == {"steps": [0, 200], "mean": [1.0, 2.0], "deviation": [1.0, 1.0]}
    assert list(kept["metrics"]) == ["loss"] and len(kept["metrics"]["loss"]["steps"]) == 50
    assert kept["metrics"]["loss"]["mean"][0] == 1.5 and kept["metrics"]["loss"]["steps"][0] == 4
    assert kept["measures"] == [{"travel_time": 4.0}, {"travel_time": 5.0}], "over the last five evaluations"


def test_the_table_of_artefacts_names_presets_that_exist():
    for name, artefact in ARTEFACTS.items():
        assert set(artefact.quick_presets) <= set(artefact.presets), name
    assert set(artefacts.PAPER_MINUTES) == {arm.label for arm in plan("runtime", False, None, (), None)[0].arms}

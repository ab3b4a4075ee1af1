"""The paper's artefacts: their plans, in full and cut down, and what a reproduction leaves."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sadq.errors import SadqError
from sadq.experiment.presets import PAPER_SEEDS, preset
from sadq.studies import artefacts, reproduce, runtime, sweep, tables
from sadq.studies.arms import Arm
from sadq.studies.artefacts import ARTEFACTS
from sadq.studies.curves import extras, first_peak, metric_table
from sadq.studies.origin import origins
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
    assert parts[0].bases["sunrise+sadq:gate=batch"] == "sunrise" and len(parts[0].bases) == 8
    assert parts[0].jobs[0].config.seeds == tuple(range(20))
    assert [part.preset for part in plan("alpha", True, None, ("qbert",), None)] == ["atari/Qbert"]
    twice = plan("alpha", True, None, ("Qbert", "atari/qbert", "alien"), None)
    assert [part.preset for part in twice] == ["atari/Qbert", "atari/Alien"], "a preset that is named twice is one"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("controlled", False, None, ("pong",), None), "--only pong is no part of this artefact"),
        (("motivation", False, None, (), "gate=batch"), "motivation has no guided arm"),
        (("controlled", False, 0, (), None), "seeds = 0 must be how many, from 1 to 100,000"),
        (("controlled", False, 10**9, (), None), "seeds = 1000000000 must be how many, from 1 to 100,000"),
        (("figure-1", False, None, (), None), "Unknown artefact 'figure-1'"),
    ],
)
def test_what_cannot_be_planned_is_said(given, sentence):
    with pytest.raises(SadqError, match=sentence):
        plan(*given)


@pytest.fixture(scope="module")
def pooled(cache, shared, tmp_path_factory) -> Path:
    """A pool in which motivation's fleet on CartPole (in truth a tiny one) was trained elsewhere."""
    pool = tmp_path_factory.mktemp("pool")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reproduce, "shared_config", lambda name, quick, seeds: shared)
        patched.setattr("sys.argv", ["/bin/sadq", "reproduce", "motivation", "--pool", "/there/pool"])
        patched.setenv("COMMIT", "abc1234")
        reproduce.reproduce("motivation", only=["cartpole"], out=pool.parent / "first", pool=pool, quiet=True)
    return pool


@pytest.fixture
def small(shared, monkeypatch) -> None:
    """Presets are tiny, and nothing may be trained."""
    monkeypatch.setattr(reproduce, "shared_config", lambda name, quick, seeds: dataclasses.replace(shared, seeds=seeds))
    monkeypatch.setattr(sweep, "carry_out", lambda *_: pytest.fail("trained again"))


def test_a_reproduction_leaves_a_record_and_a_page(pooled, small, tmp_path, monkeypatch):
    monkeypatch.setenv("COMMIT", "def5678")
    asked = {"quick": True, "only": ["cartpole"], "seeds": 3, "quiet": True, "pool": pooled}
    found = reproduce.reproduce("motivation", out=tmp_path, **asked)
    assert found.page == tmp_path / "report" / "index.html" and found.page.exists()
    record = json.loads((tmp_path / "result.json").read_text())
    assert record == found.record
    assert record["artefact"] == "motivation" and record["quick"] and record["missing"] == {}
    assert record["judged"]["commit"] == "def5678" and set(record["judged"]["versions"]) >= {"sadq", "jax"}
    (made,) = record["origins"]
    assert made["commit"] == "abc1234", "where it was trained, not where it was judged"
    assert made["command"] == "sadq reproduce motivation --pool FOLDER" and made["fleets"] == 1
    assert "cpu" in made["device"] and set(made["versions"]) == {"sadq", "python", "jax"}
    assert json.loads((pooled / "cartpole" / "dqn" / "config.json").read_text())["arm"] == "dqn"
    (environment,) = record["environments"]
    (arm,) = environment["arms"]
    assert environment["preset"] == "cartpole" and environment["contrasts"] == []
    members = arm["members"]
    assert members["seed"] == [0, 1, 2] and {len(column) for column in members.values()} == {3}
    assert environment["steps"][-1] == 1600 and len(arm["curve"]["mean"]) == len(arm["curve"]["deviation"]) == 9
    assert np.mean(members["first_return"]) == pytest.approx(arm["curve"]["mean"][0])
    assert all(best >= last for best, last in zip(members["best_return"], members["final_return"], strict=True))
    curve = arm["metrics"]["delta_q"]
    peak = first_peak(np.array(curve["mean"]))
    assert arm["delta_q_peak"] == {"step": curve["steps"][peak], "value": curve["mean"][peak]}
    again = reproduce.reproduce("motivation", out=tmp_path, **asked)
    assert again.record["environments"] == record["environments"]


def test_a_part_is_judged_with_what_there_is_and_the_rest_is_named(pooled, small, tmp_path):
    found = reproduce.reproduce("model-frequency", out=tmp_path, pool=pooled, partial=True, quiet=True)
    (environment,) = found.record["environments"]
    assert [arm["arm"] for arm in environment["arms"]] == ["dqn"] and environment["contrasts"] == []
    missing = [*artefacts.FREQUENCIES, "c51"]
    assert found.record["missing"] == {"cartpole": missing}
    assert found.words[-1] == f"Missing on cartpole: {', '.join(missing)}."
    motivation = reproduce.reproduce("motivation", out=tmp_path, pool=pooled, partial=True, quiet=True)
    assert motivation.record["missing"] == {"acrobot": ["dqn"]}
    with pytest.raises(SadqError, match="holds a run with another seeds"):
        reproduce.reproduce("motivation", out=tmp_path, pool=pooled, partial=True, seeds=5, quiet=True)
    with pytest.raises(SadqError, match="Nothing of this is finished below .*: train it by the same command"):
        reproduce.reproduce("real-world", out=tmp_path, pool=pooled, partial=True, quiet=True)


def test_a_place_for_the_record_is_looked_for_before_anything_is_trained(pooled, small, tmp_path):
    (tmp_path / "file").write_text("")
    asked = {"only": ["cartpole"], "quiet": True}
    with pytest.raises(SadqError, match="file/result.json cannot be written: .*; give another folder with --out"):
        reproduce.reproduce("motivation", out=tmp_path / "file", pool=tmp_path / "pool", **asked)
    with pytest.raises(SadqError, match="holds a run with another seeds"):
        reproduce.reproduce("motivation", out=tmp_path / "out", pool=pooled, seeds=5, **asked)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_an_arm_without_its_base_is_compared_with_nothing(pooled, small):
    (part,) = plan("cartpole", False, None, (), None)
    there = part.finished(pooled)
    assert [arm.label for arm in there.arms] == ["dqn"] and there.bases == {}
    assert part.bases["dqn"] == artefacts.SADQ


def test_origins_are_told_apart_and_folders_are_nobodys():
    one = {"command": ["/x/sadq", "compare", "--out=a"], "commit": "1", "device": "gpu", "sadq": "0", "jax": "1"}
    fleets = [
        one | {"preset": preset, "command": ["/y/benchmarks/fleets.py", "--out", "b", f"{preset}/dqn"]}
        for preset in ("acrobot", "bitflip")
    ]
    found = origins([one, *fleets, one, {}])
    assert [each["fleets"] for each in found] == [2, 2, 1]
    alone = "python benchmarks/fleets.py --out FOLDER PRESET/ARM"
    assert [each["command"] for each in found] == ["sadq compare --out FOLDER", alone, None]
    assert found[0]["versions"] == {"sadq": "0", "python": None, "jax": "1"}


def test_the_theory_is_a_table(tmp_path, monkeypatch):
    monkeypatch.setitem(reproduce.THEORY_MDPS, True, 2)
    found = reproduce.reproduce("theory", quick=True, out=tmp_path)
    assert [row["holds"] for row in found.record["claims"]] == [True, True, True, False, False]
    page = found.page.read_text()
    assert "does not hold" in page and "http" not in page
    (tmp_path / "file").write_text("")
    with pytest.raises(SadqError, match="file/report/index.html cannot be written .*: give another folder with --out"):
        reproduce.reproduce("theory", quick=True, out=tmp_path / "file")
    with pytest.raises(SadqError, match="theory has neither presets nor arms nor seeds"):
        reproduce.reproduce("theory", seeds=3, out=tmp_path)
    for given in ({"pool": tmp_path}, {"partial": True}, {"runner": print}):
        with pytest.raises(SadqError, match="theory trains nothing: leave --pool, --partial and --on out"):
            reproduce.reproduce("theory", quick=True, out=tmp_path, **given)
    with pytest.raises(SadqError, match="file is a file, expected a folder of runs: give another one with --pool"):
        reproduce.reproduce("motivation", quick=True, out=tmp_path, pool=tmp_path / "file")


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


def test_the_parameters_of_a_model_are_counted_without_making_it():
    assert runtime.model_parameters(preset("acrobot", "dqn")) is None
    sizes = [9, 256, 256]  # Acrobot's six numbers and three actions; two hidden layers
    hidden = sum(before * after + after for before, after in zip(sizes, sizes[1:], strict=False))
    heads = 2 * (256 * 6 + 6) + 256 + 1  # means, variances, a reward
    assert runtime.model_parameters(preset("acrobot", "dqn+sadq")) == hidden + heads


def test_curves_are_thinned_to_means_of_stretches():
    found = outcome([1.0] * 200, 200, members=2)
    steps, values = metric_table(found, "loss")
    assert steps.tolist() == list(range(1, 201)) and values.tolist() == [list(range(200))] * 2
    found.steps, found.returns = np.array([0, 200]), np.array([[0.0, 1.0], [2.0, 3.0]])
    found.result |= {"steps_per_second": 9.0}
    found.config = SimpleNamespace(learning_starts=0, collect=10, updates_per_collect=3)
    found.run.evaluations = [
        {"step": 0, "member": member, "measures": {"travel_time": time + member}, "overestimation": None}
        for time in range(7)
        for member in (0, 1)
    ]
    kept = extras(found, ("loss", "unknown"))
    assert kept["curve"] == {"steps": [0, 200], "mean": [1.0, 2.0], "deviation": [1.0, 1.0]}
    assert kept["updates"] == {"value": 60, "model": None}
    assert list(kept["metrics"]) == ["loss"] and len(kept["metrics"]["loss"]["steps"]) == 50
    assert kept["metrics"]["loss"]["mean"][0] == 1.5 and kept["metrics"]["loss"]["steps"][0] == 4
    assert kept["measures"] == {"travel_time": [4.0, 5.0]}, "over the last five evaluations"


def course(metrics: dict[str, list[list[float]]], returns: list[list[float]], **config) -> SimpleNamespace:
    """A run of so many members by its metrics [M][T], a row every 100 steps, and its returns [M][S]."""
    members = range(len(returns))
    rows = [
        {"step": 100 * (index + 1), "member": member} | {name: table[member][index] for name, table in metrics.items()}
        for index in range(len(next(iter(metrics.values()))[0]))
        for member in members
    ]
    evaluations = [
        {"step": 100 * index, "member": member, "overestimation": float(index + member)}
        for index in range(len(returns[0]))
        for member in members
    ]
    settings = {"learning_starts": 0, "collect": 100, "updates_per_collect": 3} | config
    settings["guidance"] = SimpleNamespace(updates_per_collect=2)
    return SimpleNamespace(
        arm=Arm.parse("dqn+sadq"),
        run=SimpleNamespace(metrics=rows, evaluations=evaluations),
        result={"wall_seconds": 1.0, "compile_seconds": 0.5, "steps_per_second": 9.0},
        config=SimpleNamespace(**settings),
        seeds=list(members),
        steps=100 * np.arange(len(returns[0])),
        returns=np.array(returns, np.float64),
    )


def test_a_course_comes_to_the_numbers_that_claims_are_about():
    falling = [10.0 ** -min(index, 4) for index in range(20)]  # 1, 0.1, ... and from the fifth row on 1e-4
    flat = [1.0] * 20
    peaked = [1.0, 5.0, *[2.0] * 18]
    up_and_down = [0.0, *[10.0] * 5, *[4.0, 6.0] * 5]
    found = extras(
        course({"delta_q": [peaked, flat], "model_state_loss": [falling, flat]}, [up_and_down, [1.0] * 16]),
        ("delta_q",),
    )
    members = found["members"]
    assert members["first_return"] == [0, 1] and members["best_return"] == [10, 1]
    assert members["late_fluctuation"] == pytest.approx([2**0.5, 0], abs=1e-5), (
        "from 4 to 6 and back over the second half"
    )
    assert members["overestimation"] == [13, 14], "over the last five evaluations"
    assert members["delta_q_peak"] == [5, 1] and members["delta_q_peak_step"] == [200, 100]
    assert members["delta_q_dip"] == [2, 1] and members["settled_step"] == [200, None]
    assert members["delta_q_last"] == [2, 1] and found["delta_q_peak"] == {"step": 200, "value": 3.0}
    assert members["model_loss_first"] == [1, 1] and members["model_loss_last"] == pytest.approx([1e-4, 1])
    assert members["model_loss_log10"] == pytest.approx([-(1 + 2 + 3 + 4 * 16) / 20, 0])
    # 90% of a fall by four powers of ten is met with the fourth, at step 500 after five collects of two updates each.
    assert members["model_updates_log"] == [10, None], "what never fell has not converged"
    assert members["model_updates_linear"] == [6, None], "95% of the fall itself with the second"
    assert list(found["metrics"]) == ["delta_q"] and found["updates"] == {"value": 45, "model": 30}


def test_a_first_peak_is_one_that_is_followed_by_a_fall():
    assert first_peak(np.array([1.0, 3.0, 2.9, 3.1, 2.0, 5.0, 6.0])) == 3, "2.9 is too little of a fall"
    assert first_peak(np.array([1.0, 2.0, 1.95, 3.0])) == 3, "where it never falls, the greatest"
    assert first_peak(np.array([1.0, 0.2, 3.0, 4.0, 3.0, 2.0])) == 3, "untrained networks may spread, too"


def test_the_table_of_artefacts_names_presets_that_exist():
    for name, artefact in ARTEFACTS.items():
        assert set(artefact.quick_presets) <= set(artefact.presets), name
    assert set(artefacts.PAPER_MINUTES) == {arm.label for arm in plan("runtime", False, None, (), None)[0].arms}

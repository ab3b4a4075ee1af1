"""The command line: what it prints, how it exits, and one sentence for whatever is wrong."""

import errno
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiment"))

import tiny_runs
from tiny_runs import TINY, options

from sadq.agents import AGENTS
from sadq.cli import commands
from sadq.cli import main as cli
from sadq.core.gates import BatchReliability
from sadq.experiment import checkpoint, opening, progress, run, storage
from sadq.experiment.config import Config
from sadq.experiment.presets import PRESETS
from sadq.networks import Scalar

ABOUT_TO_RUN = re.compile(
    r"sadq: \S+ on \S+: \d+ members of [\d,]+ steps, replay [\d,.]+ MB|step [\d,]+/[\d,]+, ETA .*"
    r"|sadq: environment \S+ names no time limit: .*"
)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with tiny_runs.compilation_cache(tmp_path_factory.getbasetemp()) as home:
        yield home


def main(*arguments: str | Path) -> int | str | None:
    """The exit code, in this process."""
    with pytest.raises(SystemExit) as exit:
        cli.main([str(argument) for argument in arguments])
    return exit.value.code


@pytest.fixture
def refusal(capsys):
    """Runs the command line, which must refuse with exit code 2 and one line; returns the sentence."""

    def refused(*arguments: str | Path) -> str:
        assert main(*arguments) == 2
        printed = capsys.readouterr()
        said = [line for line in printed.err.splitlines() if not ABOUT_TO_RUN.fullmatch(line)]
        assert printed.out == ""
        assert len(said) == 1, printed.err
        assert said[0].startswith("sadq: ")
        return said[0].removeprefix("sadq: ")

    return refused


@pytest.fixture(scope="module")
def trained(cache, tmp_path_factory) -> tuple[Path, dict, str]:
    """(run folder, what --json printed on the last line, what was said beside it) of the tiny run."""
    path = tmp_path_factory.mktemp("cli") / "run"
    finished = tiny_runs.command("train", "bitflip", "sadq", *options(out=path), "--json")
    assert finished.returncode == 0, finished.stderr
    return path, json.loads(finished.stdout.splitlines()[-1]), finished.stderr


@pytest.fixture
def planned(monkeypatch, tmp_path):
    """The config that a `sadq train` line stands for, without running it."""

    def config_of(*arguments: str) -> Config:
        seen = []
        monkeypatch.setattr(commands, "_drive", lambda experiment, *_: seen.append(experiment.config) or 0)
        assert main("train", *arguments, "--out", tmp_path / str(len(list(tmp_path.iterdir())))) == 0
        return seen[0]

    return config_of


def test_training_ends_with_the_result_as_json_on_the_last_line(trained):
    path, result, said = trained
    assert result == json.loads((path / "result.json").read_text())
    assert result["run"] == str(path)
    assert result["steps"] == TINY.steps
    assert all(result[name] > 0 for name in ("wall_seconds", "compile_seconds", "steps_per_second"))
    assert [(member["seed"], member["alpha"], member["status"]) for member in result["members"]] == [
        (0, 0.2, "ok"),
        (1, 0.2, "ok"),
    ]
    diagnostics = {
        "final_return",
        "area_under_curve",
        "training_return",
        "delta_q",
        "disagreement",
        "greedy_minus_mixed",
        "overestimation",
        "model_state_loss",
        "model_reward_loss",
        "model_sigma",
        "effective_alpha",
    }
    assert all(isinstance(member[name], float) for member in result["members"] for name in diagnostics)


def test_training_tells_what_it_will_run_and_how_far_it_is_on_stderr(trained):
    _, _, said = trained
    first, *rest = said.splitlines()
    assert re.fullmatch(r"sadq: dueling\+sadq on BitFlip-3: 2 members of 8,000 steps, replay 0\.0 MB", first)
    assert re.fullmatch(r"step 8,000/8,000, ETA 0 s, [\d,]+ steps/s, return \d\.\d\d", rest[-1])


def test_without_json_the_result_is_told_in_words_and_quiet_hides_the_progress(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main("train", "bitflip", "sadq", *options(), "--quiet") == 0
    printed = capsys.readouterr()
    (path,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"bitflip-dueling\+sadq-\d{8}-\d{6}-\d+", path.name)
    words = printed.out.splitlines()
    assert re.fullmatch(r"seed 0, alpha 0\.2: final return \d\.\d\d \(ok\)", words[0])
    assert re.search(rf"^8,000 steps of 2 members in .* run folder: runs/{re.escape(path.name)}$", words[-1])
    assert len(printed.err.splitlines()) == 1


def test_members_of_a_fleet_of_games_are_told_apart(capsys):
    member = {"game": "Pong", "seed": 3, "alpha": 0.2, "final_return": -20.5, "status": "ok"}
    result = {"steps": 1, "wall_seconds": 1.0, "steps_per_second": 1.0, "compile_seconds": 0.0, "run": "x"}
    commands._tell_result(result | {"members": [member, member | {"game": "Hero"}]}, False)
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in told[:2]] == ["Pong, seed 3, alpha 0.2", "Hero, seed 3, alpha 0.2"]


def test_evaluating_plays_the_newest_checkpoint(trained, capsys):
    path, _, _ = trained
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    assert main("evaluate", path, "--episodes", "2", "--json") == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["run"], result["step"], result["episodes"]) == (str(path), TINY.steps, 2)
    for member in result["members"]:
        assert len(member["returns"]) == 2
        assert member["mean_return"] == pytest.approx(sum(member["returns"]) / 2)
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


def test_evaluating_tells_each_members_return_in_words(trained, capsys):
    assert main("evaluate", trained[0], "--episodes", "2") == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2
    assert re.fullmatch(
        r"seed 0, alpha 0\.2: return \d\.\d\d \+- \d\.\d\d over 2 episodes, mean length \d\.\d", said[0]
    )


def test_a_diverged_member_ends_the_run_with_exit_code_3(tmp_path, capsys):
    path = tmp_path / "run"
    arguments = options(out=path, seeds="1", learning_rate="0.001 1e30")
    assert main("train", "bitflip", "sadq", *arguments, "--json") == 3
    printed = capsys.readouterr()
    healthy, diverged = json.loads(printed.out.splitlines()[-1])["members"]
    assert (healthy["status"], healthy["diverged_at"]) == ("ok", None)
    assert diverged["status"] == "diverged"
    named = [line for line in printed.err.splitlines() if "diverged" in line]
    assert len(named) == 1
    assert named[0].startswith(f"sadq: Member 1 (seed 0) diverged at step {diverged['diverged_at']}: ")
    assert main("resume", path) == 3, "finished, and still diverged"
    assert "nothing to resume" in capsys.readouterr().err


def test_listing_shows_presets_agents_and_environments(capsys):
    assert main("list") == 0
    shown = capsys.readouterr().out
    for name in (*PRESETS, *AGENTS, "CartPole-v0", "Acrobot-v1", "BitFlip", "+sadq"):
        assert re.search(rf"(^|\W){re.escape(name)}(\W|$)", shown), name
    assert main("list", "agents") == 0
    shown = capsys.readouterr().out
    assert all(re.search(rf"(^|\W){name}(\W|$)", shown) for name in AGENTS) and "CartPole-v0" not in shown


def test_the_package_is_a_program_too():
    finished = tiny_runs.command("list", "presets")
    assert finished.returncode == 0
    assert "960,000 steps, 5 seeds" in finished.stdout
    assert finished.stderr == ""


def test_a_refusal_in_a_process_of_its_own_is_one_line_without_a_traceback():
    finished = tiny_runs.command("train", "cartpol")
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert re.fullmatch(r"sadq: Unknown preset or environment 'cartpol': .*did you mean cartpole.*\n", finished.stderr)


def test_help_and_version_exit_0(capsys):
    assert main("--help") == 0
    shown = capsys.readouterr().out
    assert all(f"sadq {command} " in shown for command in ("train", "resume", "evaluate", "report", "watch", "list"))
    assert main("--version") == 0
    assert re.fullmatch(r"sadq \S+\n", capsys.readouterr().out)


@pytest.mark.parametrize("command", ["train", "resume", "evaluate"])
def test_every_command_has_help_of_its_own(command, capsys):
    assert main(command, "--help") == 0
    shown = capsys.readouterr().out
    assert "--json" in shown
    if command == "train":
        assert all(name in shown for name in ("--seeds", "--alpha", "--gate", "--epsilon.decay", "--out"))


def test_no_command_at_all_shows_the_usage_and_exits_2(capsys):
    assert main() == 2
    assert "usage: sadq COMMAND" in capsys.readouterr().out


def test_a_single_seed_is_a_count_and_several_are_a_list(planned):
    assert planned("cartpole", "--seeds", "3").seeds == (0, 1, 2)
    assert planned("cartpole", "--seeds", "4", "7").seeds == (4, 7)
    assert planned("cartpole").seeds == (0, 1, 2, 3, 4)


def test_a_count_of_seeds_may_be_joined_to_its_flag(planned):
    assert planned("cartpole", "--seeds=3").seeds == (0, 1, 2)


def test_any_field_can_be_given_also_several_values_of_those_that_sweep(planned):
    config = planned(
        "cartpole",
        "double+sadq",
        "--alpha", "0", "0.5", "1",
        "--learning-rate", "1e-3", "1e-4",
        "--gate", "batch",
        "--epsilon.decay", "7",
        "--head.huber", "1",
        "--no-time-limit-is-terminal",
        "--steps", "640",
    )  # fmt: skip
    assert (config.preset, config.agent, config.steps) == ("cartpole", "double+sadq", 640)
    assert (config.alpha, config.learning_rate) == ((0.0, 0.5, 1.0), (1e-3, 1e-4))
    assert (config.gate, config.epsilon.decay, config.head) == (BatchReliability(), (7.0,), Scalar(1.0))
    assert config.time_limit_is_terminal is False
    assert (config.model, config.guidance) == (PRESETS["cartpole"].model, PRESETS["cartpole"].guidance)


def test_a_gymnasium_id_stands_for_the_default_preset(planned):
    config = planned("MountainCar-v0", "dqn", "--steps", "100")
    assert (config.preset, config.environment, config.agent) == ("default", "MountainCar-v0", "dqn")
    assert config.alpha is None


def test_deterministic_asks_the_compiler_for_repeatable_kernels(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_max_hlo_modules=1")
    commands.prepare_jax(True)
    assert os.environ["XLA_FLAGS"] == "--xla_dump_max_hlo_modules=1 --xla_gpu_deterministic_ops=true"


BAD_LINES = {
    "bogus": "Unknown command 'bogus': expected train, resume",
    "train": "`sadq train` takes a preset and an agent: for instance `sadq train cartpole sadq`",
    "train --steps 3": "`sadq train` takes a preset and an agent, not []",
    "train cartpole dqn too-much": "`sadq train` takes a preset and an agent, not ['cartpole', 'dqn', 'too-much']",
    "train cartpol": "Unknown preset or environment 'cartpol'",
    "train Nothing-v7": "Unknown preset or environment 'Nothing-v7'",
    "train gymnasium:Nothing-v7": "unknown environment 'Nothing-v7'",
    "train no_such_module:Thing-v0": "environment no_such_module:Thing-v0 could not be made: ModuleNotFoundError",
    "train BitFlip-0": "BitFlip got bits=0, expected 1 to 30",
    "train cartpole ppo": "Unknown agent 'ppo': expected one of dqn, double, dueling",
    "train cartpole sadq+sadq": "Unknown agent 'sadq+sadq'",
    "train cartpole --stepz 4": "Unknown field --stepz: did you mean --steps?",
    "train cartpole --model.los nll": "Unknown field --model.los: did you mean --model.loss?",
    "train cartpole --zzz": "Unknown field --zzz: `sadq train PRESET [AGENT] --help` lists the fields.",
    "train cartpole --steps many": "--steps cannot be 'many': it takes a whole number",
    "train cartpole --steps 1.5": "--steps cannot be '1.5': it takes a whole number",
    "train cartpole --steps": "--steps cannot be 'nothing': it takes a whole number",
    "train cartpole --steps 0": "steps = 0 must be a whole number of at least 1.",
    "train cartpole --json yes": "Unknown agent 'yes': expected one of dqn",
    "train cartpole dqn --json yes": "`sadq train` takes a preset and an agent, not ['cartpole', 'dqn', 'yes']",
    "train cartpole --seeds 0": "seeds = 0 must be how many, from 1 to 100,000",
    "train cartpole --seeds 1 1": "A seed appears twice",
    "train cartpole --seeds -2": "Seeds (-2,) must lie in",
    "train cartpole --seeds one": "--seeds cannot be 'one'",
    "train cartpole --learning-rate fast": "--learning-rate cannot be 'fast'",
    "train cartpole --learning-rate 1e-3 fast": "Unknown agent 'fast'",
    "train cartpole --gate maybe": "gate = 'maybe' is unknown: expected fixed, batch, sample",
    "train cartpole --replay lifo": "replay = 'lifo' is unknown: expected uniform, prioritised",
    "train cartpole --epsilon.schedule cosine": "--epsilon.schedule cannot be 'cosine': it takes Literal['exponential'",
    "train cartpole --alpha 1.5": "alpha = (1.5,) must lie in [0, 1]",
    "train cartpole --alpha 0.5 -0.1": "alpha = (0.5, -0.1) must lie in [0, 1]",
    "train cartpole --alpha nan": "alpha = (nan,) must lie in [0, 1]",
    "train cartpole sadq --alpha None": "Agent dueling+sadq needs alpha",
    "train cartpole dqn --alpha 0.5": "alpha = 0.5 was given, but dqn is a plain agent that has none: use dqn+sadq",
    "train cartpole --collect 81": "collect = 81 must be a multiple of environments = 8",
    "train cartpole --buffer-size 2000000000 --seeds 1000": "The fleet needs ",
    "train cartpole --buffer-size 1000000000000": "buffer_size = 1000000000000 must be below 2^31: counters have 32 bits.",
    "train Pendulum-v1": "environment Pendulum-v1 has action space Box(-2.0, 2.0, (1,), float32), expected Discrete",
    "train odd_environments:Image-v0": "Image-v0 returned an observation of shape (4,) from reset, expected shape (8, 8, 3)",
    "train odd_environments:FaultyReset-nan-v0": "returned the observation array([nan, nan, nan, nan]",
    "train odd_environments:FaultyReset-shape-v0": "returned an observation of shape (2,) from reset, expected shape (4,)",
    "train odd_environments:FaultyReset-bare-v0": "from reset, expected (observation, info)",
    "resume": "`sadq resume` takes a run folder",
    "resume --json": "sadq resume cannot read",
    "resume nowhere": "nowhere is no run folder: it has no config.json",
    "resume nowhere --jsn": "Unknown field --jsn: did you mean --json?",
    "evaluate nowhere": "nowhere is no run folder",
    "evaluate nowhere --episodes 0": "episodes = 0 must be at least 1.",
    "evaluate nowhere --episodes few": "--episodes cannot be 'few': it takes a whole number",
    "evaluate nowhere more --policy random": "sadq evaluate has no place for 'more', the last of nowhere more: see",
    "report nowhere": "nowhere is not a folder, so it is not a run",
    "report nowhere --figures gif": "--figures cannot be 'gif'",
    "report nowhere --threshold=high": "--threshold cannot be 'high'",
    "watch nowhere": "nowhere is not a folder, so there is no run to watch",
    "watch . --refresh 0": "refresh = 0.0 must be above 0 seconds.",
    "watch . --port 99999": "Port 99999 cannot be used",
    "list everything": "Cannot list 'everything': expected presets, agents, axes, environments, artefacts.",
}


@pytest.mark.parametrize(("line", "sentence"), BAD_LINES.items(), ids=BAD_LINES)
def test_a_bad_line_is_refused_in_one_sentence_and_leaves_nothing(line, sentence, refusal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sentence in refusal(*line.split())
    assert list(tmp_path.iterdir()) == []


FAULTS = {
    "observation": "Faulty-observation-v0 returned the observation array([nan, nan, nan, nan]",
    "reward": "Faulty-reward-v0 returned the reward nan from step, expected a number finite in float32",
    "shape": "Faulty-shape-v0 returned an observation of shape (3,) from step, expected shape (4,)",
    "tuple": "Faulty-tuple-v0 returned a tuple of 4",
    "exception": "Faulty-exception-v0 returned None from step",
}


@pytest.mark.parametrize(("fault", "sentence"), FAULTS.items(), ids=FAULTS)
def test_an_environment_that_breaks_the_contract_in_a_step_is_refused_in_one_sentence(
    fault, sentence, refusal, tmp_path
):
    name = f"odd_environments:Faulty-{fault}-v0"
    fields = options(out=tmp_path / "run", environment=name, n_step="None", replay="None")
    assert sentence in refusal("train", "default", "dqn", *fields)


def test_a_folder_that_holds_a_run_is_refused(trained, refusal):
    path, _, _ = trained
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    sentence = refusal("train", "bitflip", "sadq", *options(out=path))
    assert sentence == (
        f"{path} already holds a run: continue it with `sadq resume {path}`, or give another folder with --out."
    )
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


def test_a_place_that_cannot_be_written_is_refused(refusal, tmp_path):
    (tmp_path / "file").touch()
    sentence = refusal("train", "bitflip", "sadq", *options(out=tmp_path / "file" / "run"))
    assert sentence.startswith("Cannot write a run to ")


def test_a_sweep_over_no_values_is_refused(refusal, tmp_path):
    assert "learning" in refusal("train", "bitflip", "sadq", *options(out=tmp_path / "run", learning_rate=""))


@pytest.fixture
def unfinished(trained, tmp_path) -> Path:
    """A run with its checkpoints but no result, to be damaged."""
    path = tiny_runs.copied(trained[0], tmp_path / "run")
    (path / "result.json").unlink()
    return path


def cut(newest: Path) -> None:
    (newest / checkpoint.TENSORS).write_bytes((newest / checkpoint.TENSORS).read_bytes()[:1000])


def flip(newest: Path) -> None:
    content = bytearray((newest / checkpoint.TENSORS).read_bytes())
    content[len(content) // 2] ^= 4
    (newest / checkpoint.TENSORS).write_bytes(content)


def swap(newest: Path) -> None:
    tiny_runs.store(newest, {"state.nothing": checkpoint.np.zeros(3)})


@pytest.mark.parametrize("command", ["resume", "evaluate"])
@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (cut, "is damaged: state.safetensors does not match its checksum"),
        (flip, "is damaged: state.safetensors does not match its checksum"),
        (swap, "does not belong to this run"),
        (lambda newest: (newest / checkpoint.META).write_text("{"), "cannot be read"),
    ],
    ids=["truncated", "corrupt", "foreign", "garbage"],
)
def test_a_bad_checkpoint_is_refused_in_one_sentence(command, damage, sentence, unfinished, refusal):
    damage(checkpoint.latest(unfinished / "checkpoints"))
    extra = ["--episodes", "2"] if command == "evaluate" else []
    assert sentence in refusal(command, unfinished, *extra)


@pytest.mark.parametrize("content", [b"{half", b"[]", b'{"format": 7}', b'{"format": 2, "config": {"stepz": 3}}'])
def test_a_bad_config_is_refused_in_one_sentence(content, unfinished, refusal):
    (unfinished / "config.json").write_bytes(content)
    assert "config" in refusal("resume", unfinished)


def test_a_run_without_a_checkpoint_cannot_be_evaluated(unfinished, refusal):
    tiny_runs.shutil.rmtree(unfinished / "checkpoints")
    assert "has no checkpoint yet: let the run go on with `sadq resume" in refusal("evaluate", unfinished)


def test_a_full_disk_while_saving_is_refused_in_one_sentence(refusal, tmp_path, monkeypatch):
    sync = storage.sync

    def full(path):
        if path.name == checkpoint.TENSORS:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(path)

    monkeypatch.setattr(storage, "sync", full)
    sentence = refusal("train", "bitflip", "sadq", *options(out=tmp_path / "run"))
    assert "the disk is full: make room and start again." in sentence
    assert tiny_runs.leftovers(tmp_path / "run") == []


def test_ctrl_c_before_the_first_step_is_one_sentence_too(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run.Experiment, "begin", lambda self: os.kill(os.getpid(), signal.SIGINT))
    # A shell that starts the tests in the background may have told them to ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = main("train", "bitflip", "sadq", *options(out=tmp_path / "run"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 130
    assert (tmp_path / "run" / "config.json").exists()


def test_a_terminal_gets_a_bar_with_what_is_done_and_what_is_left(monkeypatch, capsys):
    experiment = opening.create(TINY, None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    with progress.display(experiment) as update:
        update(run.Progress(4_000, TINY.steps, 0.5, 12_345.0, []))
    shown = capsys.readouterr().err
    assert all(text in shown for text in ("dueling+sadq", "4,000/8,000", "ETA", "12,345 steps/s", "return 0.50"))


def test_a_log_gets_a_line_now_and_then_and_one_at_the_end(monkeypatch, capsys):
    experiment, clock = opening.create(TINY, None), iter([0.0, 1.0, 20.0, 21.0, 22.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.display(experiment) as update:
        for step in (200, 2_000, 2_200, TINY.steps):
            update(run.Progress(step, TINY.steps, None, 100.0, []))
    assert capsys.readouterr().err.splitlines() == [
        "step 2,000/8,000, ETA 60 s, 100 steps/s, return -",
        "step 8,000/8,000, ETA 0 s, 100 steps/s, return -",
    ]

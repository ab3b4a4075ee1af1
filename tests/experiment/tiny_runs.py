"""The smallest run that still has everything a resume must restore, and ways to look at what runs leave behind."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from safetensors.numpy import save as save_tensors

from sadq.dynamics import Gaussian
from sadq.experiment import checkpoint
from sadq.experiment.config import Config, Epsilon, GuidanceSettings
from sadq.experiment.folder import CHECKPOINTS
from sadq.experiment.opening import create, reopen
from sadq.experiment.run import Experiment
from sadq.networks import Dense

MEMBERS, CHUNKS, CHUNK = 2, 40, 25

# A model, priorities, an n-step window, a schedule over the whole run, target copies, and a ring that wraps.
TINY = Config(
    environment="BitFlip-3",
    agent="dueling+sadq",
    alpha=(0.2,),
    seeds=(0, 1),
    steps=CHUNKS * CHUNK * 8,
    encoder=Dense((8,)),
    batch_size=4,
    learning_rate_schedule="linear",
    environments=2,
    collect=8,
    updates_per_collect=1,
    buffer_size=64,
    replay="prioritised",
    n_step=2,
    target_update_interval=48,
    epsilon=Epsilon((0.5,), (0.1,), (500.0,), "exponential"),
    model=Gaussian(hidden=(8,)),
    guidance=GuidanceSettings(batch_size=4),
    evaluations=CHUNKS,
    evaluation_episodes=2,
    workers=0,
    checkpoint_seconds=0.0,
)

# The same run on the command line, after `sadq train bitflip sadq`.
FLAGS = {
    "environment": "BitFlip-3",
    "seeds": "0 1",
    "steps": str(TINY.steps),
    "encoder.hidden": "8",
    "batch-size": "4",
    "learning-rate": "0.001",
    "learning-rate-schedule": "linear",
    "environments": "2",
    "collect": "8",
    "updates-per-collect": "1",
    "buffer-size": "64",
    "replay": "prioritised",
    "n-step": "2",
    "target-update-interval": "48",
    "no-time-limit-is-terminal": "",
    "epsilon.start": "0.5",
    "epsilon.end": "0.1",
    "epsilon.decay": "500",
    "epsilon.schedule": "exponential",
    "model.hidden": "8",
    "guidance.batch-size": "4",
    "guidance.learning-rate": "0.001",
    "evaluations": str(CHUNKS),
    "evaluation-episodes": "2",
    "workers": "0",
    "checkpoint-seconds": "0",
}


def options(**changes: str | Path) -> list[str]:
    """These flags with some of them changed or added, nested ones by `model__hidden` for model.hidden."""
    given = {name.replace("__", ".").replace("_", "-"): str(value) for name, value in changes.items()}
    return [word for name, value in (FLAGS | given).items() for word in (f"--{name}", *value.split())]


@contextlib.contextmanager
def compilation_cache(base: Path) -> Iterator[Path]:
    """Compiled programs kept below the session's temporary folder, for this process and those that it starts."""
    home = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    before = {name: getattr(jax.config, name) for name in ("jax_compilation_cache_dir", SMALLEST)}
    home_before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(home)
    reset_cache()
    jax.config.update("jax_compilation_cache_dir", str(home / "sadq" / "xla"))
    jax.config.update(SMALLEST, 0.0)
    try:
        yield home
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        reset_cache()
        os.environ.pop("XDG_CACHE_HOME")
        if home_before is not None:
            os.environ["XDG_CACHE_HOME"] = home_before


SMALLEST = "jax_persistent_cache_min_compile_time_secs"


def train(path: Path, config: Config = TINY, callback=lambda _: None) -> Experiment:
    """A new run, to its end or to where the callback stops it."""
    return drive(create(config, path), callback)


def resume(path: Path, callback=lambda _: None, warn=lambda _: None) -> Experiment:
    """Go on with a run, in this process."""
    experiment = reopen(path)
    experiment.warn = warn
    return drive(experiment, callback)


def drive(experiment: Experiment, callback) -> Experiment:
    """What the command line does with an experiment, without its words."""
    try:
        experiment.begin()
        if experiment.run(callback):
            experiment.folder.finish(experiment.result())
    finally:
        experiment.close()
    return experiment


def stop_at(step: int):
    """A callback that stops a run at the first chunk's end from `step` on."""
    return lambda progress: progress.step < step


def command(*arguments: str | Path, **options) -> subprocess.CompletedProcess:
    """`python -m sadq ...` in a process of its own."""
    return subprocess.run(
        invocation(*arguments), capture_output=True, text=True, timeout=240, check=False, env=variables(), **options
    )


def invocation(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "sadq", *map(str, arguments)]


def variables() -> dict[str, str]:
    """This process's environment variables, with its import path for the processes it starts."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def lines(path: Path) -> list[dict]:
    """The rows of a .jsonl file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def tensors(run: Path) -> dict[str, np.ndarray]:
    """Every array of a run's newest checkpoint."""
    _, state, outside = checkpoint.load(checkpoint.latest(run / CHECKPOINTS))
    return state | outside


def store(path: Path, content: dict[str, np.ndarray]) -> None:
    """Other tensors in a checkpoint, with a checksum that agrees."""
    data = save_tensors(content)
    record = json.loads((path / checkpoint.META).read_text()) | {"sha256": hashlib.sha256(data).hexdigest()}
    del record["record_sha256"]
    (path / checkpoint.TENSORS).write_bytes(data)
    (path / checkpoint.META).write_text(json.dumps(record | {"record_sha256": checkpoint._checksum(record)}))


def untimed(rows: list[dict]) -> list[dict]:
    """Metrics without the only one that reads the clock."""
    return [{name: value for name, value in row.items() if name != "steps_per_second"} for row in rows]


def assert_same_run(left: Path, right: Path) -> None:
    """Two runs that ended in the same bits, by the same way."""
    mine, theirs = tensors(left), tensors(right)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        assert value.tobytes() == theirs[name].tobytes(), name
    assert (left / "evaluations.jsonl").read_bytes() == (right / "evaluations.jsonl").read_bytes()
    assert untimed(lines(left / "metrics.jsonl")) == untimed(lines(right / "metrics.jsonl"))


def copied(run: Path, to: Path) -> Path:
    """A run folder to damage."""
    return Path(shutil.copytree(run, to))


def leftovers(run: Path) -> list[Path]:
    """Temporary files that should not have stayed."""
    return [path for path in run.rglob("*") if ".tmp" in path.name]

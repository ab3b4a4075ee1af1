"""`sadq compare`: arms on the same seeds of one environment, a fleet each, and a verdict."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

import sadq
from sadq.errors import SadqError, warn
from sadq.experiment import arguments, presets
from sadq.experiment.build import resolve
from sadq.experiment.config import Config
from sadq.experiment.records import to_json
from sadq.experiment.storage import write_json
from sadq.registry import fitted, shown
from sadq.report import stats
from sadq.report.page import write_report
from sadq.report.verdicts import threshold_of
from sadq.studies import sweep
from sadq.studies.arms import bases, parse_arms
from sadq.studies.display import Display
from sadq.studies.judged import Judged, Outcome
from sadq.studies.sweep import Job, Runner

FORMAT = 1
SEEDS = 10
"""As many as tell apart what differs clearly; the verdict says how many more it takes otherwise."""
RUNS, DOCUMENT, REPORT = "runs", "comparison.json", "report"


class Comparison:
    """Arms that were compared: `verdicts`, `scores` and everything as plain data, `as_dict()`."""

    def __init__(self, judged: Judged, shared: Config, report: Path | None):
        self.judged, self.shared, self.report = judged, shared, report

    @property
    def verdicts(self) -> dict[str, str]:
        """Arm -> the answer in words."""
        return self.judged.verdicts

    @property
    def scores(self) -> dict[str, dict[str, dict[int, float]]]:
        """Arm -> measure -> seed -> value."""
        return self.judged.scores

    def as_dict(self) -> dict[str, Any]:
        """One JSON document: the same for the same seeds, whenever and wherever it was made."""
        bootstrap = {"seed": self.judged.seed, "resamples": stats.RESAMPLES, "level": stats.LEVEL}
        about = {
            "format": FORMAT,
            "preset": self.shared.preset,
            "seeds": list(self.shared.seeds),
            "bootstrap": bootstrap,
        }
        # JSON knows no NaN: a number that is not known becomes null.
        return json.loads(json.dumps(about | self.judged.as_dict()), parse_constant=lambda name: None)

    def __str__(self) -> str:
        return "\n".join(self.judged.lines())


def compare_configs(
    shared: Config,
    arms: Sequence[str],
    out: Path,
    *,
    environment: Any = None,
    against: str | None = None,
    threshold: float | None = None,
    quiet: bool = False,
    runner: Runner | None = None,
    report: bool = True,
    warn: Callable[[str], None] = Display.say,
) -> Comparison:
    """Trains what is not trained yet below `out`, judges it, and leaves the document and the report's page there."""
    parsed = parse_arms(arms)
    pairs, threshold = bases(parsed, against), threshold_of(threshold)
    jobs = [Job(arm.label, arm.config(shared), f"{RUNS}/{arm.folder}", arm.label) for arm in parsed]
    for one, other in itertools.combinations(jobs, 2):
        if one.config == other.config:
            # Trained twice, it would also be corrected for twice.
            raise SadqError(f"Arms {one.name} and {other.name} are one agent with the same settings: give it once.")
    sweep.run(jobs, out, environment, quiet=quiet, runner=runner, warn=warn)
    outcomes = [Outcome(arm, out / job.folder) for arm, job in zip(parsed, jobs, strict=True)]
    judged = Judged(shared.environment, outcomes, pairs, threshold)
    page = None
    if report:
        title = f"{', '.join(arm.label for arm in parsed)} on {shared.environment}"
        spelled = [arm.label for arm in parsed]
        folders = [outcome.folder for outcome in outcomes]
        page = write_report(folders, out / REPORT, title, threshold=threshold, arms=spelled, bases=pairs)
    comparison = Comparison(judged, shared, page)
    with sweep.writing(out / DOCUMENT):
        write_json(out / DOCUMENT, comparison.as_dict())
    return comparison


def default_folder(shared: Config, arms: Sequence[str], name: str) -> Path:
    """The same for the same question, so that repeating it goes on with what there is."""
    labels = [arm.label for arm in parse_arms(arms)]
    asked = json.dumps([to_json(shared), labels, sadq.__version__, jax.__version__], sort_keys=True)
    return Path("runs") / f"compare-{name.replace('/', '-')}-{hashlib.sha256(asked.encode()).hexdigest()[:8]}"


def compare(
    env: Any,
    arms: Sequence[str],
    seeds: int | Sequence[int] = SEEDS,
    *,
    preset: str | None = None,
    out: str | Path | None = None,
    against: str | None = None,
    threshold: float | None = None,
    progress_bar: bool = False,
    runner: Runner | None = None,
    **fields: Any,
) -> Comparison:
    """Compare agents on an environment, on the same seeds, all members of an arm in one fleet.

        >>> found = compare("CartPole-v1", ["dqn", "dqn+sadq", "dqn+sadq@0.5:gate=sample"], seeds=10, steps=20_000)
        >>> print(found)

    `env` is a preset, a native environment's name, a Gymnasium id, or an environment object, as for `SADQ`. An arm is
    `AGENT[+sadq][@ALPHA][:name=value,...]`; it is compared with its plain twin if that is among the arms, else with the
    first, or with `against`. Fields of `Config` by name are shared by all arms. `out` is a folder that keeps the runs,
    the page and the document, and from which a repeated call goes on; without it nothing is kept.
    """
    known = {field.name for field in dataclasses.fields(Config)} - {"environment", "agent"}
    for name in fields:
        if name not in known:
            raise SadqError(f"Unknown field {name!r}: expected one of {', '.join(sorted(known))}.")
    for name in fields.keys() & {"learning_rate", "discount", "alpha"}:
        with contextlib.suppress(TypeError):
            fields[name] = (fitted(fields[name], float),)
    if runner is not None and not callable(runner):
        raise SadqError(
            f"runner = {shown(runner)} must be what runs jobs, such as a RayRunner, or None to run them here."
        )
    own = None if isinstance(env, str) else resolve(env)
    base = presets.preset(preset or (env if own is None else "default"))
    if own is not None:
        fields["environment"] = own.name
    elif preset is not None:
        fields["environment"] = presets.preset(env).environment
    shared = dataclasses.replace(base, seeds=arguments.seeds_of(seeds), **fields)
    options: dict[str, Any] = {"environment": own, "against": against, "threshold": threshold, "runner": runner}
    options["warn"] = warn
    if out is not None:
        return compare_configs(shared, arms, arguments.path_of(out), quiet=not progress_bar, **options)
    with tempfile.TemporaryDirectory(prefix="sadq-compare-") as folder:
        return compare_configs(shared, arms, Path(folder), quiet=not progress_bar, report=False, **options)

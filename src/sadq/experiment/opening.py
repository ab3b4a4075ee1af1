"""How a run begins: anew, or from the folder of one that was begun earlier."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sadq.experiment import transfer
from sadq.experiment.build import check_memory, environment_of, hyper_of, make_learner
from sadq.experiment.config import Config
from sadq.experiment.folder import RunFolder
from sadq.experiment.ranges import settled
from sadq.experiment.records import to_json
from sadq.experiment.run import Experiment
from sadq.experiment.stored import POLICY_ONLY, SPACES, is_of, moved_to, spaces_of
from sadq.experiment.trust import check_trusted


def create(
    config: Config, path: Path | None, environment: Any = None, notes: Mapping[str, Any] | None = None
) -> Experiment:
    """A new run, in a folder of its own or (None) in memory; nothing is compiled yet. `notes` go into its header."""
    resolved = environment_of(config, environment)
    if environment is not None:
        config = replace(config, environment=resolved.name)
    config, said = settled(config, resolved)
    to_json(config)  # what cannot be written is refused before it was trained with
    learner = make_learner(config, resolved)
    check_memory(learner, hyper_of(config))
    if config.model_from is not None:
        transfer.check(Path(config.model_from), learner)
    experiment = Experiment(config, resolved, _said=said)
    if path is not None:
        about = experiment.plans() | {
            "exact_resume": getattr(resolved, "deterministic", None) is not False,
            "data": experiment.data,
            SPACES: spaces_of(resolved),
            **(notes or {}),
        }
        experiment.folder = RunFolder.create(path, config, experiment.members, about)
    return experiment


def reopen(path: Path, environment: Any = None, trust: Collection[str] = ()) -> Experiment:
    """A run begun earlier; `trust` names modules that the folder's environment may import."""
    folder, config, record = RunFolder.open(path)
    if environment is None:
        check_trusted(config.environment, path, trust)
    resolved = environment_of(config, environment)
    if environment is None or is_of(config, resolved):
        return Experiment(config, resolved, folder, _record=record)
    kept = {POLICY_ONLY: True} if record.get(POLICY_ONLY) else {}  # the rest is of the other environment
    return Experiment(moved_to(config, resolved), resolved, folder, moved=True, _record=kept)

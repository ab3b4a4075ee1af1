"""A saved agent as far as acting needs it: networks and shapes, without its environment, replay or compiled loop."""

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sadq.envs.base import Environment
from sadq.envs.contract import HostSpec
from sadq.envs.forms import Form
from sadq.envs.registry import list_environments
from sadq.errors import SadqError
from sadq.experiment import checkpoint
from sadq.experiment.build import environment_of, hyper_of, make_learner, members_of
from sadq.experiment.config import Config
from sadq.experiment.folder import CHECKPOINTS, RunFolder
from sadq.experiment.trust import check_trusted
from sadq.fleet.members import Loop, MemberState
from sadq.types import PyTree

PARAMETERS = ".learner.online.parameters"
LEARNED = ("learner", "replay", "sampler", "behaviour")
"""Of a state, what goes along into another environment."""
SPACES, POLICY_ONLY = "spaces", "policy_only"
"""Of a config.json: what an environment shows and takes; whether the checkpoint holds no more than networks."""
DESCRIBED = ("format", "sadq", "commit", "jax", "python", "device", "command", "preset", "config", "members")
"""Of a config.json: what `folder.describe` tells anew of whoever writes it."""
FORMS = ("observation_form", "action_form")
"""Of these spaces: the forms that are the environment's own, None where they are those of an array and of a number."""


def spaces_of(environment: Any) -> dict[str, Any]:
    """What an environment shows and takes, as JSON for a run's record."""
    return {
        "observation_shape": list(environment.observation_shape),
        "observation_dtype": np.dtype(environment.observation_dtype).name,
        "action_count": environment.action_count,
        "action_start": getattr(environment, "action_start", 0),
        "has_masks": environment.has_masks,
        "native": isinstance(environment, Environment),
        **{name: None if (form := getattr(environment, name, None)) is None else form.as_json() for name in FORMS},
    }


@dataclass
class Stored:
    """The newest checkpoint of a folder."""

    path: Path
    saved: Path
    folder: RunFolder  # with the rows up to the checkpoint; not to be written to, for its run may still be going
    config: Config
    record: dict[str, Any]  # what its config.json holds
    environment: Environment | HostSpec
    step: int
    parameters: PyTree  # of the online networks, [M] on every leaf
    unknown_masks: bool = False  # whether only the environment, which is not here, could tell what is legal
    given: Any = None  # the environment that its user gave, if any
    trust: Collection[str] = ()

    @property
    def members(self) -> list[dict[str, Any]]:
        return members_of(self.config)

    @classmethod
    def open(cls, path: Path, environment: Any = None, trust: Collection[str] = ()) -> "Stored":
        folder, config, record = RunFolder.open(path)
        saved = checkpoint.latest(path / CHECKPOINTS)
        if saved is None:
            raise SadqError(f"{path} has no checkpoint: give the folder of a saved agent or of a run that has one.")
        meta, tensors, _ = checkpoint.load(saved)
        known: Environment | HostSpec | None = _recorded(config.environment, record)
        masked = known is not None and known.has_masks and record[SPACES].get("native") is True
        if environment is not None:
            before, known = known, environment_of(config, environment)
            if before is not None:
                check_same_spaces(before, known)
            config = moved_to(config, known)
        elif known is None or (known.has_masks and _is_native(config.environment)):
            check_trusted(config.environment, path, trust)
            known = environment_of(config)
        folder.path = None
        folder.cut_back(meta["step"])
        parameters = {
            name.removeprefix(PARAMETERS): leaf for name, leaf in tensors.items() if name.startswith(PARAMETERS)
        }
        template = _template(config, known)
        networks = checkpoint.fill(template, parameters, saved)
        unknown = masked and not isinstance(known, Environment)
        return cls(path, saved, folder, config, record, known, meta["step"], networks, unknown, environment, trust)

    def move(self, environment: Any) -> None:
        """Another environment to learn on in."""
        known = environment_of(self.config, environment)
        check_same_spaces(self.environment, known)
        self.given, self.environment, self.unknown_masks = environment, known, False
        self.config = moved_to(self.config, known)

    def copy_to(self, path: Path, policy_only: bool) -> None:
        """Write what the checkpoint holds, or no more than its networks, to a new folder."""
        meta, tensors, outside = checkpoint.load(self._there())
        if policy_only:
            tensors, outside = {name: leaf for name, leaf in tensors.items() if name.startswith(PARAMETERS)}, {}
        told = {name: value for name, value in self.record.items() if name not in DESCRIBED}
        only = policy_only or self.record.get(POLICY_ONLY, False)
        folder = RunFolder.create(path, self.config, self.members, told | {POLICY_ONLY: only})
        folder.metrics, folder.evaluations = list(self.folder.metrics), list(self.folder.evaluations)
        folder.cut_back(self.step)
        kept = {name: meta[name] for name in checkpoint.RECORDED} | {"rows": folder.settle()}
        checkpoint.write(path / CHECKPOINTS, meta["collect"], tensors, outside, kept)
        folder.release()

    def taken_up(self, reopened: Callable[[], Any]) -> Any:
        """What `reopened` makes of the folder, an experiment with these rows that writes to no folder."""
        self._there()
        if self.given is None:
            check_trusted(self.config.environment, self.path, self.trust)
        try:
            experiment = reopened()
        except SadqError as error:
            if self.given is not None:
                raise
            how = "with SADQ.load(path, env=...) or set_env"
            raise SadqError(f"To learn on, give this agent its environment, {how}: {error}") from error
        experiment.folder = self.folder
        return experiment

    def _there(self) -> Path:
        """The checkpoint, which whoever goes on with the run may have replaced."""
        if not self.saved.exists():
            raise SadqError(f"{self.path} has gone on since it was loaded, and its checkpoint is gone: load it again.")
        return self.saved


def _counting(told: Any) -> Any:
    """Of what a space is told by, what an agent depends on; in which type of integer its actions come is no part of that."""
    return {name: value for name, value in told.items() if name != "dtype"} if isinstance(told, dict) else told


def moved_to(config: Config, environment: Environment | HostSpec) -> Config:
    """The config of a run that goes on in an environment; settings are of the one that they were given for."""
    if is_of(config, environment):
        return config
    return replace(config, environment=environment.name, environment_settings=())


def is_of(config: Config, environment: Environment | HostSpec) -> bool:
    """Whether this is the environment that a config names, as far as names tell."""
    name = config.environment
    # The prefix tells Gymnasium's environment from a native one by the same name.
    return environment.name == name or (environment.name == f"gymnasium:{name}" and not _is_native(name))


def check_same_spaces(before: Any, after: Any) -> None:
    """Refuse an environment that shows or takes something else than the one in whose place it is to be."""
    old, new = spaces_of(before), spaces_of(after)
    for name in ("observation_shape", "observation_dtype", "action_count", "has_masks", *FORMS):
        if _counting(old[name]) != _counting(new[name]):
            told = f"{name} {new[name]}, but this agent was made for {old[name]}"
            raise SadqError(f"environment {after.name} has {told}: give one with the same spaces.")


def _recorded(name: str, record: dict[str, Any]) -> HostSpec | None:
    """The environment of a record that tells its spaces: one that can be acted in, but not made."""
    spaces = record.get(SPACES)
    if spaces is None:
        return None

    def absent() -> Any:
        raise SadqError(f"environment {name} is not here: give it, as in SADQ.load(path, env=...) or set_env.")

    try:
        shape = tuple(int(size) for size in spaces["observation_shape"])
        dtype: Any = {"uint8": np.dtype(np.uint8), "float32": np.dtype(np.float32)}[spaces["observation_dtype"]]
        actions, start, masks = int(spaces["action_count"]), int(spaces["action_start"]), bool(spaces["has_masks"])
        forms = [None if spaces.get(form) is None else Form.from_json(spaces[form]) for form in FORMS]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise SadqError(
            f"The spaces of environment {name} in its config.json are damaged: give it with env=."
        ) from error
    if min((*shape, actions)) < 1 or not shape:
        raise SadqError(f"The spaces of environment {name} in its config.json are damaged: give it with env=.")
    seen, taken = forms
    if (seen is not None and shape != (seen.size,)) or (taken is not None and actions != math.prod(taken.counts)):
        raise SadqError(f"The spaces of environment {name} in its config.json are damaged: give it with env=.")
    return HostSpec(name, absent, shape, dtype, actions, None, masks, start, None, seen, taken)


def _is_native(name: str) -> bool:
    return name in list_environments() or re.fullmatch(r"BitFlip-\d+", name) is not None


def _template(config: Config, environment: Environment | HostSpec) -> PyTree:
    """The shapes of all members' networks."""
    learner = make_learner(config, environment)
    one = jax.tree.map(lambda leaf: leaf[0], hyper_of(config))
    shapes = jax.eval_shape(lambda own: learner.init(own).online.parameters, one)
    count = len(members_of(config))
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype), shapes)


def restored(
    loop: Loop, fresh: MemberState, saved: Path, moved: bool = False
) -> tuple[dict[str, Any], MemberState, dict[str, np.ndarray]]:
    """(meta, state, outside) of a checkpoint, given the state in which its loop starts.

    Where the run has `moved` into another environment, what is of the one before it is left as at the start.
    """
    meta, tensors, outside = checkpoint.load(saved)
    if moved:
        places = tuple(f".{name}" for name in LEARNED)
        left: dict[str, Any] = {name: None for name in fresh._fields if name not in LEARNED}
        found = {name: leaf for name, leaf in tensors.items() if name.startswith(places)}
        filled = checkpoint.fill(fresh._replace(**left), found, saved, loop.placement.padded)
        return meta, fresh._replace(**{name: getattr(filled, name) for name in LEARNED}), outside
    if tensors and all(name.startswith(PARAMETERS) for name in tensors):  # to act with, and all else as at the start
        networks = checkpoint.fill(networks_of(fresh), tensors, saved, loop.placement.padded)
        return meta, _with_networks(fresh, networks.learner.online.parameters), outside
    return meta, checkpoint.fill(fresh, tensors, saved, loop.placement.padded), outside


def networks_of(state: MemberState) -> MemberState:
    """A state with nothing in it but the online networks."""
    return _with_networks(jax.tree.map(lambda _: None, state), state.learner.online.parameters)


def _with_networks(state: MemberState, networks: Any) -> MemberState:
    online = state.learner.online._replace(parameters=networks)
    return state._replace(learner=state.learner._replace(online=online))

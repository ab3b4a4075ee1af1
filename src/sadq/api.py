"""`SADQ`: the library as one class, with the habits of Stable-Baselines3."""

import contextlib
import dataclasses
import os
import signal
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from sadq.axes import AXES, axis_of
from sadq.core.schedules import exploration_rate
from sadq.envs.base import Environment, legal_lanes
from sadq.errors import SadqError, SadqWarning
from sadq.experiment import checkpoint, presets
from sadq.experiment.config import Config
from sadq.experiment.folder import CHECKPOINTS, RunFolder, replacing_folder
from sadq.experiment.progress import display
from sadq.experiment.run import Callback, Experiment, create, reopen
from sadq.exploration import Behaviour
from sadq.fleet.members import explore, greedy_actions
from sadq.registry import fitted, shown

BEHAVIOUR = ("intended", "deviation", "exploration")
"""The axes that `exploration=` may speak of: a part of the behaviour, or the whole."""
MOST_SEEDS = 100_000


class SADQ:
    """A fleet of agents on one environment.

    >>> model = SADQ("CartPole-v1", agent="dueling+sadq", alpha=0.2, seeds=5).learn(50_000)
    >>> action, _ = model.predict(observation)

    `env` is a native environment's name, a Gymnasium id, or an environment object. `agent` is named as on the command
    line: "dqn" is plain DQN, "dqn+sadq" its guided twin, "sadq" the paper's own; only guided ones take `alpha`, by default
    the preset's. `seeds` is a count or a list. Any field of `Config` may be given by name; the rest comes from `preset`.
    An axis takes a choice, its class or its name: `head=Categorical(atoms=21)`, `head="quantile"`.
    """

    def __init__(
        self,
        env: Any,
        agent: str = "sadq",
        alpha: float | Sequence[float] | None = None,
        seeds: int | Sequence[int] = 1,
        preset: str = "default",
        **fields: Any,
    ):
        for name, word in (("preset", preset), ("agent", agent)):
            if not isinstance(word, str):
                raise SadqError(f"{name} = {shown(word)} must be a text: the name of one.")
        if env is None:
            raise SadqError("env = None is no environment: give a name, a Gymnasium id or an environment object.")
        if preset not in presets.PRESETS:
            raise SadqError(f"Unknown preset {preset!r}: expected one of {', '.join(presets.PRESETS)}.")
        known = {field.name for field in dataclasses.fields(Config)} - {"environment"}
        for name in fields:
            if name not in known:
                raise SadqError(f"Unknown field {name!r}: expected one of {', '.join(sorted(known))}.")
        if (behaviour := fields.pop("exploration", None)) is not None:
            axis = axis_of(behaviour, BEHAVIOUR)
            if axis is None:
                raise SadqError(
                    f"exploration was given {shown(behaviour)}, expected an entry that is registered as intended, deviation "
                    f"or exploration: register it, or choose one of {', '.join([*AXES['intended'], *AXES['deviation']])}."
                )
            if fields.get(axis) is not None:
                raise SadqError(f"exploration = {behaviour!r} was given beside {axis}, which it stands for: give one.")
            fields[axis] = behaviour
        if alpha is not None:
            fields["alpha"] = alpha
        for name in fields.keys() & {"learning_rate", "discount", "alpha"}:
            with contextlib.suppress(TypeError):
                fields[name] = (fitted(fields[name], float),)
        name, own = (env, None) if isinstance(env, str) else ("", env)
        config = presets.preset(preset, agent, seeds=_seeds(seeds), environment=name, **fields)
        self._take(create(config, None, own))

    def _take(self, experiment: Experiment) -> None:
        """Act and learn by this experiment."""
        self._experiment, behaviour = experiment, experiment.config.behaviour
        experiment.warn = _warn
        self._greedy = jax.jit(lambda *seen: greedy_actions(*seen)[0])
        self._explore = jax.jit(lambda *now: explore(behaviour, *now))
        self._wander = jax.jit(lambda *now: explore(Behaviour(), *now))  # before learning starts
        self._random = np.random.default_rng(experiment.config.seeds)

    @property
    def config(self) -> Config:
        return self._experiment.config

    @property
    def num_timesteps(self) -> int:
        """Env steps that each member has made."""
        return self._experiment.step

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The greedy evaluations so far: step, member, returns, lengths, overestimation."""
        return self._experiment.folder.evaluations

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The diagnostics so far, one row per member and chunk."""
        return self._experiment.folder.metrics

    @property
    def result(self) -> dict[str, Any]:
        """The run in numbers, as the command line's --json prints it."""
        return self._begun().result()

    def learn(self, steps: int, callback: Callback | None = None, progress_bar: bool = False) -> Self:
        """Train every member for `steps` more env steps; `callback` sees each chunk and stops by returning False.

        Ctrl-C ends it after the chunk at hand: the agent stands there, and `KeyboardInterrupt` is raised.
        """
        steps = _whole(steps, "learn was asked for {} steps: expected a whole number of at least 1.", 1)
        if callback is not None and not callable(callback):
            raise SadqError(f"callback = {shown(callback)} must be a function that takes a `Progress`.")
        experiment = self._experiment
        if experiment.begun:
            experiment.extend(steps)
        else:
            experiment.config = dataclasses.replace(experiment.config, steps=steps)
            experiment.begin()
        with display(experiment, quiet=not progress_bar) as update:
            experiment.run(update, callback or (lambda _: None))
        if experiment.interrupted is not None:
            signal.raise_signal(experiment.interrupted)  # as whoever had the signal before would have had it
            raise KeyboardInterrupt
        return self

    def predict(
        self,
        observation: np.ndarray,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        member: int = 0,
        action_masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, None]:
        """(action, None) for one observation, or actions for a batch of them.

        Without `deterministic` the member explores as it would at this point of training, with every observation taken
        for an episode's first. `state` and `episode_start` are there for callers that pass them to any agent; nothing
        here is recurrent.
        """
        experiment = self._begun()
        environment, members, step = experiment.environment, experiment.members, experiment.step
        missing = f"There is no member {{}}: this fleet has members 0 to {len(members) - 1}."
        member = _whole(member, missing, 0, len(members) - 1)
        shape, given = environment.observation_shape, _numbers(observation)
        batch = f"{shape} or (n, {', '.join(map(str, shape))})"
        if given is None:
            raise SadqError(f"Cannot act on {shown(observation)}: expected an array of numbers of shape {batch}.")
        if shape not in (given.shape, given.shape[1:]):
            raise SadqError(f"Cannot act on an observation of shape {given.shape}: expected {batch}.")
        observations = given.reshape(-1, *shape).astype(environment.observation_dtype)
        masks: Any = (
            None if action_masks is None else self._masks(action_masks, given.shape == shape, len(observations))
        )
        if masks is None and isinstance(environment, Environment):
            masks = legal_lanes(environment, jnp.asarray(observations))
        networks = jax.tree.map(lambda leaf: leaf[member], experiment.state.learner.online.parameters)
        if deterministic:
            action = self._greedy(networks, observations, masks)
        else:
            early, decay = step < self.config.learning_starts, self.config.epsilon.schedule
            start, end, steps = (members[member][f"epsilon_{name}"] for name in ("start", "end", "decay"))
            epsilon = jnp.float32(1.0 if early else exploration_rate(jnp.float32(step), start, end, steps, decay))
            key = jax.random.key(int(self._random.integers(2**32)))
            act = self._wander if early else self._explore
            action = act(networks, observations, masks, jnp.int32(step), epsilon, key)
        actions = np.asarray(action) + getattr(environment, "action_start", 0)
        return (actions[0] if given.shape == shape else actions), None

    def _masks(self, given: Any, single: bool, count: int) -> np.ndarray:
        """Legal actions bool[n, A], refused where they are of another size or allow nothing."""
        actions, masks = self._experiment.environment.action_count, _numbers(given)
        expected = ((actions,), (1, actions)) if single else ((count, actions),)
        if masks is None or masks.shape not in expected or masks.dtype.kind not in "biu":
            found = shown(given) if masks is None else f"of shape {masks.shape} and type {masks.dtype}"
            raise SadqError(f"action_masks are {found}: expected booleans of shape {expected[0]}.")
        masks = masks.astype(bool).reshape(-1, actions)
        if not masks.any(axis=1).all():
            raise SadqError("action_masks allow no action at all for an observation: expected one at least.")
        return masks

    def save(self, path: str | Path) -> None:
        """Write everything needed to go on: a folder with config.json and a checkpoint, as a run folder has.

        Whatever happens on the way, `path` is what it was or the whole of this agent. Nothing but a saved agent or run
        is ever replaced.
        """
        experiment = self._begun()
        with replacing_folder(_path(path)) as beside:
            notes = {"steps": experiment.steps, "data": experiment.data}
            folder = RunFolder.create(beside, experiment.config, experiment.members, notes)
            folder.metrics, folder.evaluations = experiment.rows()
            folder.cut_back(experiment.step)
            experiment.save(folder)
            folder.release()

    @classmethod
    def load(cls, path: str | Path, env: Any = None, trust: str | Sequence[str] = ()) -> Self:
        """A saved agent, or the newest checkpoint of a run folder, ready to act or to learn on.

        `env` is needed where the agent was made with an environment object rather than a name. Loading runs no code: where
        the environment's name is "module:ID", that module must have been imported, or be named by `trust`.
        """
        path = _path(path)
        experiment = reopen(path, env, [trust] if isinstance(trust, str) else trust)
        experiment.warn = _warn
        saved = checkpoint.latest(path / CHECKPOINTS)
        if saved is None:
            raise SadqError(f"{path} has no checkpoint: give the folder of a saved agent or of a run that has one.")
        # What is loaded is not written to: its run may still be going.
        experiment.folder = dataclasses.replace(experiment.folder, path=None)
        experiment.begin(saved)
        model = cls.__new__(cls)
        model._take(experiment)
        return model

    def _begun(self) -> Experiment:
        if not self._experiment.begun:
            self._experiment.begin()
        return self._experiment


def _warn(sentence: str) -> None:
    warnings.warn(sentence, SadqWarning, stacklevel=2)


def _seeds(given: Any) -> tuple[int, ...]:
    """Seeds from a list of them, or from how many there are to be."""
    try:
        return fitted(given, tuple[int, ...])
    except TypeError:
        expected = f"seeds = {{}} must be how many, from 1 to {MOST_SEEDS:,}, or a list of whole numbers."
        return tuple(range(_whole(given, expected, 1, MOST_SEEDS)))


def _whole(given: Any, sentence: str, smallest: int, largest: int | None = None) -> int:
    """A whole number within bounds, or the sentence with what was given instead."""
    with contextlib.suppress(TypeError):
        number = fitted(given, int)
        if smallest <= number and (largest is None or number <= largest):
            return number
    raise SadqError(sentence.format(shown(given)))


def _numbers(given: Any) -> np.ndarray | None:
    """An array of numbers; None where it is something else."""
    try:
        array = np.asarray(given)
    except Exception:  # rows of different lengths, or whatever an object of the user's raises
        return None
    return array if array.dtype.kind in "fbiu" else None


def _path(given: Any) -> Path:
    if not isinstance(given, str | os.PathLike) or "\0" in str(given):
        raise SadqError(f"{shown(given)} is no path: give the name of a folder.")
    return Path(given)

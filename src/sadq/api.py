"""`SADQ`: the library as one class, with the habits of Stable-Baselines3."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from sadq.axes import AXES, axis_of
from sadq.core.schedules import exploration_rate
from sadq.envs.base import Environment, legal_lanes
from sadq.errors import SadqError
from sadq.experiment import checkpoint, presets
from sadq.experiment.config import Config
from sadq.experiment.folder import CHECKPOINTS, CONFIG, RunFolder
from sadq.experiment.progress import display
from sadq.experiment.run import Callback, Experiment, create, reopen
from sadq.exploration import Behaviour
from sadq.fleet.members import explore, greedy_actions

BEHAVIOUR = ("intended", "deviation", "exploration")
"""The axes that `exploration=` may speak of: a part of the behaviour, or the whole."""


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
                    f"exploration was given {behaviour!r}, expected an entry that is registered as intended, deviation or "
                    f"exploration: register it, or choose one of {', '.join([*AXES['intended'], *AXES['deviation']])}."
                )
            if fields.get(axis) is not None:
                raise SadqError(f"exploration = {behaviour!r} was given beside {axis}, which it stands for: give one.")
            fields[axis] = behaviour
        if alpha is not None:
            fields["alpha"] = alpha
        for name in fields.keys() & {"learning_rate", "discount", "alpha"}:
            fields[name] = tuple(np.atleast_1d(np.asarray(fields[name], float)).tolist())
        several = range(seeds) if isinstance(seeds, int) else map(int, seeds)
        name, own = (env, None) if isinstance(env, str) else ("", env)
        config = presets.preset(preset, agent, seeds=tuple(several), environment=name, **fields)
        self._take(create(config, None, own))

    def _take(self, experiment: Experiment) -> None:
        """Act and learn by this experiment."""
        self._experiment, behaviour = experiment, experiment.config.behaviour
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
        """Train every member for `steps` more env steps; `callback` sees each chunk and stops by returning False."""
        if steps < 1:
            raise SadqError(f"learn was asked for {steps} steps: expected at least 1.")
        experiment = self._experiment
        if experiment.begun:
            experiment.extend(steps)
        else:
            experiment.config = dataclasses.replace(experiment.config, steps=steps)
            experiment.begin()
        with display(experiment, quiet=not progress_bar) as shown:
            experiment.run(shown, callback or (lambda _: None))
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
        if not 0 <= member < len(members):
            raise SadqError(f"There is no member {member}: this fleet has members 0 to {len(members) - 1}.")
        shape, given = environment.observation_shape, np.asarray(observation)
        if shape not in (given.shape, given.shape[1:]):
            batch = f"(n, {', '.join(map(str, shape))})"
            raise SadqError(f"Cannot act on an observation of shape {given.shape}: expected {shape} or {batch}.")
        observations = given.reshape(-1, *shape).astype(environment.observation_dtype)
        masks: Any = None if action_masks is None else np.asarray(action_masks, bool).reshape(len(observations), -1)
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

    def save(self, path: str | Path) -> None:
        """Write everything needed to go on: a folder with config.json and a checkpoint, as a run folder has."""
        path, experiment = Path(path), self._begun()
        if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not (path / CONFIG).exists())):
            raise SadqError(f"{path} exists and is no saved agent: give a new folder, or one that `save` made.")
        with checkpoint.replacing(path) as beside:
            RunFolder.create(beside, experiment.config, experiment.members, {})
            dataclasses.replace(experiment.folder, path=beside).cut_back(experiment.step)
            experiment.save(beside)

    @classmethod
    def load(cls, path: str | Path, env: Any = None) -> Self:
        """A saved agent, or the newest checkpoint of a run folder, ready to act or to learn on.

        `env` is needed where the agent was made with an environment object rather than a name.
        """
        path = Path(path)
        experiment = reopen(path, env)
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

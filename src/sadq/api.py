"""`SADQ`: the library as one class, with the habits of Stable-Baselines3."""

import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from sadq.axes import AXES
from sadq.core.schedules import exploration_rate
from sadq.errors import SadqError
from sadq.experiment import checkpoint
from sadq.experiment.config import Config
from sadq.experiment.folder import CHECKPOINTS, CONFIG, RunFolder
from sadq.experiment.presets import PRESETS
from sadq.experiment.presets import preset as preset_config
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
        if preset not in PRESETS:
            raise SadqError(f"Unknown preset {preset!r}: expected one of {', '.join(PRESETS)}.")
        known = {field.name for field in dataclasses.fields(Config)} - {"environment"}
        for name in fields:
            if name not in known:
                raise SadqError(f"Unknown field {name!r}: expected one of {', '.join(sorted(known))}.")
        if fields.get("exploration") is not None:
            behaviour = fields.pop("exploration")
            axis = _behaviour_axis(behaviour)
            if fields.get(axis) is not None:
                raise SadqError(f"exploration = {behaviour!r} was given beside {axis}, which it stands for: give one.")
            fields[axis] = behaviour
        if alpha is not None:
            fields["alpha"] = alpha
        swept = ("learning_rate", "discount", "alpha")
        given: dict[str, Any] = {name: _several(value) if name in swept else value for name, value in fields.items()}
        config = preset_config(
            preset,
            agent,
            seeds=tuple(range(seeds)) if isinstance(seeds, int) else tuple(int(seed) for seed in seeds),
            environment=env if isinstance(env, str) else "",
            **given,
        )
        self._take(create(config, None, None if isinstance(env, str) else env))
        if not isinstance(env, str):
            self._experiment.config = dataclasses.replace(config, environment=self._experiment.environment.name)

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
        self._begun()
        return self._experiment.result()

    def learn(self, steps: int, callback: Callback | None = None, progress_bar: bool = False) -> Self:
        """Train every member for `steps` more env steps; `callback` sees each chunk and stops by returning False."""
        if steps < 1:
            raise SadqError(f"learn was asked for {steps} steps: expected at least 1.")
        experiment = self._experiment
        if not experiment.begun:
            experiment.config = dataclasses.replace(experiment.config, steps=steps)
            experiment.begin()
        else:
            experiment.extend(steps)
        with display(experiment, quiet=not progress_bar) as shown:

            def update(progress: Any) -> bool | None:
                shown(progress)
                return None if callback is None else callback(progress)

            experiment.run(update)
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
        self._begun()
        environment, members = self._experiment.environment, self._experiment.members
        if not 0 <= member < len(members):
            raise SadqError(f"There is no member {member}: this fleet has members 0 to {len(members) - 1}.")
        shape = environment.observation_shape
        observations = np.asarray(observation)
        single = observations.shape == shape
        if not single and observations.shape[1:] != shape:
            raise SadqError(
                f"Cannot act on an observation of shape {observations.shape}: expected {shape} or "
                f"(n, {', '.join(map(str, shape))})."
            )
        observations = observations.reshape(-1, *shape).astype(environment.observation_dtype)
        masks = None if action_masks is None else np.asarray(action_masks, bool).reshape(len(observations), -1)
        if masks is None and environment.has_masks and hasattr(environment, "legal"):
            masks = np.asarray(jax.vmap(environment.legal)(jnp.asarray(observations)))
        networks = jax.tree.map(lambda leaf: leaf[member], self._experiment.state.learner.online.parameters)
        if deterministic:
            action = np.asarray(self._greedy(networks, observations, masks))
        else:
            early = self.num_timesteps < self.config.learning_starts
            act, epsilon = (self._wander, 1.0) if early else (self._explore, self._epsilon(member))
            key = jax.random.key(int(self._random.integers(2**32)))
            now = jnp.int32(self.num_timesteps), jnp.float32(epsilon), key
            action = np.asarray(act(networks, observations, masks, *now))
        action = action + getattr(environment, "action_start", 0)
        return (action[0] if single else action), None

    def save(self, path: str | Path) -> None:
        """Write everything needed to go on: a folder with config.json and a checkpoint, as a run folder has."""
        self._begun()
        path, experiment = Path(path), self._experiment
        if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not (path / CONFIG).exists())):
            raise SadqError(f"{path} exists and is no saved agent: give a new folder, or one that `save` made.")
        # Written beside and then moved, so that whatever goes wrong leaves the agent that was there.
        beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            folder = RunFolder.create(beside, experiment.config, experiment.members, {})
            folder.metrics, folder.evaluations = experiment.folder.metrics, experiment.folder.evaluations
            folder.cut_back(experiment.step)
            experiment.write_checkpoint(beside / CHECKPOINTS)
            if path.exists():
                shutil.rmtree(path)
            os.replace(beside, path)
        finally:
            shutil.rmtree(beside, ignore_errors=True)

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
        folder = RunFolder(None)  # what is loaded is not written to: its run may still be going
        folder.metrics, folder.evaluations = experiment.folder.metrics, experiment.folder.evaluations
        experiment.folder = folder
        experiment.begin(saved)
        model = cls.__new__(cls)
        model._take(experiment)
        return model

    def _begun(self) -> None:
        if not self._experiment.begun:
            self._experiment.begin()

    def _epsilon(self, member: int) -> float:
        own, kind = self._experiment.members[member], self.config.epsilon.schedule
        numbers = (own["epsilon_start"], own["epsilon_end"], own["epsilon_decay"])
        return float(exploration_rate(jnp.float32(self.num_timesteps), *numbers, kind))


def _behaviour_axis(value: Any) -> str:
    """The axis on which a rule of behaviour, its class or its name is registered."""
    for axis in BEHAVIOUR:
        entry = value if isinstance(value, type) else type(value)
        if value in AXES[axis] if isinstance(value, str) else entry in map(AXES[axis].entry, AXES[axis]):
            return axis
    raise SadqError(
        f"exploration was given {value!r}, expected an entry that is registered as {', '.join(BEHAVIOUR[:2])} or "
        f"{BEHAVIOUR[2]}: register it, or choose one of {', '.join([*AXES['intended'], *AXES['deviation']])}."
    )


def _several(value: float | Sequence[float]) -> tuple[float, ...]:
    return tuple(map(float, value)) if isinstance(value, Sequence) else (float(value),)

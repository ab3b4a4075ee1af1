"""`SADQ`: the library as one class, with the habits of Stable-Baselines3."""

import contextlib
import dataclasses
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from sadq.axes import AXES, axis_of
from sadq.core.schedules import exploration_rate
from sadq.envs.base import Environment, legal_lanes
from sadq.envs.forms import actions_of
from sadq.errors import SadqError, warn
from sadq.experiment import presets
from sadq.experiment.arguments import callbacks_of, following, masks_of, observations_of, path_of, seeds_of, text, whole
from sadq.experiment.broken_off import is_lost
from sadq.experiment.compiled import keep_compiled
from sadq.experiment.config import Config
from sadq.experiment.evaluate import evaluate_experiment, film_experiment
from sadq.experiment.folder import RunFolder, replacing_folder
from sadq.experiment.opening import create, reopen
from sadq.experiment.progress import display
from sadq.experiment.run import Callback, Experiment
from sadq.experiment.stored import POLICY_ONLY, SPACES, Stored, spaces_of
from sadq.exploration import Behaviour
from sadq.fleet.members import explore, greedy_actions
from sadq.registry import fitted, shown

BEHAVIOUR = ("intended", "deviation", "exploration")
"""The axes that `exploration=` may speak of: a part of the behaviour, or the whole."""


class SADQ:
    """A fleet of agents on one environment.

        >>> model = SADQ("CartPole-v1", agent="dueling+sadq", alpha=0.2, seeds=5).learn(50_000)
        >>> action, _ = model.predict(observation)

    `env` is a native environment's name, a Gymnasium id, or an environment object. `agent` is named as on the command
    line: "dqn" is plain DQN, "dqn+sadq" its guided twin, "sadq" the paper's own; only guided ones take `alpha`, by default
    the preset's. `seeds` is a count or a list. Any field of `Config` may be given by name; the rest comes from `preset`.
    An axis takes a choice, its class or its name: `head=Categorical(atoms=21)`, `head="quantile"`. With `out` it writes a
    run folder, with checkpoints, that `sadq resume`, `report` and `watch` know.
    """

    def __init__(
        self,
        env: Any,
        agent: str = "sadq",
        alpha: float | Sequence[float] | None = None,
        seeds: int | Sequence[int] = 1,
        preset: str = "default",
        out: str | Path | None = None,
        **fields: Any,
    ):
        if text("preset", preset) not in presets.PRESETS:
            raise SadqError(f"Unknown preset {preset!r}: expected one of {', '.join(presets.PRESETS)}.")
        if env is None:
            raise SadqError("env = None is no environment: give a name, a Gymnasium id or an environment object.")
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
        chosen = presets.preset(preset, text("agent", agent), seeds=seeds_of(seeds), environment=name, **fields)
        self._hold(create(chosen, None if out is None else path_of(out).absolute(), own))

    @classmethod
    def load(cls, path: str | Path, env: Any = None, trust: str | Sequence[str] = ()) -> Self:
        """A saved agent, or the newest checkpoint of a run folder: ready to act, and to learn on in its environment.

        To act it needs no environment. To learn on it makes the one that it was saved with, if that had a name; an
        environment object is given again, by `env` or `set_env`. Loading runs no code: where the environment's name is
        "module:ID", that module must have been imported, or be named by `trust`.
        """
        model = cls.__new__(cls)
        model._hold(Stored.open(path_of(path).absolute(), env, [trust] if isinstance(trust, str) else list(trust)))
        return model

    def _hold(self, held: Experiment | Stored) -> None:
        """Act, and learn on, by this."""
        keep_compiled()
        self._held, behaviour = held, held.config.behaviour
        if isinstance(held, Experiment):
            held.warn = warn
        self._greedy = jax.jit(lambda *seen: greedy_actions(*seen)[0])
        self._explore = jax.jit(lambda *now: explore(behaviour, *now))
        self._wander = jax.jit(lambda *now: explore(Behaviour(), *now))  # before learning starts
        self._random = np.random.default_rng(held.config.seeds)

    @property
    def config(self) -> Config:
        return self._held.config

    @property
    def num_timesteps(self) -> int:
        """Env steps that each member has made."""
        return self._held.step

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The greedy evaluations so far: step, member, returns, lengths, overestimation."""
        return self._held.folder.evaluations

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The diagnostics so far, one row per member and chunk."""
        return self._held.folder.metrics

    @property
    def result(self) -> dict[str, Any]:
        """The run in numbers, as the command line's --json prints it."""
        return self._begun().result()

    def learn(
        self,
        steps: int | None = None,
        callback: Callback | Sequence[Callback] | None = None,
        progress_bar: bool = False,
        total_timesteps: int | None = None,
    ) -> Self:
        """Train every member for `steps` more env steps; each `callback` sees every chunk and stops by returning False.

        `total_timesteps` is another name of `steps`. Ctrl-C ends it after the chunk at hand: the agent stands there, saved
        where it has a run folder, and `KeyboardInterrupt` is raised.
        """
        if None not in (steps, total_timesteps):
            raise SadqError("learn was given steps and total_timesteps, which are the same: give one.")
        asked = total_timesteps if steps is None else steps
        asked = whole(asked, "learn was asked for {} steps: expected a whole number of at least 1.", 1)
        callbacks = callbacks_of(callback)
        experiment = self._experiment()
        if experiment.begun:
            self._check_whole(experiment)
            experiment.extend(asked)
        else:
            experiment.plan(asked)
            experiment.begin()
        with display(experiment, quiet=not progress_bar) as update, following(callbacks, self):
            finished = experiment.run(update, *callbacks)
        if finished:
            experiment.folder.finish(experiment.result())
        if experiment.interrupted is not None:
            signal.raise_signal(experiment.interrupted)  # as whoever had the signal before would have had it
            raise KeyboardInterrupt
        return self

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        member: int = 0,
        action_masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, None]:
        """(action, None) for one observation, or actions for a batch of them, each in the environment's own form.

        Without `deterministic` the member explores as it would at this point of training, with every observation taken
        for an episode's first. `state` and `episode_start` are there for callers that pass them to any agent; nothing
        here is recurrent.
        """
        held = self._held if isinstance(self._held, Stored) else self._begun(to_act=True)
        environment, members, step = held.environment, held.members, held.step
        missing = f"There is no member {{}}: this fleet has members 0 to {len(members) - 1}."
        member = whole(member, missing, 0, len(members) - 1)
        shape, dtype = environment.observation_shape, environment.observation_dtype
        shown, taken = (getattr(environment, name, None) for name in ("observation_form", "action_form"))
        observations, single = observations_of(observation, shape, dtype, shown)
        masks: Any = None
        if action_masks is not None:
            masks = masks_of(action_masks, environment.action_count, single, len(observations), taken)
        elif isinstance(environment, Environment):
            masks = legal_lanes(environment, jnp.asarray(observations))
        elif environment.has_masks:
            native = isinstance(held, Stored) and held.unknown_masks
            how = (
                "or the environment by env= or set_env" if native else "from its info['action_mask'] or action_masks()"
            )
            legal = f"Which actions are legal, only environment {environment.name} can tell"
            raise SadqError(f"{legal}: give action_masks, {how}.")
        networks = jax.tree.map(lambda leaf: leaf[member], held.parameters)
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
        if taken is not None:
            actions = actions_of(taken, actions)
        return (actions[0] if single else actions), None

    def evaluate(self, episodes: int = 100) -> list[dict[str, Any]]:
        """Greedy episodes from starts that training never saw, the same at every call: what each member makes of them."""
        episodes = whole(episodes, "evaluate was asked for {} episodes: expected a whole number of at least 1.", 1)
        return evaluate_experiment(self._begun(), episodes)

    def film(self, path: str | Path) -> Path:
        """Draw a greedy episode of the first member into a file, where the environment can be drawn."""
        return film_experiment(self._begun(), path_of(path))

    def set_env(self, env: Any) -> None:
        """Learn on in another environment that shows and takes the same; its episodes begin anew."""
        self._held.move(env)

    def save(self, path: str | Path, policy_only: bool = False) -> None:
        """Write everything needed to go on: a folder with config.json and a checkpoint, as a run folder has.

        Whatever happens on the way, `path` is what it was or the whole of this agent. Nothing but a saved agent or run
        is ever replaced. With `policy_only` it holds the networks alone: small, to act with and not to learn on from.
        """
        if isinstance(self._held, Stored) and self._held.given is None:
            with replacing_folder(path_of(path)) as beside:
                self._held.copy_to(beside, policy_only)
            return
        experiment, own = self._begun(to_act=policy_only), self._held.folder.path
        if own is not None and own.resolve() == path_of(path).resolve():
            if policy_only:
                raise SadqError(f"{path} is the folder of this run, which needs more than a policy: give another one.")
            experiment.folder.take_again(experiment.step)
            experiment.save(experiment.folder)
            return
        notes = experiment.plans() | {"data": experiment.data, SPACES: spaces_of(experiment.environment)}
        with replacing_folder(path_of(path)) as beside:
            folder = RunFolder.create(beside, experiment.config, experiment.members, notes | {POLICY_ONLY: policy_only})
            folder.metrics, folder.evaluations = experiment.rows()
            folder.cut_back(experiment.step)
            experiment.save(folder, policy_only)
            folder.release()

    def close(self) -> None:
        """End the environments' processes and let go of the run folder; what was learned can still act and be saved."""
        if isinstance(self._held, Experiment):
            self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _experiment(self) -> Experiment:
        """What learns: of a loaded agent, its run taken up again."""
        if isinstance(self._held, Stored):
            held = self._held
            experiment = held.taken_up(lambda: reopen(held.path, held.given, held.trust))
            experiment.warn = warn
            experiment.begin(held.saved)
            self._hold(experiment)
        assert isinstance(self._held, Experiment)
        return self._held

    def _begun(self, to_act: bool = False) -> Experiment:
        experiment = self._experiment()
        if not experiment.begun:
            experiment.begin()
        if not to_act or is_lost(experiment.parameters):
            self._check_whole(experiment)
        return experiment

    def _check_whole(self, experiment: Experiment) -> None:
        if is_lost(experiment.state):
            left = "" if is_lost(experiment.parameters) else " but networks to act with, which policy_only saves"
            what = f"Training was broken off in the middle of a chunk, and nothing of this agent is left{left}"
            raise SadqError(f"{what}: load its newest checkpoint, or make it anew.")

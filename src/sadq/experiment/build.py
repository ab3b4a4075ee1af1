"""From a config to a fleet that can run: the one place where choices become objects."""

import dataclasses
import itertools
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.dynamics.normalised import NormalisedModel
from sadq.dynamics.protocol import MODELS, ModelShape
from sadq.envs import registry
from sadq.envs.atari.environments import AtariEnvironments
from sadq.envs.atari.spec import PREFIX, AtariSpec
from sadq.envs.base import Environment
from sadq.envs.contract import HostSpec
from sadq.envs.group import Environments
from sadq.envs.host import HostEnvironments
from sadq.envs.limits import limited, measuring
from sadq.envs.shapes import check_shapes
from sadq.envs.workers import evaluations_at_once
from sadq.errors import SadqError
from sadq.experiment.config import Config
from sadq.experiment.ranges import EARLIER, range_of, rewards_of
from sadq.fleet.devices import Placement
from sadq.fleet.host_loop import HostLoop
from sadq.fleet.members import Fleet, Loop
from sadq.fleet.scan_loop import ScanFleet, ScanLoop
from sadq.learning.guidance import Guidance
from sadq.learning.learner import Learner, TargetUpdate
from sadq.learning.legal import every_action
from sadq.learning.refit import Refit
from sadq.learning.state import Hyper
from sadq.networks import ENCODERS, Bayesian, Head, HeadShape, Network
from sadq.networks.network import of_parameters
from sadq.networks.normalised import NormalisedEncoder
from sadq.replay.frames import FrameRing
from sadq.replay.ring import Ring
from sadq.types import Key

MAX_CHUNK, MAX_CHUNK_STEPS = 25, 1000
"""Collects in one compiled call, or env steps where that is more: long enough to hide its overhead, short enough that
Ctrl-C answers soon."""

SMALL_SHARE = 10
"""How many chunks a training must have for a part of one not to matter."""

REFIT_INTERVAL = 2000
"""Env steps between refits of a Bayesian head whose target network is never copied but follows softly."""


@dataclasses.dataclass(frozen=True)
class Timetable:
    """The fixed places, counted in collects, where a run may pause and where it evaluates."""

    origin: int  # where it begins: 0, or where earlier training ended
    end: int  # whole chunks after the origin
    chunk: int
    interval: int  # between evaluations: whole chunks

    @classmethod
    def of(cls, config: Config, origin: int = 0, kept: int = 0) -> "Timetable":
        """In chunks of `kept` collects, a program that is compiled already, where little is overshot by that."""
        needed = -(-config.steps // config.collect) - origin
        interval = max(1, needed // config.evaluations)
        if kept and (needed % kept == 0 or needed >= SMALL_SHARE * kept):
            interval = max(1, interval // kept) * kept
            return cls(origin, origin + -(-needed // kept) * kept, kept, interval)
        pieces = -(-interval // max(MAX_CHUNK, MAX_CHUNK_STEPS // config.collect))
        chunk = interval // pieces
        return cls(origin, origin + -(-needed // chunk) * chunk, chunk, pieces * chunk)

    def evaluates(self, collect: int) -> bool:
        return (collect - self.origin) % self.interval == 0 or collect == self.end


def members_of(config: Config) -> list[dict[str, Any]]:
    """What distinguishes each member: every combination of games and swept numbers, for every seed."""
    arcade = _arcade(config)
    axes: dict[str, tuple[Any, ...]] = {"game": arcade.games} if arcade is not None and len(arcade.games) > 1 else {}
    axes |= {
        "alpha": config.alpha or (None,),
        "learning_rate": config.learning_rate,
        "discount": config.discount,
        "epsilon_start": config.epsilon.start,
        "epsilon_end": config.epsilon.end,
        "epsilon_decay": config.epsilon.decay,
        "seed": config.seeds,
    }
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def hyper_of(config: Config, origin: int = 0) -> Hyper:
    """The members' numbers as the compiled program takes them, for a training from collect `origin`: [M] on every leaf."""
    members, arcade = members_of(config), _arcade(config)
    columns = {name: [member[name] for member in members] for name in members[0] if name not in ("game", "seed")}
    columns["model_learning_rate"] = [config.guidance.learning_rate] * len(members)
    columns["alpha"] = [1.0 if alpha is None else alpha for alpha in columns["alpha"]]
    actions = None
    if arcade is not None and arcade.padded:
        actions = jnp.array([arcade.action_counts[game] for game in _games(arcade, members)], jnp.int32)
    seeds = jnp.array([member["seed"] for member in members], jnp.uint32)
    numbers = {name: jnp.array(values, jnp.float32) for name, values in columns.items()}
    span = jnp.tile(jnp.array([origin * config.collect, config.steps], jnp.int32), (len(members), 1))
    return Hyper(seed=seeds, actions=actions, span=span, **numbers)


def _arcade(config: Config) -> AtariSpec | None:
    """The Atari games of a run that has such."""
    return AtariSpec.named(config.environment, config.settings) if config.environment.startswith(PREFIX) else None


def _games(arcade: AtariSpec, members: list[dict[str, Any]]) -> list[str]:
    """The game of each member."""
    return [member.get("game", arcade.games[0]) for member in members]


def make_learner(config: Config, environment: Environment | HostSpec) -> Learner:
    """The agent's row, with the config's sizes filled in."""
    row = config.row
    kind = FrameRing if isinstance(environment, AtariSpec) else Ring
    store = kind(
        capacity=config.buffer_size,
        lanes=config.environments * (environment.actors if isinstance(environment, Environment) else 1),
        observation_shape=environment.observation_shape,
        observation_dtype=environment.observation_dtype,
        action_count=environment.action_count,
        has_masks=environment.has_masks or (isinstance(environment, AtariSpec) and environment.padded),
        steps=row.n_step,
        time_limit_is_terminal=config.time_limit_is_terminal,
    )
    rows = config.collect // config.environments + row.n_step - 1
    if store.rows < rows:  # a config alone cannot know how many actors there are
        held = f"at least one collect of all its actors, {rows * store.lanes} transitions"
        raise SadqError(f"buffer_size = {config.buffer_size} is too small for {environment.name}: it must hold {held}.")
    if config.normalise_observations and environment.observation_dtype == np.uint8:
        raise SadqError(f"normalise_observations is for numbers, and {environment.name} shows bytes: leave it out.")
    returns = range_of(config, environment) or EARLIER
    features, width = features_of(config, environment), getattr(config.encoder, "head_width", None)
    shape = HeadShape(features, environment.action_count, row.dueling, row.noisy, returns, width)

    def make_network(key: Key) -> Network:
        encoder: Any = config.encoder.build(environment.observation_shape, keys.purpose(key, "encoder"))
        if config.normalise_observations:
            encoder = NormalisedEncoder(encoder, environment.observation_shape)
        head = row.head.build(shape, keys.purpose(key, "head"))
        return Network(of_parameters("encoder", encoder), of_parameters("head", head, Head), config.compute)

    return Learner(
        make_network=make_network,
        bootstrap=row.bootstrap,
        store=store,
        sampler=row.replay.sampler(store),
        action_count=environment.action_count,
        environments=config.environments,
        collect_steps=config.collect // config.environments,
        batch_size=config.batch_size,
        updates=config.updates_per_collect,
        total_steps=config.steps,
        target_update=TargetUpdate(config.target_update_interval, config.target_update_unit, config.soft_target_rate),
        optimiser=config.optimiser,
        ensemble=row.ensemble,
        guidance=_guidance(config, environment) if config.guided else None,
        refit=_refit(config, row.head) if isinstance(row.head, Bayesian) else None,
        legal=environment.legal if isinstance(environment, Environment) else every_action,
        learning_starts=config.learning_starts,
        max_gradient_norm=config.max_gradient_norm,
        learning_rate_schedule=config.learning_rate_schedule,
        normalises=config.normalise_observations,
        rewards=rewards_of(config),
    )


def features_of(config: Config, environment: Environment | HostSpec) -> int:
    """How many features the encoder makes of an observation."""

    def encoded(key: Key) -> Any:
        seen = jnp.zeros(environment.observation_shape, environment.observation_dtype)
        return config.encoder.build(environment.observation_shape, key)(seen)

    return jax.eval_shape(encoded, keys.member_key(0)).shape[-1]


def _refit(config: Config, head: Bayesian) -> Refit:
    """As often as the head says, or as the target network is copied."""
    copied = config.target_update_interval
    if copied is not None and config.target_update_unit == "updates":
        copied = copied * config.collect // config.updates_per_collect
    return Refit(head, head.refit_interval or copied or REFIT_INTERVAL)


def _guidance(config: Config, environment: Environment | HostSpec) -> Guidance:
    own, features = config.guidance, features_of(config, environment)
    shape = ModelShape(environment.observation_shape, environment.action_count, features, config.compute)
    model: Any = jax.eval_shape(lambda key: config.model.build(shape, key), keys.member_key(0))
    if model.space == "features" and config.row.ensemble.size > 1:
        needed = "needs a network whose features it predicts, but an ensemble has several"
        raise SadqError(f"A model in the space of features {needed}: use ensemble single, or another model.")

    if model.space == "observation" and environment.observation_dtype == np.uint8:
        _check_bytes(config, environment.name)

    def make_model(key: Key) -> Any:
        if not config.normalise_observations:
            return of_parameters("model", config.model.build(shape, key))
        # A constant scale is what the running one stands in for: both together would leave next to nothing of a state.
        unscaled = {"state_scale": 1.0} if hasattr(config.model, "state_scale") else {}
        return NormalisedModel(dataclasses.replace(config.model, **unscaled).build(shape, key), shape.observation)

    if model.space == "features" and config.normalise_observations:
        raise SadqError(
            "normalise_observations is for models in the space of observations: leave it out, or choose one."
        )
    return Guidance(
        make_model=make_model,
        action_count=environment.action_count,
        batch_size=own.batch_size,
        updates=own.updates_per_collect,
        pacing=config.pacing,
        optimiser=own.optimiser,
        gate=config.gate,
        samples=own.samples,
        chunk=own.action_chunk,
        candidates=own.candidates,
        agreement=own.agreement,
        allowance=own.allowance,
    )


def _check_bytes(config: Config, environment: str) -> None:
    """Refuse an encoder that would read what the model predicts as another state."""
    read, told = (getattr(one, "full_byte", None) for one in (config.encoder, config.model))
    if read is not None and told is not None and read != told:
        raise SadqError(
            f"{environment} shows bytes, of which 255 is {read:g} to encoder {ENCODERS.name_of(config.encoder)} and "
            f"{told:g} to model {MODELS.name_of(config.model)}: choose dense with gaussian, or nature with rssm."
        )


def make_loop(config: Config, environment: Environment | HostSpec, chunk: int, origin: int = 0) -> Loop:
    """The fleet bound to its members, for a training from collect `origin`."""
    hyper, episodes = hyper_of(config, origin), config.evaluation_episodes
    shared = make_learner(config, environment), config.behaviour, config.epsilon.schedule, episodes
    if isinstance(environment, Environment):
        if config.overlap:
            raise SadqError(f"overlap is for environments outside JAX, and {environment.name} is inside: leave it out.")
        return ScanLoop(ScanFleet(*shared, environment=environment), hyper, chunk)
    members = members_of(config)
    seeds = [member["seed"] for member in members]
    workers = "auto" if config.workers is None else config.workers

    def outside(count: int, purpose: str) -> Environments:
        if isinstance(environment, AtariSpec):
            return AtariEnvironments(environment, seeds, count, purpose=purpose, games=_games(environment, members))
        return HostEnvironments(environment, seeds, count, workers, purpose)

    def evaluation() -> Environments:
        return outside(episodes, "evaluate")

    # So many processes as are asked for are asked for all in all.
    at_once = evaluations_at_once() if config.workers is None else 1
    training = outside(config.environments, "collect")
    return HostLoop(Fleet(*shared), hyper, chunk, training, evaluation(), config.overlap, evaluation, at_once)


def check_memory(learner: Learner, hyper: Hyper) -> int:
    """The bytes of a fleet's state on one device, refused with the figure where they cannot fit."""
    members, store = hyper.seed.shape[0], learner.store
    placement = Placement(members)
    device = placement.mesh[0]
    # Devices of a CPU backend share the machine's memory. There a member is worked on outside the fleet's own memory.
    shared, beside = device.platform == "cpu", len(placement.mesh) if device.platform == "cpu" else 0
    held = members + placement.idle + beside if shared else placement.share
    one = jax.tree.map(lambda leaf: leaf[0], hyper)
    learned = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(learner.init, one)))
    each, free = store.nbytes + learned, free_bytes(device)
    if free is not None and each * held > free:
        fitting = max(0, int(free // each) - beside) * (1 if shared else len(placement.mesh))
        kept = f"replay {store.nbytes / 1e9:.2f} GB of {store.rows * store.lanes:,} transitions"
        raise SadqError(
            f"The fleet needs {each * held / 1e9:.2f} GB for {members} members ({kept} and {learned / 1e9:.2f} GB of "
            f"parameters each), but {device.device_kind} has {free / 1e9:.2f} GB free, enough for {fitting}: lower "
            "buffer_size or the number of members."
        )
    return each * held


def free_bytes(device: jax.Device) -> int | None:
    """Memory that can still be had on a device; None where nobody says."""
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else None
    try:
        with open("/proc/meminfo") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        known = "SC_AVPHYS_PAGES" in os.sysconf_names
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else None


def resolve(environment: Any, settings: dict[str, Any] | None = None) -> Environment | HostSpec:
    """A name, with the settings that it is to be made with, or an object as an environment."""
    made = registry.make(environment, settings=settings)
    if isinstance(made, Environment):
        check_shapes(made)
    return made


def environment_of(config: Config, given: Any = None) -> Environment | HostSpec:
    """The environment that a config names, or the one that is `given`, with the config's limit and measures."""
    made = resolve(config.environment, config.settings) if given is None else resolve(given)
    if config.max_episode_steps is not None:
        made = limited(made, config.max_episode_steps)
    return measuring(made, config.measures) if config.measures else made

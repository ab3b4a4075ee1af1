"""From a config to a fleet that can run: the one place where names become objects."""

import dataclasses
import itertools
import os
from typing import Any

import jax
import jax.numpy as jnp

from sadq import keys
from sadq.dynamics.gaussian import GaussianModel
from sadq.envs import base, registry
from sadq.envs.base import Environment
from sadq.envs.contract import HostSpec, one_line
from sadq.envs.host import HostEnvironments
from sadq.errors import SadqError
from sadq.experiment.config import Config
from sadq.experiment.networks import make_exploration, network_maker
from sadq.fleet.members import Fleet, Loop, stack_hyper
from sadq.learning.guidance import Guidance
from sadq.fleet.host_loop import HostLoop
from sadq.learning.inference import Inference
from sadq.learning.learner import Hyper, Learner
from sadq.replay.samplers import Prioritised
from sadq.replay.store import Ring
from sadq.fleet.scan_loop import ScanFleet, ScanLoop
from sadq.types import Key

MAX_CHUNK = 25
"""Collects in one compiled call: long enough to hide its overhead, short enough that Ctrl-C answers soon."""

REFIT_INTERVAL = 2000
"""Env steps between refits of a Bayesian head whose target network is never copied but follows softly."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """The fixed places, counted in collects, where a run may pause and where it evaluates."""

    origin: int  # where it begins: 0, or where earlier training ended
    end: int  # whole chunks after the origin
    chunk: int
    interval: int  # between evaluations: whole chunks

    @classmethod
    def of(cls, config: Config, origin: int = 0) -> "Grid":
        needed = -(-config.steps // config.collect) - origin
        interval = max(1, needed // config.evaluations)
        pieces = -(-interval // MAX_CHUNK)
        chunk = interval // pieces
        return cls(origin, origin + -(-needed // chunk) * chunk, chunk, pieces * chunk)

    def evaluates(self, collect: int) -> bool:
        return (collect - self.origin) % self.interval == 0 or collect == self.end


def members_of(config: Config) -> list[dict[str, Any]]:
    """What distinguishes each member: every combination of the swept numbers, for every seed."""
    axes = {
        "alpha": config.alpha or (None,),
        "learning_rate": config.learning_rate,
        "discount": config.discount,
        "epsilon_start": config.epsilon.start,
        "epsilon_end": config.epsilon.end,
        "epsilon_decay": config.epsilon.decay,
        "seed": config.seeds,
    }
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def hyper_of(config: Config) -> Hyper:
    """The members' numbers as the compiled program takes them: [M] on every leaf."""
    return stack_hyper(
        [
            Hyper(
                seed=jnp.uint32(member["seed"]),
                alpha=jnp.float32(1.0 if member["alpha"] is None else member["alpha"]),
                learning_rate=jnp.float32(member["learning_rate"]),
                model_learning_rate=jnp.float32(config.model.learning_rate),
                separate_learning_rate=jnp.float32(config.distribution.fraction_learning_rate),
                discount=jnp.float32(member["discount"]),
                epsilon_start=jnp.float32(member["epsilon_start"]),
                epsilon_end=jnp.float32(member["epsilon_end"]),
                epsilon_decay=jnp.float32(member["epsilon_decay"]),
            )
            for member in members_of(config)
        ]
    )


def make_learner(config: Config, environment: Environment | HostSpec) -> Learner:
    """The agent's row, with the config's sizes filled in."""
    row = config.row
    ring = Ring(
        capacity=config.buffer_size,
        environments=config.environments,
        observation_size=environment.observation_size,
        action_count=environment.action_count,
        has_masks=environment.has_masks,
        steps=row.n_step,
        time_limit_is_terminal=config.time_limit_is_terminal,
    )
    prioritised, ensemble = row.replay == "prioritised", row.ensemble > 1
    return Learner(
        make_network=network_maker(config, environment.name, ring.observation_size, ring.action_count),
        rule=row.bootstrap,
        ring=ring,
        batch_size=config.batch_size,
        updates=config.updates_per_collect,
        total_steps=config.steps,
        guidance=_guidance(config, environment) if config.guided else None,
        prioritised=Prioritised(ring, config.priority_exponent) if prioritised else None,
        importance=config.importance_exponent,
        inference=_inference(config) if row.head == "bayesian" else None,
        backup_temperature=config.agreement.temperature if ensemble else None,
        ensemble_size=row.ensemble,
        bootstrap_share=config.agreement.bootstrap_share if ensemble else 1.0,
        soft_target_rate=config.soft_target_rate,
        max_gradient_norm=config.max_gradient_norm,
        learning_rate_schedule=config.learning_rate_schedule,
    )


def _inference(config: Config) -> Inference:
    own = config.bayesian
    return Inference(
        prior_deviation=own.prior_deviation,
        noise_deviation=own.noise_deviation,
        samples=own.samples,
        chunk=min(own.chunk, own.samples),
        refit_interval=own.refit_interval or _synchronisation_steps(config) or REFIT_INTERVAL,
        resample_interval=own.resample_interval,
    )


def _synchronisation_steps(config: Config) -> int | None:
    """Env steps between copies to the target network; None without copies."""
    interval = config.target_update_interval
    if interval is None or config.target_update_unit == "steps":
        return interval
    return interval * config.collect // config.updates_per_collect


def _guidance(config: Config, environment: Environment | HostSpec) -> Guidance:
    model = config.model

    def make(key: Key) -> GaussianModel:
        return GaussianModel(
            environment.observation_size,
            environment.action_count,
            model.hidden,
            key,
            state_scale=model.state_scale,
            continuation=model.continuation,
            rollout=model.rollout,
            loss_kind=model.loss,
        )

    return Guidance(
        make_model=make,
        action_count=environment.action_count,
        batch_size=model.batch_size,
        updates=model.updates_per_collect,
        gate=model.gate,
        samples=model.samples,
        chunk=model.action_chunk,
        candidates=model.candidates,
        # A host environment tells its mask only for states it is in, so at a predicted s'' all actions count.
        legal=environment.legal if isinstance(environment, Environment) else lambda _: None,
    )


def make_loop(config: Config, environment: Environment | HostSpec, chunk: int) -> Loop:
    """The fleet bound to its members."""
    learner, hyper = make_learner(config, environment), hyper_of(config)
    shared: dict[str, Any] = {
        "learner": learner,
        "collect_steps": config.collect // config.environments,
        "exploration": make_exploration(config),
        "epsilon_decay": config.epsilon.schedule,
        "target_interval": config.target_update_interval,
        "target_unit": config.target_update_unit,
        "evaluation_episodes": config.evaluation_episodes,
    }
    if isinstance(environment, Environment):
        return ScanLoop(ScanFleet(**shared, environment=environment), hyper, chunk)
    seeds = [member["seed"] for member in members_of(config)]
    workers = "auto" if config.workers is None else config.workers
    return HostLoop(
        Fleet(**shared),
        hyper,
        chunk,
        HostEnvironments(environment, seeds, config.environments, workers=workers, purpose="collect"),
        HostEnvironments(environment, seeds, config.evaluation_episodes, workers=workers, purpose="evaluate"),
    )


def check_memory(learner: Learner, members: int) -> int:
    """The replay's bytes on one device, refused with the figure where they cannot fit."""
    devices = jax.devices()
    shards = max(count for count in range(1, len(devices) + 1) if members % count == 0)
    # Devices of a CPU backend share the machine's memory.
    needed = learner.ring.nbytes * members // (1 if devices[0].platform == "cpu" else shards)
    free = free_bytes(devices[0])
    if free is not None and needed > free:
        raise SadqError(
            f"The replay needs {_gigabytes(needed)} for {members} members of {learner.ring.capacity:,} transitions, but "
            f"{devices[0].device_kind} has {_gigabytes(free)} free: lower buffer_size or the number of members."
        )
    return needed


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
        names = os.sysconf_names
        if "SC_AVPHYS_PAGES" in names:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return None


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB"


def resolve(environment: Any, settings: dict[str, Any] | None = None) -> Environment | HostSpec:
    """A name, with the settings that it is to be made with, or an object as an environment."""
    made = registry.make(environment, settings=settings)
    if isinstance(made, Environment):
        _check_shapes(made)
    return made


def _check_shapes(environment: Environment) -> None:
    """Refuse a native environment whose functions give other shapes than it says, before anything is compiled."""

    def episode(key: Key) -> tuple[Any, Any]:
        timed = base.reset(environment, key)
        return environment.observe(timed.state), base.step(environment, timed, jnp.int32(0), key)[1]

    try:
        first, step = jax.eval_shape(episode, keys.member_key(0))
    except Exception as error:
        raise SadqError(f"environment {environment.name} cannot be compiled: {one_line(error)}") from error
    size = (environment.observation_size,)
    found: dict[str, tuple[Any, tuple[int, ...]]]
    found = {"an observation": (first.shape, size), "a next observation": (step.observation.shape, size)}
    found |= {"a reward": (step.reward.shape, ()), "terminated": (step.terminated.shape, ())}
    for name, (shape, expected) in found.items():
        if shape != expected:
            raise SadqError(
                f"environment {environment.name} returns {name} of shape {shape}, expected {expected}: fix it."
            )

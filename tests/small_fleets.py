"""Tiny fleets bound to their loops by hand, where a test needs more of them than `tiny.loop_of` gives."""

from typing import Any

from sadq.envs.base import Environment
from sadq.envs.host import NativeAsHost
from sadq.experiment.build import hyper_of, make_learner, members_of, resolve
from sadq.experiment.config import Config
from sadq.fleet.host_loop import HostLoop
from sadq.fleet.members import Fleet
from sadq.fleet.scan_loop import ScanFleet, ScanLoop
from sadq.learning.state import Hyper
from tiny import CHUNK


def parts(made: Config, environment: Environment) -> dict[str, Any]:
    """What both loops' fleets are made of."""
    return {
        "learner": make_learner(made, environment),
        "exploration": made.behaviour,
        "epsilon_decay": made.epsilon.schedule,
        "evaluation_episodes": made.evaluation_episodes,
    }


def scan_fleet(made: Config, environment: Environment | None = None, **fields: Any) -> ScanFleet:
    native = resolve(made.environment if environment is None else environment)
    return ScanFleet(**parts(made, native), environment=native, **fields)


def scan_loop(
    made: Config,
    environment: Environment | None = None,
    chunk: int = CHUNK,
    hyper: Hyper | None = None,
    **fields: Any,
) -> ScanLoop:
    return ScanLoop(scan_fleet(made, environment, **fields), hyper_of(made) if hyper is None else hyper, chunk)


def host_loop(
    made: Config, environment: Environment | None = None, chunk: int = CHUNK, hyper: Hyper | None = None
) -> HostLoop:
    """The same fleet over the same native environment, stepped from outside."""
    native = resolve(made.environment if environment is None else environment)
    seeds = [own["seed"] for own in members_of(made)]
    return HostLoop(
        Fleet(**parts(made, native)),
        hyper_of(made) if hyper is None else hyper,
        chunk,
        NativeAsHost(native, seeds, made.environments),
        NativeAsHost(native, seeds, made.evaluation_episodes, purpose="evaluate"),
        made.overlap,
    )

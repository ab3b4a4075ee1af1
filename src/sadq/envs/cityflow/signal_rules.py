"""Signal policies that need no learning: what an agent on CityFlow has to beat. Ties go to the first green."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sadq.envs.cityflow.control import Control
from sadq.envs.cityflow.environment import CityFlow
from sadq.envs.fixed_policies import Policy, uniform
from sadq.types import Array, Key, PyTree

Rule = Callable[[Control, Any, Any, Any], Any]
"""(control, decision i32[], vehicles f[L], waiting f[L]) -> score f32[S, G] of every green; NumPy or JAX."""


def constant(control: Control, decision: Any, vehicles: Any, waiting: Any) -> Any:
    """Always the first green."""
    return -np.arange(control.green_phase.shape[1]) * np.ones((len(control.signals), 1), np.float32)


def cyclic(control: Control, decision: Any, vehicles: Any, waiting: Any) -> Any:
    """Each green in turn."""
    turn = decision % control.greens[:, None] == np.arange(control.green_phase.shape[1])
    return turn * np.float32(1)


def longest_queue(control: Control, decision: Any, vehicles: Any, waiting: Any) -> Any:
    """The green that most waiting vehicles have been waiting for."""
    return (control.service * control.local(waiting)[:, None]).sum(2)


def max_pressure(control: Control, decision: Any, vehicles: Any, waiting: Any) -> Any:
    """The green with the most vehicles before it, less those on the lanes that it leads to (Varaiya, 2013)."""
    return (control.pressure * control.local(vehicles)[:, None]).sum(2)


RULES: dict[str, Rule] = {
    "constant": constant,
    "cyclic": cyclic,
    "longest_queue": longest_queue,
    "max_pressure": max_pressure,
}


def by_rule(rule: Rule) -> Callable[[CityFlow], Policy]:
    """A rule as a policy of the native environment."""

    def make(environment: CityFlow) -> Policy:
        def act(state: PyTree, observation: Array, step: Array, key: Key) -> Array:
            return environment.control.best(rule(environment.control, step, state.vehicles, state.waiting))

        return act

    return make


POLICIES: dict[str, Callable[[CityFlow], Policy]] = {
    "random": uniform,
    **{name: by_rule(rule) for name, rule in RULES.items()},
}

"""Behaviour is two choices and a number: which action is meant, what a deviation is, and epsilon, which may be 0."""

from dataclasses import dataclass, field
from typing import Protocol

from sadq import keys
from sadq.exploration.deviations import Deviation, RandomAction
from sadq.exploration.intentions import Best, Intention
from sadq.exploration.situation import Situation
from sadq.networks.network import Network
from sadq.registry import Axis
from sadq.types import Array, Key, PyTree

EXPLORATIONS = Axis("exploration", "a whole behaviour, in place of an intention and a deviation")


class Exploration(Protocol):
    """A whole behaviour: what both loops act by."""

    def init(self, lanes: int, networks: Network) -> PyTree:
        """The memory before the first step."""

    def begin(self, networks: Network, key: Key, memory: PyTree) -> PyTree:
        """What may be drawn once for a whole collect, whose networks stand still."""

    def act(self, now: Situation, memory: PyTree) -> tuple[Array, PyTree]:
        """(actions i32[E], memory)."""


@dataclass(frozen=True)
class Behaviour:
    """The intended action, or with probability epsilon a deviation from it."""

    intended: Intention = field(default_factory=Best)
    deviation: Deviation = field(default_factory=RandomAction)

    def init(self, lanes: int, networks: Network) -> PyTree:
        return self.intended.init(lanes, networks), self.deviation.init(lanes, networks)

    def begin(self, networks: Network, key: Key, memory: PyTree) -> PyTree:
        intended, deviation = memory
        return (
            self.intended.begin(networks, keys.purpose(key, "intended"), intended),
            self.deviation.begin(networks, keys.purpose(key, "deviation"), deviation),
        )

    def act(self, now: Situation, memory: PyTree) -> tuple[Array, PyTree]:
        meant, intended = self.intended.act(now, memory[0])
        action, deviation = self.deviation.deviate(now, meant, memory[1])
        return action, (intended, deviation)

"""Behaviour is two choices and a number: which action is meant, what a deviation is, and epsilon, which may be 0."""

from dataclasses import dataclass, field

from sadq import keys
from sadq.exploration.deviations import RandomAction
from sadq.exploration.intentions import Best
from sadq.exploration.situation import Rule, Situation
from sadq.networks.network import Network
from sadq.registry import Axis
from sadq.types import Array, Key, PyTree

EXPLORATIONS = Axis(
    "exploration", "a whole behaviour, in place of an intention and a deviation", "init", "begin", "act"
)


@dataclass(frozen=True)
class Behaviour(Rule):
    """The intended action, or with probability epsilon a deviation from it."""

    intended: Rule = field(default_factory=Best)
    deviation: Rule = field(default_factory=RandomAction)

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
        action, deviation = self.deviation.act(now._replace(intended=meant), memory[1])
        return action, (intended, deviation)

"""How values become behaviour: intentions, deviations, and the two together; imports `networks`."""

from sadq.exploration.behaviour import EXPLORATIONS, Behaviour
from sadq.exploration.deviations import DEVIATIONS, Counteractive, EpsilonZ, Never, RandomAction
from sadq.exploration.intentions import INTENTIONS, Best, Thompson, UpperConfidence
from sadq.exploration.situation import Noise, Rule, Situation, best_actions, random_actions

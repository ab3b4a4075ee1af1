"""How values become behaviour: intentions, deviations, and the two together; imports `networks`."""

from sadq.exploration.behaviour import EXPLORATIONS, Behaviour, Exploration
from sadq.exploration.deviations import DEVIATIONS, Counteractive, Deviation, EpsilonZ, Never, RandomAction
from sadq.exploration.intentions import INTENTIONS, Best, Intention, Memoryless, Thompson, UpperConfidence
from sadq.exploration.situation import Noise, Situation, best_actions, random_actions

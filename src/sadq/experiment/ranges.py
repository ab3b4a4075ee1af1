"""The range of returns that a categorical head covers: given, known of an environment, or estimated and shown."""

import dataclasses

from sadq.envs.base import Environment
from sadq.envs.contract import HostSpec
from sadq.envs.random_play import RANGE_EPISODES, estimated_range
from sadq.experiment.config import Config
from sadq.experiment.presets import return_range
from sadq.learning.rewards import Rewards
from sadq.networks import Categorical

EARLIER = (-100.0, 100.0)
"""What earlier versions took in an environment that they did not know."""


def range_of(config: Config, environment: Environment | HostSpec) -> tuple[float, float] | None:
    """The range that is known without a look at the environment."""
    if config.return_range is not None:
        low, high = config.return_range
        return low, high
    known = return_range(environment.name)
    return known if known is not None and rewards_of(config).plain else None


def rewards_of(config: Config) -> Rewards:
    return Rewards(config.reward_scale, config.reward_clip)


def is_open(config: Config, environment: Environment | HostSpec) -> bool:
    """Whether a head has to know a range that nobody has given."""
    head = config.row.head
    return isinstance(head, Categorical) and head.support is None and range_of(config, environment) is None


def settled(config: Config, environment: Environment | HostSpec) -> tuple[Config, str | None]:
    """(the config with a range wherever one is needed, what to say of an estimate)."""
    if not is_open(config, environment):
        return config, None
    low, high = estimated_range(environment, max(config.discount), rewards_of(config).learned)
    said = (
        f"return_range = {low:g} {high:g} for the categorical head, estimated from {RANGE_EPISODES} random episodes of "
        f"{environment.name}: give return_range, or head.support, where you know better."
    )
    return dataclasses.replace(config, return_range=(low, high)), said


def of_earlier_version(config: Config, environment: Environment | HostSpec) -> str | None:
    """What to say of a run that was begun before ranges were estimated."""
    if not is_open(config, environment):
        return None
    return f"its categorical head covers returns from {EARLIER[0]:g} to {EARLIER[1]:g}, as versions before this one had it."

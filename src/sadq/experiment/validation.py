"""What a config must satisfy as a whole to run; types, and a choice's own settings, are checked where it is made."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sadq.agents import check_row
from sadq.axes import axis_of
from sadq.registry import at_least, not_negative, positive, require, share, shown

if TYPE_CHECKING:
    from sadq.experiment.config import Config


def refusals(config: "Config") -> Iterator[str]:
    """What keeps a config from running, the field, its value and what was expected: each check may rely on those before."""
    for setting in config.environment_settings:
        name, equals, _ = setting.partition("=")
        if not equals or not name.isidentifier():
            yield f"environment_settings has {setting!r}: expected name=value, for instance source=hour."
    if not config.seeds:
        yield "No seeds were given: a run needs at least one."
    if len(set(config.seeds)) < len(config.seeds):
        yield f"A seed appears twice in {shown(config.seeds)}: give each one once."
    if not all(0 <= seed < 2**32 for seed in config.seeds):
        yield f"Seeds {shown(config.seeds)} must lie in 0 ... 2^32 - 1."
    at_least(config, 1, "steps", "batch_size", "environments", "collect", "updates_per_collect", "buffer_size")
    at_least(config, 1, "evaluations", "evaluation_episodes")
    at_least(config, 1, "n_step", "target_update_interval", "max_episode_steps", or_none=True)
    at_least(config, 0, "learning_starts")
    at_least(config, 0, "workers", or_none=True)
    positive(config, "learning_rate", swept=True)
    share(config, "discount", swept=True)
    not_negative(config, "checkpoint_seconds")
    positive(config, "soft_target_rate", "max_gradient_norm", "reward_clip", or_none=True)
    positive(config, "reward_scale")
    span = config.return_range
    ordered = span is None or (len(span) == 2 and -math.inf < span[0] < span[1] < math.inf)
    require(config, ordered, "return_range", "must be two numbers, the smaller one first")
    require(config, (config.soft_target_rate or 0) <= 1, "soft_target_rate", "must be at most 1: a share of the way")

    for choice in config.adjusted:
        if axis_of(type(choice)) is None:
            yield f"adjusted has {shown(choice)}, expected choices that are registered on an axis."
    kinds = [type(one).__name__ for one in config.adjusted]
    if len(set(kinds)) < len(kinds):
        yield f"adjusted = {', '.join(kinds)} has an entry twice: give each one once."
    agent, own_exploration = config.agent, config.exploration is not None
    if config.guided and not config.alpha:
        yield f"Agent {agent} needs alpha, the weight of its base choice: give a number in [0, 1]."
    if config.guided:
        share(config, "alpha", swept=True)
    elif config.alpha is not None:
        given = f"alpha = {' '.join(map(str, config.alpha))} was given"
        yield f"{given}, but {agent} is a plain agent that has none: use {agent}+sadq, or leave alpha out."
    if config.model_from is not None and not config.guided:
        yield f"model_from was given, but {agent} is a plain agent that has no model: use {agent}+sadq, or leave it out."
    if own_exploration and not (config.intended is config.deviation is None):
        yield "exploration was given beside intended or deviation, which it replaces: give the whole or its parts."
    check_row(config.row, agent, own_exploration)
    if config.target_update_interval is None and config.soft_target_rate is None:
        yield "The target network would never move: give target_update_interval or soft_target_rate."

    # A replay must hold, and a collect must bring, what an update learns from.
    n_step, together, collect = config.row.n_step, config.environments, config.collect
    if collect % together:
        yield f"collect = {collect} must be a multiple of environments = {together}, for they step together."
    if config.buffer_size // together < collect // together + n_step - 1:
        needed = collect + together * (n_step - 1)
        yield f"buffer_size = {config.buffer_size} is too small: it must hold at least one collect, {needed} transitions."
    if collect // together < n_step:
        why = "so that the first update has a complete return to learn from"
        yield f"n_step = {n_step} must not exceed the {collect // together} steps of a collect, {why}."

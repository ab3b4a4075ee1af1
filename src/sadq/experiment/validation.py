"""What a config must satisfy as a whole to run; a choice's own settings are checked where it is made."""

from typing import TYPE_CHECKING, Any

from sadq.agents import check_row, parse_agent
from sadq.axes import AXES
from sadq.errors import SadqError
from sadq.registry import at_least, not_negative, one_of, positive, require

if TYPE_CHECKING:
    from sadq.experiment.config import Config


def check(condition: bool, sentence: str) -> None:
    """Refuse with a sentence unless the condition holds."""
    if not condition:
        raise SadqError(sentence)


def numbers(part: Any, *settings: str, largest: float | None = None) -> None:
    """Refuse settings that may be swept, unless they are one or more numbers: in [0, largest], or positive."""
    for setting in settings:
        values = getattr(part, setting)
        several = isinstance(values, tuple) and len(values) > 0 and all(isinstance(one, int | float) for one in values)
        require(part, several, setting, "must be a tuple of numbers: one, or several for a sweep")
        if largest is None:
            require(part, all(0 < one < 3e38 for one in values), setting, "must be positive")
        else:
            require(part, all(0 <= one <= largest for one in values), setting, f"must lie in [0, {largest:g}]")


def validate(config: "Config") -> None:
    """Refuse what cannot run, naming the field, its value and what was expected."""
    for setting in config.environment_settings:
        name, equals, _ = setting.partition("=")
        check(
            bool(equals) and name.isidentifier(),
            f"environment_settings has {setting!r}: expected name=value, for instance source=hour.",
        )
    check(len(config.seeds) > 0, "No seeds were given: a run needs at least one.")
    check(len(set(config.seeds)) == len(config.seeds), f"A seed appears twice in {config.seeds}: give each one once.")
    check(all(0 <= seed < 2**32 for seed in config.seeds), f"Seeds {config.seeds} must lie in 0 ... 2^32 - 1.")
    at_least(config, 1, "steps", "batch_size", "environments", "collect", "updates_per_collect", "buffer_size")
    at_least(config, 1, "evaluations", "evaluation_episodes")
    at_least(config, 1, "n_step", "target_update_interval", or_none=True)
    at_least(config, 0, "learning_starts")
    at_least(config, 0, "workers", or_none=True)
    numbers(config, "learning_rate")
    numbers(config, "discount", largest=1.0)
    not_negative(config, "checkpoint_seconds")
    positive(config, "soft_target_rate", "max_gradient_norm", or_none=True)
    one_of(config, "learning_rate_schedule", "constant", "linear")
    one_of(config, "target_update_unit", "steps", "updates")
    for flag in ("dueling", "noisy"):
        require(config, getattr(config, flag) in (None, True, False), flag, "must be True, False or None")
    require(config, (config.soft_target_rate or 0) <= 1, "soft_target_rate", "must be at most 1: a share of the way")
    _validate_agent(config)
    check(
        config.target_update_interval is not None or config.soft_target_rate is not None,
        "The target network would never move: give target_update_interval or soft_target_rate.",
    )
    _validate_sizes(config)


def _validate_agent(config: "Config") -> None:
    kinds = [axis_of(one) and type(one).__name__ for one in config.adjusted]
    check(len(set(kinds)) == len(kinds), f"adjusted = {', '.join(kinds)} has an entry twice: give each one once.")
    _, guided = parse_agent(config.agent)
    if guided:
        check(
            bool(config.alpha),
            f"Agent {config.agent} needs alpha, the weight of its base choice: give a number in [0, 1].",
        )
        numbers(config, "alpha", largest=1.0)
    else:
        check(
            config.alpha is None,
            f"alpha = {' '.join(map(str, config.alpha or ()))} was given, but {config.agent} is a plain agent that has "
            f"none: use {config.agent}+sadq, or leave alpha out.",
        )
    check(
        config.exploration is None or config.intended is config.deviation is None,
        "exploration was given beside intended or deviation, which it replaces: give the whole or its parts.",
    )
    check_row(config.row, config.agent, own_exploration=config.exploration is not None)


def _validate_sizes(config: "Config") -> None:
    """Refuse a replay that cannot hold, or a collect that does not bring, what an update learns from."""
    n_step = config.row.n_step
    check(
        config.collect % config.environments == 0,
        f"collect = {config.collect} must be a multiple of environments = {config.environments}, "
        "for they step together.",
    )
    rows, needed = config.buffer_size // config.environments, config.collect // config.environments
    check(
        rows >= needed + n_step - 1,
        f"buffer_size = {config.buffer_size} is too small: it must hold at least one collect, "
        f"{config.collect + config.environments * (n_step - 1)} transitions.",
    )
    check(
        needed >= n_step,
        f"n_step = {n_step} must not exceed the {needed} steps of a collect, "
        "so that the first update has a complete return to learn from.",
    )


def axis_of(choice: Any) -> str:
    """The axis on which a choice is registered."""
    for name, axis in AXES.items():
        if type(choice) in map(axis.entry, axis):
            return name
    raise SadqError(f"adjusted has {choice!r}, expected choices that are registered on an axis.")

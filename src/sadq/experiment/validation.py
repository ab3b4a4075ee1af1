"""What a config must satisfy to run: each refusal names the field, its value and what was expected."""

import dataclasses
import math
import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sadq.agents import check_row, parse_agent
from sadq.errors import SadqError

if TYPE_CHECKING:
    from sadq.experiment.config import Config


def check(condition: bool, sentence: str) -> None:
    """Refuse with a sentence unless the condition holds."""
    if not condition:
        raise SadqError(sentence)


def validate(config: "Config") -> None:
    """Refuse what cannot run, naming the field, its value and what was expected."""
    _validate_choices(config)
    _, guided = parse_agent(config.agent)
    n_step = _validate_row(config)
    if guided:
        check(
            config.alpha is not None and len(config.alpha) > 0,
            f"Agent {config.agent} needs alpha, the weight of its base choice: give a number in [0, 1].",
        )
    else:
        check(
            config.alpha is None,
            f"alpha = {_shown(config.alpha)} was given, but {config.agent} is a plain agent that has none: "
            f"use {config.agent}+sadq, or leave alpha out.",
        )
    for alpha in config.alpha or ():
        check(0 <= alpha <= 1, f"alpha = {alpha} is outside [0, 1]: give the weight of the base choice as a share.")
    for setting in config.environment_settings:
        name, equals, _ = setting.partition("=")
        check(
            bool(equals) and name.isidentifier(),
            f"environment_settings has {setting!r}: expected name=value, for instance source=hour.",
        )
    check(len(config.seeds) > 0, "No seeds were given: a run needs at least one.")
    check(len(set(config.seeds)) == len(config.seeds), f"A seed appears twice in {config.seeds}: give each one once.")
    check(all(0 <= seed < 2**32 for seed in config.seeds), f"Seeds {config.seeds} must lie in 0 ... 2^32 - 1.")
    for name in [
        "steps",
        "batch_size",
        "environments",
        "collect",
        "updates_per_collect",
        "buffer_size",
        "evaluations",
        "evaluation_episodes",
        "model.batch_size",
        "model.updates_per_collect",
        "model.samples",
        "behaviour.repeat_longest",
        "distribution.quantiles",
        "distribution.levels",
        "distribution.cosines",
        "bayesian.samples",
        "bayesian.chunk",
        "bayesian.resample_interval",
    ]:
        value = _get(config, name)
        check(value >= 1, f"{name} = {value} must be at least 1.")
    for name in [
        "n_step",
        "ensemble",
        "target_update_interval",
        "model.action_chunk",
        "model.candidates",
        "bayesian.refit_interval",
    ]:
        value = _get(config, name)
        check(value is None or value >= 1, f"{name} = {value} must be at least 1, or None.")
    for name in ["hidden", "model.hidden"]:
        sizes = _get(config, name)
        check(
            len(sizes) > 0 and min(sizes) >= 1,
            f"{name} = {_shown(sizes)} must name at least one layer, of size 1 or more.",
        )
    for name in ["learning_rate", "discount", "epsilon.start", "epsilon.end", "epsilon.decay"]:
        check(len(_get(config, name)) > 0, f"{name} was given without a value: give one, or several for a sweep.")
    for name in ["behaviour.repeat_exponent", "behaviour.counteractive_starts", "behaviour.ucb_width"]:
        check(0 <= _get(config, name) < math.inf, f"{name} = {_get(config, name)} must be 0 or more.")
    for name in ["distribution.huber", "agreement.temperature"]:
        check(0 <= _get(config, name) < math.inf, f"{name} = {_get(config, name)} must be 0 or more.")
    for name in ["priority_exponent", "importance_exponent"]:
        check(0 <= _get(config, name) <= 1, f"{name} = {_get(config, name)} must lie in [0, 1].")
    check(
        0 <= config.checkpoint_seconds < math.inf,
        f"checkpoint_seconds = {config.checkpoint_seconds} must be 0 or more.",
    )
    check(config.workers is None or config.workers >= 0, f"workers = {config.workers} must be 0 or more, or None.")
    for name in [
        "learning_rate",
        "model.learning_rate",
        "model.state_scale",
        "epsilon.decay",
        "distribution.fraction_learning_rate",
        "bayesian.prior_deviation",
        "bayesian.noise_deviation",
    ]:
        for value in _several(_get(config, name)):
            check(0 < value < 3e38, f"{name} = {value} must be a positive number.")
    for name in ["epsilon.start", "epsilon.end", "discount"]:
        for value in _get(config, name):
            check(0 <= value <= 1, f"{name} = {value} must lie in [0, 1].")
    for name in ["soft_target_rate", "max_gradient_norm", "huber"]:
        value = _get(config, name)
        check(value is None or 0 < value < math.inf, f"{name} = {value} must be a positive number, or None.")
    check(
        config.soft_target_rate is None or config.soft_target_rate <= 1,
        f"soft_target_rate = {config.soft_target_rate} must be at most 1: it is a share of the way.",
    )
    check(
        config.target_update_interval is not None or config.soft_target_rate is not None,
        "The target network would never move: give target_update_interval or soft_target_rate.",
    )
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
        config.collect // config.environments >= n_step,
        f"n_step = {n_step} must not exceed the {needed} steps of a collect, "
        "so that the first update has a complete return to learn from.",
    )


def _validate_choices(part: Any, where: str = "") -> None:
    """Refuse a name that is none of those a field takes, which only the command line would notice."""
    for name, kind in typing.get_type_hints(type(part)).items():
        value = getattr(part, name)
        if dataclasses.is_dataclass(value):
            _validate_choices(value, f"{where}{name}.")
        choices = [choice for option in (kind, *typing.get_args(kind)) for choice in _choices(option)]
        choices += [added for added in _added(name) if added not in choices]
        optional = type(None) in typing.get_args(kind)
        check(
            not choices or value in choices or (optional and value is None),
            f"{where}{name} = {value!r} is unknown: expected {', '.join(choices)}{', or None' if optional else ''}.",
        )


def _added(field: str) -> Iterable[str]:
    """Names that a program may have added to those a field takes; imported late, as JAX comes with them."""
    if field == "gate":
        from sadq.core.gates import GATES

        return GATES
    if field == "bootstrap":
        from sadq.core.bootstrap import RULES

        return RULES
    return ()


def _choices(kind: Any) -> tuple[str, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()


def _validate_row(config: "Config") -> int:
    """Refuse combinations of axes that make no sense; gives the n of the n-step return."""
    check(config.ensemble is None or config.ensemble >= 1, f"ensemble = {config.ensemble} must be at least 1, or None.")
    row, distribution = config.row, config.distribution
    check_row(row, config.agent)
    check(distribution.atoms >= 2, f"distribution.atoms = {distribution.atoms} must be at least 2.")
    check(
        row.head != "fraction" or distribution.levels >= 2,
        f"distribution.levels = {distribution.levels} must be at least 2 for head fraction, which moves what divides them.",
    )
    if distribution.support is not None:
        low, high = distribution.support
        check(
            -math.inf < low < high < math.inf,
            f"distribution.support = {low} {high} must be two numbers, the smaller one first.",
        )
    check(
        distribution.mixing == "interpolate" or row.head in ("quantile", "implicit", "fraction"),
        f"distribution.mixing = {distribution.mixing} was given, but head {row.head} has no quantiles to mix: leave it out.",
    )
    share = config.agreement.bootstrap_share
    check(0 < share <= 1, f"agreement.bootstrap_share = {share} must lie in (0, 1].")
    return row.n_step


def _get(config: "Config", name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _shown(value: Any) -> str:
    return " ".join(map(str, _several(value)))

"""Everything that defines a run, as frozen data: what is not here does not change a result."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import tyro

from sadq.agents import parse_agent
from sadq.errors import SadqError


@dataclass(frozen=True)
class Epsilon:
    """Exploration by epsilon-greedy; several values of a number make members that differ in it."""

    start: tuple[float, ...] = (1.0,)
    """Probability of a random action at step 0."""

    end: tuple[float, ...] = (0.05,)
    """Probability of a random action in the long run."""

    decay: tuple[float, ...] = (10_000.0,)
    """Env steps: the time constant of an exponential decay, or the length of a linear one."""

    schedule: Literal["exponential", "linear"] = "linear"
    """How epsilon goes from start to end."""


@dataclass(frozen=True)
class Model:
    """The learned one-step model that guides a SADQ target; unused by plain agents."""

    hidden: tuple[int, ...] = (256, 256)
    """Sizes of the hidden layers."""

    batch_size: int = 256
    """Transitions per model update, drawn apart from the value updates' and always uniformly."""

    learning_rate: float = 1e-3
    """Adam's step size."""

    updates_per_collect: int = 1
    """Model updates after each collect (the paper's k)."""

    state_scale: float = 1.0
    """States are divided by this for the model (the paper's State Norm)."""

    loss: Literal["sample", "nll"] = "sample"
    """Squared error of a sampled successor (the paper), or the Gaussian likelihood."""

    rollout: Literal["sample", "mean"] = "sample"
    """Whether a rollout samples the successor (the paper) or takes its mean."""

    samples: int = 1
    """Rollouts per action whose scores are averaged."""

    continuation: bool = False
    """Also predict whether the episode goes on, and discount the score by it."""

    gate: Literal["fixed", "batch", "sample"] = "fixed"
    """How far the model is trusted: always (the paper), or by its error over the batch or against each preference."""

    action_chunk: int | None = None
    """Actions rolled out at once, to bound memory where there are many; None: all."""


@dataclass(frozen=True)
class Config:
    """A run. Fields that take several values make a fleet with a member for every combination and seed."""

    preset: tyro.conf.Suppress[str] = "default"
    """The preset that the other values started from."""

    environment: str = "CartPole-v1"
    """A native environment's name, or a Gymnasium id."""

    agent: tyro.conf.Suppress[str] = "sadq"
    """A base agent, with +sadq for its guided twin."""

    seeds: tuple[int, ...] = (0,)
    """One member per seed; on the command line a single number is how many: 0 ... n - 1."""

    steps: int = 50_000
    """Env steps of each member, rounded up to whole chunks."""

    alpha: tuple[float, ...] | None = None
    """Weight of the base choice in a SADQ target, in [0, 1]; None for plain agents."""

    discount: tuple[float, ...] = (0.99,)
    """Gamma."""

    hidden: tuple[int, ...] = (128, 128)
    """The value network's encoder; each head adds one layer of the last size."""

    batch_size: int = 128
    """Transitions per value update."""

    learning_rate: tuple[float, ...] = (1e-3,)
    """Adam's step size."""

    learning_rate_schedule: Literal["constant", "linear"] = "constant"
    """Constant, or falling linearly to zero over the run."""

    environments: int = 8
    """Environments of each member that step together."""

    collect: int = 64
    """Env steps of each member between two learning phases (the paper's Replay Frequency)."""

    updates_per_collect: int = 16
    """Value updates in each learning phase."""

    buffer_size: int = 100_000
    """Transitions that the replay holds per member."""

    replay: Literal["uniform", "prioritised"] | None = None
    """How batches are drawn; None: as the agent's row says."""

    n_step: int | None = None
    """Steps of reward in a target; None: as the agent's row says."""

    priority_exponent: float = 0.6
    """Prioritised replay: how strongly priorities matter."""

    importance_exponent: float = 0.4
    """Prioritised replay: the initial strength of the correction, which grows to 1 over the run."""

    target_update_interval: int | None = None
    """Copy the online network to the target this often; None: only soft updates."""

    target_update_unit: Literal["steps", "updates"] = "steps"
    """What the interval counts: env steps of a member, or value updates."""

    soft_target_rate: float | None = None
    """Move the target this share of the way at every update; None: only hard updates."""

    max_gradient_norm: float | None = None
    """Clip the gradient's global norm; None: never."""

    huber: float | None = None
    """Where the loss of a scalar value turns from quadratic to linear; None: squared error."""

    time_limit_is_terminal: bool = False
    """Whether a time limit ends the return (the paper's vector presets) or is bootstrapped through."""

    epsilon: Epsilon = field(default_factory=Epsilon)
    """Exploration."""

    model: Model = field(default_factory=Model)
    """The dynamics model of SADQ."""

    evaluations: int = 100
    """Greedy evaluations spread over the run, beside the ones at its start and end."""

    evaluation_episodes: int = 8
    """Episodes per evaluation and member."""

    workers: int | None = None
    """Processes that step host environments: 0 for none, None to measure and decide."""

    deterministic: bool = False
    """Bitwise repeatable on a GPU too, at some cost; a CPU always is."""

    checkpoint_seconds: float = 60.0
    """Wall-clock time between checkpoints; changes no result."""

    def __post_init__(self) -> None:
        validate(self)

    @property
    def guided(self) -> bool:
        return parse_agent(self.agent)[1]


def check(condition: bool, sentence: str) -> None:
    """Refuse with a sentence unless the condition holds."""
    if not condition:
        raise SadqError(sentence)


def validate(config: Config) -> None:
    """Refuse what cannot run, naming the field, its value and what was expected."""
    _, guided = parse_agent(config.agent)
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
    ]:
        value = _get(config, name)
        check(value >= 1, f"{name} = {value} must be at least 1.")
    for name in ["n_step", "target_update_interval", "model.action_chunk"]:
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
    for name in ["priority_exponent", "importance_exponent"]:
        check(0 <= _get(config, name) <= 1, f"{name} = {_get(config, name)} must lie in [0, 1].")
    check(
        0 <= config.checkpoint_seconds < math.inf,
        f"checkpoint_seconds = {config.checkpoint_seconds} must be 0 or more.",
    )
    check(config.workers is None or config.workers >= 0, f"workers = {config.workers} must be 0 or more, or None.")
    for name in ["learning_rate", "model.learning_rate", "model.state_scale", "epsilon.decay"]:
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
        rows >= needed + (config.n_step or 1) - 1,
        f"buffer_size = {config.buffer_size} is too small: it must hold at least one collect, "
        f"{config.collect + config.environments * ((config.n_step or 1) - 1)} transitions.",
    )
    check(
        config.collect // config.environments >= (config.n_step or 1),
        f"n_step = {config.n_step} must not exceed the {needed} steps of a collect, "
        "so that the first update has a complete return to learn from.",
    )


def _get(config: Config, name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _shown(value: Any) -> str:
    return " ".join(map(str, _several(value)))

"""Everything that defines a run, as frozen data: what is not here does not change a result."""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Literal

import tyro

from sadq.agents import AGENTS, AgentSpec, parse_agent
from sadq.experiment.validation import validate


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

    candidates: int | None = None
    """Roll out only so many actions, those with the best target values; None: all (the paper)."""


@dataclass(frozen=True)
class Behaviour:
    """The numbers of explorations other than epsilon-greedy; each is unused by the others."""

    repeat_exponent: float = 2.0
    """epsilon-z: a random action is kept for n steps with probability proportional to n^-exponent (TEG: 2)."""

    repeat_longest: int = 100
    """epsilon-z: the largest n."""

    counteractive_starts: int = 1600
    """counteractive: env steps before which a random action is uniform rather than the worst; 0: never uniform."""

    ucb_width: float = 1.0
    """ucb: standard deviations of the ensemble that are added to its mean (SUNRISE's lambda)."""


@dataclass(frozen=True)
class Distribution:
    """What distributional heads predict; unused by scalar and Bayesian ones."""

    atoms: int = 51
    """categorical: how many returns have a probability of their own (C51)."""

    support: tuple[float, float] | None = None
    """categorical: the smallest and the largest of them; None: by environment, -100 and 100 for unknown ones."""

    quantiles: int = 200
    """quantile: how many levels (QR-DQN)."""

    levels: int = 32
    """implicit and fraction: levels per forward pass, the same for learning, targets and acting (IQN's N, N', K)."""

    cosines: int = 64
    """implicit and fraction: size of a level's cosine embedding."""

    huber: float = 1.0
    """Where the quantile loss turns from quadratic to linear (kappa); 0: linear throughout."""

    mixing: Literal["interpolate", "mixture"] = "interpolate"
    """How SADQ combines two quantile returns: level by level (the paper), or as a true mixture."""

    fraction_learning_rate: float = 1e-4
    """fraction: RMSprop's step size for the proposed fractions (DI-engine's CartPole setting)."""


@dataclass(frozen=True)
class Bayesian:
    """The inference of a Bayesian head (BDQN); unused by others."""

    prior_deviation: float = 1.0
    """sigma of the prior over last-layer weights."""

    noise_deviation: float = 1.0
    """sigma_n of a return around its expectation."""

    samples: int = 10_000
    """Transitions that a refit looks at."""

    chunk: int = 500
    """Of these at a time, to bound memory."""

    refit_interval: int | None = None
    """Env steps between refits; None: at each copy to the target network, 2000 where there is none."""

    resample_interval: int = 1000
    """Env steps after which weights are drawn anew, as they also are for every episode."""


@dataclass(frozen=True)
class Agreement:
    """How an ensemble learns (SUNRISE); unused by single networks."""

    temperature: float = 10.0
    """A backup weighs sigmoid(-T * std) + 1/2, with the ensemble's standard deviation of the value at s'."""

    bootstrap_share: float = 1.0
    """The share of transitions that each network learns from (beta of the Bernoulli masks)."""


@dataclass(frozen=True)
class Config:
    """A run. Fields that take several values make a fleet with a member for every combination and seed."""

    preset: tyro.conf.Suppress[str] = "default"
    """The preset that the other values started from."""

    environment: str = "CartPole-v1"
    """A native environment's name, or a Gymnasium id."""

    environment_settings: tuple[str, ...] = ()
    """What the environment is made with, as name=value: fields of a native one, arguments of a Gymnasium one."""

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

    head: Literal["scalar", "categorical", "quantile", "implicit", "fraction", "bayesian"] | None = None
    """What the network predicts for every action; None, here and below: as the agent's row says."""

    dueling: bool | None = None
    """Whether the head splits into value and advantage."""

    noisy: bool | None = None
    """Whether the head's layers have learned noise."""

    ensemble: int | None = None
    """Networks that learn side by side."""

    bootstrap: Literal["greedy", "double"] | None = None
    """Which next action a target is formed from."""

    exploration: Literal["epsilon", "greedy", "epsilon-z", "counteractive", "thompson", "ucb"] | None = None
    """How values become behaviour."""

    replay: Literal["uniform", "prioritised"] | None = None
    """How batches are drawn."""

    n_step: int | None = None
    """Steps of reward in a target."""

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

    behaviour: Behaviour = field(default_factory=Behaviour)
    """Exploration by other rules."""

    distribution: Distribution = field(default_factory=Distribution)
    """Distributional heads."""

    bayesian: Bayesian = field(default_factory=Bayesian)
    """The Bayesian head."""

    agreement: Agreement = field(default_factory=Agreement)
    """Ensembles."""

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

    @property
    def settings(self) -> dict[str, Any]:
        """`environment_settings` by name; a value is JSON where it can be read as that, else text."""
        return dict(_setting(one) for one in self.environment_settings)

    @property
    def row(self) -> AgentSpec:
        """The agent's choice on every axis, with this config's own where it makes one."""
        base = AGENTS[parse_agent(self.agent)[0]]
        own = {axis.name: getattr(self, axis.name) for axis in dataclasses.fields(base)}
        return dataclasses.replace(base, **{axis: value for axis, value in own.items() if value is not None})


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value

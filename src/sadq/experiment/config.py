"""Everything that defines a run, as frozen data: what is not here does not change a result."""

import contextlib
import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

from sadq.agents import AGENTS, AgentSpec, parse_agent
from sadq.axes import AXES
from sadq.core.gates import Fixed
from sadq.core.optimisers import Adam
from sadq.core.schedules import EverySlot
from sadq.dynamics.gaussian import Gaussian
from sadq.errors import SadqError
from sadq.experiment.validation import refusals
from sadq.exploration import Behaviour
from sadq.networks import Dense
from sadq.networks.precision import Compute
from sadq.registry import at_least, changes, positive, share, typed


@typed
@dataclass(frozen=True)
class Epsilon:
    """How often the agent deviates from the action it means; several values of a number make members that differ in it."""

    start: tuple[float, ...] = (1.0,)
    """Probability of a deviation at step 0."""
    end: tuple[float, ...] = (0.05,)
    """Probability of a deviation in the long run."""
    decay: tuple[float, ...] = (10_000.0,)
    """Env steps: the time constant of an exponential decay, or the length of a linear one."""
    schedule: Literal["exponential", "linear"] = "linear"
    """How epsilon goes from start to end."""

    def __post_init__(self) -> None:
        share(self, "start", "end", swept=True)
        positive(self, "decay", swept=True)


@typed
@dataclass(frozen=True)
class GuidanceSettings:
    """How SADQ's model is learned and asked; unused by plain agents."""

    updates_per_collect: int = 1
    """Slots for a model update after each collect (the paper's k)."""
    batch_size: int = 256
    """Transitions per model update, drawn apart from the value updates' and always uniformly."""
    learning_rate: float = 1e-3
    """The optimiser's step size for the model."""
    optimiser: Any = Adam()
    """From the model's gradients to its steps."""

    samples: int = 1
    """Rollouts per action whose scores are averaged."""
    action_chunk: int | None = None
    """Actions rolled out at once, to bound memory where there are many; None: all."""
    candidates: int | None = None
    """Roll out only so many actions, those with the best target values; None: all (the paper)."""
    agreement: float | None = None
    """So much agreement with the base beyond chance a model needs to be heard, unless episodes are short; None: none."""
    allowance: float | None = None
    """Values may fall by so many value gaps in all for hearing the model; None: by any number (the paper)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "optimiser", AXES["optimiser"].choice(self.optimiser))
        at_least(self, 1, "updates_per_collect", "batch_size", "samples")
        at_least(self, 1, "action_chunk", "candidates", or_none=True)
        positive(self, "learning_rate")
        positive(self, "agreement", "allowance", or_none=True)


@typed
@dataclass(frozen=True)
class Config:
    """A run. Fields that take several values make a fleet with a member for every combination and seed.

    A field that is an axis takes a choice, its class or its name; those that default to None are as the agent's row says.
    """

    preset: str = "default"
    """The preset that the other values started from."""
    environment: str = "CartPole-v1"
    """A native environment's name, or a Gymnasium id."""
    environment_settings: tuple[str, ...] = ()
    """What the environment is made with, as name=value: fields of a native one, arguments of a Gymnasium one."""
    max_episode_steps: int | None = None
    """Steps after which an episode is cut off; None: as the environment says."""
    measures: tuple[str, ...] = ()
    """Entries of a Gymnasium environment's `info` at the end of an episode that evaluations tell, by name."""
    agent: str = "sadq"
    """A base agent, with +sadq for its guided twin."""
    seeds: tuple[int, ...] = (0,)
    """One member per seed; on the command line a single number is how many: 0 ... n - 1; `--seed 7` is that one."""

    steps: int = 50_000
    """Env steps of each member, rounded up to whole chunks."""
    learning_starts: int = 0
    """Env steps of each member before which actions are uniform and nothing is learned."""
    alpha: tuple[float, ...] | None = None
    """Weight of the base choice in a SADQ target, in [0, 1]; None for plain agents."""
    discount: tuple[float, ...] = (0.99,)
    """Gamma."""

    batch_size: int = 128
    """Transitions per value update."""
    learning_rate: tuple[float, ...] = (1e-3,)
    """The optimiser's step size."""
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
    overlap: bool = False
    """Learn from a collect while the next one is stepped, whose actions are then by networks a collect older: for
    environments outside JAX."""

    normalise_observations: bool = False
    """Whether networks and model see observations less their running mean, in running deviations, cut off at 10."""
    reward_scale: float = 1.0
    """What rewards are multiplied with before they are learned from; evaluations tell the environment's own."""
    reward_clip: float | None = None
    """Cut rewards off at plus and minus this, after they were scaled; None: never."""

    return_range: tuple[float, ...] | None = None
    """The smallest and the largest discounted return, for heads that must know; None: by environment, else estimated."""

    encoder: Any = Dense()
    """From an observation to features; each head adds one layer of their size."""
    head: Any = None
    """What the network predicts for every action."""
    dueling: bool | None = None
    """Whether the head splits into value and advantage; None: as the agent's row says."""
    noisy: bool | None = None
    """Whether the head's layers have learned noise; None: as the agent's row says."""
    ensemble: Any = None
    """Networks that learn side by side from one replay."""
    compute: Compute = "float32"
    """In which precision networks and model rssm multiply while they learn; parameters are float32 always."""

    bootstrap: Any = None
    """Which next action a target is formed from."""
    intended: Any = None
    """Which action is meant."""
    deviation: Any = None
    """What is done instead, with probability epsilon."""
    exploration: Any = None
    """A whole behaviour of your own, in place of intended and deviation."""
    replay: Any = None
    """How batches are drawn."""
    n_step: int | None = None
    """Steps of reward in a target; None: as the agent's row says."""

    target_update_interval: int | None = None
    """Copy the online network to the target this often; None: only soft updates."""
    target_update_unit: Literal["steps", "updates"] = "steps"
    """What the interval counts: env steps of a member, or value updates."""
    soft_target_rate: float | None = None
    """Move the target this share of the way at every update; None: only hard updates."""
    optimiser: Any = Adam()
    """From gradients to steps."""
    max_gradient_norm: float | None = None
    """Clip the gradient's global norm; None: never."""
    time_limit_is_terminal: bool = False
    """Whether a time limit ends the return (the paper's vector presets) or is bootstrapped through."""

    epsilon: Epsilon = Epsilon()
    """How often the agent deviates from the action it means."""

    model: Any = Gaussian()
    """The dynamics model of SADQ."""
    model_from: str | None = None
    """A run folder whose learned models this run's begin with, member by member; None: with random ones."""
    pacing: Any = EverySlot()
    """Which of its slots a model update takes."""
    gate: Any = Fixed()
    """How far the model is trusted."""
    guidance: GuidanceSettings = GuidanceSettings()
    """How SADQ's model is learned and asked."""
    adjusted: tuple[Any, ...] = ()
    """Choices whose settings stand in for the defaults of their class wherever a row or a name asks for it."""

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
        for name, axis in AXES.items():
            if getattr(Config, name) is not None or getattr(self, name) is not None:  # the class has the default
                object.__setattr__(self, name, axis.choice(getattr(self, name), self.adjusted))
        for sentence in refusals(self):
            raise SadqError(sentence)

    @property
    def guided(self) -> bool:
        return parse_agent(self.agent)[1]

    @property
    def settings(self) -> dict[str, Any]:
        """`environment_settings` by name; a value is JSON where it can be read as that, else text."""
        settings: dict[str, Any] = dict(one.split("=", 1) for one in self.environment_settings)
        for name, value in settings.items():
            with contextlib.suppress(json.JSONDecodeError):
                settings[name] = json.loads(value)
        return settings

    @property
    def row(self) -> AgentSpec:
        """The agent's choice on every axis, adjusted, or this config's own where it makes one."""
        row = dict(vars(AGENTS[parse_agent(self.agent)[0]]))
        for name, own in row.items():
            # What the row itself sets stays; the adjusted settings stand in for defaults only.
            adjusted = [dataclasses.replace(one, **changes(own)) for one in self.adjusted if type(one) is type(own)]
            chosen = getattr(self, name, None)
            row[name] = chosen if chosen is not None else adjusted[0] if adjusted else own
        return AgentSpec(**row)

    @property
    def behaviour(self) -> Any:
        """The rule that acts: the user's own, or what is meant and how it is deviated from."""
        return Behaviour(self.row.intended, self.row.deviation) if self.exploration is None else self.exploration

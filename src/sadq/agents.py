"""The agents, as rows: each names its choice on every axis, and SADQ is a suffix that any of them takes."""

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from sadq.axes import AXES
from sadq.core.bootstrap import Double, Greedy
from sadq.core.ensembles import Agreement, Single
from sadq.errors import SadqError
from sadq.exploration import Best, Counteractive, EpsilonZ, Never, RandomAction, Thompson, UpperConfidence
from sadq.networks import Bayesian, Categorical, Fraction, Implicit, Quantile, Scalar
from sadq.registry import at_least, typed
from sadq.replay.samplers import Prioritised, Uniform


@typed
@dataclass(frozen=True)
class AgentSpec:
    """One row of the table: a choice on each of these axes, given by itself, its class or its name."""

    head: Any
    bootstrap: Any = Greedy()
    intended: Any = Best()
    deviation: Any = RandomAction()
    replay: Any = Uniform()
    n_step: int = 1  # steps of reward in a target
    dueling: bool = False  # whether the head splits into value and advantage
    noisy: bool = False  # whether the head's layers have learned noise
    ensemble: Any = Single()
    source: str = "-"  # where it was published

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name in AXES:
                object.__setattr__(self, field.name, AXES[field.name].choice(getattr(self, field.name)))
        at_least(self, 1, "n_step")


_rainbow = partial(AgentSpec, Categorical(), Double(), replay=Prioritised(), n_step=3, dueling=True)

AGENTS: dict[str, AgentSpec] = {
    "dqn": AgentSpec(Scalar(), source="Mnih et al., 2015"),
    "double": AgentSpec(Scalar(), Double(), source="van Hasselt et al., 2016"),
    "dueling": AgentSpec(Scalar(), dueling=True, source="Wang et al., 2016"),
    "bdqn": AgentSpec(Bayesian(), Double(), Thompson(), Never(), source="Azizzadenesheli et al., 2018"),
    "sunrise": AgentSpec(Scalar(), intended=UpperConfidence(), ensemble=Agreement(5), source="Lee et al., 2021"),
    "c51": AgentSpec(Categorical(), source="Bellemare et al., 2017"),
    "rainbow": _rainbow(deviation=Never(), noisy=True, source="Hessel et al., 2018"),
    "qrdqn": AgentSpec(Quantile(), source="Dabney et al., 2018a"),
    "iqn": AgentSpec(Implicit(), source="Dabney et al., 2018b"),
    "fqf": AgentSpec(Fraction(), source="Yang et al., 2019"),
    "teg": _rainbow(deviation=EpsilonZ(), source="Dabney et al., 2021"),
    "coact": AgentSpec(Quantile(), deviation=Counteractive(), source="Korkmaz, 2025"),
}

SUFFIX = "+sadq"
SADQ_BACKBONE = "dueling"
"""The paper's own SADQ is built on the dueling agent."""

REFUSALS = {
    "intended ucb needs an ensemble of 2 or more: it explores where its networks disagree": (
        lambda row: isinstance(row.intended, UpperConfidence) and row.ensemble.size < 2
    ),
    "intended thompson needs head bayesian: it draws from that head's posterior": (
        lambda row: isinstance(row.intended, Thompson) and not isinstance(row.head, Bayesian)
    ),
    "noisy layers explore by themselves, and blur the uncertainty that ucb and thompson look at: use intended best": (
        lambda row: row.noisy and isinstance(row.intended, UpperConfidence | Thompson)
    ),
    "deviation never with intended best and without noisy layers never explores: add noisy, or choose another deviation": (
        lambda row: isinstance(row.deviation, Never) and isinstance(row.intended, Best) and not row.noisy
    ),
    "head bayesian infers its last layer in closed form, which can be neither dueling nor noisy": (
        lambda row: isinstance(row.head, Bayesian) and (row.dueling or row.noisy)
    ),
    "head bayesian is a distribution over networks already: use it with an ensemble of 1": (
        lambda row: isinstance(row.head, Bayesian) and row.ensemble.size > 1
    ),
}
"""Combinations that make no sense, each with the sentence that says so; all others work."""


def check_row(row: AgentSpec, name: str, own_exploration: bool = False) -> None:
    """Refuse a combination that makes no sense; an exploration of the user's own stands in for intended and deviation."""
    if own_exploration:
        row = replace(row, intended=Best(), deviation=RandomAction())
    for sentence, nonsense in REFUSALS.items():
        if nonsense(row):
            raise SadqError(f"Agent {name} cannot be combined like that: {sentence}.")


def register_agent(name: str, row: AgentSpec) -> None:
    """Add an agent: a row under a name, which then also takes the suffix."""
    if not isinstance(name, str) or not name.replace("-", "").replace("_", "").isalnum() or name != name.lower():
        raise SadqError(f"Agent {name!r} cannot be registered, expected a name of small letters, digits, - and _.")
    if not isinstance(row, AgentSpec):
        raise SadqError(f"Agent {name} was registered with {row!r}, expected a row: an AgentSpec.")
    # The same row again, as after a reload of its module, changes nothing.
    if name == "sadq" or AGENTS.get(name, row) != row:
        raise SadqError(f"Agent {name} is registered already: choose another name.")
    check_row(row, name)
    AGENTS[name] = row


def parse_agent(name: str) -> tuple[str, bool]:
    """(base agent, whether it is guided) of a name such as `dqn`, `double+sadq` or `sadq`."""
    lowered = str(name).lower()
    if lowered == "sadq":
        return SADQ_BACKBONE, True
    base = lowered.removesuffix(SUFFIX)
    if base not in AGENTS:
        raise SadqError(
            f"Unknown agent {name!r}: expected one of {', '.join(AGENTS)}, each also with the suffix {SUFFIX}, or sadq "
            f"(= {SADQ_BACKBONE}{SUFFIX}); one of your own is known once its module is imported (--import)."
        )
    return base, lowered.endswith(SUFFIX)

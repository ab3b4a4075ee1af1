"""The agents, as rows: each names its choice on every axis, and SADQ is a suffix that any of them takes."""

from dataclasses import dataclass

from sadq.errors import SadqError

HEADS = ("scalar", "categorical", "quantile", "implicit", "fraction", "bayesian")
BOOTSTRAPS = ("greedy", "double")
EXPLORATIONS = ("epsilon", "greedy", "epsilon-z", "counteractive", "thompson", "ucb")
REPLAYS = ("uniform", "prioritised")


@dataclass(frozen=True)
class AgentSpec:
    """One row of the table."""

    head: str
    """What the network predicts for every action."""

    bootstrap: str
    """Which next action the target is formed from."""

    exploration: str = "epsilon"
    """How values become behaviour."""

    replay: str = "uniform"
    """How batches are drawn."""

    n_step: int = 1
    """Steps of reward in a target."""

    dueling: bool = False
    """Whether the head splits into value and advantage."""

    noisy: bool = False
    """Whether the head's layers have learned noise."""

    ensemble: int = 1
    """Networks that learn side by side from one replay, their backups weighted by agreement."""


AGENTS: dict[str, AgentSpec] = {
    "dqn": AgentSpec("scalar", "greedy"),
    "double": AgentSpec("scalar", "double"),
    "dueling": AgentSpec("scalar", "greedy", dueling=True),
    "bdqn": AgentSpec("bayesian", "double", "thompson"),
    "sunrise": AgentSpec("scalar", "greedy", "ucb", ensemble=5),
    "c51": AgentSpec("categorical", "greedy"),
    "rainbow": AgentSpec("categorical", "double", "greedy", "prioritised", n_step=3, dueling=True, noisy=True),
    "qrdqn": AgentSpec("quantile", "greedy"),
    "iqn": AgentSpec("implicit", "greedy"),
    "fqf": AgentSpec("fraction", "greedy"),
    "teg": AgentSpec("categorical", "double", "epsilon-z", "prioritised", n_step=3, dueling=True),
    "coact": AgentSpec("quantile", "greedy", "counteractive"),
}

SUFFIX = "+sadq"
SADQ_BACKBONE = "dueling"
"""The paper's own SADQ is built on the dueling agent."""

REFUSALS = {
    "exploration ucb needs an ensemble of 2 or more: it explores where members disagree": (
        lambda row: row.exploration == "ucb" and row.ensemble < 2
    ),
    "exploration thompson needs head bayesian: it draws from that head's posterior": (
        lambda row: row.exploration == "thompson" and row.head != "bayesian"
    ),
    "noisy layers explore by themselves, and blur the uncertainty that ucb and thompson look at: use another exploration": (
        lambda row: row.noisy and row.exploration in ("ucb", "thompson")
    ),
    "exploration greedy never explores without noisy layers: add noisy, or choose another exploration": (
        lambda row: row.exploration == "greedy" and not row.noisy
    ),
    "head bayesian infers its last layer in closed form, which can be neither dueling nor noisy": (
        lambda row: row.head == "bayesian" and (row.dueling or row.noisy)
    ),
    "head bayesian is a distribution over networks already: use it with an ensemble of 1": (
        lambda row: row.head == "bayesian" and row.ensemble > 1
    ),
}
"""Combinations that make no sense, each with the sentence that says so; all others work."""


def check_row(row: AgentSpec, name: str) -> None:
    """Refuse a combination that makes no sense."""
    for sentence, nonsense in REFUSALS.items():
        if nonsense(row):
            raise SadqError(f"Agent {name} cannot be combined like that: {sentence}.")


def parse_agent(name: str) -> tuple[str, bool]:
    """(base agent, whether it is guided) of a name such as `dqn`, `double+sadq` or `sadq`."""
    lowered = name.lower()
    if lowered == "sadq":
        return SADQ_BACKBONE, True
    base = lowered.removesuffix(SUFFIX)
    if base not in AGENTS:
        known = ", ".join(AGENTS)
        raise SadqError(
            f"Unknown agent {name!r}: expected one of {known}, each also with the suffix {SUFFIX}, or sadq "
            f"(= {SADQ_BACKBONE}{SUFFIX}); `sadq list` shows them all."
        )
    return base, lowered.endswith(SUFFIX)

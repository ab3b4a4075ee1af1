"""The agents, as rows: each names its choice on every axis, and SADQ is a suffix that any of them takes."""

from dataclasses import dataclass

from sadq.errors import SadqError


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

    steps: int = 1
    """n of the n-step return."""

    dueling: bool = False
    """Whether the head splits into value and advantage."""


AGENTS: dict[str, AgentSpec] = {
    "dqn": AgentSpec(head="scalar", bootstrap="greedy"),
    "double": AgentSpec(head="scalar", bootstrap="double"),
    "dueling": AgentSpec(head="scalar", bootstrap="greedy", dueling=True),
}

SUFFIX = "+sadq"
SADQ_BACKBONE = "dueling"
"""The paper's own SADQ is built on the dueling agent."""


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

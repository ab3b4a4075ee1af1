"""What `sadq list agents` says and the README's table shows: every row, what each axis takes, what goes together."""

from collections.abc import Iterator
from typing import NamedTuple

from sadq.agents import (
    AGENTS,
    BOOTSTRAPS,
    EXPLORATIONS,
    HEADS,
    REFUSALS,
    REPLAYS,
    SADQ_BACKBONE,
    SUFFIX,
    AgentSpec,
)
from sadq.experiment.presets import PRESETS

FLAG, COUNT = ("True", "False"), ("1", "2", "3", "...")


class Axis(NamedTuple):
    """A column of the table, and the option that overrides it."""

    name: str  # the field of `AgentSpec` and of `Config`
    values: tuple[str, ...]  # as the command line takes them
    page: str  # in docs/axes

    @property
    def title(self) -> str:
        return self.name.replace("_", "-")

    @property
    def option(self) -> str:
        return f"--{self.title}"

    def cell(self, row: AgentSpec) -> str:
        """The row's choice on this axis."""
        value = getattr(row, self.name)
        return {True: "yes", False: "-"}[value] if isinstance(value, bool) else str(value)


AXES = (
    Axis("head", HEADS, "network.md"),
    Axis("dueling", FLAG, "network.md"),
    Axis("noisy", FLAG, "network.md"),
    Axis("bootstrap", BOOTSTRAPS, "bootstrap.md"),
    Axis("exploration", EXPLORATIONS, "exploration.md"),
    Axis("replay", REPLAYS, "replay.md"),
    Axis("n_step", COUNT, "replay.md"),
    Axis("ensemble", COUNT, "ensemble.md"),
)

SOURCES = {
    "dqn": "Mnih et al., 2015",
    "double": "van Hasselt et al., 2016",
    "dueling": "Wang et al., 2016",
    "bdqn": "Azizzadenesheli et al., 2018",
    "sunrise": "Lee et al., 2021",
    "c51": "Bellemare et al., 2017",
    "rainbow": "Hessel et al., 2018",
    "qrdqn": "Dabney et al., 2018a",
    "iqn": "Dabney et al., 2018b",
    "fqf": "Yang et al., 2019",
    "teg": "Dabney et al., 2021",
    "coact": "Korkmaz, 2025",
}


class Combination(NamedTuple):
    """A command that departs from a row, and what comes of it."""

    arguments: str
    meaning: str

    @property
    def command(self) -> str:
        return f"sadq train {self.arguments}"


COMBINATIONS = (
    Combination("acrobot rainbow --head implicit", "Rainbow on drawn quantile levels instead of fixed atoms"),
    Combination("acrobot qrdqn --bootstrap double", "QR-DQN that selects by its online network"),
    Combination("acrobot dqn --replay prioritised --n-step 3", "DQN with two of Rainbow's parts"),
    Combination("acrobot iqn --noisy True --exploration greedy", "IQN that explores by learned noise"),
    Combination("acrobot c51 --ensemble 5 --exploration ucb", "five C51 networks that explore as SUNRISE does"),
    Combination("acrobot fqf+sadq --dueling True", "FQF with a dueling head and SADQ's target"),
    Combination("acrobot rainbow --noisy False --exploration epsilon-z", "teg, spelled out"),
)


def preset_settings() -> list[str]:
    """The axes that presets set whatever the agent's row says, for instance `n-step 3 in default`."""
    where: dict[str, list[str]] = {}
    for name, config in PRESETS.items():
        for axis in AXES:
            value = getattr(config, axis.name)
            if value is not None:
                where.setdefault(f"{axis.title} {value}", []).append(name)
    return [f"{setting} in {', '.join(names)}" for setting, names in where.items()]


def describe_agents() -> Iterator[str]:
    """The agents with their axes, the values each axis takes, and which combinations are refused."""
    yield from _columns(
        [
            ["agent", *(axis.title for axis in AXES), "source"],
            *([name, *(axis.cell(row) for axis in AXES), SOURCES.get(name, "-")] for name, row in AGENTS.items()),
        ]
    )
    yield f"each also with {SUFFIX}, which mixes a learned model's choice into the target; sadq is {SADQ_BACKBONE}{SUFFIX}"
    yield "options of `sadq train` that override a row:"
    yield from _indented(_columns([[axis.option, ", ".join(axis.values)] for axis in AXES]))
    settings = preset_settings()
    if settings:
        yield "presets that override it themselves, where the option with None gives the row's value back:"
        yield from _indented(iter(settings))
    yield "for instance:"
    yield from _indented(_columns([[one.command, one.meaning] for one in COMBINATIONS]))
    yield "refused; all other combinations work:"
    yield from _indented(iter(REFUSALS))


def _columns(rows: list[list[str]]) -> Iterator[str]:
    """Rows of cells as lines whose columns are aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)

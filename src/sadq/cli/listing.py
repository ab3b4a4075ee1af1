"""What `sadq list` says and the README's table shows: every row, what each axis has, what goes together."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from sadq.agents import AGENTS, REFUSALS, SADQ_BACKBONE, SUFFIX, AgentSpec
from sadq.axes import AXES
from sadq.cli.options import axis_options
from sadq.envs.atari.games import GAMES
from sadq.envs.atari.spec import PREFIX
from sadq.envs.registry import list_environments
from sadq.experiment.presets import PRESETS
from sadq.registry import changes, default_of
from sadq.studies.artefacts import ARTEFACTS

COLUMNS = ("head", "dueling", "noisy", "bootstrap", "intended", "deviation", "replay", "n_step", "ensemble", "source")
"""The fields of a row, in the order of the paper's walk from network to replay."""


class Combination(NamedTuple):
    """A command that departs from a row, and what comes of it."""

    arguments: str
    meaning: str

    @property
    def command(self) -> str:
        return f"sadq train {self.arguments}"


COMBINATIONS = (
    Combination("acrobot rainbow --head implicit", "Rainbow on drawn quantile levels instead of fixed atoms"),
    Combination("acrobot qrdqn --bootstrap double --head.quantiles 50", "QR-DQN with Double's target, on 50 quantiles"),
    Combination("acrobot dqn --replay prioritised --n-step 3", "DQN with two of Rainbow's parts"),
    Combination("acrobot iqn --noisy True --deviation never", "IQN that explores by learned noise"),
    Combination("acrobot c51 --ensemble agreement --intended ucb", "five C51 networks that explore as SUNRISE does"),
    Combination("acrobot fqf+sadq --dueling True", "FQF with a dueling head and SADQ's target"),
    Combination("acrobot rainbow --noisy False --deviation epsilon-z", "teg, spelled out"),
)


def cell(row: AgentSpec, column: str) -> str:
    """What a row has in a column: a choice by its name, with the settings that are not its defaults."""
    value = getattr(row, column)
    if column not in AXES:
        return {True: "yes", False: "-"}[value] if isinstance(value, bool) else str(value)
    own = ", ".join(f"{name} {_shown(setting)}" for name, setting in changes(value).items())
    return AXES[column].name_of(value) + (f" ({own})" if own else "")


def agent_table() -> list[list[str]]:
    """The agents, a row each, below the titles of the columns."""
    titles = ["agent", *(column.replace("_", "-") for column in COLUMNS)]
    return [titles, *([name, *(cell(row, column) for column in COLUMNS)] for name, row in AGENTS.items())]


def preset_settings() -> list[str]:
    """What presets set whatever the agent's row says, for instance `n-step 3 in default`."""
    where: dict[str, list[str]] = {}
    for name, config in PRESETS.items():
        for column in COLUMNS:
            if getattr(config, column, None) is not None:
                where.setdefault(f"{column.replace('_', '-')} {cell(config.row, column)}", []).append(name)
    return [f"{setting} in {', '.join(names)}" for setting, names in where.items()]


def _presets() -> Iterator[str]:
    for name, config in PRESETS.items():
        yield f"{name:20} {config.environment:16} {config.steps:>9,} steps, {len(config.seeds)} seeds"


def describe_agents() -> Iterator[str]:
    """The agents with their choices, and which combinations are refused."""
    yield from _columns(agent_table())
    yield f"each also with {SUFFIX}, which mixes a learned model's choice into the target; sadq is {SADQ_BACKBONE}{SUFFIX}"
    if settings := preset_settings():
        yield "presets that override a row themselves, where the option with None gives the row's value back:"
        yield from indented(settings)
    yield "options of `sadq train` override a row, for instance:"
    yield from indented(_columns([[one.command, one.meaning] for one in COMBINATIONS]))
    yield "refused; all other combinations work:"
    yield from indented(REFUSALS)


def _axes() -> Iterator[str]:
    """Every axis with its options, its entries, and their settings with their defaults."""
    for axis in AXES.values():
        options = [f"{option} NAME" for option, own in axis_options() if own is axis]
        yield f"{axis.name}: {axis.meaning} ({', '.join(options)})"
        rows = [[name, ", ".join(map(_setting, dataclasses.fields(axis.entry(name))))] for name in axis]
        yield from indented(_columns(rows))


def _environments() -> Iterator[str]:
    yield from list_environments()
    yield f"{PREFIX}NAME, or several games as {PREFIX}NAME,NAME: {', '.join(GAMES)}"
    yield "and every Gymnasium id with a discrete action space"


def _artefacts() -> Iterator[str]:
    yield from _columns([[name, artefact.shows] for name, artefact in ARTEFACTS.items()])


SECTIONS = {
    "presets": _presets,
    "agents": describe_agents,
    "axes": _axes,
    "environments": _environments,
    "artefacts": _artefacts,
}
"""What `sadq list` takes."""


def _setting(field: "dataclasses.Field[Any]") -> str:
    value = default_of(field)
    return f"{field.name}={'' if value is dataclasses.MISSING else _shown(value)}"


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _columns(rows: list[list[str]]) -> Iterator[str]:
    """Rows of cells as lines whose columns are aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)

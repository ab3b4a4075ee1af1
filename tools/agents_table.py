"""The table in docs/agents.md, and what can be combined, made from the code; `--check` only says whether it is stale."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from sadq.agents import REFUSALS, SADQ_BACKBONE, SUFFIX
from sadq.cli.listing import COMBINATIONS, agent_table, preset_settings
from sadq.cli.options import axis_options
from sadq.errors import SadqError

PAGE = Path(__file__).parent.parent / "docs" / "agents.md"
BEGIN, END = "<!-- agents:begin -->", "<!-- agents:end -->"
PAGES = {
    "head": "network",
    "dueling": "network",
    "noisy": "network",
    "encoder": "network",
    "bootstrap": "bootstrap",
    "intended": "exploration",
    "deviation": "exploration",
    "exploration": "exploration",
    "replay": "replay",
    "n-step": "replay",
    "ensemble": "ensemble",
    "model": "dynamics",
    "gate": "gate",
}
"""Which page of docs/axes describes what; the others have none."""


def section() -> str:
    """What stands between the markers."""
    titles, *rows = agent_table()
    width = max(len(one.command) for one in COMBINATIONS)
    return "\n".join(
        [
            f"Every agent takes the suffix `{SUFFIX}`; `sadq` alone is `{SADQ_BACKBONE}{SUFFIX}`, the paper's own. "
            "Each",
            "[axis](extending.md) has a page: its equations, its sources, and how to add to it.",
            "",
            *_table([list(map(_linked, titles)), *([f"`{name}`", *cells] for name, *cells in rows)]),
            "",
            "An option of `sadq train`, or a field of the same name in Python, overrides the row; a choice has settings of",
            "its own, `--head.atoms 21` or `head=Categorical(atoms=21)`, which `sadq list axes` shows with their defaults:",
            "",
            *_table([["option", "takes"], *_axes()]),
            "",
            "```",
            *(f"{one.command:{width}}   # {one.meaning}" for one in COMBINATIONS),
            "```",
            "",
            *_overridden(),
            "Refused, each with its sentence; all other combinations work:",
            "",
            *(f"- {sentence}" for sentence in REFUSALS),
        ]
    )


def _linked(title: str) -> str:
    return f"[{title}](axes/{PAGES[title]}.md)" if title in PAGES else title


def _axes() -> list[list[str]]:
    """Every option that chooses by name, with what it takes, and the plain ones that override a row."""
    named = [[f"`{option}`", ", ".join(axis) or "one of your own"] for option, axis in axis_options()]
    return [*named, ["`--dueling`, `--noisy`", "True, False"], ["`--n-step`", "1, 2, 3, ..."]]


def _overridden() -> list[str]:
    """Which presets leave the rows behind, if any do."""
    settings = preset_settings()
    if not settings:
        return []
    sentence = "Some presets override rows themselves, and there `None` gives the row's value back:"
    return [sentence, f"{'; '.join(settings)}.", ""]


def _table(rows: list[list[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]


def updated(text: str) -> str:
    """The page with the section made anew."""
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise SadqError(
            f"{PAGE.name} has no place for the agents: expected the lines {BEGIN} and {END}, in this order."
        )
    return f"{before}{BEGIN}\n{section()}\n{END}{after}"


def main() -> int:
    """Write the section, or with `--check` only compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 where the page is stale; write nothing")
    options = parser.parse_args()
    text = PAGE.read_text()
    try:
        fresh = updated(text)
    except SadqError as error:
        print(error, file=sys.stderr)
        return 2
    if fresh == text:
        print("the table of agents is up to date")
        return 0
    if options.check:
        print("The table of agents is stale: run `python tools/agents_table.py`.", file=sys.stderr)
        return 1
    PAGE.write_text(fresh)
    print("wrote the table of agents")
    return 0


if __name__ == "__main__":
    sys.exit(main())

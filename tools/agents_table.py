"""The README's table of agents and what can be combined, made from the code; `--check` only says whether it is stale."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from sadq.agents import AGENTS, REFUSALS, SADQ_BACKBONE, SUFFIX
from sadq.errors import SadqError
from sadq.cli.listing import AXES, COMBINATIONS, SOURCES, preset_settings

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- agents:begin -->", "<!-- agents:end -->"


def section() -> str:
    """What stands between the markers."""
    head = ["agent", *(f"[{axis.title}](docs/axes/{axis.page})" for axis in AXES), "source"]
    rows = [[f"`{name}`", *(axis.cell(row) for axis in AXES), SOURCES.get(name, "-")] for name, row in AGENTS.items()]
    width = max(len(one.command) for one in COMBINATIONS)
    return "\n".join(
        [
            f"Every agent takes the suffix `{SUFFIX}`; `sadq` alone is `{SADQ_BACKBONE}{SUFFIX}`, the paper's own. "
            "[docs/](docs/README.md) has",
            "a page for every axis: its equations, its sources, and how to add to it.",
            "",
            *_table([head, *rows]),
            "",
            "An option of `sadq train`, or a field of the same name in Python, overrides the row:",
            "",
            *_table([["option", "takes"], *([f"`{axis.option}`", ", ".join(axis.values)] for axis in AXES)]),
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
    """The README with the section made anew."""
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise SadqError(f"README.md has no place for the agents: expected the lines {BEGIN} and {END}, in this order.")
    return f"{before}{BEGIN}\n{section()}\n{END}{after}"


def main() -> int:
    """Write the section, or with `--check` only compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 where the README is stale; write nothing")
    options = parser.parse_args()
    text = README.read_text()
    try:
        fresh = updated(text)
    except SadqError as error:
        print(error, file=sys.stderr)
        return 2
    if fresh == text:
        print("the README's agents are up to date")
        return 0
    if options.check:
        print("The README's agents are stale: run `python tools/agents_table.py`.", file=sys.stderr)
        return 1
    README.write_text(fresh)
    print("wrote the README's agents")
    return 0


if __name__ == "__main__":
    sys.exit(main())

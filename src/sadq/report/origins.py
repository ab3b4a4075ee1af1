"""How runs came about: their settings against the preset's, the machine, the versions, the command."""

import shlex
from collections.abc import Sequence
from typing import Any

from sadq.errors import SadqError
from sadq.report import likeness, markup
from sadq.report.runs import Run, differences

PLACES = ("preset", "environment")  # which preset this is, and what the default one is given


def origins(runs: Sequence[Run]) -> str:
    """The section on where the numbers come from."""
    names = [run.name for run in runs]
    head = ("Run", "Status", "Preset", "sadq", "JAX", "Python", "Device", "Wall time", "Compiling", "Steps/s")
    machines = markup.table(head, [_machine(run) for run in runs], "Runs: machine, versions and time")
    commands = "".join(
        f"<dt>{markup.escape(run.name)}</dt><dd><code>{markup.escape(_command(run))}</code></dd>" for run in runs
    )
    found = differences(runs)
    between = (
        markup.table(
            ("Setting", *names), [(name, *values) for name, values in found], "Settings in which the runs differ"
        )
        if found
        else "<p>None.</p>"
    )
    changed = "".join(_changes(run) for run in runs)
    return (
        f"<h3>Machine, versions, time</h3>{machines}"
        f"{markup.folded('The commands', f'<dl>{commands}</dl>')}"
        f"<h3>Settings that differ from the preset</h3>{changed}"
        f"<h3>Settings in which the runs differ</h3>{between}"
    )


def _machine(run: Run) -> tuple[str, ...]:
    told = [str(run.header.get(name, "not known")) for name in ("preset", "sadq", "jax", "python", "device")]
    spent = [
        f"{run.result[name]:,.0f} s" if isinstance(run.result.get(name), int | float) else "not known"
        for name in ("wall_seconds", "compile_seconds")
    ]
    rate = run.result.get("steps_per_second")
    speed = f"{rate:,.0f}" if isinstance(rate, int | float) else "not known"
    return run.name, "finished" if run.finished else "unfinished", *told, *spent, speed


def _command(run: Run) -> str:
    """What was typed, without the folder that the program lies in."""
    words = run.header.get("command")
    if not isinstance(words, list) or not words:
        return "not known"
    return shlex.join(["sadq", *map(str, words[1:])])


def _changes(run: Run) -> str:
    """A run's settings where they are not what its preset has for its agent."""
    name, agent = str(run.header.get("preset")), str(run.header["config"]["agent"])
    preset = preset_settings(name, agent)
    if preset is None:
        return f"<p>{markup.escape(run.name)}: the preset {markup.escape(name)} is not known here.</p>"
    found = likeness.differing(preset, likeness.flat(run.header["config"]))
    rows = [(setting, *values) for setting, values in found.items() if setting not in PLACES]
    if not rows:
        return f"<p>{markup.escape(run.name)}: as the preset {markup.escape(name)} has them.</p>"
    caption = f"{run.name}: where it differs from the preset {name} with agent {agent}"
    return markup.table(("Setting", f"Preset {name}", run.name), rows, caption)


def preset_settings(name: str, agent: str) -> dict[str, str] | None:
    """What a preset has for an agent; None where one of them is not known, for instance if it is a user's own."""
    # Presets name choices of every axis, and so need all of the library: only a page that shows them waits for that.
    from sadq.experiment.presets import PRESETS, preset
    from sadq.experiment.records import to_json

    if name not in PRESETS:
        return None
    try:
        config: Any = to_json(preset(name, agent))
    except SadqError:
        return None
    return likeness.flat(config)

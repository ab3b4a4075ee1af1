"""Whether two runs may be compared: the settings in which they differ, apart from those that make an arm what it is."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

OWN = ("agent", "alpha", "model", "model_from", "pacing", "gate", "guidance")
"""What an arm consists of: which agent, and how its target is guided; a plain agent makes no use of all but the first."""
GUIDING = OWN[1:]
UNRELATED = ("preset", "seeds", "environment", "environment_settings", "workers", "deterministic", "checkpoint_seconds")
"""What changes no result, is compared already (the environment), or is what a comparison is over (the seeds)."""

Settings = Mapping[str, str]


def flat(config: Any, prefix: str = "") -> dict[str, str]:
    """A config as dotted names and printable values; lists stay whole."""
    if not isinstance(config, dict):
        return {prefix: config if isinstance(config, str) else json.dumps(config, ensure_ascii=False)}
    found: dict[str, str] = {}
    for name, value in config.items():
        found |= flat(value, f"{prefix}.{name}" if prefix else str(name))
    return found


def settings_of(config: Mapping[str, Any], member: Mapping[str, Any], guided: bool) -> dict[str, str]:
    """What a member was trained with; of a list that a fleet sweeps over, its own number."""
    found = flat(dict(config))
    for name, value in member.items():
        found |= flat(value, name.replace("epsilon_", "epsilon."))
    return {name: value for name, value in found.items() if guided or part(name) not in GUIDING}


def part(name: str) -> str:
    """`guidance.optimiser.beta1` is part of `guidance`."""
    return name.partition(".")[0]


def differing(one: Settings, other: Settings) -> dict[str, tuple[str, str]]:
    """Setting -> its value in each, where they differ; of two kinds of a choice, not the settings that only one has."""
    names = [name for name in dict.fromkeys([*one, *other]) if one.get(name) != other.get(name)]
    kinds = [name.removesuffix("kind") for name in names if name.endswith(".kind")]
    shown = [name for name in names if name.endswith(".kind") or not any(name.startswith(kind) for kind in kinds)]
    return {name: (one.get(name, "none"), other.get(name, "none")) for name in shown}


def unlike(one: Settings, other: Settings, declared: Sequence[str] = ()) -> dict[str, tuple[str, str]]:
    """The differences that a comparison of two arms would be confounded by; not those that are declared to be theirs."""

    def own(name: str, values: tuple[str, str]) -> bool:
        # A choice that the agent's row makes is null until a setting of it is declared: then it is written out.
        choice = f"{name.removesuffix('.kind')}."
        written_out = "none" in values and any(each.startswith(choice) for each in declared)
        named = any(name == each or name.startswith(f"{each}.") for each in declared)
        return part(name) in (*OWN, *UNRELATED) or named or written_out

    return {name: values for name, values in differing(one, other).items() if not own(name, values)}


def spoken(name: str) -> str:
    """A setting's name as a reader meets it."""
    words = name.removesuffix(".kind").replace(".", " ").replace("_", " ")
    return {"alpha": "α", "n step": "n-step"}.get(words, words)

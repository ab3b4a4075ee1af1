"""What differs from when a run began: fields that its version did not have, data that have changed under it."""

from typing import Any


def filled_fields(filled: tuple[str, ...]) -> str | None:
    """The sentence on fields that were filled in, where there are any."""
    if not filled:
        return None
    return f"The run is of an earlier version, whose config had no {', '.join(filled)}: these are the defaults of now."


def changed_data(environment: str, recorded: Any, now: dict[str, Any]) -> str | None:
    """The sentence on data whose checksum is another one than was recorded, where that is so."""
    before, after = _checksums(recorded), _checksums(now)
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            changed = f"{name} was {before[name]:.16} and is {after[name]:.16}"
            advice = "put back the data that it began with, or train again"
            return f"The data of {environment} changed since the run began ({changed}): {advice}."
    return None


def _checksums(data: Any) -> dict[str, str]:
    """The checksums in an environment's record of its data, by what they are of."""
    found = data.get("sha256") if isinstance(data, dict) else None
    named = found if isinstance(found, dict) else {"sha256": found}
    return {name: value for name, value in named.items() if isinstance(value, str)}

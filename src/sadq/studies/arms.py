"""The grammar of arms: `AGENT[+sadq][@ALPHA][:name=value,...]` over a config that all arms share."""

import dataclasses
import json
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sadq.agents import SUFFIX, parse_agent
from sadq.axes import AXES
from sadq.errors import SadqError
from sadq.experiment.config import Config
from sadq.experiment.presets import agent_fields
from sadq.experiment.records import from_json

EXAMPLE = "dueling+sadq@0.5:gate=sample,model.continuation=true"
NOT_SETTINGS = {
    "preset": "it is the same for all arms",
    "environment": "it is the same for all arms",
    "agent": "the arm begins with it",
    "seeds": "arms are compared on the same ones",
    "alpha": f"write it after an @, as in {EXAMPLE}",
    "adjusted": "set the choice itself, as in head.atoms=21",
}


@dataclass(frozen=True)
class Arm:
    """One of the things that are compared: an agent with settings of its own."""

    label: str  # as it was written, small and without spaces
    agent: str
    alpha: float | None = None
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Arm":
        """From its spelling; settings are looked at when there is a config for them."""
        head, colon, tail = text.strip().partition(":")
        name, at, weight = head.lower().partition("@")
        base, guided = parse_agent(name)
        alpha = None
        if at:
            try:
                alpha = float(weight)
            except ValueError:
                problem = f"{weight!r} after its @ is no number"
                raise SadqError(f"Arm {text!r} cannot be read: {problem}, expected alpha in [0, 1].") from None
            if not guided:
                raise SadqError(f"Arm {text!r} is a plain agent, which has no alpha: write {base}{SUFFIX}@{weight}.")
        if colon and not tail:
            raise SadqError(f"Arm {text!r} has no setting after its colon: write one, as in {EXAMPLE}.")
        settings = tuple(_setting(one, text) for one in _apart(tail)) if tail else ()
        agent = f"{base}{SUFFIX}" if guided else base
        label = (
            agent + (f"@{alpha:g}" if at else "") + (f":{','.join('='.join(one) for one in settings)}" if tail else "")
        )
        return cls(label, agent, alpha, settings)

    @property
    def guided(self) -> bool:
        return self.agent.endswith(SUFFIX)

    @property
    def twin(self) -> str:
        """The plain agent that this one adds to, or itself."""
        return self.agent.removesuffix(SUFFIX)

    @property
    def folder(self) -> str:
        """A name for its run folder."""
        return re.sub(r"[^a-z0-9+@.=_-]+", "-", self.label.lower()).strip("-")

    def config(self, shared: Config) -> Config:
        """What all arms share, with this arm's agent and settings."""
        fields = agent_fields(shared, self.agent)
        if self.guided:
            # A plain preset has no alpha to share.
            weight = (self.alpha,) if self.alpha is not None else shared.alpha or Config.alpha
            fields["alpha"] = weight
        draft = dataclasses.replace(_Draft(**vars(shared)), **fields)
        # The entry of an axis first, whatever the order: its settings are those of the entry that is chosen.
        for path, text in sorted(self.settings, key=lambda setting: setting[0].count(".")):
            try:
                draft = _changed(draft, path, text)
            except SadqError as error:
                raise SadqError(f"Arm {self.label}: {error}") from error
        return Config(**vars(draft))


class _Draft(Config):
    def __post_init__(self) -> None:
        """A draft is checked only once it is whole."""


def parse_arms(texts: Sequence[str], least: int = 2) -> list[Arm]:
    """Arms that differ, by what they say and by where they are kept."""
    arms = [Arm.parse(text) for text in texts]
    if len(arms) < least:
        given = f"{len(arms)} arm{'s' * (len(arms) != 1)} given"
        raise SadqError(f"{given}, expected at least {least}: for instance dqn dqn+sadq {EXAMPLE}.")
    for arm in arms:
        if [other.folder for other in arms].count(arm.folder) > 1:
            raise SadqError(f"Arm {arm.label} was given more than once: give every arm once.")
    return arms


def bases(arms: Sequence[Arm], against: str | None = None) -> dict[str, str]:
    """What each arm is compared with: one for all, or its plain twin where that is among the arms, else the first."""
    labels = [arm.label for arm in arms]
    first = Arm.parse(against).label if against else labels[0]
    if first not in labels:
        raise SadqError(f"There is no arm {against} to compare with: expected one of {', '.join(labels)}.")
    found: dict[str, str] = {}
    for arm in arms:
        twin = arm.twin if arm.guided and not against and arm.twin in labels else first
        if arm.label != twin and found.get(twin) != arm.label:  # no pair both ways round: it would count twice
            found[arm.label] = twin
    return found


def _apart(text: str) -> list[str]:
    """At the commas that are not within brackets or quotes."""
    return re.findall(r"(?:\[[^\]]*\]|\"[^\"]*\"|[^,\[\"])+", text)


def _setting(text: str, arm: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    name = name.replace("-", "_")
    if not (name and equals and value):
        raise SadqError(f"Arm {arm!r} cannot be read: {text!r} is no setting, expected name=value as in {EXAMPLE}.")
    if name in NOT_SETTINGS:
        raise SadqError(f"Arm {arm!r} sets {name}, which is no setting of an arm: {NOT_SETTINGS[name]}.")
    return name, value


def _changed(draft: Any, path: str, text: str) -> Any:
    """A config, or a part of one, with one field changed."""
    name, _, rest = path.partition(".")
    hints = typing.get_type_hints(type(draft))
    if name not in hints or name not in vars(draft):
        known = ", ".join(field.name for field in dataclasses.fields(draft) if field.name not in NOT_SETTINGS)
        raise SadqError(f"there is no setting {name!r}: expected one of {known or 'none'}.")
    now = getattr(draft, name)
    if rest:
        if now is None and name in AXES:
            now = getattr(draft.row, name, None)  # as the agent's row says
        if not dataclasses.is_dataclass(now):
            raise SadqError(f"{name} has no settings of its own, so {path} is none: set {name} itself.")
        return dataclasses.replace(draft, **{name: _changed(now, rest, text)})
    if name in AXES:
        as_row = text == "None" and isinstance(draft, Config)
        adjusted = draft.adjusted if isinstance(draft, Config) else ()
        return dataclasses.replace(draft, **{name: None if as_row else AXES[name].choice(text, adjusted)})
    return dataclasses.replace(draft, **{name: _value(hints[name], text, name)})


def _value(kind: Any, text: str, name: str) -> Any:
    """JSON where it can be read as that, Python's True, False and None, else text; where a list is due, one of one."""
    spelled = {"True": "true", "False": "false", "None": "null"}.get(text, text)
    try:
        data = json.loads(spelled)
    except json.JSONDecodeError:
        data = text
    options = typing.get_args(kind) if typing.get_origin(kind) is not tuple else (kind,)
    several = any(typing.get_origin(option) is tuple for option in options)
    return from_json(kind, [data] if several and not isinstance(data, list) and data is not None else data, name)

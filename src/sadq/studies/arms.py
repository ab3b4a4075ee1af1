"""The grammar of arms: `AGENT[+sadq][@ALPHA][:name=value,...]` over a config that all arms share."""

import dataclasses
import difflib
import hashlib
import json
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sadq.agents import SUFFIX, parse_agent
from sadq.axes import AXES
from sadq.errors import SadqError
from sadq.experiment.build import members_of
from sadq.experiment.config import Config
from sadq.experiment.presets import agent_fields
from sadq.experiment.records import from_json
from sadq.registry import shown
from sadq.report.likeness import GUIDING, part

EXAMPLE = "dueling+sadq@0.5:gate=sample,model.continuation=true"
SHARED = (
    *("preset", "environment", "environment_settings", "max_episode_steps", "steps", "evaluations"),
    *("evaluation_episodes", "workers", "deterministic", "checkpoint_seconds"),
)
"""What arms are compared on, how they are measured, and what concerns the machine: an arm with its own would not be
like the others."""
NOT_SETTINGS = dict.fromkeys(SHARED, "it is the same for all arms, so give it to the whole comparison") | {
    "agent": "the arm begins with it",
    "seeds": "arms are compared on the same ones",
    "alpha": f"write it after an @, as in {EXAMPLE}",
    "adjusted": "set the choice itself, as in head.atoms=21",
}

# A label that its folder's name spells without loss: lower case, and of all else only lists of numbers.
VALUE = r"(?:[a-z0-9+@._](?:[a-z0-9+@._-]*[a-z0-9+@._])?|\[[\d.]+(?:,[\d.]+)*\])"
PLAIN = re.compile(rf"[a-z0-9+@._-]+(?::[a-z0-9_.]+={VALUE}(?:,[a-z0-9_.]+={VALUE})*)?")
LONGEST_NAME = 100


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
        if not isinstance(text, str):
            raise SadqError(f"{shown(text)} is no arm: expected a text such as {EXAMPLE}.")
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
        names = [name for name, _ in settings]
        for name in names:
            if names.count(name) > 1:
                raise SadqError(f"Arm {text!r} sets {name} more than once: give it one value.")
            if not guided and part(name) in GUIDING:
                advice = f"write {base}{SUFFIX}:{name}=... for its twin"
                raise SadqError(f"Arm {text!r} is a plain agent, which makes no use of {name}: {advice}.")
        agent = f"{base}{SUFFIX}" if guided else base
        short = f"{alpha:g}" if at else ""
        # Shortened only where it stays the number that is trained with, which else two arms could seem to share.
        spelled = f"@{short if float(short) == alpha else alpha}" if at else ""
        label = agent + spelled + (f":{','.join('='.join(one) for one in settings)}" if tail else "")
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
        """A name for its run folder, which no other label has, on any file system."""
        name = re.sub(r"[^a-z0-9+@.=_-]+", "-", self.label.lower()).strip("-")
        if PLAIN.fullmatch(self.label) and len(name) <= LONGEST_NAME:
            return name
        return f"{name[:LONGEST_NAME]}-{hashlib.sha256(self.label.encode('utf-8', 'replace')).hexdigest()[:8]}"

    @property
    def plain_settings(self) -> frozenset[tuple[str, str]]:
        """Its settings but for those of its guidance: what its plain twin has too."""
        return frozenset((name, value) for name, value in self.settings if part(name) not in GUIDING)

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
        config = Config(**vars(draft))
        swept = [name for name, values in _columns(config).items() if name != "seed" and len(values) > 1]
        if swept:
            each = f"write an arm for each value, as in {self.twin}{SUFFIX}@0 {self.twin}{SUFFIX}@0.5"
            advice = "compare on one game at a time" if "game" in swept else each
            raise SadqError(f"Arm {self.label} has several values of {', '.join(swept)}, expected one: {advice}.")
        return config


class _Draft(Config):
    def __post_init__(self) -> None:
        """A draft is checked only once it is whole."""


def parse_arms(texts: Sequence[str], least: int = 2) -> list[Arm]:
    """Arms that differ."""
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise SadqError(f"arms = {shown(texts)} must be a list of arms, as in ['dqn', 'dqn+sadq'].")
    arms = [Arm.parse(text) for text in texts]
    if len(arms) < least:
        given = f"{len(arms)} arm{'s' * (len(arms) != 1)} given"
        raise SadqError(f"{given}, expected at least {least}: for instance dqn dqn+sadq {EXAMPLE}.")
    for arm in arms:
        if [other.label for other in arms].count(arm.label) > 1:
            raise SadqError(f"Arm {arm.label} was given more than once: give every arm once.")
    return arms


def bases(arms: Sequence[Arm], against: str | None = None) -> dict[str, str]:
    """What each arm is compared with: one for all, or its plain twin where that is among the arms, else the first.

    The twin of a guided arm has its settings, those of the guidance aside; else it is the plain agent without any.
    """
    labels = [arm.label for arm in arms]
    first = labels[0] if against is None else Arm.parse(against).label
    if first not in labels:
        raise SadqError(f"There is no arm {against} to compare with: expected one of {', '.join(labels)}.")
    found: dict[str, str] = {}
    for arm in arms:
        plain = [other for other in arms if arm.guided and other.agent == arm.twin] if against is None else []
        alike = [other.label for other in plain if other.plain_settings == arm.plain_settings]
        bare = [other.label for other in plain if not other.settings]
        twin = [*alike, *bare, first][0]
        if arm.label != twin and found.get(twin) != arm.label:  # no pair both ways round: it would count twice
            found[arm.label] = twin
    return found


def _columns(config: Config) -> dict[str, set[Any]]:
    """What its members differ in, with all values of each."""
    members = members_of(config)
    return {name: {member[name] for member in members} for name in members[0]}


def _apart(text: str) -> list[str]:
    """At the commas that are not within brackets or quotes."""
    return re.findall(r"((?:\[[^\]]*\]|\"[^\"]*\"|[^,])*),", f"{text},")


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
        hidden = NOT_SETTINGS if isinstance(draft, Config) else ()
        known = [field.name for field in dataclasses.fields(draft) if field.name not in hidden]
        near = difflib.get_close_matches(name, known, n=1)
        offer = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known) or 'none'}."
        raise SadqError(f"there is no setting {name!r}: {offer}")
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

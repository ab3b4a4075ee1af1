"""Result files read back: arms by preset and name, and the numbers of their seeds."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sadq.errors import SadqError
from sadq.report.stats import SIGNIFICANCE, Estimate
from sadq.studies.artefacts import find

FORMAT = 2
NOT_NEEDED = r" --(?:out|pool) FOLDER| --partial| --quiet| --json"
"""Options of a command that change nothing of its numbers."""

BySeed = dict[int, float]


@dataclass(frozen=True)
class Arm:
    """One arm on one preset."""

    label: str
    data: Mapping[str, Any]
    environment_steps: list[int]

    @property
    def steps(self) -> int:
        return self.data["steps"]

    @property
    def seeds(self) -> list[int]:
        return self.data["members"]["seed"]

    @property
    def guided(self) -> bool:
        return self.data["agent"].endswith("+sadq")

    @property
    def curve(self) -> tuple[list[int], list[float], list[float]]:
        """(steps, mean, deviation over the seeds) of its evaluations."""
        curve = self.data["curve"]
        return curve.get("steps", self.environment_steps), curve["mean"], curve["deviation"]

    def has(self, name: str) -> bool:
        return name in self.data["members"]

    def by_seed(self, name: str) -> BySeed:
        """One number of every seed; NaN where it is not known."""
        values = self.data["members"][name]
        return {seed: math.nan if value is None else value for seed, value in zip(self.seeds, values, strict=True)}

    def middle(self, name: str) -> Estimate:
        """Its interquartile mean of one of the three measures, as it was recorded."""
        return estimate(self.data["interquartile_mean"][name])


@dataclass(frozen=True)
class Contrast:
    """One arm against its base."""

    arm: str
    base: str
    data: Mapping[str, Any]

    def outcome(self, name: str | None = None) -> str:
        """Of one measure, or of all together."""
        return self.data["outcome"] if name is None else self.data["measures"][name]["outcome"]

    def difference(self, name: str) -> Estimate:
        return estimate(self.data["measures"][name]["difference"])

    def level(self, name: str) -> float:
        return self.data["measures"][name]["difference"]["level"]

    def can_settle(self, name: str) -> bool:
        """Whether so many pairs could tell a difference at all, after the correction."""
        found = self.data["measures"][name]
        return 2.0 ** (1 - found["difference"]["count"]) * found["comparisons"] <= SIGNIFICANCE

    def p_value(self, name: str) -> float:
        """Corrected by Holm's method."""
        return self.data["measures"][name]["corrected_p_value"]


@dataclass(frozen=True)
class Source:
    """What made a number."""

    command: str
    commits: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """One preset of an artefact."""

    preset: str
    data: Mapping[str, Any]
    source: Source | None = None
    devices: tuple[str, ...] = ()

    @cached_property
    def arms(self) -> dict[str, Arm]:
        return {one["arm"]: Arm(one["arm"], one, self.data["steps"]) for one in self.data["arms"]}

    @cached_property
    def contrasts(self) -> dict[str, Contrast]:
        """By the arm that is compared with its base."""
        return {one["arm"]: Contrast(one["arm"], one["base"], one) for one in self.data["contrasts"]}


@dataclass(frozen=True)
class Record:
    """What the reproductions of an artefact left: each of presets of its own."""

    pieces: tuple[Mapping[str, Any], ...]

    @property
    def data(self) -> Mapping[str, Any]:
        """What does not depend on the preset."""
        return self.pieces[0]

    @property
    def artefact(self) -> str:
        return self.data["artefact"]

    @cached_property
    def places(self) -> dict[str, Place]:
        """In the order of the artefact's presets."""
        found = {
            one["preset"]: Place(one["preset"], one, _source([piece]), _devices(piece))
            for piece in self.pieces
            for one in piece.get("environments", [])
        }
        order = {preset: at for at, preset in enumerate(find(self.artefact).presets)}
        return dict(sorted(found.items(), key=lambda item: order.get(item[0], len(order))))

    @property
    def source(self) -> Source:
        """The command that makes it from nothing, on one machine, and the commits that its runs were trained by."""
        return _source(self.pieces)

    @property
    def origins(self) -> list[Mapping[str, Any]]:
        return [one for piece in self.pieces for one in piece["origins"]]

    @property
    def missing(self) -> dict[str, list[str]]:
        """Preset -> its arms that no piece has."""
        labels = {preset: own for piece in self.pieces for preset, own in piece["missing"].items()}
        there = {preset: place.arms.keys() for preset, place in self.places.items()}
        left = {
            preset: [label for label in own if label not in there.get(preset, ())] for preset, own in labels.items()
        }
        return {preset: own for preset, own in left.items() if own}


def _source(pieces: Sequence[Mapping[str, Any]]) -> Source:
    commits = sorted({short(one["commit"]) for piece in pieces for one in piece["origins"]})
    return Source(re.sub(NOT_NEEDED, "", pieces[0]["judged"]["command"]), tuple(commits))


def _devices(piece: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted({str(one["device"]) for one in piece["origins"]}))


@dataclass(frozen=True)
class Results:
    """All result files."""

    records: Mapping[str, Record] = field(default_factory=dict)
    games: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """(game, agent) -> a file of results/atari100k."""

    @property
    def atari(self) -> Source | None:
        """What made the scores of games."""
        if "atari100k" in self.records:
            return self.records["atari100k"].source
        commits = sorted({short(one["machine"]["commit"]) for one in self.games.values()})
        return Source("python benchmarks/atari100k.py", tuple(commits)) if commits else None

    def place(self, artefact: str, preset: str, needed: Iterable[str] = ()) -> Place | None:
        """A preset of an artefact, if it was run, with the arms that are needed."""
        record = self.records.get(artefact)
        place = record.places.get(preset) if record else None
        return place if place and set(needed) <= set(place.arms) else None


def load(folder: Path) -> Results:
    """Everything below results/: ARTEFACT.json, and ARTEFACT-….json of presets that were run apart from it."""
    pieces: dict[str, list[Mapping[str, Any]]] = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stem):
        data = _read(path)
        name = data.get("artefact", path.stem)
        if data.get("format") != FORMAT or path.stem != name and not path.stem.startswith(f"{name}-"):
            raise SadqError(
                f"{path} is no record of {path.stem} (format {FORMAT}): put the result.json of `sadq reproduce "
                f"{path.stem}` there."
            )
        if data["quick"]:
            raise SadqError(f"{path} is of a quick run, whose numbers say nothing of the paper: reproduce it in full.")
        own, others = _presets([data]), _presets(pieces.setdefault(name, []))
        if twice := sorted(own & others):
            raise SadqError(f"{path} has {twice[0]}, which another record of {name} has too: keep one of the two.")
        pieces[name].append(data)
    games = {}
    for path in sorted((folder / "atari100k").glob("*.json")):
        data = _read(path)
        games[data["game"], data["agent"]] = data
    return Results({name: Record(tuple(own)) for name, own in pieces.items()}, games)


def _presets(pieces: Sequence[Mapping[str, Any]]) -> set[str]:
    return {one["preset"] for piece in pieces for one in piece.get("environments", [])}


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise SadqError(f"{path} cannot be read ({error}): put a whole result file there.") from error


def short(commit: str | None) -> str:
    """As git shows it."""
    return "not known" if commit is None else re.sub(r"^([0-9a-f]{7})[0-9a-f]*", r"\1", commit)


def estimate(data: Mapping[str, Any]) -> Estimate:
    """As a record writes it; null is what is not known."""
    value = math.nan if data["value"] is None else data["value"]
    return Estimate(value, data["low"], data["high"], data["count"])

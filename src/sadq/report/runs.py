"""A run folder read back as arrays; an unfinished or killed run is read as far as it got."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sadq.errors import SadqError

FORMAT = 2
ORIGINS = ("preset", "sadq", "jax", "device")  # what a header says of how its run came about
MEASURED = "measures."  # before the name of what an environment measures beside returns
DEPTH = 3  # of the folders below a given one in which runs are looked for
PAPER_AGENT = "dueling+sadq"  # what the agent name `sadq` alone stands for
SUFFIX = "+sadq"

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Member:
    """One learner of a run: its seed, and every other number that may differ between members."""

    seed: int
    settings: dict[str, Any]
    diverged_at: int | None
    model_diverged_at: int | None = None

    @property
    def diverged(self) -> bool:
        return self.diverged_at is not None

    @property
    def alpha(self) -> float | None:
        return self.settings.get("alpha")


class Run:
    """M members, S evaluations, T metric intervals; NaN wherever a value is missing or was not finite."""

    def __init__(self, folder: Path | str, name: str | None = None, arm: str | None = None):
        """Reads the run in `folder`, or tells in a `SadqError` why there is none; `arm` is how a study spells it, by
        default as the folder says."""
        self.folder = Path(folder)
        self.name = name or self.folder.resolve().name
        self.header = _header(self.folder)
        noted = self.header.get("arm")
        self.arm = arm or (noted if isinstance(noted, str) else None)
        config, listed, notes = self.header["config"], self.header["members"], []
        agent = str(config["agent"]).lower()
        self.agent = PAPER_AGENT if agent == "sadq" else agent
        self.base_agent, self.guided = self.agent.removesuffix(SUFFIX), self.agent.endswith(SUFFIX)
        # The same game made with other settings is another one: their returns are not comparable.
        made_with = sorted(map(str, config.get("environment_settings") or ()))
        self.environment = ", ".join([str(config["environment"]), *made_with])
        planned = self.header.get("steps", config.get("steps"))  # rounded up to whole chunks, and as asked for
        self.planned_steps = planned if isinstance(planned, int) else None

        path = self.folder / "result.json"
        self.result = _object(path.read_bytes()) if path.exists() else {}
        self.finished = bool(self.result)
        if path.exists() and not self.finished:
            notes += ["its result.json is damaged, so it counts as unfinished"]
        outcomes: Any = self.result.get("members")
        known = isinstance(outcomes, list) and [*map(_is_outcome, outcomes)] == [True] * len(listed)
        if self.finished and not known:
            notes += ["its result.json lists other members than its config.json, so which of them diverged is unknown"]
        self.members = []
        for member, outcome in zip(listed, outcomes if known else [{}] * len(listed), strict=True):
            settings = {name: value for name, value in member.items() if name != "seed"}
            ends = outcome.get("diverged_at"), outcome.get("model_diverged_at")
            self.members.append(Member(member["seed"], settings, *ends))

        steps, tables = _table(self.folder / "evaluations.jsonl", len(listed), ("step", "returns", "overestimation"))
        written = np.isfinite(tables["step"])
        # A run killed in the middle of an evaluation would give its members curves of unequal length.
        complete = max(np.flatnonzero(written[written.any(axis=1)].all(axis=0)), default=-1) + 1
        if complete == 0:
            notes += ["it holds no complete evaluation yet"]
        elif complete < len(steps):
            notes += [f"its last evaluation, at step {steps[-1]:,}, is incomplete and was left out"]
        self.steps = steps[:complete]  # [S]
        self.last_step = int(self.steps[-1]) if complete else 0  # at which every member was evaluated
        self.returns = tables["returns"][:, :complete]  # [M, S], the mean over an evaluation's episodes
        self.overestimation = tables["overestimation"][:, :complete]  # [M, S]
        # What the environment measures beside returns: name -> [M, S].
        self.measures = {
            name.removeprefix(MEASURED): table[:, :complete]
            for name, table in tables.items()
            if name.startswith(MEASURED)
        }
        self.metric_steps, self.metrics = _table(self.folder / "metrics.jsonl", len(listed))  # [T], name -> [M, T]
        self.notes = tuple(notes)


def load_all(folders: Sequence[Path | str], arms: Sequence[str] | None = None) -> list[Run]:
    """All the runs, under names that differ: the folder's own, with as many of its parents as that takes."""
    if not folders:
        raise SadqError("No run was given: name at least one folder that a training run has written.")
    folders = [found for folder in folders for found in runs_in(Path(folder))]
    places = [Path(folder).resolve() for folder in folders]
    for folder, place in zip(folders, places, strict=True):
        if places.count(place) > 1:
            raise SadqError(f"The run {folder} was given more than once: name every run once.")
    depth = next(depth for depth in count(1) if len({place.parts[-depth:] for place in places}) == len(places))
    names = ["/".join(place.parts[-depth:]) for place in places]
    try:
        spelled: Sequence[str | None] = arms or [None] * len(folders)
        return [Run(folder, name, arm) for folder, name, arm in zip(folders, names, spelled, strict=True)]
    except OSError as error:
        raise SadqError(f"{error.filename} cannot be read: {error.strerror}.") from error


def runs_in(folder: Path) -> list[Path]:
    """The folder itself; or, where it is none of a run but holds such folders, these in order of their names."""
    try:
        folder.resolve()  # a link that leads to itself ends here
        if (folder / "config.json").is_file():
            return [folder]
        below = (path.parent for depth in range(1, DEPTH + 1) for path in folder.glob("*/" * depth + "config.json"))
        return sorted(below) or [folder]
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SadqError(
            f"{folder} cannot be read ({reason}): give a folder that a training run has written."
        ) from error


def differences(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """(setting, its value in each run) wherever the runs differ; a number swept over members shows all its values."""
    settings = []
    for run in runs:
        found = {name: run.header.get(name) for name in ORIGINS} | run.header["config"]
        for name in run.members[0].settings:
            values = [json.dumps(member.settings.get(name), ensure_ascii=False) for member in run.members]
            found[f"members: {name}"] = list(dict.fromkeys(values))
        found["members: seed"] = [str(member.seed) for member in run.members]
        settings.append({name: _shown(value) for name, value in found.items()})
    names = dict.fromkeys(name for found in settings for name in found)
    table = [(name, [found.get(name, "") for found in settings]) for name in names]
    return [(name, values) for name, values in table if len(set(values)) > 1]


def _shown(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _header(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        what = "has no config.json" if folder.is_dir() else "is not a folder"
        raise SadqError(f"{folder} {what}, so it is not a run: give a folder that a training run has written.")
    header = _object(path.read_bytes())
    if not header:
        raise SadqError(f"{path} cannot be read as a JSON object: the run is damaged, so train it again.")
    if (found := header.get("format")) != FORMAT:
        raise SadqError(
            f"{path} has format {found!r}, expected {FORMAT}: read it with the version of sadq that wrote it."
        )
    config, members = header.get("config"), header.get("members")
    if not isinstance(config, dict) or not {"environment", "agent"} <= config.keys():
        raise SadqError(f"{path} names no environment and agent under `config`: it is not a run, or it is damaged.")
    if not isinstance(config.get("environment_settings"), list | None):
        raise SadqError(f"{path} must have a list as `environment_settings`: the run is damaged, so train it again.")
    listed = members if isinstance(members, list) else []
    if {type(member.get("seed")) if isinstance(member, dict) else None for member in listed} != {int}:
        raise SadqError(f"{path} must list its `members`, each with a whole number as `seed`: the run is damaged.")
    if not all(isinstance(member.get("alpha"), int | float | None) for member in listed):
        raise SadqError(f"{path} must give each of its `members` a number, or null, as `alpha`: the run is damaged.")
    return header


def _is_outcome(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return all(isinstance(value.get(name), int | None) for name in ("diverged_at", "model_diverged_at"))


def _object(text: bytes) -> dict[str, Any]:
    """The JSON object that the text is; an empty one where it is damaged."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _table(path: Path, member_count: int, names: Sequence[str] = ()) -> tuple[Integers, dict[str, Floats]]:
    """The steps [T] in order, and a table [M, T] of every name given, or else of every name that holds numbers."""
    content = path.read_bytes() if path.exists() else b""
    lines = [(number, text) for number, text in enumerate(content.split(b"\n"), start=1) if text.strip()]
    cells: dict[tuple[int, int], dict[str, float]] = {}
    for number, text in lines:
        line = _object(text)
        if not line and number == lines[-1][0]:
            break  # half a line, which a killed writer leaves
        try:
            step, member = int(line["step"]), int(line["member"])
            if not (0 <= member < member_count and 0 <= step < 2**63):
                raise ValueError
            kept = names or [name for name, value in line.items() if value is None or isinstance(value, int | float)]
            measured = line.get("measures") or {}
            # Of two lines for one cell the later wins: a resumed run repeats what followed its last checkpoint.
            cells[step, member] = {name: _number(line.get(name)) for name in kept}
            cells[step, member] |= {f"{MEASURED}{name}": _number(value) for name, value in measured.items()}
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise SadqError(
                f"Line {number} of {path} is damaged or does not fit its run: expected numbers, with `step` and a "
                f"`member` below {member_count}; leave this run out of the report or train it again."
            ) from error
    places = np.array(list(cells), dtype=np.int64).reshape(-1, 2)
    steps, columns = np.unique(places[:, 0], return_inverse=True)
    tables = {}
    for name in dict.fromkeys([*names, *sorted(set().union(*cells.values()))]):
        tables[name] = np.full((member_count, steps.size), np.nan)
        tables[name][places[:, 1], columns] = [values.get(name, np.nan) for values in cells.values()]
    return steps, tables


def _number(value: Any) -> float:
    """One number; a list counts by its mean, and what is absent, null or not finite is NaN."""
    if isinstance(value, list):
        value = np.mean([_number(item) for item in value] or math.nan)
    return float(value) if value is not None and math.isfinite(value) else math.nan

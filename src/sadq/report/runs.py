"""A run folder read back as arrays; an unfinished or killed run is read as far as it got."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sadq.errors import SadqError

FORMAT = 2
PAPER_BACKBONE = "dueling"  # what the agent name `sadq` alone stands for
SUFFIX = "+sadq"

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Member:
    """One learner of a run: its seed, and every other number that may differ between members."""

    seed: int
    settings: dict[str, Any]
    diverged: bool = False
    diverged_at: int | None = None

    @property
    def alpha(self) -> float | None:
        """The weight of the base agent's own choice; None for a plain base agent."""
        return self.settings.get("alpha")


@dataclass(frozen=True)
class Run:
    """M members, S evaluations, T metric intervals; NaN wherever a value is missing or was not finite."""

    folder: Path
    name: str
    environment: str
    agent: str
    planned_steps: int | None
    members: tuple[Member, ...]
    steps: Integers  # [S]
    returns: Floats  # [M, S], the mean over an evaluation's episodes
    overestimation: Floats  # [M, S]
    metric_steps: Integers  # [T]
    metrics: dict[str, Floats]  # name -> [M, T]
    finished: bool
    header: dict[str, Any]
    result: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def last_step(self) -> int:
        """The last step at which every member was evaluated."""
        return int(self.steps[-1]) if self.steps.size else 0

    @property
    def base_agent(self) -> str:
        """The agent's name without SADQ."""
        return self.agent.removesuffix(SUFFIX)

    @property
    def guided(self) -> bool:
        """Whether SADQ is on."""
        return self.agent.endswith(SUFFIX)


def load(folder: Path | str) -> Run:
    """The run in `folder`, or a `SadqError` that says why there is none."""
    folder = Path(folder)
    header = _header(folder)
    config = header["config"]
    agent = str(config["agent"]).lower()
    result, result_note = _result(folder)
    members = _members(header["members"], result)

    steps, evaluations, written = _table(folder / "evaluations.jsonl", len(members), ("returns", "overestimation"))
    complete = _complete_until(written)
    metric_steps, metrics, _ = _table(folder / "metrics.jsonl", len(members))

    notes = [result_note] if result_note else []
    if result and not _lists(result, members):
        notes.append("its result.json lists other members than its config.json, so which of them diverged is unknown")
    if complete == 0:
        notes.append("it holds no complete evaluation yet")
    elif complete < len(steps):
        notes.append(f"its last evaluation, at step {steps[-1]:,}, is incomplete and was left out")
    planned = config.get("steps")
    return Run(
        folder=folder,
        name=folder.resolve().name,
        environment=str(config["environment"]),
        agent=PAPER_BACKBONE + SUFFIX if agent == "sadq" else agent,
        planned_steps=planned if isinstance(planned, int) else None,
        members=members,
        steps=steps[:complete],
        returns=evaluations["returns"][:, :complete],
        overestimation=evaluations["overestimation"][:, :complete],
        metric_steps=metric_steps,
        metrics=metrics,
        finished=bool(result),
        header=header,
        result=result,
        notes=tuple(notes),
    )


def load_all(folders: Sequence[Path | str]) -> list[Run]:
    """All the runs, under names that differ: the folder's own, with as many of its parents as that takes."""
    if not folders:
        raise SadqError("No run was given: name at least one folder that a training run has written.")
    places = [Path(folder).resolve() for folder in folders]
    repeated = [str(folder) for folder, place in zip(folders, places, strict=True) if places.count(place) > 1]
    if repeated:
        raise SadqError(f"The run {repeated[0]} was given more than once: name every run once.")
    depth = 1
    while len({place.parts[-depth:] for place in places}) < len(places):
        depth += 1
    return [
        replace(load(folder), name="/".join(place.parts[-depth:]))
        for folder, place in zip(folders, places, strict=True)
    ]


def differences(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """(setting, its value in each run) wherever the runs differ; a number swept over members shows all its values."""
    settings = []
    for run in runs:
        found = {name: run.header.get(name) for name in ("preset", "sadq", "jax", "device")} | run.header["config"]
        for name in dict.fromkeys(name for member in run.members for name in member.settings):
            values = [member.settings.get(name) for member in run.members]
            found[f"members: {name}"] = list(dict.fromkeys(json.dumps(value, ensure_ascii=False) for value in values))
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
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(header, dict):
            raise TypeError
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise SadqError(f"{path} cannot be read as a JSON object: the run is damaged, so train it again.") from error
    if header.get("format") != FORMAT:
        raise SadqError(
            f"{path} has format {header.get('format')!r}, expected {FORMAT}: "
            "read it with the version of sadq that wrote it."
        )
    config, members = header.get("config"), header.get("members")
    if not isinstance(config, dict) or not {"environment", "agent"} <= config.keys():
        raise SadqError(f"{path} names no environment and agent under `config`: it is not a run, or it is damaged.")
    if not isinstance(members, list) or not members or not all(_is_member(member) for member in members):
        raise SadqError(f"{path} must list its `members`, each with a whole number as `seed`: the run is damaged.")
    return header


def _is_member(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("seed"), int)


def _result(folder: Path) -> tuple[dict[str, Any], str | None]:
    """result.json, empty while the run is unfinished, and what is wrong with it if anything."""
    path = folder / "result.json"
    if not path.exists():
        return {}, None
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        result = None
    return (
        (result, None) if isinstance(result, dict) else ({}, "its result.json is damaged, so it counts as unfinished")
    )


def _lists(result: dict[str, Any], members: Sequence[Any]) -> bool:
    return isinstance(result.get("members"), list) and len(result["members"]) == len(members)


def _members(listed: list[dict[str, Any]], result: dict[str, Any]) -> tuple[Member, ...]:
    outcomes = result["members"] if _lists(result, listed) else [{}] * len(listed)
    members = []
    for member, outcome in zip(listed, outcomes, strict=True):
        outcome = outcome if isinstance(outcome, dict) else {}
        step = outcome.get("diverged_at")
        members.append(
            Member(
                seed=member["seed"],
                settings={name: value for name, value in member.items() if name not in ("seed", "member", "index")},
                diverged=outcome.get("status") == "diverged",
                diverged_at=step if isinstance(step, int) else None,
            )
        )
    return tuple(members)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a JSON-lines file; a killed writer leaves half a last line, which is skipped."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise SadqError(f"{path} cannot be read: {error.strerror}.") from error
    texts = [text for text in enumerate(content.split(b"\n"), start=1) if text[1].strip()]
    for number, text in texts:
        try:
            value = json.loads(text)
            if not isinstance(value, dict):
                raise TypeError
        except (ValueError, TypeError, RecursionError) as error:
            if number == texts[-1][0]:
                return
            raise SadqError(
                f"Line {number} of {path} is damaged, and only the last line may be: "
                "remove it, or leave this run out of the report."
            ) from error
        yield number, value


def _table(
    path: Path, member_count: int, names: tuple[str, ...] | None = None
) -> tuple[Integers, dict[str, Floats], NDArray[np.bool_]]:
    """The steps [T] in order, a table [M, T] per name (of all that hold numbers, if None), and where a line stood [M, T].

    Of two lines for one cell the later wins: a resumed run writes again what followed its last checkpoint.
    """
    cells: dict[tuple[int, int], dict[str, float]] = {}
    for number, line in _lines(path):
        try:
            step, member = int(line.pop("step")), int(line.pop("member"))
            if not (0 <= member < member_count and 0 <= step < 2**63):
                raise ValueError
            kept = names or [name for name, value in line.items() if value is None or isinstance(value, int | float)]
            cells[step, member] = {name: _number(line.get(name)) for name in kept}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise SadqError(
                f"Line {number} of {path} does not fit its run: expected numbers, with `step` and a `member` below "
                f"{member_count}; leave this run out of the report or train it again."
            ) from error
    steps = np.array(sorted({step for step, _ in cells}), dtype=np.int64)
    column = {int(step): index for index, step in enumerate(steps)}
    shape = (member_count, len(steps))
    written = np.zeros(shape, dtype=np.bool_)
    tables = {name: np.full(shape, np.nan) for name in names or sorted(set().union(*cells.values()))}
    for (step, member), values in cells.items():
        written[member, column[step]] = True
        for name, value in values.items():
            tables[name][member, column[step]] = value
    return steps, tables, written


def _number(value: Any) -> float:
    """One number; a list counts by its mean, and what is absent, null or not finite is NaN."""
    if isinstance(value, list):
        return _number(float(np.mean([_number(item) for item in value]))) if value else float("nan")
    if value is None:
        return float("nan")
    number = float(value)
    return number if np.isfinite(number) else float("nan")


def _complete_until(written: NDArray[np.bool_]) -> int:
    """How many evaluations to keep: a run killed in the middle of one would give members curves of unequal length."""
    complete = written[written.any(axis=1)].all(axis=0)
    return int(np.flatnonzero(complete)[-1]) + 1 if written.any() and complete.any() else 0

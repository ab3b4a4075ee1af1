"""`sadq reproduce`: one of the paper's artefacts, its arms trained or gone on with, and what came of it as one record."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sadq.envs.atari.spec import PREFIX
from sadq.errors import SadqError
from sadq.experiment import arguments
from sadq.experiment.storage import write_atomically
from sadq.report.page import write_report
from sadq.studies import runtime, sweep, tables, theory
from sadq.studies.arms import Arm, bases, parse_arms
from sadq.studies.artefacts import QUICK_SEEDS, Artefact, find, shared_config
from sadq.studies.curves import extras
from sadq.studies.judged import Judged, Outcome
from sadq.studies.origin import origin, origins
from sadq.studies.sweep import Job, Runner

FORMAT = 2
LINE_DEPTH = 4  # environments, one of them, its arms, one of them
DIGITS = 6  # of a number in a record
RESULT, REPORT = "result.json", "report"
THEORY_MDPS = {True: 20, False: 1000}
"""Random MDPs that the theorem is tried on, in the quick version and in the full one."""


@dataclass(frozen=True)
class Reproduction:
    """What a reproduction leaves: a record fit for `results/`, its words, and a page."""

    record: dict[str, Any]
    words: tuple[str, ...]
    path: Path
    page: Path


@dataclass(frozen=True)
class Part:
    """An artefact's arms on one of its presets."""

    preset: str
    arms: Sequence[Arm]
    bases: dict[str, str]
    jobs: Sequence[Job]

    def judged(self, runs: Path) -> Judged:
        outcomes = [Outcome(arm, runs / job.folder) for arm, job in zip(self.arms, self.jobs, strict=True)]
        return Judged(self.jobs[0].config.environment, outcomes, self.bases)

    def finished(self, runs: Path) -> "Part":
        """What of it is at its end."""
        pairs = [
            (arm, job)
            for arm, job in zip(self.arms, self.jobs, strict=True)
            if sweep.finished(runs / job.folder) is not None
        ]
        there = {arm.label for arm, _ in pairs}
        compared = {label: base for label, base in self.bases.items() if {label, base} <= there}
        return Part(self.preset, [arm for arm, _ in pairs], compared, [job for _, job in pairs])


def reproduce(
    name: str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    only: Sequence[str] = (),
    beside: str | None = None,
    out: Path | None = None,
    pool: Path | None = None,
    partial: bool = False,
    quiet: bool = False,
    runner: Runner | None = None,
) -> Reproduction:
    """Trains what is not trained yet; Ctrl-C saves, and the same call goes on.

    Run folders lie at PLACE/ARM below `out`/runs, or below `pool`, which several artefacts may share. With `partial`
    nothing is trained: what is finished is judged, with the seeds that it has unless they are given, and what is
    missing is named.
    """
    artefact = find(name)
    out = out or Path("runs") / f"{name}{'-quick' if quick else ''}"
    about: dict[str, Any] = {"format": FORMAT, "artefact": name, "shows": artefact.shows, "quick": quick}
    if name == "theory":
        if only or beside or seeds is not None:
            raise SadqError("theory has neither presets nor arms nor seeds: leave --only, --beside and --seeds out.")
        if pool or partial or runner is not None:
            raise SadqError("theory trains nothing: leave --pool, --partial and --on out.")
        about["judged"] = origin()
        began = time.perf_counter()
        rows = theory.measure(THEORY_MDPS[quick])
        seconds = {"wall_seconds": round(time.perf_counter() - began, 1)}
        about |= {"origins": [about["judged"]], "missing": {}, "seconds": seconds, "claims": rows}
        return _leave(out, about, tables.theory_table(rows), artefact)
    if pool is not None and pool.exists() and not pool.is_dir():
        raise SadqError(f"{pool} is a file, expected a folder of runs: give another one with --pool.")
    runs = pool or out / "runs"
    parts = plan(name, quick, seeds, only, beside)
    if partial:
        parts, missing = present(parts, runs, any_seeds=seeds is None)
    else:
        missing, jobs = {}, [job for part in parts for job in part.jobs]
        for job in jobs:
            sweep.check(job, runs / job.folder)
        # Asked now, since with a pool nothing is written to `out` before all is trained; and last, for it makes the folder.
        arguments.check_writable(out / RESULT, f"{out / RESULT} cannot be written", "give another folder with --out")
        sweep.run(jobs, runs, quiet=quiet, runner=runner)
    judged = [part.judged(runs) for part in parts]
    outcomes = [outcome for each in judged for outcome in each.outcomes]
    made = origins(outcome.header for outcome in outcomes)
    record = about | {"judged": origin(), "origins": made, "missing": missing}
    if name == "runtime":
        rows = [
            runtime.measure(outcome, quick) | {"model_parameters": runtime.model_parameters(outcome.config)}
            for outcome in outcomes
        ]
        return _leave(out, record | {"arms": rows}, tables.runtime_table(rows), artefact)
    record["environments"] = [
        {"preset": part.preset} | _with_extras(each, artefact) for part, each in zip(parts, judged, strict=True)
    ]
    title = f"{name}: {artefact.shows}"
    spelled = [outcome.arm.label for outcome in outcomes]
    folders = [outcome.folder for outcome in outcomes]
    compared = {label: base for part in parts for label, base in part.bases.items()}
    page = write_report(folders, out / REPORT, title, arms=spelled, bases=compared)
    words = [line for each in judged for line in each.lines()]
    words += [f"Missing on {preset}: {', '.join(labels)}." for preset, labels in missing.items()]
    write_record(out / RESULT, _plain(record))
    return Reproduction(_plain(record), tuple(words), out / RESULT, page)


def present(parts: Sequence[Part], runs: Path, any_seeds: bool) -> tuple[list[Part], dict[str, list[str]]]:
    """(the parts as far as they are finished, preset -> the arms that are missing there)."""
    immaterial = (*sweep.IMMATERIAL, *(("seeds",) if any_seeds else ()))
    found, missing = [], {}
    for part in parts:
        there = part.finished(runs)
        for job in there.jobs:
            sweep.check(job, runs / job.folder, immaterial)
        if there.jobs:
            found.append(there)
        if len(there.arms) < len(part.arms):
            missing[part.preset] = [arm.label for arm in part.arms if arm not in there.arms]
    if not found:
        raise SadqError(f"Nothing of this is finished below {runs}: train it by the same command without --partial.")
    return found, missing


def plan(name: str, quick: bool, seeds: int | None, only: Sequence[str], beside: str | None) -> list[Part]:
    """Every fleet of an artefact, preset by preset."""
    artefact = find(name)
    kept = tuple(dict.fromkeys(_spelled(one, artefact.presets) for one in only))
    presets = kept or (artefact.quick_presets if quick else ()) or artefact.presets
    count = seeds if seeds is not None else QUICK_SEEDS if quick and len(artefact.seeds) > 1 else len(artefact.seeds)
    numbers = arguments.seeds_of(count)
    texts = list(artefact.arms)
    if beside is not None:
        twins = [f"{text}{',' if ':' in text else ':'}{beside}" for text in texts if Arm.parse(text).guided]
        if not twins:
            raise SadqError(f"{name} has no guided arm, so nothing can stand beside one: leave --beside out.")
        texts += twins
    arms = parse_arms(texts, least=1)
    compared = bases(arms, artefact.against)
    if artefact.against is None:  # plain agents are not what it compares, and would only make the correction stronger
        compared = {arm.label: compared[arm.label] for arm in arms if arm.guided}
    parts = []
    for preset in presets:
        shared = shared_config(preset, quick, numbers)
        place = preset.removeprefix(PREFIX).lower()
        jobs = [Job(f"{arm.label} on {place}", arm.config(shared), f"{place}/{arm.folder}", arm.label) for arm in arms]
        parts.append(Part(preset, arms, compared, jobs))
    return parts


def _spelled(asked: str, presets: Sequence[str]) -> str:
    """The preset, or Atari environment, that a word means."""
    for preset in presets:
        if asked.lower() in (preset.lower(), preset.removeprefix(PREFIX).lower()):
            return preset
    raise SadqError(f"--only {asked} is no part of this artefact: expected {', '.join(presets)}.")


def _with_extras(judged: Judged, artefact: Artefact) -> dict[str, Any]:
    """The judged arms with their curves, a list over the seeds for each number of theirs; what follows from it left out."""
    found = judged.as_dict()
    found["steps"] = judged.outcomes[0].steps.tolist()
    for arm, outcome in zip(found["arms"], judged.outcomes, strict=True):
        more = extras(outcome, artefact.metrics)
        if more["curve"]["steps"] == found["steps"]:
            del more["curve"]["steps"]
        rows = arm.pop("members")
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        arm |= more | {"members": columns | more["members"]}
    for contrast in found["contrasts"]:
        for measure in contrast["measures"].values():
            for name in ("measure", "base", "other", "differences", "exact"):
                del measure[name]
    return found


def _leave(out: Path, record: dict[str, Any], table: tables.Table, artefact: Artefact) -> Reproduction:
    """The record and a page of a result that is a table."""
    page = out / REPORT / "index.html"
    with sweep.writing(page):
        page.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(page, tables.page(f"{record['artefact']}: {artefact.shows}", table).encode())
    write_record(out / RESULT, _plain(record))
    return Reproduction(_plain(record), tuple(table.lines()), out / RESULT, page)


def write_record(path: Path, record: dict[str, Any]) -> None:
    """A line for every arm and contrast: small, and still told apart by a comparison of versions."""
    with sweep.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (_lines(record) + "\n").encode())


def _lines(value: Any, depth: int = 0) -> str:
    """JSON, with what lies deep within on one line."""
    if depth >= LINE_DEPTH or not isinstance(value, dict | list) or not value:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    inner = "\n" + " " * (depth + 1)
    if isinstance(value, dict):
        cells = [f"{json.dumps(name)}: {_lines(each, depth + 1)}" for name, each in value.items()]
    else:
        cells = [_lines(each, depth + 1) for each in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + inner + f",{inner}".join(cells) + "\n" + " " * depth + closing


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it, which knows no NaN, in as many digits as say something."""

    def digits(text: str) -> float:
        return float(f"{float(text):.{DIGITS}g}")

    return json.loads(json.dumps(record), parse_constant=lambda name: None, parse_float=digits)

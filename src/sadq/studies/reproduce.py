"""`sadq reproduce`: one of the paper's artefacts, its arms trained or gone on with, and what came of it as one record."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sadq.envs.atari.spec import PREFIX
from sadq.errors import SadqError
from sadq.experiment.storage import write_atomically, write_json
from sadq.report.page import write_report
from sadq.studies import runtime, sweep, tables, theory
from sadq.studies.arms import Arm, bases, parse_arms
from sadq.studies.artefacts import QUICK_SEEDS, Artefact, find, shared_config
from sadq.studies.curves import extras
from sadq.studies.judged import Judged, Outcome
from sadq.studies.origin import origin
from sadq.studies.sweep import Job, Runner

FORMAT = 1
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

    def judged(self, out: Path) -> Judged:
        outcomes = [Outcome(arm, out / job.folder) for arm, job in zip(self.arms, self.jobs, strict=True)]
        return Judged(self.jobs[0].config.environment, outcomes, self.bases)


def reproduce(
    name: str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    only: Sequence[str] = (),
    beside: str | None = None,
    out: Path | None = None,
    quiet: bool = False,
    runner: Runner | None = None,
) -> Reproduction:
    """Trains what is not trained yet; Ctrl-C saves, and the same call goes on."""
    artefact = find(name)
    out = out or Path("runs") / f"{name}{'-quick' if quick else ''}"
    about: dict[str, Any] = {"format": FORMAT, "artefact": name, "shows": artefact.shows, "quick": quick}
    if name == "theory":
        if only or beside or seeds is not None:
            raise SadqError("theory has neither presets nor arms nor seeds: leave --only, --beside and --seeds out.")
        rows = theory.measure(THEORY_MDPS[quick])
        return _leave(out, about | origin() | {"claims": rows}, tables.theory_table(rows), artefact)
    parts = plan(name, quick, seeds, only, beside)
    sweep.run([job for part in parts for job in part.jobs], out, quiet=quiet, runner=runner)
    if name == "runtime":
        outcomes = parts[0].judged(out).outcomes
        rows = [runtime.measure(outcome, quick) for outcome in outcomes]
        return _leave(out, about | origin() | {"arms": rows}, tables.runtime_table(rows), artefact)
    judged = [part.judged(out) for part in parts]
    record = about | origin()
    record["environments"] = [
        {"preset": part.preset} | _with_extras(each, artefact) for part, each in zip(parts, judged, strict=True)
    ]
    folders = [outcome.folder for each in judged for outcome in each.outcomes]
    spelled = [outcome.arm.label for each in judged for outcome in each.outcomes]
    page = write_report(folders, out / REPORT, f"{name}: {artefact.shows}", arms=spelled)
    words = [line for each in judged for line in each.lines()]
    write_json(out / RESULT, _plain(record))
    return Reproduction(_plain(record), tuple(words), out / RESULT, page)


def plan(name: str, quick: bool, seeds: int | None, only: Sequence[str], beside: str | None) -> list[Part]:
    """Every fleet of an artefact, preset by preset."""
    artefact = find(name)
    kept = [_spelled(one, artefact.presets) for one in only]
    presets = kept or (artefact.quick_presets if quick else ()) or artefact.presets
    count = seeds if seeds is not None else QUICK_SEEDS if quick and len(artefact.seeds) > 1 else len(artefact.seeds)
    if count < 1:
        raise SadqError(f"seeds = {count} must be at least 1.")
    texts = list(artefact.arms)
    if beside is not None:
        twins = [f"{text}{',' if ':' in text else ':'}{beside}" for text in texts if Arm.parse(text).guided]
        if not twins:
            raise SadqError(f"{name} has no guided arm, so nothing can stand beside one: leave --beside out.")
        texts += twins
    arms = parse_arms(texts, least=1)
    parts = []
    for preset in presets:
        shared = shared_config(preset, quick, tuple(range(count)))
        place = preset.removeprefix(PREFIX).lower()
        jobs = [Job(f"{arm.label} on {place}", arm.config(shared), f"runs/{place}/{arm.folder}") for arm in arms]
        parts.append(Part(preset, arms, bases(arms, artefact.against), jobs))
    return parts


def _spelled(asked: str, presets: Sequence[str]) -> str:
    """The preset, or Atari environment, that a word means."""
    for preset in presets:
        if asked.lower() in (preset.lower(), preset.removeprefix(PREFIX).lower()):
            return preset
    raise SadqError(f"--only {asked} is no part of this artefact: expected {', '.join(presets)}.")


def _with_extras(judged: Judged, artefact: Artefact) -> dict[str, Any]:
    """The judged arms, each with its curves and what its environment measures."""
    found = judged.as_dict()
    for arm, outcome in zip(found["arms"], judged.outcomes, strict=True):
        more = extras(outcome, artefact.metrics)
        for member, measured in zip(arm["members"], more.pop("measures"), strict=True):
            member |= {"measures": measured} if measured else {}
        arm |= more
    return found


def _leave(out: Path, record: dict[str, Any], table: tables.Table, artefact: Artefact) -> Reproduction:
    """The record and a page of a result that is a table."""
    out.mkdir(parents=True, exist_ok=True)
    page = out / REPORT / "index.html"
    page.parent.mkdir(exist_ok=True)
    write_atomically(page, tables.page(f"{record['artefact']}: {artefact.shows}", table).encode())
    write_json(out / RESULT, _plain(record))
    return Reproduction(_plain(record), tuple(table.lines()), out / RESULT, page)


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it, which knows no NaN."""
    return json.loads(json.dumps(record), parse_constant=lambda name: None)

"""Where runs under way stand: how far, how fast, how long to go, and each member's newest numbers."""

import time
from dataclasses import dataclass, replace
from html import escape

import numpy as np

from sadq.report import markup
from sadq.report.runs import Floats, Integers, Run
from sadq.report.stats import number

RECENT = 5  # intervals of metrics whose speed counts
SILENT = 60.0  # seconds without a line at least, before a run is called silent
STARTING = 600.0  # and before its first: compiling may take minutes
PATIENCE = 20.0  # and so many intervals


@dataclass(frozen=True)
class Standing:
    """A run as it stands now."""

    run: Run
    step: int  # of each member, by the newest metrics or evaluation
    planned: int | None
    rate: float | None  # env steps a second of all members, over the newest intervals
    written: float | None  # when anything was, last
    now: float

    @classmethod
    def of(cls, run: Run, now: float | None = None) -> "Standing":
        """Reads no more than `run` has read, but the time at which its files were written."""
        step = max([run.last_step, *run.metric_steps[-1:].tolist()])
        rates = run.metrics.get("steps_per_second")
        rate = (
            float(np.nanmedian(rates[0, -RECENT:]))
            if rates is not None and np.isfinite(rates[0, -RECENT:]).any()
            else None
        )
        files = [run.folder / name for name in ("config.json", "metrics.jsonl", "evaluations.jsonl")]
        written = max((path.stat().st_mtime for path in files if path.exists()), default=None)
        return cls(run, step, run.planned_steps, rate, written, time.time() if now is None else now)

    def later(self) -> "Standing":
        """The same, had nothing been written since: a run that was killed writes no line to say so."""
        return replace(self, now=time.time())

    @property
    def quiet(self) -> float | None:
        """Seconds since something was written."""
        return None if self.written is None else max(0.0, self.now - self.written)

    @property
    def share(self) -> float:
        """Of the planned steps, how many are done; 1 for a finished run."""
        return 1.0 if self.run.finished or not self.planned else min(1.0, self.step / self.planned)

    @property
    def seconds_left(self) -> float | None:
        """At the newest speed; what evaluations and compilation take comes on top."""
        if self.run.finished or self.silent or not self.rate or not self.planned:
            return None
        return max(0, self.planned - self.step) * len(self.run.members) / self.rate

    @property
    def silent(self) -> bool:
        """Whether it has written nothing for so long that it is likely dead."""
        if self.run.finished or self.quiet is None:
            return False
        interval = self.run.header.get("metrics_interval")
        expected = 0.0
        if self.rate and isinstance(interval, int):
            expected = PATIENCE * interval * len(self.run.members) / self.rate
        return self.quiet > (max(SILENT, expected) if self.rate else STARTING)

    @property
    def words(self) -> str:
        """finished, running, starting or silent, for so many whole minutes."""
        if self.run.finished:
            return "finished"
        if self.silent:
            return f"silent for {duration(60 * ((self.quiet or 0.0) // 60)).removesuffix(' 00 s')}"
        return "running" if self.rate else "starting"


def fleets(standings: list[Standing]) -> str:
    """The section of a page that is served: every run, and its members."""
    return (
        '<section class="fleets" aria-labelledby="fleets"><h2 id="fleets">Under way</h2>'
        + "".join(map(_fleet, standings))
        + '<p class="status" role="status" id="live">Refreshed while the runs go on.</p></section>'
    )


def _fleet(standing: Standing) -> str:
    run = standing.run
    name = escape(f"{run.name}: {run.agent} on {run.environment}")
    left = standing.seconds_left
    facts = [
        standing.words,
        f"{standing.step:,}" + (f" of {standing.planned:,}" if standing.planned else "") + " steps",
        f"{len(run.members)} member{'s' * (len(run.members) > 1)}",
    ]
    facts += [f"{standing.rate:,.0f} steps/s"] if standing.rate and not standing.silent else []
    facts += [f"ETA {duration(left)}"] if left is not None else []
    said = escape(" · ".join(facts))
    bar = f'<progress max="1000" value="{round(1000 * standing.share)}" aria-label="{name}"></progress>'
    table = markup.table(
        ("Member", "Seed", "Settings", "Newest return", "Training return", "Loss", "Status"),
        _members(run),
        f"Members of {run.name}",
    )
    return f'<article class="fleet"><h3>{name}</h3>{bar}<p>{said}</p>{markup.folded("Members", table)}</article>'


def _members(run: Run) -> list[tuple[str, ...]]:
    swept = [name for name in run.members[0].settings if len({str(one.settings.get(name)) for one in run.members}) > 1]
    rows: list[tuple[str, ...]] = []
    for index, member in enumerate(run.members):
        settings = ", ".join(f"{name} {member.settings.get(name)}" for name in swept)
        training, loss = (
            _newest(run.metric_steps, run.metrics.get(name), index) for name in ("training_return", "loss")
        )
        status = "diverged" if member.diverged else "ok" if run.finished else "under way"
        newest = _newest(run.steps, run.returns, index)
        rows.append((str(index), str(member.seed), settings or "as the run", newest, training, loss, status))
    return rows


def _newest(steps: Integers, table: Floats | None, member: int) -> str:
    """The newest value that is known."""
    if table is None or not steps.size:
        return "none yet"
    known = table[member][np.isfinite(table[member])]
    return number(float(known[-1])) if known.size else "none yet"


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"

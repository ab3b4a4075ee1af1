"""The page: one HTML file with everything inside it, words first, then charts and tables; and the numbers as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from sadq.report import charts, markup, stats
from sadq.report.aggregate import Aggregate, aggregate
from sadq.report.charts import Chart
from sadq.report.comparison import Comparison, Summary, apart, comparisons_of, record, thresholds_of
from sadq.report.environment import Section
from sadq.report.headline import headlines
from sadq.report.lines import Line, lines_of, notes_on
from sadq.report.names import in_words
from sadq.report.origins import origins
from sadq.report.runs import Run, differences, load_all
from sadq.report.stats import interval, number
from sadq.report.styles import Style, sheet, styles_of
from sadq.report.traces import grid_of, profile_of
from sadq.report.verdicts import THRESHOLD_SHARE, threshold_of

FORMAT = 2
RESERVED = (
    "content",
    "care",
    "fleets",
    "live",
    "all",
    "all-title",
    "origins",
    "origins-title",
    "method",
    "method-title",
)
"""Ids of the page's own places, which no environment may take."""


def part(name: str) -> str:
    """A file that goes into the page as it is."""
    return resources.files("sadq.report").joinpath(name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Report:
    """Runs read and compared, ready to be shown."""

    runs: list[Run]
    lines: list[Line]
    summaries: list[Summary]
    comparisons: list[Comparison]
    thresholds: dict[str, float | None]
    over_environments: Aggregate | None
    styles: dict[str, Style]
    notes: list[str]
    title: str
    seed: int
    given_threshold: float | None = None

    @classmethod
    def of(
        cls,
        runs: Sequence[Path | str],
        title: str | None = None,
        seed: int = 0,
        against: str | None = None,
        threshold: float | None = None,
        arms: Sequence[str] | None = None,
        bases: Mapping[str, str] | None = None,
    ) -> "Report":
        """Reads the runs. `against` names the base of all comparisons, `threshold` the return whose time is compared,
        `arms` how a study spells each run and `bases` what it compares each with; `seed` is the bootstrap's."""
        threshold = threshold_of(threshold)
        loaded = load_all(runs, arms)
        lines = lines_of(loaded)
        comparisons = comparisons_of(lines, seed, against, threshold, bases)
        notes = [each.warning for each in comparisons if not each.alike]
        notes += apart(lines)
        notes += [note for run in loaded for note in notes_on(run, [line for line in lines if line.run is run])]
        environments = list(dict.fromkeys(line.environment for line in lines))
        return cls(
            loaded,
            lines,
            [Summary(line, seed) for line in lines],
            comparisons,
            thresholds_of(lines, threshold),
            aggregate(lines, seed),
            styles_of(lines),
            notes,
            title or "SADQ report: " + ", ".join(in_words(name) for name in environments),
            seed,
            threshold,
        )

    @property
    def environments(self) -> list[str]:
        return list(dict.fromkeys(line.environment for line in self.lines))

    def html(self, live: str = "", script: str = "") -> str:
        """The page; `live` goes before all else, and `script` after the page's own."""
        taken = set(RESERVED)
        slugs = {name: markup.slug_of(name, taken) for name in self.environments}
        links = [(slug, in_words(name)) for name, slug in slugs.items()]
        links += [("all", "All environments")] if self.over_environments else []
        links += [("origins", "Origins"), ("method", "How this was made")]
        contents = "".join(f'<li><a href="#{slug}">{escape(name)}</a></li>' for slug, name in links)
        body = [
            f"<header><h1>{escape(self.title)}</h1><p>{escape(self._subtitle())}</p></header>",
            f'<nav aria-label="Contents"><ul>{contents}</ul></nav>',
            '<main id="content">',
            live,
            f'<section class="cards" aria-label="Findings">{"".join(headlines(self.comparisons, self.summaries))}</section>',
            self._notes(),
        ]
        for name, slug in slugs.items():
            section = Section(name, self.summaries, self.comparisons, self.thresholds[name], self.styles, self.seed)
            body.append(section.html(slug))
        body += [self._together(), *self._method(), "</main>"]
        style = part("style.css") + sheet(self.styles)
        return (
            '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta name="color-scheme" content="light dark"><title>{escape(self.title)}</title>'
            f"<style>{style}</style></head>\n<body>\n"
            + "\n".join(body)
            + f"\n<script>{part('script.js')}{script}</script>"
            "</body></html>\n"
        )

    def as_dict(self) -> dict[str, Any]:
        """All numbers of the page."""
        settings = differences(self.runs)
        return record(
            {
                "format": FORMAT,
                "title": self.title,
                "bootstrap": {"seed": self.seed, "resamples": stats.RESAMPLES, "level": stats.LEVEL},
                "summaries": [summary.as_dict() for summary in self.summaries],
                "comparisons": [comparison.as_dict() for comparison in self.comparisons],
                "over_environments": self.over_environments and self.over_environments.as_dict(),
                "notes": self.notes,
                "config_differences": [{"setting": name, "values": values} for name, values in settings],
            }
        )

    def _subtitle(self) -> str:
        seeds = {len(line.indices) for line in self.lines}
        steps = {line.run.last_step for line in self.lines}
        runs, lines = len(self.runs), len(self.lines)
        members = f"{lines} line{'s' * (lines > 1)} of {spread(seeds)} seed{'s' * (max(seeds) > 1)}"
        return f"{runs} run{'s' * (runs > 1)}: {members}, {spread(steps)} steps."

    def _notes(self) -> str:
        if not self.notes:
            return ""
        items = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            f'<section class="notes" aria-labelledby="care"><h2 id="care">Read with care</h2><ul>{items}</ul></section>'
        )

    def _together(self) -> str:
        """Arms over all environments."""
        found = self.over_environments
        if found is None:
            return ""
        caption = (
            "On a scale where untrained agents have 0 and the best arm of an environment 1 (Atari: random and human)."
        )
        rows = [(label, np.concatenate(found.strata[label]), middle) for label, middle in found.middle.items()]
        middle = Chart("Final return, interquartile mean over environments", caption, "", "Normalised final return")
        grid = grid_of([np.concatenate(strata) for strata in found.strata.values()])
        profile = Chart(
            "Performance profile over environments",
            "The share of runs that score at least so much, each environment counted alike.",
            "Share of runs",
            "Normalised final return",
            steps=False,
        )
        traces = (
            [profile_of(label, strata, grid, self.seed) for label, strata in found.strata.items()] if grid.size else []
        )
        shown = charts.strip(middle, rows, self.styles) + charts.curves(profile, traces, self.styles)
        chances = [(other, base, interval(chance)) for (base, other), chance in found.improvement.items()]
        table = (
            markup.table(
                ("Agent", "against", "P(improvement)"), chances, "A run of one against a run of the other, any seeds"
            )
            if chances
            else ""
        )
        names = ", ".join(in_words(name) for name in found.environments)
        return (
            f'<section class="environment" id="all" aria-labelledby="all-title"><h2 id="all-title">All environments</h2>'
            f'<p>{escape(names)}</p><div class="charts">{shown}</div>{table}</section>'
        )

    def _method(self) -> Iterator[str]:
        yield (
            '<section id="origins" aria-labelledby="origins-title"><h2 id="origins-title">Origins</h2>'
            f"{origins(self.runs)}</section>"
        )
        yield '<section id="method" class="how" aria-labelledby="method-title">'
        yield '<h2 id="method-title">How this was made</h2><ul>'
        yield from (f"<li>{escape(text)}</li>" for text in _explanations(self.seed, self.given_threshold))
        yield "</ul></section>"


def spread(values: set[int]) -> str:
    """`5`, or `5 to 20` where they differ."""
    ends = sorted({min(values), max(values)})
    return " to ".join(f"{value:,}" for value in ends)


def _explanations(seed: int, given: float | None) -> Iterator[str]:
    coverage = ", ".join(f"{share:.0%} of cases with {seeds} seeds" for seeds, share in stats.COVERAGE.items())
    yield (
        "Final return is the mean of the last 5 evaluations. Area under the curve is the time average of all "
        "evaluations: trapezoids over steps, divided by the steps. Overestimation and what an environment measures are "
        "averaged over the last 5 too."
    )
    between = "from the first evaluation of all arms to the final return of the best one"
    origin = f"lies {THRESHOLD_SHARE:.0%} of the way {between}" if given is None else f"was given: {number(given)}"
    yield (
        f"The threshold {origin}. Steps to it are counted on the straight line between evaluations; a seed that never "
        "gets there counts by the last step, so a factor between two arms is rather too small than too large."
    )
    yield (
        f"Brackets around means and interquartile means are {stats.LEVEL:.0%} percentile-bootstrap intervals over seeds "
        f"({stats.RESAMPLES:,} resamples, random seed {seed}). With few seeds they are too narrow: of normal data they hold "
        f"the true mean only in {coverage}. The interquartile mean leaves out the lowest and the highest quarter of the "
        "seeds, rounded down."
    )
    yield (
        "Pairs share a seed, hence initial weights, exploration and sampling keys. Brackets around a paired difference are "
        "all shifts that the sign-flip test does not reject, and with fewer than six pairs, of which it rejects none at 5%, "
        "the range of the differences, at the lower level that stands behind them; the test asks how many of all ways to "
        "flip the signs of the differences give a mean at least as far from zero. p-values are corrected by Holm's method "
        "for all comparisons and measures of an environment."
    )
    yield (
        "P(improvement) is how often a run of one arm beats a run of the other, drawn independently; paired wins is "
        "the share of shared seeds on which it does. Ties count half in both."
    )
    yield (
        "Runs are compared only where environment and settings agree, apart from the agent and how its target is guided; "
        "other differences are named under Read with care, and such a pair gets no verdict."
    )

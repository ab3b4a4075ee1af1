"""The report itself: one index.html that says the numbers in words first, its PNG figures, and report.json."""

import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from sadq.errors import SadqError
from sadq.report import plots, stats
from sadq.report.comparison import MEASURES, Comparison, Line, Summary, comparisons_of, lines_of, notes_on, summarise
from sadq.report.runs import Run, differences, load_all

FORMAT = 1
STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5b6573; --rule: #d9dee5; --back: #fff; --box: #f5f7fa;
  --warn: #fff6e0; --edge: #d99a00; --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e7ed; --soft: #9aa5b4; --rule: #353d49; --back: #14181f;
  --box: #1c222b; --warn: #2e2714; --edge: #d99a00; --accent: #6bb8e6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 68rem; color: var(--ink); background: var(--back);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1.5rem; }
h2 { font-size: 1.25rem; margin: 2.75rem 0 .75rem; padding-top: 1.25rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.75rem 0 .5rem; }
.words p { padding-left: 1rem; border-left: 3px solid var(--accent); max-width: 52rem; }
.notes { background: var(--warn); border-left: 3px solid var(--edge); padding: .75rem 1rem; }
.notes p { margin: 0; font-weight: 600; }
.notes ul, .how ul { margin: .3rem 0; padding-left: 1.2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .8rem .4rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 600; }
td, .words span { white-space: nowrap; }
figure { margin: 1.25rem 0; }
figure img { display: block; width: 100%; height: auto; background: #fff; border: 1px solid var(--rule);
  border-radius: 6px; padding: .5rem; }
figcaption, .how, small, summary { color: var(--soft); font-size: .875rem; }
summary { cursor: pointer; margin: .5rem 0; }
"""
CAPTIONS = {
    "learning": "Greedy evaluation. Thick: mean over seeds; band: 95% bootstrap interval; thin: the seeds, unsmoothed.",
    "delta-q": "ΔQ, the best minus the worst action value over the update batch: how far the agent tells actions apart.",
    "overestimation": "The value predicted at an episode's first step minus the discounted return it went on to earn; "
    "zero is right.",
    "model-loss": "How wrong the learned model was on the transitions it was trained on (logarithmic).",
}


def write_report(runs: Sequence[Path | str], out: Path | str, title: str | None = None, *, seed: int = 0) -> Path:
    """Writes index.html, its figures and report.json into `out`; gives the page's path. `seed` is the bootstrap's."""
    loaded = load_all(runs)
    lines = lines_of(loaded)
    summaries = [summarise(line, seed) for line in lines]
    comparisons = comparisons_of(lines, seed)
    environments = list(dict.fromkeys(run.environment for run in loaded))
    title = title or "SADQ report: " + ", ".join(in_words(name) for name in environments)
    notes = [note for run in loaded for note in notes_on(run, [line for line in lines if line.run is run])]
    figures = _figures(environments, lines, seed)

    body = [f"<h1>{escape(title)}</h1>", '<section class="words">']
    body += [f"<p>{_unbroken(text)}</p>" for text in _headlines(summaries, comparisons)]
    body.append("</section>")
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        body.append(f'<section class="notes"><p>Read with care</p><ul>{items}</ul></section>')
    for environment in environments:
        body.append(f"<h2>{escape(in_words(environment))}</h2>")
        body.append(_summary_table([each for each in summaries if each.line.run.environment == environment]))
        body += [_comparison(each) for each in comparisons if each.base.run.environment == environment]
        for name, file, _ in figures.get(environment, []):
            caption = escape(CAPTIONS[name])
            body.append(f'<figure><img src="{file}" alt="{caption}"><figcaption>{caption}</figcaption></figure>')
    settings = differences(loaded)
    body.append(_how(loaded, settings, seed))
    page = (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )
    record = {
        "format": FORMAT,
        "title": title,
        "bootstrap": {"seed": seed, "resamples": stats.RESAMPLES, "level": stats.LEVEL},
        "summaries": [summary.as_dict() for summary in summaries],
        "comparisons": [comparison.as_dict() for comparison in comparisons],
        "notes": notes,
        "figures": [file for drawn in figures.values() for _, file, _ in drawn],
        "config_differences": [{"setting": name, "values": values} for name, values in settings],
    }
    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for _, file, image in (figure for drawn in figures.values() for figure in drawn):
            _write(out / file, image)
        _write(out / "report.json", json.dumps(_finite(record), indent=1, ensure_ascii=False, allow_nan=False).encode())
        # Last, so that a page never points at figures that are not there yet.
        _write(out / "index.html", page.encode("utf-8", "replace"))
    except OSError as error:
        raise SadqError(f"The report cannot be written to {out} ({error.strerror}): choose another folder.") from error
    return out / "index.html"


def in_words(environment: str) -> str:
    """`BitFlip` -> `BitFlip with 8 bits`; other names speak for themselves."""
    match = re.fullmatch(r"BitFlip(?:-(\d+))?", environment)
    return f"BitFlip with {match[1] or 8} bits" if match else environment


def _headlines(summaries: Sequence[Summary], comparisons: Sequence[Comparison]) -> Iterable[str]:
    for each in comparisons:
        final, area = each.measures["final_return"], each.measures["area_under_curve"]
        guided, base, pairs = _spoken(each.guided), _spoken(each.base), final.difference
        count = len(pairs.differences)
        where = f"On {in_words(each.base.run.environment)}"
        if not count:
            yield f"{where}, {guided} and {base} cannot be compared. {stats.conclusion(pairs)}"
            continue
        tied = f" ({pairs.ties} tied)" if pairs.ties else ""
        # With many comparisons the table has the second measure; said for each, it would drown the first.
        average = (
            f" Averaged over the whole run the returns are {stats.interval(area.guided)} against "
            f"{stats.interval(area.base)}, a difference of {stats.interval(area.difference.mean, signed=True)} "
            f"({stats.p_in_words(area.difference.p_value)})."
        )
        yield (
            f"{where}, over {count} paired seed{'s' * (count > 1)} and {each.until:,} steps, {guided} ends at "
            f"{stats.interval(final.guided)} against {stats.interval(final.base)} for {base}; the paired difference is "
            f"{stats.interval(pairs.mean, signed=True)}, and {guided} is ahead in {pairs.wins} of {count}{tied}. "
            f"{stats.conclusion(pairs)}{average if len(comparisons) <= 3 else ''}"
        )
    compared = {id(line) for each in comparisons for line in (each.base, each.guided)}
    for summary in summaries:
        line = summary.line
        if id(line) not in compared:
            yield (
                f"On {in_words(line.run.environment)}, over {len(line.indices)} seed{'s' * (len(line.indices) > 1)} "
                f"and {line.run.last_step:,} steps, {_spoken(line)} ends at {stats.interval(summary.mean['final_return'])}."
            )
    if len(comparisons) > 1:
        yield f"The p-values of these {len(comparisons)} comparisons are not corrected for there being several."


def _spoken(line: Line) -> str:
    agent, _, rest = line.label.partition(", ")
    rest = rest or (f"α = {line.alpha:g}" if isinstance(line.alpha, int | float) else "")
    return f"{agent} ({rest})" if rest else agent


def _unbroken(text: str) -> str:
    """The text as HTML in which no line ends inside a number and its interval."""
    return re.sub(r"\S+ \[[^]]+\]|\b(?:p|α) (?:=|&lt;) [\d.]+", r"<span>\g<0></span>", escape(text))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _summary_table(summaries: Sequence[Summary]) -> str:
    rows = []
    for summary in summaries:
        line, run, final = summary.line, summary.line.run, summary.mean["final_return"]
        missing = "" if final.count == len(line.indices) else f" ({final.count} scored)"
        planned = f" of {run.planned_steps:,}" if run.planned_steps and not run.finished else ""
        lost = [f"seed {member.seed}" for member in line.members if member.diverged]
        rows.append(
            (
                line.label,
                "none" if line.alpha is None else str(line.alpha),
                f"{len(line.indices)}{missing}",
                f"{run.last_step:,}{planned}",
                stats.interval(final),
                stats.interval(summary.interquartile_mean["final_return"]),
                stats.interval(summary.mean["area_under_curve"]),
                stats.interval(summary.overestimation),
                ", ".join(lost) if lost else "none" if run.finished else "unknown",
            )
        )
    head = ("Agent", "α", "Seeds", "Steps", "Final return, mean", "interquartile mean", "Area under the curve")
    return _table((*head, "Overestimation at the end", "Diverged"), rows)


def _comparison(comparison: Comparison) -> str:
    rows, by_seed = [], []
    for name, measured in comparison.measures.items():
        difference = measured.difference
        rows.append(
            (
                MEASURES[name],
                stats.interval(measured.base),
                stats.interval(measured.guided),
                stats.interval(difference.mean, signed=True),
                stats.interval(difference.interquartile_mean, signed=True),
                stats.number(difference.improvement),
                f"{difference.p_value:.3g}",
                f"{difference.smallest_p:.3g}",
            )
        )
        values = zip(comparison.seeds, measured.base_values, measured.guided_values, strict=True)
        by_seed += [
            (MEASURES[name], str(seed), stats.number(a), stats.number(b), stats.number(b - a, True))
            for seed, a, b in values
        ]
    base, guided = comparison.base.label, comparison.guided.label
    head = (
        "",
        base,
        guided,
        "Difference, mean",
        "interquartile mean",
        "P(improvement)",
        "Sign-flip p",
        "least possible p",
    )
    pairs = _table(("Measure", "Seed", base, guided, "Difference"), by_seed)
    heading = f"{guided} against {base}, {len(comparison.seeds)} seeds in common, {comparison.until:,} steps"
    return f"<h3>{escape(heading)}</h3>{_table(head, rows)}<details><summary>Seed by seed</summary>{pairs}</details>"


def _figures(environments: Sequence[str], lines: Sequence[Line], seed: int) -> dict[str, list[tuple[str, str, bytes]]]:
    """Environment -> (figure, file name, PNG)."""
    styles = plots.styles_of(lines)
    found: dict[str, list[tuple[str, str, bytes]]] = {}
    taken: set[str] = set()
    for environment in environments:
        slug = re.sub(r"[^a-z0-9]+", "-", environment.lower()).strip("-")[:60] or "environment"
        slug = next(name for name in (slug, *(f"{slug}-{i}" for i in range(2, 10**6))) if name not in taken)
        taken.add(slug)
        here = [line for line in lines if line.run.environment == environment]
        images = ((name, plots.draw(name, in_words(environment), here, styles, seed)) for name in plots.FIGURES)
        found[environment] = [(name, f"{name}-{slug}.png", image) for name, image in images if image is not None]
    return found


def _how(runs: Sequence[Run], settings: Sequence[tuple[str, list[str]]], seed: int) -> str:
    coverage = ", ".join(f"{share:.0%} of cases with {count} seeds" for count, share in stats.COVERAGE.items())
    measures = (
        "Final return is the mean of the last 5 evaluations. Area under the curve is the time average of all "
        "evaluations: trapezoids over steps, divided by the steps. Overestimation is averaged over the last 5 too."
    )
    brackets = (
        f"Brackets are {stats.LEVEL:.0%} percentile-bootstrap intervals over seeds ({stats.RESAMPLES:,} resamples, "
        f"random seed {seed}). With few seeds they are too narrow: of normal data they hold the true mean only in "
        f"{coverage}. The interquartile mean leaves out the lowest and the highest quarter of the seeds, rounded down."
    )
    pairs = (
        "Pairs share a seed, hence initial weights, exploration and sampling keys. P(improvement) is the share of pairs "
        "in which the +sadq agent is ahead, ties counted half. The sign-flip test asks how many of all ways to flip the "
        f"signs of the differences give a mean at least as far from zero: all 2^n of them up to n = "
        f"{stats.ENUMERATED_PAIRS} pairs, {stats.SAMPLED_FLIPS:,} random ones beyond."
    )
    rows = []
    for run in runs:
        wall = run.result.get("wall_seconds")
        spent = f"{wall:,.0f} s" if isinstance(wall, int | float) else "not known"
        versions = (str(run.header.get(name, "not known")) for name in ("preset", "sadq", "jax", "device"))
        rows.append((run.name, "finished" if run.finished else "unfinished", *versions, spent))
    parts = ["<h2>How this was made</h2>", '<section class="how"><ul>']
    parts += [f"<li>{escape(text)}</li>" for text in (measures, brackets, pairs)]
    parts.append("</ul></section>")
    parts.append(_table(("Run", "Status", "Preset", "sadq", "jax", "Device", "Wall time"), rows))
    parts.append("<h3>Settings in which the runs differ</h3>")
    if settings:
        parts.append(_table(("Setting", *(run.name for run in runs)), [(name, *values) for name, values in settings]))
    else:
        parts.append("<p>None.</p>")
    return "\n".join(parts)


def _finite(value: Any) -> Any:
    """JSON knows no NaN: a number that is not known becomes null."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(path: Path, content: bytes) -> None:
    """Replaces the file at once, so that a reader or a crash never meets half of it."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # mkstemp's files are private, a report is to be shared
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

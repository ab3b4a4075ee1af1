"""The report itself: one index.html that says the numbers in words first, its PNG figures, and report.json."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from html import escape
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from sadq.errors import SadqError
from sadq.report import plots, stats
from sadq.report.comparison import MEASURES, Comparison, Line, Summary, comparisons_of, lines_of, notes_on
from sadq.report.runs import ORIGINS, Run, differences, load_all
from sadq.report.stats import conclusion, interval, number

FORMAT = 1
STYLE = Path(__file__).with_name("style.css").read_text()
CAPTIONS = {
    "learning": "Greedy evaluation. Thick: mean over seeds; band: 95% bootstrap interval; thin: the seeds, unsmoothed.",
    "delta-q": "ΔQ, the best minus the worst action value over the update batch: "
    "how far the agent tells actions apart.",
    "overestimation": "The value predicted at an episode's first step minus the discounted return it went on to earn; "
    "zero is right.",
    "model-loss": "How wrong the learned model was on the transitions it was trained on (logarithmic).",
}


def write_report(runs: Sequence[Path | str], out: Path | str, title: str | None = None, *, seed: int = 0) -> Path:
    """Writes index.html, its figures and report.json into `out`; gives the page's path. `seed` is the bootstrap's."""
    loaded, out = load_all(runs), Path(out)
    lines = lines_of(loaded)
    summaries = [Summary(line, seed) for line in lines]
    comparisons = comparisons_of(lines, seed)
    environments = list(dict.fromkeys(run.environment for run in loaded))
    title = title or "SADQ report: " + ", ".join(in_words(name) for name in environments)
    notes = [note for run in loaded for note in notes_on(run, [line for line in lines if line.run is run])]
    figures = list(_figures(environments, lines, seed))
    settings = differences(loaded)

    page = [
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>"
    ]
    page += [f"<h1>{escape(title)}</h1>", '<section class="words">']
    page += [f"<p>{_unbroken(text)}</p>" for text in _headlines(summaries, comparisons)]
    page.append("</section>")
    if notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        page.append(f'<section class="notes"><p>Read with care</p><ul>{items}</ul></section>')
    for environment in environments:
        page.append(f"<h2>{escape(in_words(environment))}</h2>")
        page.append(_summary_table([each for each in summaries if each.line.run.environment == environment]))
        page += [_comparison(each) for each in comparisons if each.base.run.environment == environment]
        for file, caption in [(file, caption) for where, file, caption, _ in figures if where == environment]:
            page.append(f'<figure><img src="{file}" alt="{caption}"><figcaption>{caption}</figcaption></figure>')
    page += [*_how(loaded, settings, seed), "</body></html>\n"]
    files = {file: image for _, file, _, image in figures}
    record = {
        "format": FORMAT,
        "title": title,
        "bootstrap": {"seed": seed, "resamples": stats.RESAMPLES, "level": stats.LEVEL},
        "summaries": [summary.as_dict() for summary in summaries],
        "comparisons": [comparison.as_dict() for comparison in comparisons],
        "notes": notes,
        "figures": list(files),
        "config_differences": [{"setting": name, "values": values} for name, values in settings],
    }
    # JSON knows no NaN: a number that is not known becomes null.
    record = json.loads(json.dumps(record, default=asdict), parse_constant=lambda name: None)
    files["report.json"] = json.dumps(record, indent=1, ensure_ascii=False).encode()
    files["index.html"] = "\n".join(page).encode("utf-8", "replace")
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Put in place once all are written, and the page last: no reader meets half a file or misses a figure.
        with TemporaryDirectory(dir=out, prefix=".") as written:
            for name, content in files.items():
                Path(written, name).write_bytes(content)
            for name in files:
                os.replace(Path(written, name), out / name)
    except OSError as error:
        raise SadqError(f"The report cannot be written to {out} ({error.strerror}): choose another folder.") from error
    return out / "index.html"


def in_words(environment: str) -> str:
    """`BitFlip` -> `BitFlip with 8 bits`; other names speak for themselves."""
    match = re.fullmatch(r"BitFlip(?:-(\d+))?", environment)
    return f"BitFlip with {match[1] or 8} bits" if match else environment


def _headlines(summaries: Sequence[Summary], comparisons: Sequence[Comparison]) -> Iterator[str]:
    for each in comparisons:
        final, area = each.measures["final_return"], each.measures["area_under_curve"]
        guided, base, pairs = _spoken(each.guided), _spoken(each.base), final.difference
        seeds, where = len(pairs.differences), f"On {in_words(each.base.run.environment)}"
        if not seeds:
            yield f"{where}, {guided} and {base} cannot be compared. {conclusion(pairs)}"
            continue
        tied = f" ({pairs.ties} tied)" if pairs.ties else ""
        # With many comparisons the table has the second measure; said for each, it would drown the first.
        average = (
            f" Averaged over the whole run the returns are {interval(area.guided)} against {interval(area.base)}, a "
            f"difference of {interval(area.difference.mean, True)} ({stats.p_in_words(area.difference.p_value)})."
        )
        yield (
            f"{where}, over {seeds} paired seed{'s' * (seeds > 1)} and {each.until:,} steps, {guided} ends at "
            f"{interval(final.guided)} against {interval(final.base)} for {base}; the paired difference is "
            f"{interval(pairs.mean, True)}, and {guided} is ahead in {pairs.wins} of {seeds}{tied}. "
            f"{conclusion(pairs)}{average if len(comparisons) <= 3 else ''}"
        )
    compared = {line for each in comparisons for line in (each.base, each.guided)}
    for summary in (summary for summary in summaries if summary.line not in compared):
        line, seeds = summary.line, len(summary.line.indices)
        yield (
            f"On {in_words(line.run.environment)}, over {seeds} seed{'s' * (seeds > 1)} and {line.run.last_step:,} "
            f"steps, {_spoken(line)} ends at {interval(summary.mean['final_return'])}."
        )
    if len(comparisons) > 1:
        yield f"The p-values of these {len(comparisons)} comparisons are not corrected for there being several."


def _spoken(line: Line) -> str:
    agent, _, rest = line.label.partition(", ")
    rest = rest or ("" if line.alpha is None else f"α = {line.alpha:g}")
    return f"{agent} ({rest})" if rest else agent


def _unbroken(text: str) -> str:
    """The text as HTML in which no line ends inside a number and its interval."""
    return re.sub(r"\S+ \[[^]]+\]|\b(?:p|α) (?:=|&lt;) [\d.]+", r"<span>\g<0></span>", escape(text))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _summary_table(summaries: Sequence[Summary]) -> str:
    rows = []
    for summary in summaries:
        line, run, final = summary.line, summary.line.run, summary.mean["final_return"]
        alpha = "none" if line.alpha is None else str(line.alpha)
        seeds = str(len(line.indices)) + (f" ({final.count} scored)" if final.count < len(line.indices) else "")
        steps = f"{run.last_step:,}" + (f" of {run.planned_steps:,}" if run.planned_steps and not run.finished else "")
        estimates = (final, summary.interquartile_mean["final_return"], summary.mean["area_under_curve"])
        lost = ", ".join(f"seed {member.seed}" for member in line.members if member.diverged)
        lost = lost or ("none" if run.finished else "unknown")
        rows.append((line.label, alpha, seeds, steps, *map(interval, (*estimates, summary.overestimation)), lost))
    head = ("Agent", "α", "Seeds", "Steps", "Final return, mean", "interquartile mean", "Area under the curve")
    return _table((*head, "Overestimation at the end", "Diverged"), rows)


def _comparison(comparison: Comparison) -> str:
    base, guided = comparison.base.label, comparison.guided.label
    rows, by_seed = [], []
    for name, measured in comparison.measures.items():
        found = measured.difference
        gains = interval(found.mean, signed=True), interval(found.interquartile_mean, signed=True)
        chances = number(found.win_share), f"{found.p_value:.3g}", f"{found.smallest_p:.3g}"
        rows.append((MEASURES[name], interval(measured.base), interval(measured.guided), *gains, *chances))
        for seed, a, b in zip(comparison.seeds, measured.base_values, measured.guided_values, strict=True):
            by_seed.append((MEASURES[name], str(seed), number(a), number(b), number(b - a, signed=True)))
    head = ("", base, guided, "Difference, mean", "interquartile mean", "Paired wins", "Sign-flip p")
    table = _table((*head, "least possible p"), rows)
    pairs = _table(("Measure", "Seed", base, guided, "Difference"), by_seed)
    heading = f"{guided} against {base}, {len(comparison.seeds)} seeds in common, {comparison.until:,} steps"
    return f"<h3>{escape(heading)}</h3>{table}<details><summary>Seed by seed</summary>{pairs}</details>"


def _figures(environments: Sequence[str], lines: Sequence[Line], seed: int) -> Iterator[tuple[str, str, str, bytes]]:
    """(environment, file name, caption as HTML, PNG)."""
    styles = plots.styles_of(lines)
    taken: set[str] = set()
    for environment in environments:
        plain = re.sub(r"[^a-z0-9]+", "-", environment.lower()).strip("-")[:60] or "environment"
        slugs = (plain if index == 1 else f"{plain}-{index}" for index in count(1))
        slug = next(slug for slug in slugs if slug not in taken)
        taken.add(slug)
        here = [line for line in lines if line.run.environment == environment]
        for name in plots.FIGURES:
            if image := plots.draw(name, in_words(environment), here, styles, seed):
                yield environment, f"{name}-{slug}.png", escape(CAPTIONS[name]), image


def _how(runs: Sequence[Run], settings: Sequence[tuple[str, list[str]]], seed: int) -> Iterator[str]:
    coverage = ", ".join(f"{share:.0%} of cases with {seeds} seeds" for seeds, share in stats.COVERAGE.items())
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
        "Pairs share a seed, hence initial weights, exploration and sampling keys. Paired wins are the share of "
        "pairs in which the +sadq agent is ahead, ties counted half. The sign-flip test asks how many of all ways to "
        "flip the signs of the differences give a mean at least as far from zero: all 2^n of them up to n = "
        f"{stats.ENUMERATED_PAIRS} pairs, {stats.SAMPLED_FLIPS:,} random ones beyond."
    )
    yield '<h2>How this was made</h2>\n<section class="how"><ul>'
    yield from (f"<li>{escape(text)}</li>" for text in (measures, brackets, pairs))
    rows = []
    for run in runs:
        spent = f"{run.result['wall_seconds']:,.0f} s" if "wall_seconds" in run.result else "not known"
        origins = (str(run.header.get(name, "not known")) for name in ORIGINS)
        rows.append((run.name, "finished" if run.finished else "unfinished", *origins, spent))
    yield "</ul></section>\n" + _table(("Run", "Status", "Preset", "sadq", "jax", "Device", "Wall time"), rows)
    head, rows = ("Setting", *(run.name for run in runs)), [(name, *values) for name, values in settings]
    yield "<h3>Settings in which the runs differ</h3>\n" + (_table(head, rows) if rows else "<p>None.</p>")

"""One environment's section of the page: its charts, its tables, its comparisons, and the paper's word on it."""

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from sadq.report import charts, markup, paper, stats
from sadq.report.charts import Chart
from sadq.report.comparison import Comparison, Summary, by_seed
from sadq.report.lines import Line
from sadq.report.names import QUANTITIES, in_words, measured_in_words
from sadq.report.runs import Floats
from sadq.report.stats import generator_for, interval, number
from sadq.report.styles import Style, class_of
from sadq.report.traces import SMOOTHED_FROM, grid_of, profile_of, reached_by, trace_of

MATRIX = range(3, 13)  # lines of which every pair is shown: two are one comparison, and more than 12 fill no page
RECORDED = {
    "delta_q": "The best minus the worst action value over the update batch: how far the agent tells actions apart.",
    "overestimation": "The value predicted at an episode's first step minus the discounted return that followed; "
    "zero is right.",
    "disagreement": "The share of samples on which the model's choice is not the base's.",
    "agreement": "How much oftener the model's choice is the base's than by chance: 0 is no oftener, 1 always.",
    "alpha": "The weight of the base's choice in the target: 1 is the base agent.",
}
EVALUATED = ("returns", "overestimation")  # on a few episodes only, hence smoothed where there are many


class Section:
    """What is to be said of one environment."""

    def __init__(
        self,
        name: str,
        summaries: Sequence[Summary],
        comparisons: Sequence[Comparison],
        threshold: float | None,
        styles: dict[str, Style],
        seed: int,
    ):
        self.name, self.threshold, self.styles, self.seed = name, threshold, styles, seed
        self.summaries = [each for each in summaries if each.line.environment == name]
        self.comparisons = [each for each in comparisons if each.environment == name]
        self.lines = [each.line for each in self.summaries]
        self.until = max((line.run.last_step for line in self.lines), default=0)

    def html(self, slug: str) -> str:
        """The whole section."""
        parts = [
            f'<section class="environment" id="{slug}" aria-label="{escape(in_words(self.name))}">',
            f"<h2>{escape(in_words(self.name))}</h2>{self._toggles()}",
            f'<div class="charts">{"".join(self.charts())}</div>',
            self._table(),
            *(comparison_tables(each) for each in self.comparisons),
            self._matrix(),
            self._paper(),
            "</section>",
        ]
        return "\n".join(part for part in parts if part)

    def charts(self) -> Iterator[str]:
        """The return first and what explains it beside it; then how the seeds are spread; then all else recorded."""
        yield self._recorded("returns", "Learning curve", "Greedy evaluation.", "Return", wide=True)
        yield self._spread("area_under_curve", "Area under the curve", "The return averaged over the whole run.")
        yield self._spread("final_return", "Final return", "Mean of the last five evaluations.")
        yield self._reached()
        for name, caption in RECORDED.items():
            if name == "alpha" and not self._gated():
                continue
            yield self._recorded(name, QUANTITIES[name], caption, QUANTITIES[name], zero=name == "overestimation")
        for name in self._model_losses():
            title = QUANTITIES.get(name, name.replace("_", " ").capitalize())
            caption = "On the transitions that the model was trained on; logarithmic."
            yield self._recorded(name, title, caption, "Loss", logarithmic=True)
        for name in dict.fromkeys(name for line in self.lines for name in line.measures):
            yield self._measured(name)
        yield self._profile()

    def _recorded(
        self,
        name: str,
        title: str,
        caption: str,
        unit: str,
        wide: bool = False,
        zero: bool = False,
        logarithmic: bool = False,
    ) -> str:
        shown = [line for line in self.lines if name in line.curves]
        smoothed = name in EVALUATED and max((line.run.steps.size for line in shown), default=0) >= SMOOTHED_FROM
        traces = [trace_of(line, line.curves[name], smoothed, self.seed, name) for line in shown]
        band = "Line: mean over seeds; band: 95% interval" + ("; thin: the seeds." if len(traces) <= 4 else ".")
        running = " Mean of the last five evaluations." if smoothed else ""
        mark = 0.0 if zero else self.threshold if name == "returns" else None
        words = f"{caption}{running} {band}" if wide else f"{caption}{running}"
        if name == "returns" and self.threshold is not None:
            words += f" Dotted: the threshold, {number(self.threshold)}."
        return charts.curves(
            Chart(title, words, unit, logarithmic=logarithmic, mark=mark, wide=wide, until=self.until),
            traces,
            self.styles,
        )

    def _measured(self, name: str) -> str:
        title, unit = measured_in_words(name)
        shown = [line for line in self.lines if name in line.measures]
        traces = [trace_of(line, line.measures[name], False, self.seed, "measures", name) for line in shown]
        caption = f"What the environment measures: {unit}."
        return charts.curves(Chart(title, caption, title, until=self.until), traces, self.styles)

    def _spread(self, score: str, title: str, caption: str) -> str:
        rows = [
            (each.line.label, each.scores[score], each.interquartile_mean[score])
            for each in self.summaries
            if np.isfinite(each.scores[score]).any()
        ]
        caption += " Dots: seeds; bar: interquartile mean with its 95% interval."
        return charts.strip(Chart(title, caption, "", "Return"), rows, self.styles)

    def _reached(self) -> str:
        if self.threshold is None:
            return ""
        shown = [line for line in self.lines if line.run.steps.size > 1 and np.isfinite(line.returns).any()]
        traces = [reached_by(line, self.threshold, self.seed) for line in shown]
        caption = f"The share of seeds that have reached a return of {number(self.threshold)} by then."
        return charts.curves(
            Chart("Seeds at the threshold", caption, "Share of seeds", until=self.until), traces, self.styles
        )

    def _profile(self) -> str:
        finals: dict[str, Floats] = {each.line.label: each.scores["final_return"] for each in self.summaries}
        finals = {label: values for label, values in finals.items() if np.isfinite(values).sum() > 1}
        grid = grid_of([*finals.values()])
        if not grid.size:
            return ""
        traces = [profile_of(label, [values], grid, self.seed, self.name) for label, values in finals.items()]
        chart = Chart(
            "Performance profile",
            "The share of seeds whose final return is at least so much: further right and higher is better.",
            "Share of seeds",
            "Final return",
            steps=False,
        )
        return charts.curves(chart, traces, self.styles)

    def _gated(self) -> bool:
        """Whether a gate moved the weight anywhere; a constant line says nothing that the table does not."""
        found = [line.curves["alpha"][1] for line in self.lines if "alpha" in line.curves]
        return any(np.nanmax(values) - np.nanmin(values) > 1e-6 for values in found)

    def _model_losses(self) -> list[str]:
        names = [
            name for line in self.lines for name in line.curves if name.startswith("model_") and name.endswith("_loss")
        ]
        return sorted(dict.fromkeys(names), key=lambda name: (name != "model_state_loss", name))

    def _toggles(self) -> str:
        if len(self.lines) < 2:
            return ""
        buttons = "".join(
            f'<button type="button" aria-pressed="true" data-line="{class_of(self.styles, line.label)}" '
            f'class="{class_of(self.styles, line.label)}"><i></i>{escape(line.label)}</button>'
            for line in self.lines
        )
        return f'<div class="toggles" role="group" aria-label="Lines shown in the charts">{buttons}</div>'

    def _table(self) -> str:
        names = list(dict.fromkeys(name for each in self.summaries for name in each.measured))
        rows = []
        for summary in self.summaries:
            line, run, final = summary.line, summary.line.run, summary.mean["final_return"]
            alpha = "none" if line.alpha is None else f"{line.alpha:g}"
            seeds = str(len(line.indices)) + (f" ({final.count} scored)" if final.count < len(line.indices) else "")
            unfinished = run.planned_steps and not run.finished
            steps = f"{run.last_step:,}" + (f" of {run.planned_steps:,}" if unfinished else "")
            estimates = (final, summary.interquartile_mean["final_return"], summary.mean["area_under_curve"])
            lost = ", ".join(f"seed {member.seed}" for member in line.members if member.diverged)
            lost = lost or ("none" if run.finished else "unknown")
            measured = [interval(summary.measured[name]) if name in summary.measured else "" for name in names]
            shown = map(interval, (*estimates, summary.overestimation))
            rows.append((line.label, alpha, seeds, steps, *shown, *measured, lost))
        head = ("Agent", "α", "Seeds", "Steps", "Final return, mean", "interquartile mean", "Area under the curve")
        titles = (measured_in_words(name)[0] for name in names)
        return markup.table((*head, "Overestimation at the end", *titles, "Diverged"), rows, "Scores over seeds")

    def _matrix(self) -> str:
        """Every line against every other on the area, corrected for how many pairs there are."""
        if len(self.lines) not in MATRIX:
            return ""
        pairs = [(one, other) for index, one in enumerate(self.lines) for other in self.lines[index + 1 :]]
        found = {pair: self._difference(*pair) for pair in pairs}
        known = [pair for pair in pairs if len(found[pair].differences) > 1]
        holm = dict(zip(known, stats.holm([found[pair].p_value for pair in known]), strict=True))
        rows = []
        for row in self.lines:
            cells = []
            for column in self.lines:
                pair, sign = ((column, row), 1) if (column, row) in found else ((row, column), -1)
                if pair not in holm:
                    cells.append("")
                    continue
                value = sign * found[pair].mean.value
                cells.append(f"{number(value, signed=True)}{' *' if holm[pair] <= stats.SIGNIFICANCE else ''}")
            rows.append((row.label, *cells))
        pairs_compared = f"{len(known)} pair{'s' * (len(known) != 1)}"
        caption = (
            "Area under the curve: row minus column over shared seeds; * where it is distinguishable from zero after "
            f"Holm's correction for {pairs_compared}. Settings may be unlike: see the warnings above."
        )
        table = markup.table(("", *(line.label for line in self.lines)), rows, caption)
        return f"<h3>Every pair</h3>{table}"

    def _difference(self, one: Line, other: Line) -> stats.Paired:
        until = min(one.run.last_step, other.run.last_step)
        left, right = (by_seed(line, "area_under_curve", until, None) for line in (one, other))
        shared = [seed for seed in left if seed in right and until]
        generator = generator_for(self.seed, one.run.name, one.label, other.run.name, other.label, "every pair")
        return stats.paired([left[seed] for seed in shared], [right[seed] for seed in shared], generator)

    def _paper(self) -> str:
        known, words = paper.scores(self.lines), paper.claim(self.name)
        if known:
            rows = [
                (each.line.label, number(known[each.line.label]), interval(each.mean["final_return"]))
                for each in self.summaries
                if each.line.label in known
            ]
            table = markup.table(("Agent", "Paper", "Here"), rows, "The paper's score (signed, of a life) beside ours")
            return f"<h3>The paper's numbers</h3>{table}"
        return f'<p class="paper"><b>The paper says:</b> {escape(words)} It gives no numbers here.</p>' if words else ""


def comparison_tables(each: Comparison) -> str:
    """One comparison's measures, and its seeds."""
    base, other = each.base.label, each.other.label
    rows, seeds = [], []
    for one in each.contrasts:
        difference = one.difference
        known = len(difference.differences) > 1
        rows.append(
            (
                one.measure.title.capitalize(),
                interval(one.base),
                interval(one.other),
                one.difference_in_words,
                interval(one.improvement),
                number(one.win_share) if known else "not known",
                f"{difference.p_value:.3g}" if known else "not known",
                f"{one.corrected_p:.3g}" if known else "not known",
            )
        )
        left, right = each.values[one.measure.name]
        for seed in each.seeds:
            gain = number(right[seed] - left[seed], signed=True)
            seeds.append((str(seed), one.measure.title.capitalize(), number(left[seed]), number(right[seed]), gain))
    head = ("", base, other, "Paired difference", "P(improvement)", "Paired wins", "p, sign flips", "p, corrected")
    shared = f"{len(each.seeds)} seed{'s' * (len(each.seeds) != 1)} in common, {each.until:,} steps"
    heading = f"{other} against {base}"
    warning = f'<p class="warning">{escape(each.warning)}</p>' if not each.alike else ""
    if not rows:
        return f"<h3>{escape(heading)}</h3>{warning or f'<p>{escape(each.verdict())}</p>'}"
    table = markup.table(head, rows, f"{heading}: {shared}")
    by_seeds = markup.table(("Seed", "Measure", base, other, "Difference"), seeds, f"{heading}, seed by seed")
    return f"<h3>{escape(heading)}</h3>{warning}{table}{markup.folded('Seed by seed', by_seeds)}"

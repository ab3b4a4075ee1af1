"""Charts as inline SVG with HTML around it: words keep their size at any width, and the values are there as a table too."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape

import numpy as np

from sadq.report import markup
from sadq.report.runs import Floats
from sadq.report.scales import Scale, compact, scale_of, spacing, steps_scale
from sadq.report.stats import Estimate, interval, number
from sadq.report.styles import Style, class_of
from sadq.report.traces import LINES_WITH_SEEDS, Trace

SIZE = 1000  # units of a plot in both directions; it is stretched to the room it gets
ROWS = 11  # of the table that stands for a curve
NEAR = 0.05  # of the axis: further off than this no value is shown, beside a cursor (script.js) as in that table


@dataclass(frozen=True)
class Chart:
    """What is drawn, and the words around it."""

    title: str
    caption: str
    y_label: str
    x_label: str = "Environment steps"
    logarithmic: bool = False
    mark: float | None = None  # a horizontal line: zero, or a threshold
    mark_label: str = ""
    wide: bool = False
    steps: bool = True  # whether x is env steps, whose cursor all charts of a section share
    until: float = 0.0  # the steps that the axis should reach at least


def curves(chart: Chart, traces: Sequence[Trace], styles: dict[str, Style]) -> str:
    """Curves with their bands; nothing where no trace has a value: smoothed, one may have too many holes."""
    traces = [trace for trace in traces if trace.x.size]
    if not traces:
        return ""
    with_seeds = len(traces) <= LINES_WITH_SEEDS
    drawn = [values for trace in traces for values in (trace.mean, trace.low, trace.high)]
    drawn += [trace.seeds for trace in traces] if with_seeds else []
    holds = [] if chart.mark is None else [chart.mark]
    y = scale_of(drawn, chart.logarithmic, holds=holds)
    last = max(chart.until, *(float(trace.x[-1]) for trace in traces))
    x = steps_scale(last) if chart.steps else scale_of([trace.x for trace in traces])
    shapes = "".join(_grid(x, y))
    if chart.mark is not None:
        height = _y(y, np.array([chart.mark]))[0]
        shapes += f'<path class="mark" d="M0 {height:.1f}H{SIZE}"/>'
    for trace in traces:
        shapes += f'<g class="{class_of(styles, trace.label)}">{_shape(trace, x, y, with_seeds)}</g>'
    svg = f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" aria-hidden="true" focusable="false">{shapes}'
    svg += f'<path class="cursor" d="M0 0V{SIZE}"/></svg>'
    letters = max((len(words) for _, words in y.words()), default=0)  # the longest tick needs its room beside the plot
    kind = " wide" * chart.wide + " crowded" * (not with_seeds)
    return (
        f'<figure class="chart{kind}" data-chart="{escape(_data(chart, traces, styles, x, y))}">'
        f"{_caption(chart)}{_key(traces, styles)}"
        f'<div class="frame" style="--letters:{letters}"><span class="y-label">{escape(chart.y_label)}</span>'
        f"{_ticks(y, 'y')}{_slider(chart, traces, svg)}{_ticks(x, 'x')}"
        f'<span class="x-label">{escape(chart.x_label)}</span></div>{_values(chart, traces)}</figure>'
    )


def strip(
    chart: Chart, rows: Sequence[tuple[str, Floats, Estimate]], styles: dict[str, Style], signed: bool = False
) -> str:
    """A row for every label: its seeds as dots, and an estimate with its interval as a bar."""
    if not rows:
        return ""
    ends = [
        np.array([bound for bound in (found.value, found.low, found.high) if bound is not None]) for *_, found in rows
    ]
    holds = [] if chart.mark is None else [chart.mark]
    x = scale_of([*(values for _, values, _ in rows), *ends], ticks=4, holds=holds)
    items = ""
    for label, values, found in rows:
        shapes = "".join(f'<path class="tick" d="M{SIZE * place:.1f} 0V100"/>' for place in x(x.ticks))
        if chart.mark is not None:
            shapes += f'<path class="mark" d="M{SIZE * x([chart.mark])[0]:.1f} 0V100"/>'
        for index, at in enumerate(x(np.sort(values[np.isfinite(values)]))):  # seeds that score alike lie side by side
            shapes += f'<path class="seed" d="M{SIZE * at:.1f} {50 + 16 * (index % 5 - 2)}h0"/>'
        if found.low is not None and found.high is not None:
            low, high = SIZE * x([found.low, found.high])
            shapes += f'<path class="bar" d="M{low:.1f} 50H{max(high, low + 0.1):.1f}"/>'
        if np.isfinite(found.value):
            shapes += f'<path class="middle" d="M{SIZE * x([found.value])[0]:.1f} 10V90"/>'
        items += (
            f'<li class="{class_of(styles, label) if label in styles else "line-none"}">'
            f'<span class="name">{escape(label)}</span><span class="value">{escape(interval(found, signed))}</span>'
            f'<svg viewBox="0 0 {SIZE} 100" preserveAspectRatio="none" aria-hidden="true" focusable="false">{shapes}</svg>'
            "</li>"
        )
    return (
        f'<figure class="chart strip{" wide" * chart.wide}">{_caption(chart)}<ul>{items}</ul>'
        f'<div class="axis">{_ticks(x, "x")}</div><span class="x-label">{escape(chart.x_label)}</span></figure>'
    )


def _y(scale: Scale, values: Floats) -> Floats:
    return np.asarray(SIZE * (1 - scale(values)))


def _grid(x: Scale, y: Scale) -> list[str]:
    across = [f'<path class="tick" d="M0 {SIZE * (1 - share):.1f}H{SIZE}"/>' for share, _ in y.words()]
    return across + [f'<path class="tick" d="M{SIZE * share:.1f} 0V{SIZE}"/>' for share, _ in x.words()]


def _shape(trace: Trace, x: Scale, y: Scale, with_seeds: bool) -> str:
    places = SIZE * x(trace.x)
    found = ""
    if with_seeds and len(trace.seeds) > 1:
        thin = SIZE * x(trace.seeds_x)
        found += "".join(f'<path class="seed-line" d="{_path(thin, _y(y, values))}"/>' for values in trace.seeds)
    known = np.isfinite(trace.low) & np.isfinite(trace.high)
    if known.any():
        upper = _points(places[known], _y(y, trace.high[known]))
        lower = _points(places[known][::-1], _y(y, trace.low[known])[::-1])
        found += f'<path class="band" d="M{"L".join([*upper, *lower])}Z"/>'
    found += f'<path class="mean" d="{_path(places, _y(y, trace.mean))}"/>'
    if places.size == 1:
        found += f'<path class="point" d="M{places[0]:.1f} {_y(y, trace.mean)[0]:.1f}h0"/>'
    return found


def _path(x: Floats, y: Floats) -> str:
    """A line through the points that are known."""
    known = np.isfinite(y)
    return "M" + "L".join(_points(x[known], y[known])) if known.any() else "M0 0"


def _points(x: Floats, y: Floats) -> list[str]:
    return [f"{left:.1f} {top:.1f}" for left, top in zip(x, y, strict=True)]


def _caption(chart: Chart) -> str:
    return f"<figcaption><strong>{escape(chart.title)}</strong><span>{escape(chart.caption)}</span></figcaption>"


def _key(traces: Sequence[Trace], styles: dict[str, Style]) -> str:
    swatch = '<svg viewBox="0 0 26 8" aria-hidden="true" focusable="false"><path class="mean" d="M1 4H25"/></svg>'
    items = (f'<li class="{class_of(styles, one.label)}">{swatch}{escape(one.label)}</li>' for one in traces)
    return f'<ul class="key">{"".join(items)}</ul>'


def _ticks(scale: Scale, axis: str) -> str:
    side = "bottom" if axis == "y" else "left"
    words = (f'<span style="{side}:{100 * share:.2f}%">{text}</span>' for share, text in scale.words())
    return f'<div class="{axis}-ticks" aria-hidden="true">{"".join(words)}</div>'


def _slider(chart: Chart, traces: Sequence[Trace], svg: str) -> str:
    """The plot as something to move along by arrow keys, which says the values at each place."""
    places = every_place(traces)
    said = "; ".join(f"{trace.label}: {_said(trace, len(trace.x) - 1)}" for trace in traces)
    return (
        f'<div class="plot" role="slider" tabindex="0" aria-label="{escape(chart.title)}, by {escape(chart.x_label)}" '
        f'aria-valuemin="0" aria-valuemax="{max(len(places) - 1, 0)}" aria-valuenow="{max(len(places) - 1, 0)}" '
        f'aria-valuetext="{escape(said)}">{svg}<div class="tip" hidden></div></div>'
    )


def every_place(traces: Sequence[Trace]) -> Floats:
    """All x at which some trace has a value."""
    return np.unique(np.concatenate([trace.x for trace in traces]))


def _said(trace: Trace, index: int) -> str:
    low, high = trace.low[index], trace.high[index]
    known = np.isfinite(low) and np.isfinite(high)
    return (
        interval(Estimate(float(trace.mean[index]), float(low), float(high), 2)) if known else number(trace.mean[index])
    )


def _data(chart: Chart, traces: Sequence[Trace], styles: dict[str, Style], x: Scale, y: Scale) -> str:
    """What the cursor needs: places on the axes as shares, and the words to say there."""
    shown = _spoken_steps if chart.steps else _among(every_place(traces))
    lines = [
        {
            "label": trace.label,
            "line": class_of(styles, trace.label),
            "x": _rounded(x(trace.x)),
            "y": _rounded(y(trace.mean)),
            "at": [shown(float(place)) for place in trace.x],
            "says": [_said(trace, index) for index in range(len(trace.x))],
        }
        for trace in traces
    ]
    return json.dumps({"steps": chart.steps, "lines": lines}, ensure_ascii=False, separators=(",", ":"))


def _spoken_steps(value: float) -> str:
    return f"{value:,.0f} steps"


def _among(places: Floats) -> Callable[[float], str]:
    """Places of an axis in as many digits as tell them apart."""
    return partial(compact, apart=spacing(places))


def _rounded(values: Floats) -> list[float | None]:
    return [round(float(value), 4) if np.isfinite(value) else None for value in values]


def _values(chart: Chart, traces: Sequence[Trace]) -> str:
    """Some of the values as a table, for readers who do not see the curve, and for paper."""
    places = every_place(traces)
    chosen = places[np.unique(np.linspace(0, len(places) - 1, min(ROWS, len(places))).round().astype(int))]
    shown: Callable[[float], str] = (lambda value: f"{value:,.0f}") if chart.steps else _among(chosen)
    reach = NEAR * (places[-1] - places[0])

    def near(trace: Trace, place: float) -> str:
        at = int(np.abs(trace.x - place).argmin())
        return _said(trace, at) if abs(trace.x[at] - place) <= reach else ""

    rows = [(shown(float(place)), *(near(trace, place) for trace in traces)) for place in chosen]
    head = (chart.x_label, *(trace.label for trace in traces))
    return markup.folded("Values as a table", markup.table(head, rows, f"{chart.title}: mean and 95% interval"))

"""Curves as PNG images: mean over seeds, its 95% interval as a band, and the seeds themselves as thin lines."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from sadq.experiment.scores import FINAL_EVALUATIONS, final_return
from sadq.report.comparison import Line
from sadq.report.runs import Floats, Integers
from sadq.report.stats import curve_interval, generator_for

DPI = 150
POINTS = 400  # more than a figure has pixels to show
LINES_WITH_SEEDS = 4  # with more curves than this, thin lines would bury the means
SMOOTHED_FROM = 50  # evaluations; of fewer, a running mean would hide the shape
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's palette for every kind of colour vision, without its yellow, which is too pale for a line."""

GREY = "#5A5A5A"
SWEEP = "viridis"
SETTINGS: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.labelcolor": "#333333",
    "axes.edgecolor": "#999999",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Style:
    """How a line looks, in every figure alike."""

    colour: str
    dashes: Literal["-", "--", "-."]


@dataclass(frozen=True)
class Panel:
    """One pair of axes: what it shows, in plain words, and where a line's values come from."""

    quantity: str
    values: Callable[[Line], tuple[Integers, Floats] | None]
    logarithmic: bool = False
    zero_line: bool = False
    evaluated: bool = False
    """Measured on a few episodes only, so the mean is taken over the last evaluations as `final_return` is."""


def _evaluations(name: str) -> Callable[[Line], tuple[Integers, Floats] | None]:
    def values(line: Line) -> tuple[Integers, Floats] | None:
        table = getattr(line, name)
        return (line.run.steps, table) if np.isfinite(table).any() else None

    return values


def _metric(name: str) -> Callable[[Line], tuple[Integers, Floats] | None]:
    def values(line: Line) -> tuple[Integers, Floats] | None:
        table = line.metric(name)
        return None if table is None else (line.run.metric_steps, table)

    return values


FIGURES: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "learning": ("learning curve", (Panel("Return per evaluation episode", _evaluations("returns"), evaluated=True),)),
    "delta-q": (
        "spread of action values, ΔQ",
        (Panel("Best minus worst action value", _metric("delta_q")),),
    ),
    "overestimation": (
        "overestimation",
        (Panel("Predicted minus achieved return", _evaluations("overestimation"), zero_line=True, evaluated=True),),
    ),
    "model-loss": (
        "error of the learned model",
        (
            Panel("Next-state error (training loss)", _metric("model_state_loss"), logarithmic=True),
            Panel("Reward error (training loss)", _metric("model_reward_loss"), logarithmic=True),
        ),
    ),
}
"""File name -> (what the title calls it, its panels)."""


def styles_of(lines: Sequence[Line]) -> dict[str, Style]:
    """Label -> style. A base agent and its +SADQ twin share a colour, the base dashed; a lone base stays grey, so that
    the usual report of one pair is told apart at a glance; the lines of a sweep run along one colour scale."""
    families = list(dict.fromkeys(line.run.base_agent for line in lines))
    scale = matplotlib.colormaps[SWEEP]
    styles: dict[str, Style] = {}
    for line in lines:
        family = families.index(line.run.base_agent)
        kind = (line.run.environment, line.run.agent)
        siblings = [other.label for other in lines if (other.run.environment, other.run.agent) == kind]
        twins = [other for other in lines if other.run.base_agent == families[family] and other.run.guided]
        colour = COLOURS[family % len(COLOURS)]
        if len(siblings) > 1:
            colour = to_hex(scale(0.88 * siblings.index(line.label) / (len(siblings) - 1)))
        elif len(families) == 1 and twins and not line.run.guided:
            colour = GREY
        solid: Literal["-", "-."] = "-" if family < len(COLOURS) else "-."
        styles.setdefault(line.label, Style(colour, "--" if twins and not line.run.guided else solid))
    return styles


def draw(name: str, environment: str, lines: Sequence[Line], styles: dict[str, Style], seed: int = 0) -> bytes | None:
    """The figure `name` of one environment's lines as a PNG, or None where no line has anything to show in it."""
    title, panels = FIGURES[name]
    panels = tuple(panel for panel in panels if any(panel.values(line) for line in lines))
    if not panels:
        return None
    shown = [line for line in lines if any(panel.values(line) for panel in panels)]
    counts = sorted({len(line.indices) for line in shown})
    seeds = f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else f"{counts[0]} seed{'s' * (counts[0] > 1)}"
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(7.2 if len(panels) == 1 else 10.0, 4.3), layout="constrained")
        for index, (axes, panel) in enumerate(zip(np.ravel(figure.subplots(1, len(panels))), panels, strict=True)):
            _fill(axes, panel, shown, styles, seed)
            if index == 0:
                axes.set_title(_plain(f"{environment}: {title}, {seeds}"))
        handles = [
            Line2D([], [], color=styles[line.label].colour, linestyle=styles[line.label].dashes, linewidth=2)
            for line in shown
        ]
        figure.legend(
            handles,
            [_plain(line.label) for line in shown],
            loc="outside lower center",
            ncols=min(len(shown), 3),
            handlelength=2.6,
        )
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=DPI, facecolor="white")
    return image.getvalue()


def _fill(axes: Axes, panel: Panel, lines: Sequence[Line], styles: dict[str, Style], seed: int) -> None:
    smoothed = panel.evaluated and max(line.run.steps.size for line in lines) >= SMOOTHED_FROM
    crowded = len(lines) > LINES_WITH_SEEDS
    for line in lines:
        found = panel.values(line)
        if found is None:
            continue
        style = styles[line.label]
        steps, values = _thinned(*found)
        if len(values) > 1 and not crowded:
            axes.plot(steps, values.T, color=style.colour, linewidth=0.6, alpha=0.3)
        generator = generator_for(seed, line.run.name, line.label, panel.quantity)
        steps, values = _thinned(found[0], _running_mean(found[1])) if smoothed else (steps, values)
        mean, low, high = curve_interval(values, generator)
        axes.fill_between(steps, low, high, color=style.colour, alpha=0.1 if crowded else 0.2, linewidth=0)
        marker = "o" if steps.size == 1 else None
        axes.plot(steps, mean, color=style.colour, linestyle=style.dashes, linewidth=1.9, marker=marker)
    axes.set_xlabel("Environment steps")
    axes.set_ylabel(panel.quantity + (f"\n(mean of the last {FINAL_EVALUATIONS} evaluations)" if smoothed else ""))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(x=0.01)
    if panel.logarithmic:
        # A loss of exactly zero has no place on a logarithmic scale and is cut off at the bottom.
        axes.set_yscale("log", nonpositive="clip")
    if panel.zero_line:
        axes.axhline(0, color="#333333", linewidth=0.9)


def _running_mean(values: Floats) -> Floats:
    """values[M, T] averaged with up to 4 values before each, so that the last point is the final score of the table."""
    return np.stack([final_return(values[:, : index + 1]) for index in range(values.shape[1])], axis=1)


def _thinned(steps: Integers, values: Floats) -> tuple[Floats, Floats]:
    """At most `POINTS` points, each the mean over a stretch of the curve; stretches without a value are left out."""
    known = np.isfinite(values)
    some = known.any(axis=0)
    steps, values, known = steps[some], values[:, some], known[:, some]
    starts = np.arange(0, steps.size, -(-steps.size // POINTS))
    count = np.add.reduceat(known, starts, axis=1, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        means = np.add.reduceat(np.where(known, values, 0.0), starts, axis=1) / count
    lengths = np.diff(np.append(starts, steps.size))
    return np.add.reduceat(steps.astype(np.float64), starts) / lengths, means


def _plain(text: str) -> str:
    """Names come from files: a dollar sign in one must not start a formula, nor an underscore hide it from a legend."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text

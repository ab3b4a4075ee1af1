"""Curves as PNG images: mean over seeds, its 95% interval as a band, and the seeds themselves as thin lines."""

import io
from collections.abc import Sequence
from typing import Literal, NamedTuple

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

POINTS = 400  # more than a figure has pixels to show
LINES_WITH_SEEDS = 4  # with more curves than this, thin lines would bury the means
SMOOTHED_FROM = 50  # evaluations; of fewer, a running mean would hide the shape
# Okabe and Ito's palette for every kind of colour vision, without its yellow, which is too pale for a line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
GREY, INK = "#5A5A5A", "#333333"
EVALUATED = ("returns", "overestimation")  # on a few episodes only, hence smoothed
FIGURES = {
    "learning": ("learning curve", {"returns": "Return per evaluation episode"}),
    "delta-q": ("spread of action values, ΔQ", {"delta_q": "Best minus worst action value"}),
    "overestimation": ("overestimation", {"overestimation": "Predicted minus achieved return"}),
    "model-loss": (
        "error of the learned model",
        {"model_state_loss": "Next-state error (training loss)", "model_reward_loss": "Reward error (training loss)"},
    ),
}
"""File name -> (what the title calls it, recorded quantity -> what its axis calls it)."""


class Style(NamedTuple):
    """How a line looks, in every figure alike."""

    colour: str
    dashes: Literal["-", "--", "-."]


def styles_of(lines: Sequence[Line]) -> dict[str, Style]:
    """Label -> style. A base agent and its +SADQ twin share a colour, the base dashed; a lone base stays grey, so that
    the usual report of one pair is told apart at a glance; the lines of a sweep run along one colour scale."""
    families = list(dict.fromkeys(line.run.base_agent for line in lines))
    guided = {line.run.base_agent for line in lines if line.run.guided}
    styles: dict[str, Style] = {}
    for line in lines:
        family = families.index(line.run.base_agent)
        twin = line.run.agent in guided
        siblings = [other.label for other in lines if other.kind == line.kind]
        if len(siblings) > 1:
            colour = to_hex(matplotlib.colormaps["viridis"](0.88 * siblings.index(line.label) / (len(siblings) - 1)))
        else:
            colour = GREY if twin and len(families) == 1 else COLOURS[family % len(COLOURS)]
        styles.setdefault(line.label, Style(colour, "--" if twin else "-" if family < len(COLOURS) else "-."))
    return styles


def draw(name: str, environment: str, lines: Sequence[Line], styles: dict[str, Style], seed: int = 0) -> bytes | None:
    """The figure `name` of one environment's lines as a PNG, or None where no line has anything to show in it."""
    title, quantities = FIGURES[name]
    shown = [line for line in lines if line.curves.keys() & quantities.keys()]
    panels = [quantity for quantity in quantities if any(quantity in line.curves for line in shown)]
    if not shown:
        return None
    counts = sorted({len(line.indices) for line in shown})
    seeds = f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else f"{counts[0]} seed{'s' * (counts[0] > 1)}"
    with matplotlib.rc_context():
        matplotlib.rc("font", size=10)
        matplotlib.rc("axes", titlesize=11.5, titleweight="bold", titlelocation="left", titlepad=10, grid=True)
        matplotlib.rc("axes", labelcolor=INK, edgecolor="#999999")
        matplotlib.rc("axes.spines", top=False, right=False)
        matplotlib.rc("grid", color="#E4E4E4", linewidth=0.8)
        matplotlib.rc("xtick", color=INK)
        matplotlib.rc("ytick", color=INK)
        matplotlib.rc("legend", frameon=False)
        figure = Figure(figsize=(7.2 if len(panels) == 1 else 10.0, 4.3), layout="constrained")
        for axes, quantity in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _fill(axes, quantity, quantities[quantity], shown, styles, seed)
        figure.axes[0].set_title(_plain(f"{environment}: {title}, {seeds}"))
        looks = [styles[line.label] for line in shown]
        handles = [Line2D([], [], color=look.colour, linestyle=look.dashes, linewidth=2) for look in looks]
        labels = [_plain(line.label) for line in shown]
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(shown), 3), handlelength=2.6)
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=150, facecolor="white")
    return image.getvalue()


def _fill(axes: Axes, quantity: str, words: str, lines: Sequence[Line], styles: dict[str, Style], seed: int) -> None:
    smoothed = quantity in EVALUATED and max(line.run.steps.size for line in lines) >= SMOOTHED_FROM
    crowded = len(lines) > LINES_WITH_SEEDS
    for line in (line for line in lines if quantity in line.curves):
        style, curve = styles[line.label], line.curves[quantity]
        steps, values = _thinned(*curve)
        if len(values) > 1 and not crowded:
            axes.plot(steps, values.T, color=style.colour, linewidth=0.6, alpha=0.3)
        if smoothed:  # so that the curve ends at the final score of the table
            means = [final_return(curve[1][:, :end]) for end in range(1, curve[0].size + 1)]
            steps, values = _thinned(curve[0], np.stack(means, axis=1))
        mean, low, high = curve_interval(values, generator_for(seed, line.run.name, line.label, words))
        axes.fill_between(steps, low, high, color=style.colour, alpha=0.1 if crowded else 0.2, linewidth=0)
        marker = "o" if steps.size == 1 else None
        axes.plot(steps, mean, color=style.colour, linestyle=style.dashes, linewidth=1.9, marker=marker)
    axes.set_xlabel("Environment steps")
    axes.set_ylabel(words + (f"\n(mean of the last {FINAL_EVALUATIONS} evaluations)" if smoothed else ""))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(x=0.01)
    if quantity.endswith("_loss"):
        # A loss of exactly zero has no place on a logarithmic scale and is cut off at the bottom.
        axes.set_yscale("log", nonpositive="clip")
    if quantity == "overestimation":
        axes.axhline(0, color=INK, linewidth=0.9)


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

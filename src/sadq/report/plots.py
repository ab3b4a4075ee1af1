"""Figures as PNG or PDF files: mean over seeds, its 95% interval as a band, and the seeds themselves as thin lines."""

import io
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from sadq.experiment.scores import FINAL_EVALUATIONS
from sadq.report import markup
from sadq.report.lines import Curve, Line
from sadq.report.names import in_words, measured_in_words
from sadq.report.styles import Style
from sadq.report.traces import LINES_WITH_SEEDS, SMOOTHED_FROM, trace_of

if TYPE_CHECKING:
    from sadq.report.contents import Report

INK = "#333333"
EVALUATED = ("returns", "overestimation")  # on a few episodes only, hence smoothed
FIGURES = {
    "learning": ("learning curve", {"returns": "Return per evaluation episode"}),
    "delta-q": ("spread of action values, ΔQ", {"delta_q": "Best minus worst action value"}),
    "overestimation": ("overestimation", {"overestimation": "Predicted minus achieved return"}),
    "model-loss": (
        "error of the learned model",
        {"model_state_loss": "Next-state error (training loss)", "model_reward_loss": "Reward error (training loss)"},
    ),
    "disagreement": ("the model's choice against the base's", {"disagreement": "Share of samples that differ"}),
}
"""File name -> (what the title calls it, recorded quantity -> what its axis calls it)."""


def figures_of(report: "Report", formats: Sequence[str]) -> dict[str, bytes]:
    """File name -> content, of every figure that has something to show, in every format."""
    found: dict[str, bytes] = {}
    taken: set[str] = set()
    for environment in report.environments:
        here = [line for line in report.lines if line.environment == environment]
        measured = dict.fromkeys(name for line in here for name in line.measures)
        for name in (*FIGURES, *measured):
            if figure := draw(name, in_words(environment), here, report.styles, report.seed):
                slug = markup.slug_of(f"{name}-{environment}", taken)  # both names may come from a file
                found |= {f"{slug}.{kind}": saved(figure, kind) for kind in formats}
    return found


def saved(figure: Figure, kind: str) -> bytes:
    """The figure as a file's content; the same figure gives the same bytes."""
    image = io.BytesIO()
    metadata = {"CreationDate": None} if kind == "pdf" else None
    with warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box, and nobody who asked for a figure can do anything about it.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(image, format=kind, dpi=150, facecolor="white", metadata=metadata)
    return image.getvalue()


def draw(name: str, environment: str, lines: Sequence[Line], styles: dict[str, Style], seed: int = 0) -> Figure | None:
    """One environment's figure `name`, or what it measures under that name; None where no line has anything to show."""
    title, quantities = FIGURES.get(name) or (measured_in_words(name)[0].lower(), {name: measured_in_words(name)[0]})
    curves = {line: line.curves if name in FIGURES else line.measures for line in lines}
    shown = [line for line in lines if curves[line].keys() & quantities.keys()]
    panels = [quantity for quantity in quantities if any(quantity in curves[line] for line in shown)]
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
            drawn = {line: curves[line][quantity] for line in shown if quantity in curves[line]}
            _fill(axes, quantity, quantities[quantity], drawn, styles, seed)
        figure.axes[0].set_title(_plain(f"{environment}: {title}, {seeds}"))
        looks = [styles[line.label] for line in shown]
        handles = [Line2D([], [], color=look.colour, linestyle=look.dashes, linewidth=2) for look in looks]
        labels = [_plain(line.label) for line in shown]
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(shown), 3), handlelength=2.6)
    return figure


def _fill(
    axes: Axes, quantity: str, words: str, curves: dict[Line, Curve], styles: dict[str, Style], seed: int
) -> None:
    smoothed = quantity in EVALUATED and max(line.run.steps.size for line in curves) >= SMOOTHED_FROM
    crowded = len(curves) > LINES_WITH_SEEDS
    for line, curve in curves.items():
        style, trace = styles[line.label], trace_of(line, curve, smoothed, seed, quantity)
        if len(trace.seeds) > 1 and not crowded:
            axes.plot(trace.seeds_x, trace.seeds.T, color=style.colour, linewidth=0.6, alpha=0.3)
        axes.fill_between(
            trace.x, trace.low, trace.high, color=style.colour, alpha=0.1 if crowded else 0.2, linewidth=0
        )
        marker = "o" if trace.x.size == 1 else None
        axes.plot(trace.x, trace.mean, color=style.colour, linestyle=style.dashes, linewidth=1.9, marker=marker)
    axes.set_xlabel("Environment steps")
    axes.set_ylabel(words + (f"\n(mean of the last {FINAL_EVALUATIONS} evaluations)" if smoothed else ""))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(x=0.01)
    if quantity.endswith("_loss"):
        # A loss of exactly zero has no place on a logarithmic scale and is cut off at the bottom.
        axes.set_yscale("log", nonpositive="clip")
    if quantity == "overestimation":
        axes.axhline(0, color=INK, linewidth=0.9)


def _plain(text: str) -> str:
    """Names come from files: a dollar sign in one must not start a formula, nor an underscore hide it from a legend."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text

"""Figures of artefacts from their records: small, and the same bytes from the same files."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from claims.judging import middle
from claims.never_loses import AGENTS, Evidence
from claims.plugged_in import BASES, TITLES
from claims.records import Arm, Place, Record
from claims.tables import place_name
from claims.training import SADQ
from sadq.report.styles import COLOURS, GREY

SMOOTHED = 5  # evaluations in a running mean, as many as a final return is of
NORMAL = 1.96
FAMILIES = [light for light, _ in COLOURS]
OTHERS = [*FAMILIES[1:], GREY[0], "#2E8FA3", "#9C7A5B", "#444444"]
RULE_LINES = {
    "base": ("base", GREY[0], "--"),
    "literal": ("the paper's form", FAMILIES[1], "-"),
    "rule": ("the rule", FAMILIES[0], "-"),
}
"""Form -> its name, colour and dashes."""
STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#999999",
    "grid.color": "#E8E8E8",
    "legend.frameon": False,
    "legend.fontsize": 7.5,
}


def figure_of(record: Record) -> bytes | None:
    """A PNG; None for what is only a table."""
    draw = DRAWN.get(record.artefact)
    if draw is None or not record.places:
        return None
    with matplotlib.rc_context(STYLE):
        return _png(draw(record))


def rule_figure(evidence: Evidence, earlier: Evidence) -> bytes:
    """A PNG: by tenths of a run, how far base, paper's form and rule are above a random policy, and the rule's alpha.

    Where the paper's form was not run on the rule's seeds, it is that of an `earlier` rule's.
    """
    with matplotlib.rc_context(STYLE):
        presets = [preset for preset in evidence.presets if evidence.data["course"][preset][AGENTS[0]]]
        figure, grid = _panels(2, len(presets), height=1.9)
        for column, preset in enumerate(presets):
            above, below = grid[0][column], grid[1][column]
            for form, (name, colour, dashes) in RULE_LINES.items():
                found = [evidence.data["course"][preset][agent].get(form) for agent in AGENTS]
                if None in found:
                    found = [earlier.data["course"][preset][agent].get(form) for agent in AGENTS]
                if None in found:
                    continue
                tenths = (np.arange(len(found[0]["return"])) + 0.5) / len(found[0]["return"])
                mean = np.mean([one["return"] for one in found], axis=0)
                above.plot(tenths, mean, color=colour, linestyle=dashes, marker=".", label=name)
                if form == "rule":
                    for one, agent, shade in zip(found, AGENTS, OTHERS, strict=False):
                        below.plot(tenths, one["alpha"], color=shade, linewidth=1.0, label=agent)
            above.axhline(evidence.random(preset), color="#555555", linestyle=":", linewidth=1, label="random")
            above.set(title=place_name(preset), ylabel="" if column else "return, mean of 5 agents")
            below.set(xlabel="share of the run", ylabel="" if column else "α of the rule", ylim=(0.0, 1.05))
            for axes in (above, below):
                axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        grid[1][0].legend(fontsize=6.5)
        _shared_legend(figure, grid[0][0])
        return _png(figure)


def _png(figure: Figure) -> bytes:
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=110, facecolor="white", metadata={"Software": None})
    return image.getvalue()


def _motivation(record: Record) -> Figure:
    """The return above, Delta-Q below; dashed: its first peak, dotted: when 90% of the way is made."""
    figure, axes = _panels(2, len(record.places))
    for column, place in enumerate(record.places.values()):
        arm = place.arms["dqn"]
        _curve(axes[0][column], arm, FAMILIES[0], band=True)
        axes[0][column].set(title=place_name(place.preset), ylabel="return" if not column else "")
        _metric(axes[1][column], arm, "delta_q", FAMILIES[1])
        axes[1][column].set(xlabel="environment steps", ylabel="ΔQ" if not column else "")
        for row in axes:
            row[column].set_xlim(0, arm.steps)
            row[column].axvline(arm.data["delta_q_peak"]["step"], color="#555555", linestyle="--", linewidth=1)
            settled = middle(arm.by_seed("settled_step")).value
            row[column].axvline(settled, color="#555555", linestyle=":", linewidth=1)
    return figure


def _overview(loss: bool) -> Callable[[Record], Figure]:
    """All arms on each preset, SADQ in front, and the loss of its model."""

    def draw(record: Record) -> Figure:
        places = list(record.places.values())
        figure, (row,) = _panels(1, len(places) + loss)
        for axes, place in zip(row, places, strict=False):
            _overlaid(axes, place)
            axes.set(
                title=place_name(place.preset), xlabel="environment steps", ylabel="return" if axes is row[0] else ""
            )
        if loss:
            axes = row[-1]
            for index, place in enumerate(places):
                guided = [arm for arm in place.arms.values() if arm.guided and not arm.data["settings"]]
                for arm in guided:
                    _metric(axes, arm, "model_state_loss", FAMILIES[index], place_name(place.preset), share=True)
            axes.set(title="model: error of the next state", xlabel="share of the run", yscale="log")
            axes.xaxis.set_major_formatter(PercentFormatter(1.0))
            axes.legend()
        _shared_legend(figure, row[0])
        return figure

    return draw


def _overlaid(axes: Axes, place: Place) -> None:
    others = iter(OTHERS)
    for arm in sorted(place.arms.values(), key=lambda arm: arm.label == SADQ):
        own = arm.label == SADQ
        _curve(axes, arm, FAMILIES[0] if own else next(others, GREY[0]), band=own or len(place.arms) < 6, front=own)


def _frequency(record: Record) -> Figure:
    """Returns by the number of model updates, and the model's loss."""
    (place,) = record.places.values()
    figure, (row,) = _panels(1, 2)
    guided = [arm for arm in place.arms.values() if arm.guided]
    shades = [matplotlib.colormaps["viridis"](share) for share in np.linspace(0.0, 0.85, len(guided))]
    for arm, shade in zip(guided, shades, strict=True):
        name = "k = " + arm.label.rpartition("updates_per_collect=")[2]
        _curve(row[0], arm, shade, band=True, name=name)
        _metric(row[1], arm, "model_state_loss", shade, name)
    for arm, colour in zip((arm for arm in place.arms.values() if not arm.guided), OTHERS, strict=False):
        _curve(row[0], arm, colour, band=False, dashes="--")
    row[0].set(title=f"{place_name(place.preset)}: return", xlabel="environment steps")
    row[1].set(title="model: error of the next state", xlabel="environment steps", yscale="log")
    row[0].legend()
    return figure


def _controlled(record: Record) -> Figure:
    """A row for each base, a column for each preset; dashed: the base."""
    places = list(record.places.values())
    bases = [base for base in BASES if any(base in place.arms for place in places)]
    figure, grid = _panels(len(bases), len(places), height=1.9)
    for row, base in zip(grid, bases, strict=True):
        for axes, place in zip(row, places, strict=True):
            family = [arm for arm in place.arms.values() if arm.data["agent"].removesuffix("+sadq") == base]
            colours = iter(FAMILIES)
            for arm in family:
                colour = next(colours) if arm.guided else GREY[0]
                name = arm.label.replace(base, "base", 1) if not arm.guided else arm.label.removeprefix(base)
                _curve(axes, arm, colour, band=True, name=name, dashes="-" if arm.guided else "--")
            if axes is row[0]:
                axes.set_ylabel(TITLES[base])
            if row is grid[0]:
                axes.set_title(place_name(place.preset))
            if row is grid[-1]:
                axes.set_xlabel("environment steps")
    _shared_legend(figure, grid[0][0])
    return figure


def _panels(rows: int, columns: int, height: float = 2.6) -> tuple[Figure, Sequence[Sequence[Axes]]]:
    width = 3.4 * columns if columns > 1 else 6.0
    figure = Figure(figsize=(width, height * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for one in axes.flat:
        one.xaxis.set_major_formatter(EngFormatter(sep=""))
    return figure, axes.tolist()


def _curve(
    axes: Axes, arm: Arm, colour: Any, band: bool, name: str | None = None, dashes: str = "-", front: bool = False
) -> None:
    """The running mean of its evaluations over the seeds; the band is its 95% interval."""
    steps, mean, deviation = (np.array(values, np.float64) for values in arm.curve)
    shown, spread = _running(mean), _running(deviation)
    axes.plot(
        steps, shown, color=colour, linestyle=dashes, linewidth=1.9 if front else 1.1, label=name or arm.label,
        zorder=3 if front else 2,
    )  # fmt: skip
    if band:
        half = NORMAL * spread / np.sqrt(len(arm.seeds))
        axes.fill_between(steps, shown - half, shown + half, color=colour, alpha=0.15, linewidth=0)


def _running(values: np.ndarray) -> np.ndarray:
    """The mean of the last five, at the beginning of as many as there are."""
    return np.array([values[max(0, end - SMOOTHED) : end].mean() for end in range(1, values.size + 1)])


def _metric(axes: Axes, arm: Arm, name: str, colour: Any, label: str | None = None, share: bool = False) -> None:
    found = arm.data["metrics"].get(name)
    if found:
        steps = np.array(found["steps"]) / (arm.steps if share else 1)
        axes.plot(steps, np.array(found["mean"], np.float64), color=colour, linewidth=1.2, label=label)


def _shared_legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns = max(2, round(figure.get_figwidth() / 1.7))
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), columns))


DRAWN: dict[str, Callable[[Record], Figure]] = {
    "motivation": _motivation,
    "conventional": _overview(loss=True),
    "model-frequency": _frequency,
    "cartpole": _overview(loss=False),
    "real-world": _overview(loss=False),
    "controlled": _controlled,
}

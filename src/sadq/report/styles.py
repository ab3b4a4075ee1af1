"""How lines look, in every figure alike: colours for light and dark that every kind of colour vision tells apart."""

import colorsys
from collections.abc import Sequence
from typing import Literal, NamedTuple

from sadq.report.lines import Line

# Each at least 3:1 against its background; ordered so that neighbours differ most (after Okabe and Ito).
COLOURS = (
    ("#0B6FB8", "#62B5F0"),
    ("#CF5208", "#FF9655"),
    ("#0A8A66", "#40CFA0"),
    ("#A93E88", "#EA8FC7"),
    ("#8A6A00", "#DFB445"),
    ("#6C4FC2", "#B7A2F7"),
    ("#B8323F", "#FF8791"),
)
GREY = ("#5A6370", "#A6B0BD")
SCALE = (0.58, 1.06)  # from blue over violet and red to orange, in turns of the colour wheel

Dashes = Literal["-", "--", "-.", ":"]
DASHES: dict[str, str] = {"-": "none", "--": "7 4", "-.": "7 3 1.5 3", ":": "1.5 3"}
"""As SVG has them."""
LINE_DASHES: tuple[Dashes, ...] = ("-", "-.", ":", "--")
BASE_DASHES: tuple[Dashes, ...] = ("--", ":", "-.", "-")


class Style(NamedTuple):
    """How a line looks."""

    colour: str  # on white
    dark: str  # on a dark page
    dashes: Dashes


def styles_of(lines: Sequence[Line]) -> dict[str, Style]:
    """Label -> style. A base agent and its +SADQ twin share a colour, the base dashed; a lone base stays grey, so that
    the usual report of one pair is told apart at a glance; the lines of a sweep run along one colour scale."""
    families = list(dict.fromkeys(line.run.base_agent for line in lines))
    guided = {line.run.base_agent for line in lines if line.run.guided}
    swept = list(dict.fromkeys(line.run.base_agent for line in lines if len(_siblings(line, lines)) > 1))
    styles: dict[str, Style] = {}
    for line in lines:
        family = families.index(line.run.base_agent)
        twin = line.run.agent in guided
        siblings = _siblings(line, lines)
        if len(siblings) > 1:
            again = swept.index(line.run.base_agent)
            colours = scale(siblings.index(line.label) / (len(siblings) - 1))
        else:
            again = family // len(COLOURS)
            colours = GREY if twin and len(families) == 1 else COLOURS[family % len(COLOURS)]
        # The same colours in other dashes, where there are more families than colours or more sweeps than one.
        styles.setdefault(line.label, Style(*colours, (BASE_DASHES if twin else LINE_DASHES)[again % len(DASHES)]))
    return styles


def _siblings(line: Line, lines: Sequence[Line]) -> list[str]:
    """The labels of a sweep, its own among them."""
    place = line.environment, line.run.agent
    return [other.label for other in lines if (other.environment, other.run.agent) == place]


def scale(place: float) -> tuple[str, str]:
    """(on white, on dark) at a place between 0 and 1 of the scale."""
    hue = (SCALE[0] + (SCALE[1] - SCALE[0]) * place) % 1.0
    light, dark = (colorsys.hls_to_rgb(hue, lightness, 0.72) for lightness in (0.40, 0.70))
    return _hex(light), _hex(dark)


def _hex(colour: tuple[float, float, float]) -> str:
    return "#" + "".join(f"{round(255 * part):02X}" for part in colour)


def sheet(styles: dict[str, Style]) -> str:
    """The styles as rules of a style sheet, class `line-0` for the first label and so on."""
    light = "".join(
        f".line-{index}{{--line:{style.colour};--dashes:{DASHES[style.dashes]}}}" for index, style in _all(styles)
    )
    dark = "".join(f".line-{index}{{--line:{style.dark}}}" for index, style in _all(styles))
    hidden = "".join(f".without-line-{index} .chart .line-{index}{{display:none}}" for index, _ in _all(styles))
    return f"{light}{hidden}\n@media screen and (prefers-color-scheme: dark){{{dark}}}"


def _all(styles: dict[str, Style]) -> list[tuple[int, Style]]:
    return list(enumerate(styles.values()))


def class_of(styles: dict[str, Style], label: str) -> str:
    """The class that the sheet gives a label."""
    return f"line-{list(styles).index(label)}"

"""A game to look at: the screen, beside it the value of every action, and what a model expects each one to lead to."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sadq.envs.atari.spec import SIZE

ENDINGS = (".gif", ".png")
"""Of the files that can be written: an animation, or the moment at which the model objects most."""

FRAMES_PER_SECOND = 15  # as fast as the game is for people: 60 frames a second, 4 a step
BACKGROUND, INK, FAINT = (255, 255, 255), (25, 25, 25), (150, 150, 150)
BLUE, ORANGE, GREEN = (0, 114, 178), (230, 125, 0), (0, 158, 115)
SCREEN = (320, 420)
MARGIN, ROW, TOP = 16, 22, 56
NAMES, BARS, NUMBERS = 124, 130, 56  # widths of the columns of the table
LARGE, SMALL = 13, 10  # of letters
FONT = "fonts/ttf/DejaVuSans.ttf"  # among Matplotlib's data; Pillow's own has neither γ nor â


class Advised(NamedTuple):
    """What SADQ compares at a moment."""

    scores: np.ndarray  # f32[A]; -inf: of an action that was no candidate
    action: int  # the model's choice
    frames: np.ndarray | None  # f32[A, 84, 84] in [0, 1]: the newest frame after each action; None: it predicts none


class Moment(NamedTuple):
    """One step of a game, before its action is taken."""

    screen: np.ndarray  # u8[rows, columns, 3]
    step: int
    score: int
    values: np.ndarray  # f32[A]
    greedy: int  # the action that the values prefer
    taken: int
    advised: Advised | None


def draw(moments: Sequence[Moment], title: str, names: Sequence[str], ending: str) -> bytes:
    """The content of a file with that ending, of actions with these names."""
    painter = Painter(moments, title, names)
    content = io.BytesIO()
    if ending == ".png":
        painter.picture(moments[_most_telling(moments)]).save(content, "png")
        return content.getvalue()
    # One palette for all frames: a palette of its own would make what stands still flicker.
    palette = _palette([painter.picture(moment) for moment in moments[:: max(1, len(moments) // 6)]])
    frames = [painter.picture(moment).quantize(palette=palette, dither=Image.Dither.NONE) for moment in moments]
    frames[0].save(
        content, "gif", save_all=True, append_images=frames[1:], duration=round(1000 / FRAMES_PER_SECOND), loop=0
    )
    return content.getvalue()


def _palette(pictures: Sequence[Image.Image]) -> Image.Image:
    """The colours that several pictures need."""
    width, height = pictures[0].size
    together = Image.new("RGB", (width, height * len(pictures)))
    for number, picture in enumerate(pictures):
        together.paste(picture, (0, number * height))
    return together.quantize(255, dither=Image.Dither.NONE)


def _most_telling(moments: Sequence[Moment]) -> int:
    """The moment at which the model prefers its own choice to the greedy one by most; the middle one without a model."""
    gains = [
        0.0 if one.advised is None else float(one.advised.scores[one.advised.action] - one.advised.scores[one.greedy])
        for one in moments
    ]
    return int(np.argmax(gains)) if max(gains) > 0 else len(moments) // 2


class Painter:
    """The layout that all moments of a game share: screen, table of actions, and a grid of expected frames."""

    def __init__(self, moments: Sequence[Moment], title: str, names: Sequence[str]):
        self.title, self.names = title, names
        self.advised = moments[0].advised is not None
        expected = self.advised and moments[0].advised.frames is not None  # type: ignore[union-attr]
        # Bars are as long as the action is better than the worst one: as a share of the most that is ever at stake.
        self._most = max(1e-6, *(float(np.ptp(one.values)) for one in moments))
        if self.advised:
            self._most = max(self._most, *(float(np.ptp(_scored(one.advised))) for one in moments if one.advised))
        self._zoom = 2 if len(names) <= 6 else 1
        self._across = 0 if not expected else 6 if self._zoom == 1 else 3 if len(names) > 4 else 2
        self._cell = (SIZE * self._zoom + 12, SIZE * self._zoom + 12 + 2 * LARGE)
        down = -(-len(names) // self._across) if expected else 0
        self._table = 2 * MARGIN + SCREEN[0]
        bars = 2 if self.advised else 1
        self._grid = self._table + NAMES + bars * (BARS + NUMBERS) + 2 * MARGIN
        width = self._grid + self._across * self._cell[0] + (MARGIN if expected else 0)
        height = TOP + max(SCREEN[1], 2 * ROW + len(names) * ROW, down * self._cell[1]) + MARGIN
        self._size = width, height
        font = Path(matplotlib.get_data_path()) / FONT
        self._large, self._small = ImageFont.truetype(font, LARGE), ImageFont.truetype(font, SMALL)

    def picture(self, moment: Moment) -> Image.Image:
        """A moment."""
        image = Image.new("RGB", self._size, BACKGROUND)
        pen = ImageDraw.Draw(image)
        image.paste(Image.fromarray(moment.screen).resize(SCREEN, Image.Resampling.NEAREST), (MARGIN, TOP))
        pen.text((MARGIN, 10), self.title, INK, self._large)
        pen.text((MARGIN, 30), f"step {moment.step}, score {moment.score}", INK, self._large)
        self._legend(pen, moment)
        self._rows(pen, moment)
        if self._across and moment.advised is not None and moment.advised.frames is not None:
            self._expected(image, pen, moment, moment.advised)
        return image

    def _legend(self, pen: ImageDraw.ImageDraw, moment: Moment) -> None:
        left = self._table + NAMES
        sets = [("Q(s, a)", moment.values, BLUE)]
        if moment.advised is not None:
            sets.append(("r + γ max Q one step on", _scored(moment.advised), ORANGE))
        for number, (name, values, colour) in enumerate(sets):
            place = left + number * (BARS + NUMBERS)
            pen.text((place, 10), name, colour, self._large)
            pen.text((place, 30), f"best {values.max():.3f}, worst {values.min():.3f}", FAINT, self._small)

    def _rows(self, pen: ImageDraw.ImageDraw, moment: Moment) -> None:
        sets = [(moment.values, moment.greedy, BLUE, "a*")]
        if moment.advised is not None:
            sets.append((moment.advised.scores, moment.advised.action, ORANGE, "â"))
        for action, name in enumerate(self.names):
            top = TOP + action * ROW
            if action == moment.taken:
                pen.rectangle((self._table - 4, top - 2, self._grid - 2 * MARGIN, top + ROW - 4), (235, 245, 240))
            pen.text((self._table, top), name, INK, self._large)
            for number, (values, best, colour, mark) in enumerate(sets):
                if not np.isfinite(values[action]):
                    continue
                left = self._table + NAMES + number * (BARS + NUMBERS)
                least = float(values[np.isfinite(values)].min())
                length = round((BARS - 24) * (float(values[action]) - least) / self._most)
                pen.rectangle((left, top + 3, left + max(1, length), top + ROW - 8), colour)
                if action == best:
                    pen.text((left + length + 6, top - 1), mark, colour, self._large)
                pen.text((left + BARS, top + 2), f"{values[action]:.3f}", INK, self._small)
        below = TOP + len(self.names) * ROW + 6
        pen.text((self._table, below), "shaded: the action taken; bars: above the worst one", FAINT, self._small)

    def _expected(self, image: Image.Image, pen: ImageDraw.ImageDraw, moment: Moment, advised: Advised) -> None:
        assert advised.frames is not None, "asked for where frames are predicted"
        pen.text((self._grid, 10), "what the model expects of each action", INK, self._large)
        pen.text((self._grid, 30), "red: brighter than after the others, blue: darker", FAINT, self._small)
        mean = advised.frames.mean(axis=0)
        side = SIZE * self._zoom
        for action, name in enumerate(self.names):
            row, column = divmod(action, self._across)
            left, top = self._grid + column * self._cell[0], TOP + row * self._cell[1]
            tile = Image.fromarray(_tinted(advised.frames[action], mean))
            image.paste(tile.resize((side, side), Image.Resampling.NEAREST), (left + 3, top + 3))
            marks = [(mark, colour) for mark, one, colour in self._marks(moment, advised) if one == action]
            for depth, (_, colour) in enumerate(marks):  # one within the other where both mean this action
                edge = 2 * depth - 1
                box = (left + edge, top + edge, left + side + 5 - edge, top + side + 5 - edge)
                pen.rectangle(box, None, colour, width=2)
            pen.text((left + 3, top + side + 8), name, INK, self._small)
            score = float(advised.scores[action])
            told = [(f"{score:.3f}" if np.isfinite(score) else "no candidate", FAINT), *marks]
            for number, (word, colour) in enumerate(told):
                pen.text(
                    (left + 3 + 18 * number + 20 * (number > 0), top + side + 8 + LARGE), word, colour, self._small
                )

    def _marks(self, moment: Moment, advised: Advised) -> tuple[tuple[str, int, tuple[int, int, int]], ...]:
        return ("a*", moment.greedy, BLUE), ("â", advised.action, ORANGE)


def _scored(advised: Advised) -> np.ndarray:
    """The scores of the actions that have one."""
    return advised.scores[np.isfinite(advised.scores)]


def _tinted(frame: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """A frame in grey, u8[84, 84, 3], red where it is brighter than the mean over actions and blue where it is darker."""
    apart = np.clip(4.0 * (frame - mean), -1.0, 1.0)
    grey = np.stack([frame] * 3, axis=-1)
    grey[..., 0] += np.maximum(apart, 0.0) - np.maximum(-apart, 0.0)
    grey[..., 2] += np.maximum(-apart, 0.0) - np.maximum(apart, 0.0)
    grey[..., 1] -= np.abs(apart)
    return np.rint(255 * np.clip(grey, 0.0, 1.0)).astype(np.uint8)

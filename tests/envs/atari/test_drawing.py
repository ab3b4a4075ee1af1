"""The film of a game: what is in its frames, and which moment a picture shows."""

import io

import numpy as np
import pytest
from PIL import Image

from sadq.envs.atari.drawing import BLUE, ORANGE, Advised, Moment, Painter, _tinted, draw

NAMES = ["NOOP", "FIRE", "RIGHT", "LEFT"]


def moment(step: int, scores=(1.0, 1.1, 1.2, 1.5), advised: bool = True, frames: bool = True) -> Moment:
    """The values prefer action 1, the model what its scores are best for."""
    expected = np.full((4, 84, 84), 0.25)
    expected[:, 40, 40] = np.array([0.25, 0.5, 0.75, 1.0])
    said = Advised(np.array(scores), int(np.argmax(scores)), expected if frames else None)
    screen = np.full((210, 160, 3), 40, np.uint8)
    return Moment(screen, step, 7, np.array([0.1, 0.4, 0.2, 0.3]), 1, 1, said if advised else None)


def colours(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture.convert("RGB")).astype(int)


def test_an_animation_has_a_frame_for_every_step():
    content = draw([moment(step) for step in range(3)], "Breakout", NAMES, ".gif")
    with Image.open(io.BytesIO(content)) as film:
        assert film.n_frames == 3 and film.info["duration"] in (60, 67)  # a GIF counts hundredths


def test_both_choices_are_marked_where_they_are():
    now = moment(0)
    painter = Painter([now], "Breakout", NAMES)
    picture = colours(painter.picture(now))
    side, (left, across) = 84 * 2, (painter._grid, painter._cell[0])

    def border(action: int) -> set[tuple[int, ...]]:
        """The colours along the upper edge of an action's frame."""
        row, column = divmod(action, 2)
        top = 56 + row * painter._cell[1]
        start = left + column * across
        return {tuple(pixel) for pixel in picture[top, start + 10 : start + side - 10]}

    assert border(1) == {BLUE} and border(3) == {ORANGE}
    assert border(0) == border(2) == {(255, 255, 255)}


def test_one_action_may_be_both():
    now = moment(0, scores=(1.0, 1.9, 1.2, 1.5))
    found = {tuple(pixel) for row in colours(Painter([now], "Breakout", NAMES).picture(now)) for pixel in row}
    assert BLUE in found and ORANGE in found


def test_bars_grow_with_what_an_action_is_better_by():
    now = moment(0, advised=False)
    painter = Painter([now], "Breakout", NAMES)
    picture = colours(painter.picture(now))
    lengths = [np.count_nonzero((picture[56 + 22 * row + 8] == BLUE).all(axis=-1)) for row in range(4)]
    assert np.argsort(lengths).tolist() == [0, 2, 3, 1]
    assert lengths[3] / lengths[1] == pytest.approx(2 / 3, abs=0.05) and lengths[0] <= 2


def test_a_picture_is_of_the_moment_at_which_the_model_objects_most():
    quiet, loud = moment(1, (1.0, 1.3, 1.2, 1.4)), moment(2, (1.0, 1.0, 1.2, 1.9))
    content = draw([quiet, loud, quiet], "Breakout", NAMES, ".png")
    with Image.open(io.BytesIO(content)) as picture:
        expected = Painter([quiet, loud, quiet], "Breakout", NAMES).picture(loud)
        np.testing.assert_array_equal(colours(picture), colours(expected))


def test_actions_that_were_no_candidates_have_no_score():
    """The scores of the others have the bars that they would have alone."""
    some = moment(0, scores=(-np.inf, 1.1, -np.inf, 1.5))
    painter = Painter([some], "Breakout", NAMES)
    picture = colours(painter.picture(some))
    left = painter._table + 124 + 130 + 56  # of the column of scores
    rows = [picture[56 + 22 * row : 56 + 22 * (row + 1), left : left + 130] for row in range(4)]
    lengths = [np.count_nonzero((row[8] == ORANGE).all(axis=-1)) for row in rows]
    assert lengths[0] == lengths[2] == 0 < lengths[1] < lengths[3]
    assert draw([some, some], "Breakout", NAMES, ".gif")


def test_frames_are_red_where_an_action_makes_them_brighter():
    frames = moment(0).advised.frames
    mean = frames.mean(axis=0)
    assert _tinted(frames[3], mean)[40, 40].tolist() == [255, 0, 0]
    assert _tinted(frames[0], mean)[40, 40].tolist() == [0, 0, 255]
    assert _tinted(frames[0], mean)[0, 0].tolist() == [64, 64, 64]


@pytest.mark.parametrize("parts", [{"advised": False}, {"frames": False}], ids=["plain", "features"])
def test_what_predicts_no_frames_has_no_place_for_them(parts):
    full, narrow = (Painter([one], "Pong", NAMES).picture(one).size for one in (moment(0), moment(0, **parts)))
    assert narrow[0] < full[0] - 2 * 84


def test_every_action_of_the_largest_set_fits():
    names = [f"ACTION{number}" for number in range(18)]
    frames = np.zeros((18, 84, 84))
    now = moment(0)._replace(values=np.arange(18.0), advised=Advised(np.arange(18.0), 17, frames))
    width, height = Painter([now], "Alien", names).picture(now).size
    assert width < 1600 and height < 600

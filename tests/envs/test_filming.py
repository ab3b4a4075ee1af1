"""What an environment renders is made a film of, or told from a picture."""

import numpy as np
import pytest
from sample_environments import Walk

from sadq.envs import make
from sadq.envs.filming import FRAMES_PER_SECOND, check_renders, frames_of
from sadq.errors import SadqError


class Painted(Walk):
    """A walk as grey pictures of a size; it tells nothing of how they are to be shown."""

    metadata = None
    render_mode = "rgb_array"

    def __init__(self, size):
        super().__init__()
        self.size = size

    def render(self):
        return np.full((*self.size, 3), 9, np.uint8)


def test_an_environment_without_metadata_is_filmed_at_the_usual_speed():
    frames, speed = frames_of(make(lambda: Painted((2, 3))), 0, 0, lambda *_: 0, 5)
    assert [frame.shape for frame in frames] == [(2, 3, 3)] * 6 and speed == FRAMES_PER_SECOND


def test_an_empty_picture_is_refused():
    with pytest.raises(SadqError, match=r"rendered an array of shape \(0, 0, 3\) .*, expected a picture"):
        check_renders(make(lambda: Painted((0, 0))))

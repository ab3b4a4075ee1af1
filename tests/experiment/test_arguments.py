"""What a user acts on in Python becomes what networks take, or is refused as an environment's own answer would be."""

import warnings

import numpy as np
import pytest
from gymnasium import spaces

from sadq.envs.forms import action_form, observation_form
from sadq.errors import SadqError
from sadq.experiment.arguments import masks_of, observations_of


@pytest.mark.parametrize("number", [-1, 300, 0.5, np.nan])
def test_what_no_byte_can_hold_is_refused(number):
    with pytest.raises(SadqError, match=f"an observation with {number}: expected whole numbers from 0 to 255"):
        observations_of([0, number], (2,), np.uint8)
    rows, single = observations_of([0.0, 255.0], (2,), np.uint8)
    assert single and rows.dtype == np.uint8 and rows.tolist() == [[0, 255]]


@pytest.mark.parametrize("form", [None, observation_form("any", spaces.Tuple((spaces.Box(-9, 9, (2,)),)))])
@pytest.mark.parametrize("number", [1e300, np.nan, -np.inf])
def test_what_is_not_finite_in_float32_is_refused(number, form):
    given = [0, number] if form is None else ([0, number],)
    with warnings.catch_warnings(), pytest.raises(SadqError, match="expected numbers finite in float32"):
        warnings.simplefilter("error")
        observations_of(given, (2,), np.float32, form)


def test_masks_of_joint_actions_that_say_nothing_clear_are_refused():
    two = action_form("any", spaces.MultiDiscrete([2, 2]))
    with pytest.raises(SadqError, match="4 entries that may be of choices or of joint actions: expected a tuple"):
        masks_of([1, 0, 0, 1], 4, True, 1, two)
    with pytest.raises(SadqError, match="expected booleans of shape"):
        masks_of(([1, 1], [1, 1, 1]), 4, True, 1, two)
    np.testing.assert_array_equal(masks_of(np.eye(2, dtype=bool), 4, True, 1, two), [[True, False, False, True]])

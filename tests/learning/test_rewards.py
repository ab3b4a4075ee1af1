"""What is learned of a reward."""

import jax.numpy as jnp
import numpy as np
import pytest

from sadq.learning.rewards import Rewards

GIVEN = [-30.0, -0.5, 0.0, 2.0, 30.0]


@pytest.mark.parametrize("library", [np, jnp])
@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        (Rewards(), GIVEN),
        (Rewards(scale=0.1), [-3.0, -0.05, 0.0, 0.2, 3.0]),
        (Rewards(clip=1.0), [-1.0, -0.5, 0.0, 1.0, 1.0]),
        (Rewards(scale=0.1, clip=2.0), [-2.0, -0.05, 0.0, 0.2, 2.0]),
    ],
)
def test_a_reward_is_multiplied_and_then_cut_off(rewards, expected, library):
    learned = rewards.learned(library.asarray(GIVEN, library.float32))
    np.testing.assert_allclose(learned, np.float32(expected), rtol=1e-6)
    assert isinstance(learned, np.ndarray) == (library is np) and learned.dtype == np.float32
    assert rewards.plain == (expected is GIVEN)

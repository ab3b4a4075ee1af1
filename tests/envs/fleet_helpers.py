"""What the tests of host environments share: a fleet's seeds, its actions, and comparing what comes out."""

import numpy as np

SEEDS = [3, 8]


def actions_of(spec, steps, shape=(2, 3), seed=0):
    return np.random.default_rng(seed).integers(0, spec.action_count, (steps, *shape)).astype(np.int32)


def run(environments, actions):
    """Every array that comes out of the given actions, as one flat list."""
    return [part for action in actions for part in environments.step(action) if part is not None]


def assert_same(left, right):
    assert len(left) == len(right)
    for mine, theirs in zip(left, right, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)

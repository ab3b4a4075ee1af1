"""A saved state leads back to the very frame that it was saved at, and on from there alike."""

import numpy as np
import pytest

from sadq.errors import SadqError

pytest.importorskip("ale_py", reason="Atari games need sadq[atari]")


def run(environments, actions):
    return [part for action in actions for part in environments.step(action) if part is not None]


def assert_same(left, right):
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("sticky", [0.0, 0.25])
def test_resume_is_exact_in_the_middle_of_a_game(opened, sticky):
    """Seaquest's games depend on what the one before left in the console, unless its ROM is loaded anew."""
    options = {"seeds": [3], "environments": 1, "sticky": sticky, "max_frames": 480}
    whole, other = opened("Seaquest", **options), opened("Seaquest", **options)
    actions = np.random.default_rng(0).integers(0, 18, (330, 1, 1))
    whole.reset()
    run(whole, actions[:170])
    saved = whole.state()
    assert saved["games"][0, 0] == 1 and 0 < saved["lengths"][0, 0] == len(saved["actions"])
    assert {key: value.dtype.kind for key, value in saved.items()} == {
        "games": "i",
        "lengths": "i",
        "actions": "u",
        "digests": "u",
    }
    assert saved["actions"].dtype == np.uint8
    after = run(whole, actions[170:])
    observation, masks = other.restore(saved)
    assert other.exact_resume and masks is None
    assert observation.shape == (1, 1, 4, 84, 84)
    assert_same(run(other, actions[170:]), after)
    assert_same([whole.state()[key] for key in saved], [other.state()[key] for key in saved])


def test_resume_is_exact_right_after_a_lost_life(opened):
    environments = opened("Breakout", environments=2)
    environments.reset()
    while not (step := environments.step(np.array([[0, 2]]))).terminated[0, 0]:
        pass
    assert environments.state()["games"][0, 0] == 0 and not step.observation[0, 0, :3].any()
    saved = environments.state()
    actions = np.random.default_rng(0).integers(0, 4, (60, 1, 2))
    after = run(environments, actions)
    observation, _ = environments.restore(saved)
    assert environments.exact_resume
    np.testing.assert_array_equal(observation, step.observation)
    assert_same(run(environments, actions), after)
    # A state that these games do not lead to is gone on from, and told.
    changed = saved | {"digests": saved["digests"] + np.uint64(1)}
    environments.restore(changed)
    assert not environments.exact_resume
    environments.restore(saved)
    assert environments.exact_resume


def test_a_game_that_ends_before_its_actions_is_told(opened):
    short, long = opened("Pong", purpose="collect", max_frames=80), opened("Pong", purpose="evaluate")
    long.reset()
    run(long, np.zeros((30, 1, 1), int))
    short.restore(long.state())
    assert not short.exact_resume and short.state()["games"] == 1
    short.step(np.zeros((1, 1), int))


def test_states_of_others_are_refused(opened):
    environments = opened("Pong", seeds=[1, 2], purpose="evaluate")
    state = {
        "games": np.zeros((2, 1), int),
        "lengths": np.ones((2, 1), int),
        "actions": np.zeros(2, np.uint8),
        "digests": np.zeros((2, 1), np.uint64),
    }
    with pytest.raises(SadqError, match="lacks lengths"):
        environments.restore({key: value for key, value in state.items() if key != "lengths"})
    for changed in (
        {"lengths": np.ones((1, 1), int), "actions": np.zeros(1, np.uint8)},
        {"actions": np.zeros(3, np.uint8)},
        {"actions": np.full(2, 17, np.uint8)},
    ):
        with pytest.raises(SadqError, match="saved state.*: restore it with the games"):
            environments.restore(state | changed)

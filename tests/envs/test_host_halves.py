"""Halves of the environments that take turns, and the record that a replay needs of them: nothing but the order differs."""

import numpy as np
import pytest
from fleet_helpers import actions_of, assert_same
from sample_environments import Walk

from sadq.envs import make
from sadq.envs.group import Part
from sadq.envs.record import Record
from sadq.errors import SadqError

HALVES = (Part.FIRST, Part.SECOND)


def test_parts_are_the_whole_and_its_halves():
    for count in (1, 2, 3, 8):
        lanes = np.arange(count)
        whole, first, second = (lanes[part.lanes(count)].tolist() for part in Part)
        assert whole == lanes.tolist() == first + second
        assert 0 <= len(second) - len(first) <= 1


def in_turns(environments, actions):
    """Steps in which one half is always a step ahead while the other is under way, put together again."""
    count = environments.shape[1]
    answers = {part: [] for part in HALVES}
    for number, action in enumerate(actions):
        for part in HALVES:
            if number:
                answers[part].append([None if field is None else field.copy() for field in environments.receive(part)])
            environments.send(action[:, part.lanes(count)], part)
    for part in HALVES:
        answers[part].append([None if field is None else field.copy() for field in environments.receive(part)])
    return [
        np.concatenate(pair, axis=1)
        for steps in zip(*answers.values(), strict=True)
        for pair in zip(*steps, strict=True)
        if pair[0] is not None
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 4])
@pytest.mark.parametrize("environments", [2, 3])
def test_halves_in_turns_give_what_all_at_once_give(started, count, environments):
    spec = make(lambda: Walk(masks=True))
    actions = actions_of(spec, 50, (2, environments))
    whole, halved = (started(spec, environments=environments, workers=number) for number in (0, count))
    assert halved.halves
    assert_same(whole.reset(), halved.reset())
    wanted = [part.copy() for action in actions for part in whole.step(action) if part is not None]
    assert_same(wanted, in_turns(halved, actions))
    assert_same(list(whole.state().values()), list(halved.state().values()))
    # And on, all at once, also from what was saved after turns.
    assert_same(list(whole.step(actions[0])[:4]), list(halved.step(actions[0])[:4]))
    saved = halved.state()
    assert_same(whole.restore(saved), halved.restore(saved))
    assert whole.exact_resume and halved.exact_resume


def test_answers_are_views_that_the_next_step_changes_and_a_step_s_are_not(started):
    environments = started(make(Walk), workers=0)
    environments.reset()
    environments.send(np.zeros((2, 3), int))
    viewed = environments.receive()
    kept = viewed.observation.copy()
    stepped = environments.step(np.zeros((2, 3), int))
    assert not np.array_equal(viewed.observation, kept)
    np.testing.assert_array_equal(viewed.observation, stepped.observation)


def test_a_half_takes_the_actions_of_its_own_lanes(started):
    environments = started(make(Walk), workers=0)
    environments.reset()
    with pytest.raises(SadqError, match=r"actions of shape \(2, 3\) .* expected integers of shape \(2, 1\)"):
        environments.send(np.zeros((2, 3), int), Part.FIRST)


def test_one_environment_has_no_halves(started):
    environments = started(make(Walk), environments=1, workers=0)
    assert not environments.halves
    environments.reset()
    assert environments.step(np.zeros((2, 1), int)).reward.shape == (2, 1)


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("chance", [0.0, 0.02, 0.3])
def test_a_record_keeps_the_actions_of_current_episodes_however_long(turns, chance):
    """Against lists that are cleared where an episode ends; without any end it grows, else it forgets the oldest."""
    generator, shape = np.random.default_rng(5), (2, 3)
    record = Record(shape)
    record.begin(4)
    episodes, lists = np.full(shape, 4), [[] for _ in range(6)]
    for step in range(700):
        actions, ended = generator.integers(0, 9, shape), generator.random(shape) < chance
        for part in HALVES if turns else (Part.WHOLE,):
            lanes = part.lanes(3)
            record.take(actions[:, lanes], part)
            record.finish(ended[:, lanes], part)
        for taken, action, over in zip(lists, actions.flat, ended.flat, strict=True):
            taken.append(action)
            if over:
                taken.clear()
        episodes += ended
        if step % 97 == 0 or step > 690:
            state = record.state()
            np.testing.assert_array_equal(state["episodes"], episodes)
            np.testing.assert_array_equal(state["lengths"].flat, [len(taken) for taken in lists])
            np.testing.assert_array_equal(state["actions"], sum(lists, []))
        if step == 400:
            other = Record(shape)
            other.restore(*(state := record.state()).values())
            assert_same(list(state.values()), list(other.state().values()))
            record = other
    assert len(record._actions) <= (1024 if chance < 0.1 else 256)

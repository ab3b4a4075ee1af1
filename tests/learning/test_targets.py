"""Targets by hand, over several steps and through a ring, with everything that can end a return."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import (
    TableHead,
    numbers,
    one_hot,
    phase_of,
    state_of,
    table_guidance,
    table_learner,
    table_model,
    table_network,
)

from sadq.core.bootstrap import Choice, Double, Greedy
from sadq.core.returns import ScalarReturn
from sadq.errors import SadqError
from sadq.learning.guidance import Seen
from sadq.types import Batch, Transition
from tiny import KEY

# With n = 3 and gamma one half. Lane 0 earns 2^t at step t, lane 1 three times that, so that a whole window's
# discounted rewards are n 2^t; the state is the step, and the target network's values there are t and 10 t.

WORTH = jnp.arange(9.0)[:, None] * jnp.array([1.0, 10.0])
PREFERS_THE_FIRST = jnp.tile(jnp.array([1.0, 0.0]), (9, 1))


def steps(count: int, terminated: tuple = (), truncated: tuple = ()) -> Transition:
    """Of both lanes, [count, 2]; episodes end at the given (step, lane)."""
    time = jnp.arange(count)[:, None] + jnp.zeros((1, 2), int)
    ends = np.zeros((2, count, 2), bool)
    for flags, places in zip(ends, (terminated, truncated), strict=True):
        for place in places:
            flags[place] = True
    reward, states = 2.0**time * jnp.array([1.0, 3.0]), jnp.eye(9)
    return Transition(states[time], time % 2, reward, states[time + 1], *map(jnp.asarray, ends))


def targets_of(
    position: list[int], written: int = 6, n: int = 3, online: Any = WORTH, alpha: float = 1.0, **fields: Any
):
    """The numbers y of some positions of a ring of six rows, two of whose last were overwritten where 8 were written."""
    flags = {name: fields.pop(name) for name in ("terminated", "truncated") if name in fields}
    learner = table_learner(9, 2, steps=n, **fields)
    contents, every = learner.store.init(), steps(written, **flags)
    for first in range(written):
        contents = learner.store.add(
            contents, jnp.int32(first), jax.tree.map(lambda leaf: leaf[first : first + 1], every)
        )
    hyper = numbers(alpha=alpha)
    model = None if learner.guidance is None else learner.guidance.make_model(KEY)
    state = state_of(table_network(online), table_network(WORTH), model)
    seen = learner.see(contents, jnp.array(position), phase_of(learner, hyper, rows=jnp.int32(written)))
    return np.asarray(learner.targets(state, hyper, KEY, seen).returns.values[0])


def test_three_step_targets_by_hand():
    np.testing.assert_allclose(targets_of([0, 1, 4]), [3 + 30 / 8, 9 + 30 / 8, 3 * 4 + 50 / 8], rtol=1e-6)
    np.testing.assert_allclose(targets_of([0, 1, 4], n=1), [1 + 10 / 2, 3 + 10 / 2, 4 + 30 / 2], rtol=1e-6)


def test_a_terminal_step_ends_the_return_wherever_it_lies_in_the_window():
    """Lane 0 ends at step 2, the last of the first window; lane 1 at step 1."""
    found = targets_of([0, 2, 4, 6, 1, 3], terminated=((2, 0), (1, 1)))
    np.testing.assert_allclose(found, [3, 4, 4, 24 + 60 / 8, 6, 6], rtol=1e-6)


@pytest.mark.parametrize("limit_ends", [False, True])
def test_a_time_limit_cuts_the_window_and_is_bootstrapped_through_unless_it_counts_as_an_end(limit_ends):
    """Lane 0 is cut at step 1 and lane 1 at step 0: what lies beyond is worth gamma^2 and gamma."""
    found = targets_of([0, 1, 2], truncated=((1, 0), (0, 1)), time_limit_is_terminal=limit_ends)
    beyond = np.zeros(3) if limit_ends else np.array([20 / 4, 10 / 2, 20 / 2])
    np.testing.assert_allclose(found, np.array([2.0, 3.0, 2.0]) + beyond, rtol=1e-6)


def test_windows_wrap_around_the_ring():
    """After 8 steps, rows 0 and 1 hold steps 6 and 7; the windows of steps 4 and 5 go on there."""
    np.testing.assert_allclose(targets_of([8, 10, 11], written=8), [48 + 70 / 8, 96 + 80 / 8, 288 + 80 / 8], rtol=1e-6)
    ended = targets_of([8, 10, 11], written=8, terminated=((6, 0),))
    np.testing.assert_allclose(ended, [48, 64, 288 + 80 / 8], rtol=1e-6)


def test_double_looks_up_what_the_online_network_prefers_at_the_window_s_end():
    found = targets_of([0, 4], bootstrap=Double(), online=PREFERS_THE_FIRST)
    np.testing.assert_allclose(found, [3 + 3 / 8, 12 + 5 / 8], rtol=1e-6)
    np.testing.assert_allclose(targets_of([0, 4], bootstrap=Greedy(), online=PREFERS_THE_FIRST), [6.75, 18.25])


def test_a_guided_target_mixes_at_the_window_s_end_and_rolls_out_one_step_from_there():
    """Action 0 leads to state 8: worth 1 + 80 / 2, more than action 1's 30; discounted by gamma^3 it would be less."""
    model = table_model(jnp.tile(jnp.array([1.0, 30.0]), (9, 1)), jnp.tile(jnp.array([8, 0]), (9, 1)))
    found = targets_of([0, 4, 1], alpha=0.25, guidance=table_guidance(model, 2))
    np.testing.assert_allclose(found, [3 + 3.25 * 3 / 8, 12 + 3.25 * 5 / 8, 9 + 3.25 * 3 / 8], rtol=1e-6)


@pytest.mark.parametrize("given", [0, (0, 1.0), Choice(0, 1.0), Choice(jnp.arange(2), jnp.ones(1))])
def test_a_rule_that_gives_no_choice_is_refused(given):
    arrays = jax.tree.map(jnp.asarray, given)
    with pytest.raises(SadqError, match=r"bootstrap function gave .*, expected a Choice of K actions i32\[K\] with"):
        targets_of([0], bootstrap=lambda *told: arrays)


class Centred(TableHead):
    """Values are told from the mean of the legal ones, as a dueling head's are: a forgotten mask moves all of them."""

    def __call__(self, features: jax.Array, mask: jax.Array | None = None) -> ScalarReturn:
        values = features @ self.table
        return ScalarReturn(values - jnp.mean(values, where=True if mask is None else mask))


def test_targets_and_their_measures_are_those_of_the_legal_actions():
    """Of the values 1, 5 and 99 at s' the first sample has 1 and 5, -2 and 2 from their mean; the second -49 and 49.

    Both take the best of theirs. The model prefers the action of value 5, which only the first has, and else the first.
    """
    model = table_model([[0.0, 9.0, 0.0]], [[0, 0, 0]])
    learner = table_learner(1, 3, guidance=table_guidance(model, 3))
    state = state_of(table_network([[1.0, 5.0, 99.0]], head=Centred), model=model)
    legal, states, off = jnp.array([[True, True, False], [True, False, True]]), one_hot(1, 0, 0), jnp.zeros(2, bool)
    action, reward = jnp.array([0, 0]), jnp.array([1.0, 3.0])
    batch = Batch(states, action, reward, states, jnp.full(2, 0.5), legal, legal)
    seen = Seen(batch, Transition(states, action, reward, states, off, off, legal, legal), off)
    targets = learner.targets(state, numbers(alpha=0.75), KEY, seen)
    np.testing.assert_allclose(targets.bootstrap[0], [2.0, 0.75 * 49 - 0.25 * 49], rtol=1e-6)
    np.testing.assert_allclose(targets.returns.values[0], [1 + 0.5 * 2.0, 3 + 0.5 * 24.5], rtol=1e-6)
    measured = {name: np.asarray(one[0]) for name, one in targets.diagnostics.items()}
    np.testing.assert_array_equal(measured["disagreement"], [0.0, 1.0])
    np.testing.assert_allclose(measured["greedy_minus_mixed"], [0.0, 49 - 24.5], atol=1e-5)
    assert {one.dtype for one in measured.values()} == {np.dtype(np.float32)}, "numbers all, a truth too"

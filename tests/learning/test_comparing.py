"""What is compared at states of one's choice: values, scores and predictions by hand, for more states than kinds."""

import jax
import jax.numpy as jnp
import numpy as np
from tables import numbers, one_hot, table_guidance, table_model, table_network

from sadq.learning.comparing import Comparison, owned_mask
from sadq.learning.legal import legal_actions

VALUES = jnp.array([[0.0, 1.0], [4.0, 2.0], [6.0, -1.0], [-8.0, 8.0]])
MODEL = table_model([[0.5, 2.0], [0.0, 1.0], [7.0, 1.0], [1.0, 4.0]], [[2, 1], [0, 3], [2, 1], [3, 0]])
STATES = (0, 3, 2, 1, 3)


def compared(owned: int | None = None) -> Comparison:
    hyper = numbers(discount=0.5)._replace(actions=None if owned is None else jnp.int32(owned))
    legal = legal_actions(lambda _: None, 2, hyper.actions)
    return Comparison(table_guidance(MODEL, 2), table_network(VALUES), hyper, legal, jax.random.key(0))


def test_values_and_scores_by_hand():
    found = compared()(MODEL, one_hot(4, *STATES))
    best, rewards = np.max(VALUES, axis=1), np.asarray(MODEL.rewards)
    scores = rewards + 0.5 * np.asarray(best)[np.argmax(MODEL.successors, axis=2)]
    np.testing.assert_allclose(found.values, np.asarray(VALUES)[list(STATES)], rtol=1e-6)
    np.testing.assert_allclose(found.scores, scores[list(STATES)], rtol=1e-6)
    assert found.greedy.tolist() == [1, 1, 0, 0, 1]
    assert found.advised.tolist() == scores[list(STATES)].argmax(axis=1).tolist() != found.greedy.tolist()


def test_predictions_are_the_model_s_of_every_action():
    found = compared().predictions(MODEL, one_hot(4, *STATES))
    np.testing.assert_allclose(found.reward, np.asarray(MODEL.rewards)[list(STATES)], rtol=1e-6)
    np.testing.assert_allclose(found.next_input, np.asarray(MODEL.successors)[list(STATES)], rtol=1e-6)


def test_actions_that_a_member_lacks_are_never_preferred():
    found = compared(owned=1)(MODEL, one_hot(4, *STATES))
    assert found.greedy.tolist() == found.advised.tolist() == [0] * 5
    mask = owned_mask(compared(owned=1).legal, 5)
    assert mask is not None and mask.tolist() == [[True, False]] * 5
    assert owned_mask(compared().legal, 5) is None

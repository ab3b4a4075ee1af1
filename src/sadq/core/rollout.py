"""How good each next action looks one model step ahead: Eq. (rollout) and (model_bellman).

    score(a') = r'(a') + gamma * c(a') * max_a'' Q'(s''(a'), a'')

for one observed next state s' and every candidate action a'; c is the model's probability that the episode goes on,
1 where the model does not predict it. The score only ranks actions; it never enters a target.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sadq.core.bootstrap import best_value
from sadq.types import Array, Key, PyTree


class Prediction(NamedTuple):
    """What a model says about one step."""

    reward: Array  # f32[]
    next_input: Array  # whatever `value_of` reads: an observation, or features for a network's head alone
    continuation: Array | float = 1.0  # f32[]: probability that the episode does not end here


ModelStep = Callable[[PyTree, Array, Key], Prediction]
"""(context of s', action i32[], key) -> Prediction; the context is whatever the model computes once for s'."""


def bellman_estimate(
    prediction: Prediction,
    value_of: Callable[[Array], Array],
    discount: Array | float,
    legal: Callable[[Array], Array | None] = lambda _: None,
) -> Array:
    """reward + discount * continuation * max Q' of one predicted step: f32[]."""
    best = best_value(value_of(prediction.next_input), legal(prediction.next_input))
    return prediction.reward + discount * prediction.continuation * best


def rollout_scores(
    step: ModelStep,
    value_of: Callable[[Array], Array],
    context: PyTree,
    action_count: int,
    key: Key,
    *,
    discount: Array | float,
    samples: int = 1,
    chunk: int | None = None,
    legal: Callable[[Array], Array | None] = lambda _: None,
    candidates: Array | None = None,
) -> Array:
    """Scores f32[A] of all actions at one next state, or f32[C] of the `candidates` i32[C] alone.

    `value_of` maps a predicted input to target values f32[A]; `legal` to the mask there, or None. With `samples` > 1
    each action's score is the mean over that many model steps. `chunk` bounds the memory: at most that many actions
    are rolled out at once. Each (action, sample) has a key of its own, and the first sample's is the action's, so that
    neither chunks nor further samples change what was drawn.
    """

    def one(action: Array, noise_key: Key) -> Array:
        return bellman_estimate(step(context, action, noise_key), value_of, discount, legal)

    def score(action: Array) -> Array:
        action_key = jax.random.fold_in(key, action)
        if samples == 1:
            return one(action, action_key)
        further = jax.vmap(lambda sample: jax.random.fold_in(action_key, sample))(jnp.arange(1, samples))
        sample_keys = jnp.concatenate([action_key[None], further])
        return jnp.mean(jax.vmap(one, in_axes=(None, 0))(action, sample_keys))

    actions = jnp.arange(action_count, dtype=jnp.int32) if candidates is None else candidates
    if chunk is None or chunk >= actions.shape[0]:
        return jax.vmap(score)(actions)
    return jax.lax.map(score, actions, batch_size=chunk)

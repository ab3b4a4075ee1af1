"""The records that flow through the library, and the letters used for their axes.

Shape letters, everywhere in this package: M members of a fleet, E environments of a member (with several actors each,
environments times actors: lanes of the replay), T steps of a collect, B samples of a batch, A actions, N atoms of a
return distribution, K networks of an ensemble, or actions of a choice. Observations have any shape and dtype.
"""

from typing import Any, NamedTuple

import jax

Array = jax.Array
"""A JAX array; shapes are given in the docstrings and comments beside it."""

Key = jax.Array
"""A typed JAX random key."""

Mask = jax.Array | None
"""Legal actions bool[..., A]; None where every action is."""


class Transition(NamedTuple):
    """One environment step (s, a, r, s'), or a batch of them along leading axes.

    `next_observation` is the state really reached, never the first one of the next episode.
    """

    observation: Array  # [..., *observation shape]
    action: Array  # i32[...]
    reward: Array  # f32[...]
    next_observation: Array  # [..., *observation shape]
    terminated: Array  # bool[...]: no value beyond s'
    truncated: Array  # bool[...]: the episode stops here, but s' still has a value
    mask: Array | None = None  # bool[..., A]: legal actions at s; None where every action always is
    next_mask: Array | None = None  # bool[..., A]: legal actions at s'


class Batch(NamedTuple):
    """What one gradient step sees: the n-step view of the sampled transitions.

    `discount` is gamma^n, zero where the return ends, so a target is `reward + discount * value(s')`.
    """

    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    discount: Array
    mask: Array | None = None
    next_mask: Array | None = None


class TransitionSequence(NamedTuple):
    """Consecutive transitions of one environment, [..., L] on every leaf."""

    transition: Transition
    valid: Array  # bool[..., L]: still within the episode, and already stored


Metrics = dict[str, Array]
"""Named scalars; a fleet adds a leading member axis."""

PyTree = Any

"""Which next actions a TD target bootstraps from: Eq. (a_q) and (mixed_target), written as a weighted choice.

A bootstrap rule looks at the values of one next state s' and answers with a `Choice`: a few actions with weights
that sum to one. A base rule names one action; SADQ wraps any base rule and adds the action that the model prefers:

    (a_base, alpha), (argmax_a score(a), 1 - alpha)

The target is then sum_k w_k Z'(s', a_k), whatever kind of return Z' is.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from sadq.types import Array


class Choice(NamedTuple):
    """K next actions and their weights, which sum to one."""

    actions: Array  # i32[K]
    weights: Array  # f32[K]


Rule = Callable[[Array, Array, Array | None], Choice]
"""(online_q[A], target_q[A], mask[A] or None) -> Choice."""

GuidedRule = Callable[[Array, Array, Array, Array | None], Choice]
"""(online_q[A], target_q[A], scores[A], mask[A] or None) -> Choice."""


def best_action(values: Array, mask: Array | None = None) -> Array:
    """The first of the best legal actions. Illegal ones are compared as -inf and never enter arithmetic."""
    return jnp.argmax(values if mask is None else jnp.where(mask, values, -jnp.inf)).astype(jnp.int32)


def greedy(online_q: Array, target_q: Array, mask: Array | None = None) -> Choice:
    """DQN: the action that the target network itself prefers."""
    return Choice(best_action(target_q, mask)[None], jnp.ones(1))


def double(online_q: Array, target_q: Array, mask: Array | None = None) -> Choice:
    """Double DQN: the online network selects, the target network evaluates."""
    return Choice(best_action(online_q, mask)[None], jnp.ones(1))


def successor_guided(base: Rule, alpha: Array | float) -> GuidedRule:
    """SADQ: weight `alpha` on the base rule's choice, the rest on the action with the best rollout score.

    `alpha` is an ordinary number, so it may be traced and differ by sample (a gate) or by fleet member (a sweep).
    """

    def rule(online_q: Array, target_q: Array, scores: Array, mask: Array | None = None) -> Choice:
        chosen = base(online_q, target_q, mask)
        preferred = best_action(scores, mask)
        return Choice(
            jnp.append(chosen.actions, preferred),
            jnp.append(alpha * chosen.weights, 1 - jnp.float32(alpha)),
        )

    return rule


RULES: dict[str, Rule] = {"greedy": greedy, "double": double}

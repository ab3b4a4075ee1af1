"""Which next actions a TD target bootstraps from: Eq. (a_q) and (mixed_target), written as a weighted choice.

A bootstrap rule looks at the values of one next state s' and answers with a `Choice`: a few actions with weights
that sum to one. A base rule names one action; SADQ wraps any base rule and adds the action that the model prefers:

    (a_base, alpha), (argmax_a score(a), 1 - alpha)

The target is then sum_k w_k Z'(s', a_k), whatever kind of return Z' is.
"""

from typing import NamedTuple, Protocol

import jax.numpy as jnp

from sadq.types import Array


class Choice(NamedTuple):
    """K next actions and their weights, which sum to one."""

    actions: Array  # i32[K]
    weights: Array  # f32[K]


class Rule(Protocol):
    """A base rule, on the values f32[A] of both networks and the legal actions bool[A] (None: all)."""

    def __call__(self, online_q: Array, target_q: Array, mask: Array | None = None) -> Choice: ...


class GuidedRule(Protocol):
    """A rule that also hears the model's rollout scores f32[A]."""

    def __call__(self, online_q: Array, target_q: Array, scores: Array, mask: Array | None = None) -> Choice: ...


def legal_values(values: Array, mask: Array | None, otherwise: float = -jnp.inf) -> Array:
    """`values` f32[A] with `otherwise` in place of illegal ones, which so are compared but never multiplied.

    A mask without any legal action, as some environments give for a terminal state, counts as all legal.
    """
    return values if mask is None else jnp.where(mask | ~jnp.any(mask), values, otherwise)


def best_action(values: Array, mask: Array | None = None) -> Array:
    """The first of the best legal actions: i32[]."""
    return jnp.argmax(legal_values(values, mask)).astype(jnp.int32)


def greedy(online_q: Array, target_q: Array, mask: Array | None = None) -> Choice:
    """DQN: the action that the target network itself prefers."""
    return Choice(best_action(target_q, mask)[None], jnp.ones(1))


def double(online_q: Array, target_q: Array, mask: Array | None = None) -> Choice:
    """Double DQN: the online network selects, the target network evaluates."""
    return Choice(best_action(online_q, mask)[None], jnp.ones(1))


def successor_guided(base: Rule, alpha: Array | float) -> GuidedRule:
    """SADQ: weight `alpha` on the base rule's choice, the rest on the action with the best rollout score.

    `alpha` is one number, traced or not, so under `vmap` it may differ by sample (a gate) or by member (a sweep).
    """
    if jnp.ndim(alpha) != 0:
        raise ValueError(f"alpha has shape {jnp.shape(alpha)}, expected one number: vmap over samples instead.")

    def rule(online_q: Array, target_q: Array, scores: Array, mask: Array | None = None) -> Choice:
        chosen = base(online_q, target_q, mask)
        preferred = best_action(scores, mask)
        return Choice(
            jnp.append(chosen.actions, preferred),
            jnp.append(alpha * chosen.weights, 1 - alpha),
        )

    return rule


RULES: dict[str, Rule] = {"greedy": greedy, "double": double}

"""Which next actions a TD target bootstraps from: Eq. (a_q) and (mixed_target), written as a weighted choice.

A bootstrap rule looks at the values of one next state s' and answers with a `Choice`: a few actions with weights
that sum to one. A base rule names one action; SADQ is a function of that choice, which adds the action that the model
prefers:

    guided: (a_base, alpha), (argmax_a score(a), 1 - alpha)

The target is then sum_k w_k Z'(s', a_k), whatever kind of return Z' is.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax.numpy as jnp

from sadq.registry import Axis
from sadq.types import Array, Mask

BOOTSTRAPS = Axis("bootstrap", "which next action a target is formed from", "__call__")


class Choice(NamedTuple):
    """K next actions and their weights, which sum to one."""

    actions: Array  # i32[K]
    weights: Array  # f32[K]

    @property
    def heaviest(self) -> Array:
        """The action with the largest weight: i32[]."""
        if self.actions.shape[-1] == 1:  # most rules' choice: an accelerator is spared a kernel
            return self.actions[..., 0]
        place = jnp.argmax(self.weights, axis=-1, keepdims=True)
        return jnp.take_along_axis(self.actions, place, axis=-1)[..., 0]


class Rule(Protocol):
    """A base rule, on the values f32[A] of both networks and the legal actions bool[A] (None: all)."""

    def __call__(self, online_q: Array, target_q: Array, mask: Mask = None) -> Choice: ...


def legal_values(values: Array, mask: Mask, otherwise: float = -jnp.inf) -> Array:
    """`values` f32[A] with `otherwise` in place of illegal ones, which so are compared but never multiplied.

    A mask without any legal action, as some environments give for a terminal state, counts as all legal.
    """
    return values if mask is None else jnp.where(mask | ~jnp.any(mask), values, otherwise)


def best_action(values: Array, mask: Mask = None) -> Array:
    """The first of the best legal actions: i32[]."""
    return jnp.argmax(legal_values(values, mask)).astype(jnp.int32)


def best_value(values: Array, mask: Mask = None) -> Array:
    """max_a values[a] over the legal actions: f32[]."""
    return jnp.max(legal_values(values, mask))


@BOOTSTRAPS.register("greedy")
@dataclass(frozen=True)
class Greedy:
    """DQN: the action that the target network itself prefers."""

    def __call__(self, online_q: Array, target_q: Array, mask: Mask = None) -> Choice:
        return Choice(best_action(target_q, mask)[None], jnp.ones(1))


@BOOTSTRAPS.register("double")
@dataclass(frozen=True)
class Double:
    """Double DQN: the online network selects, the target network evaluates."""

    def __call__(self, online_q: Array, target_q: Array, mask: Mask = None) -> Choice:
        return Choice(best_action(online_q, mask)[None], jnp.ones(1))


greedy, double = Greedy(), Double()


def guided(choice: Choice, scores: Array, alpha: Array | float, mask: Mask = None) -> Choice:
    """SADQ: weight `alpha` on the base rule's choice, the rest on the legal action with the best rollout score f32[A].

    `alpha` is one number, traced or not, so under `vmap` it may differ by sample (a gate) or by member (a sweep).
    """
    if jnp.ndim(alpha) != 0:
        raise ValueError(f"alpha has shape {jnp.shape(alpha)}, expected one number: vmap over samples instead.")
    return Choice(
        jnp.append(choice.actions, best_action(scores, mask)),
        jnp.append(alpha * choice.weights, 1 - alpha),
    )

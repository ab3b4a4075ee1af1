"""How the target of a batch is formed: the base rule's choice, or with SADQ its mix with the model's choice.

y = r + gamma^n (alpha Z'(s', a_base) + (1 - alpha) Z'(s', argmax_a score(a)))
"""

from collections.abc import Callable
from typing import NamedTuple

import jax

from sadq import keys
from sadq.core.bootstrap import RULES, successor_guided
from sadq.core.rollout import best_value
from sadq.learning.guidance import Guidance
from sadq.networks.value import ValueNetwork
from sadq.types import Array, Batch, Key, Metrics, PyTree, Transition


class Seen(NamedTuple):
    """What one value update learns from: the same transitions in their n-step and their one-step view."""

    batch: Batch
    transition: Transition
    terminal: Array  # bool[B]: nothing is bootstrapped beyond the one-step s'


class Targets(NamedTuple):
    """The backed-up returns of a batch, [B] on every leaf."""

    returns: PyTree
    bootstrap: Array  # f32[B]: what the choice at s' is expected to be worth
    diagnostics: Metrics  # f32[B] each


class Mix(NamedTuple):
    """What SADQ adds to a base rule; alpha and discount are the member's own numbers."""

    guidance: Guidance
    model: PyTree
    alpha: Array
    discount: Array


def level_keys(network: ValueNetwork, key: Key, count: int) -> Key | None:
    """A key per sample for a network that draws its quantile levels, else None: [count]."""
    return keys.range_of(key, 0, count) if network.draws_levels else None


def batch_targets(
    rule: str, online: ValueNetwork, target: ValueNetwork, mix: Mix | None, key: Key, noise_key: Key, seen: Seen
) -> Targets:
    """The targets of one network. `key` decides levels and rollouts, `noise_key` the noise in the networks' layers.

    Levels of the selection, of the target and of the rollouts are drawn apart; rollouts reuse the target's noise.
    """
    batch = seen.batch
    count = batch.reward.shape[0]
    target = target.with_noise(keys.purpose(noise_key, "target"))

    def means(network: ValueNetwork) -> Array:
        own = level_keys(network, keys.purpose(key, "select"), count)
        return jax.vmap(network.mean)(batch.next_observation, batch.next_mask, own)

    own = level_keys(target, keys.purpose(key, "target"), count)
    returns = jax.vmap(target)(batch.next_observation, batch.next_mask, own)
    target_q = means(target)
    # Dropped by the compiler where the rule does not look at it.
    online_q = means(online.with_noise(keys.purpose(noise_key, "select")))
    base = RULES[rule]
    if mix is None:
        choice = jax.vmap(base)(online_q, target_q, batch.next_mask)
    else:
        values = _keyless(target) if not target.draws_levels else target.mean
        alpha, scores = mix.guidance.alpha_and_scores(
            mix.model, values, target_q, seen.transition, seen.terminal, batch, mix.alpha, mix.discount, key
        )
        choice = jax.vmap(lambda weight, *rest: successor_guided(base, weight)(*rest))(
            alpha, online_q, target_q, scores, batch.next_mask
        )
    chosen = jax.vmap(lambda z, own_choice: z.under(own_choice))(returns, choice)
    worth = jax.vmap(lambda z: z.mean)(chosen)
    diagnostics: Metrics = {}
    if mix is not None:
        diagnostics = {
            "alpha": alpha,
            "disagreement": (choice.actions[:, 0] != choice.actions[:, -1]) * 1.0,
            "greedy_minus_mixed": jax.vmap(best_value)(target_q, batch.next_mask) - worth,
        }
    backed_up = jax.vmap(lambda z, reward, discount: z.backup(reward, discount))
    return Targets(backed_up(chosen, batch.reward, batch.discount), worth, diagnostics)


def _keyless(network: ValueNetwork) -> Callable[[Array, Array | None, Key], Array]:
    return lambda observation, mask, key: network.mean(observation, mask)

"""How the target of a batch is formed: the base rule's choice, or with SADQ its mix with the model's choice.

y = r + gamma^n (alpha Z'(s', a_base) + (1 - alpha) Z'(s', argmax_a score(a)))
"""

from collections.abc import Callable
from typing import NamedTuple

import jax

from sadq import keys
from sadq.core.bootstrap import Choice, Rule, best_value
from sadq.core.hearing import Record
from sadq.errors import SadqError
from sadq.learning.guidance import Advice, Guidance, Seen
from sadq.networks.network import Network
from sadq.registry import shown
from sadq.types import Array, Key, Mask, Metrics, PyTree


class Targets(NamedTuple):
    """The backed-up returns of a batch, [B] on every leaf."""

    returns: PyTree
    bootstrap: Array  # f32[B]: what the choice at s' is expected to be worth
    diagnostics: Metrics  # f32[B] each
    record: Record | None = None  # of what may earn the model a hearing, where it has to


class Rules(NamedTuple):
    """What decides which next actions count: the base rule, and with SADQ whose advice it takes."""

    base: Rule
    guidance: Guidance | None = None
    advice: Callable[[Network, Array], Advice] | None = None  # of a drawn target network and its values f32[B, A]


def batch_targets(rules: Rules, online: Network, target: Network, key: Key, noise_key: Key, seen: Seen) -> Targets:
    """The targets of one network. `key` decides levels and rollouts, `noise_key` the noise in the networks' layers.

    Levels of the selection, of the target and of the rollouts are drawn apart; rollouts reuse the target's noise.
    """
    batch = seen.batch
    count = batch.reward.shape[0]
    target = target.drawn(keys.purpose(noise_key, "target"))

    def means(network: Network) -> Array:
        level_keys = keys.range_of(keys.purpose(key, "select"), 0, count)
        return jax.vmap(lambda seen_by, *at: network.sampled(seen_by).mean(*at))(
            level_keys, batch.next_observation, batch.next_mask
        )

    level_keys = keys.range_of(keys.purpose(key, "target"), 0, count)
    returns = jax.vmap(lambda seen_by, *at: target.sampled(seen_by)(*at))(
        level_keys, batch.next_observation, batch.next_mask
    )
    target_q = means(target)
    # Dropped by the compiler where the rule does not look at it.
    online_q = means(online.drawn(keys.purpose(noise_key, "select")))
    choice = _chosen(rules.base, online_q, target_q, batch.next_mask)
    record = None
    if rules.guidance is not None and rules.advice is not None:
        choice, measured, record = rules.guidance.guide(choice, rules.advice(target, target_q), seen)
    chosen = jax.vmap(lambda z, one: z.under(one))(returns, choice)
    worth = jax.vmap(lambda z: z.mean)(chosen)
    diagnostics: Metrics = {}
    if rules.guidance is not None:
        diagnostics = {
            **measured,
            "greedy_minus_mixed": jax.vmap(best_value)(target_q, batch.next_mask) - worth,
        }
    backed_up = jax.vmap(lambda z, reward, discount: z.backup(reward, discount))
    return Targets(backed_up(chosen, batch.reward, batch.discount), worth, diagnostics, record)


def _chosen(base: Rule, online_q: Array, target_q: Array, mask: Mask) -> Choice:
    """What the base rule chooses at B states."""
    choice: PyTree = jax.vmap(base)(online_q, target_q, mask)
    shapes = [getattr(part, "shape", None) for part in choice] if isinstance(choice, Choice) else []
    if len({*shapes}) != 1 or len(shapes[0] or ()) != 2:
        expected = "expected a Choice of K actions i32[K] with weights f32[K]"
        raise SadqError(f"bootstrap {type(base).__name__} gave {shown(choice)}, {expected}: fix it.")
    return choice

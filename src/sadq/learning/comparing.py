"""What SADQ compares at states of one's choice, outside of training: values, rollout scores, and what they prefer."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sadq import keys
from sadq.core.rollout import Prediction
from sadq.dynamics.protocol import DynamicsModel
from sadq.exploration.situation import best_actions
from sadq.learning.guidance import Advice, Guidance
from sadq.learning.legal import Legal
from sadq.learning.state import Hyper
from sadq.networks.network import Network
from sadq.types import Array, Batch, Key, Mask, PyTree


class Compared(NamedTuple):
    """At B states: what the target network and the model say of every action."""

    values: Array  # f32[B, A]: Q'(s', a)
    scores: Array  # f32[B, A]: r + gamma max Q' one model step ahead
    greedy: Array  # i32[B]: a*, which the values prefer
    advised: Array  # i32[B]: what the scores prefer


class Comparison(NamedTuple):
    """Whose values and scores are compared."""

    guidance: Guidance
    target: Network  # one network, as it is: neither drawn nor sampled but for the levels of rollouts
    hyper: Hyper  # of one member
    legal: Legal
    key: Key  # of the rollouts; the same one gives the same draws for every model

    def __call__(self, model: DynamicsModel, observation: Array, inputs: PyTree = None) -> Compared:
        """At observations [B, ...]; a model that encodes something else than those is given its `inputs` [B]."""
        count = observation.shape[0]
        mask = owned_mask(self.legal, count)
        values = jax.vmap(self.target.mean)(observation, mask)
        advice = Advice(model, self.target, values, self.hyper.alpha, self.hyper.discount, self.legal, self.key)
        nothing: Any = None  # of what scores do not look at
        seen = observation if inputs is None else inputs
        batch = Batch(nothing, nothing, jnp.zeros(count), seen, nothing, next_mask=mask)
        scores = self.guidance.scores(advice, batch)
        return Compared(values, scores, best_actions(values, mask), best_actions(scores, mask))

    def predictions(self, model: DynamicsModel, observation: Array) -> Prediction:
        """What the model says follows each action, as scored: [B, A] on every leaf."""

        def of_one(seen: Array, rollout_key: Key) -> Prediction:
            context = model.encode(seen)
            actions = jnp.arange(self.guidance.action_count, dtype=jnp.int32)
            return jax.vmap(lambda action: model.step(context, action, jax.random.fold_in(rollout_key, action)))(
                actions
            )

        return jax.vmap(of_one)(observation, keys.range_of(keys.purpose(self.key, "rollout"), 0, observation.shape[0]))


def owned_mask(legal: Legal, count: int) -> Mask:
    """The actions that a member has, at `count` states of which nothing else is known."""
    owned = legal(None)
    return None if owned is None else jnp.broadcast_to(owned, (count, owned.shape[0]))

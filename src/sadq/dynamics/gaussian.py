"""The one-step model of vector states, Eq. (successor_state) and (m_loss): s' ~ N(mu, sigma^2), and the reward.

The paper's loss is the squared error of a *sample*: E|mu + sigma*eps - s'|^2 = |mu - s'|^2 + sigma^2, so sigma is
driven to zero and the model becomes deterministic. That is kept as the default; `loss="nll"` learns a real variance.
"""

from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from sadq import keys
from sadq.core.rollout import Prediction
from sadq.networks.layers import Linear
from sadq.types import Array, Key, Metrics, Transition

LOG_VARIANCE_RANGE = (-20.0, 2.0)

ModelLoss = Literal["sample", "nll"]
Rollout = Literal["sample", "mean"]


class GaussianModel(eqx.Module):
    """mu, log sigma^2 and reward heads on (s, onehot a); optionally the probability that the episode goes on.

    The first layer is stored as a state part and one row per action, so that `encode` does the state's share once for
    all actions of a rollout. States are divided by `state_scale` on the way in and multiplied by it on the way out.
    """

    state_layer: Linear
    action_rows: Array  # f32[A, H]
    layers: list[Linear]
    output: Linear  # mu, log sigma^2, reward side by side
    continuation: Linear | None
    state_scale: float = eqx.field(static=True)
    rollout: Rollout = eqx.field(static=True)
    loss_kind: ModelLoss = eqx.field(static=True)

    def __init__(
        self,
        observation_size: int,
        action_count: int,
        hidden: Sequence[int],
        key: Key,
        *,
        state_scale: float = 1.0,
        continuation: bool = False,
        rollout: Rollout = "sample",
        loss_kind: ModelLoss = "sample",
    ):
        # Drawn as one layer over [s, onehot a], then cut, so that both parts have the bound of the whole.
        first = Linear(observation_size + action_count, hidden[0], keys.purpose(key, "first"))
        self.state_layer = eqx.tree_at(lambda layer: layer.weight, first, first.weight[:observation_size])
        self.action_rows = first.weight[observation_size:]
        self.layers = [
            Linear(inputs, outputs, keys.at(keys.purpose(key, "layers"), index))
            for index, (inputs, outputs) in enumerate(zip(hidden[:-1], hidden[1:], strict=True))
        ]
        self.output = Linear(hidden[-1], 2 * observation_size + 1, keys.purpose(key, "output"))
        self.continuation = Linear(hidden[-1], 1, keys.purpose(key, "continuation")) if continuation else None
        self.state_scale, self.rollout, self.loss_kind = state_scale, rollout, loss_kind

    def encode(self, observation: Array) -> Array:
        """The context of one state: its share of the first layer, f32[H]."""
        return self.state_layer(observation / self.state_scale)

    def step(self, context: Array, action: Array, key: Key) -> Prediction:
        """What follows `action`, back in the observation's own units."""
        mean, deviation, reward, logit = self._outputs(context, action)
        noise = jax.random.normal(key, mean.shape) if self.rollout == "sample" else jnp.zeros_like(mean)
        successor = (mean + deviation * noise) * self.state_scale
        return Prediction(reward, successor, 1.0 if logit is None else jax.nn.sigmoid(logit))

    def loss(self, transition: Transition, key: Key) -> tuple[Array, Metrics]:
        """The loss of one one-step transition, with its parts."""
        mean, deviation, reward, logit = self._outputs(self.encode(transition.observation), transition.action)
        truth = transition.next_observation / self.state_scale
        if self.loss_kind == "nll":
            state_loss = jnp.mean(0.5 * jnp.square((truth - mean) / deviation) + jnp.log(deviation))
        else:
            sample = mean + deviation * jax.random.normal(key, mean.shape)
            state_loss = jnp.mean(jnp.square(sample - truth))
        reward_loss = jnp.square(reward - transition.reward)
        total = state_loss + reward_loss
        if logit is not None:
            total += optax.sigmoid_binary_cross_entropy(logit, 1.0 - transition.terminated)
        return total, {
            "model_state_loss": state_loss,
            "model_reward_loss": reward_loss,
            "model_sigma": jnp.mean(deviation),
        }

    def _outputs(self, context: Array, action: Array) -> tuple[Array, Array, Array, Array | None]:
        hidden = jax.nn.relu(context + self.action_rows[action])
        for layer in self.layers:
            hidden = jax.nn.relu(layer(hidden))
        output = self.output(hidden)
        size = (output.shape[0] - 1) // 2
        log_variance = jnp.clip(output[size : 2 * size], *LOG_VARIANCE_RANGE)
        logit = None if self.continuation is None else self.continuation(hidden)[0]
        return output[:size], jnp.exp(0.5 * log_variance), output[-1], logit

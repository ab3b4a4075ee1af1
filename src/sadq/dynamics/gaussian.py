"""The one-step model of vector states, Eq. (successor_state) and (m_loss): s' ~ N(mu, sigma^2), and the reward.

The paper's loss is the squared error of a *sample*: E|mu + sigma*eps - s'|^2 = |mu - s'|^2 + sigma^2, so sigma is
driven to zero and the model becomes deterministic. That is kept as the default; `loss="nll"` learns a real variance.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from sadq import keys
from sadq.core.rollout import Prediction
from sadq.dynamics.protocol import MODELS, ModelShape, Space
from sadq.networks.layers import Linear
from sadq.registry import layer_sizes, one_of, positive
from sadq.types import Array, Key, Metrics, Transition

LOG_VARIANCE_RANGE = (-20.0, 2.0)


@MODELS.register("gaussian")
@dataclass(frozen=True)
class Gaussian:
    """A normal successor state and an expected reward, from the state and the action."""

    full_byte: ClassVar[float] = 255.0

    hidden: tuple[int, ...] = (256, 256)
    """Sizes of the hidden layers."""
    state_scale: float = 1.0
    """States are divided by this for the model (the paper's State Norm)."""
    loss: Literal["sample", "nll"] = "sample"
    """Squared error of a sampled successor (the paper), or the Gaussian likelihood."""
    rollout: Literal["sample", "mean"] = "sample"
    """Whether a rollout samples the successor (the paper) or takes its mean."""
    continuation: bool = False
    """Also predict whether the episode goes on, and discount the score by it."""

    def __post_init__(self) -> None:
        layer_sizes(self, "hidden")
        positive(self, "state_scale")
        one_of(self, "loss", "sample", "nll")
        one_of(self, "rollout", "sample", "mean")

    def build(self, shape: ModelShape, key: Key) -> "GaussianModel":
        return GaussianModel(shape.observation, shape.actions, self, key)


class GaussianModel(eqx.Module):
    """mu, log sigma^2 and reward heads on (s, onehot a); optionally the probability that the episode goes on.

    The first layer is stored as a state part and one row per action, so that `encode` does the state's share once for
    all actions of a rollout. States are divided by `state_scale` on the way in and multiplied by it on the way out.
    """

    space: ClassVar[Space] = "observation"

    state_layer: Linear
    action_rows: Array  # f32[A, H]
    layers: list[Linear]
    output: Linear  # mu, log sigma^2, reward side by side
    continuation: Linear | None
    observation_shape: tuple[int, ...] = eqx.field(static=True)
    settings: Gaussian = eqx.field(static=True)

    def __init__(self, observation_shape: tuple[int, ...], action_count: int, settings: Gaussian, key: Key):
        size, hidden = math.prod(observation_shape), settings.hidden
        # Drawn as one layer over [s, onehot a], then cut, so that both parts have the bound of the whole.
        first = Linear(size + action_count, hidden[0], keys.purpose(key, "first"))
        self.state_layer = first.replaced(first.weight[:size], first.bias)
        self.action_rows = first.weight[size:]
        self.layers = [
            Linear(inputs, outputs, keys.at(keys.purpose(key, "layers"), index))
            for index, (inputs, outputs) in enumerate(zip(hidden[:-1], hidden[1:], strict=True))
        ]
        self.output = Linear(hidden[-1], 2 * size + 1, keys.purpose(key, "output"))
        ends = settings.continuation
        self.continuation = Linear(hidden[-1], 1, keys.purpose(key, "continuation")) if ends else None
        self.observation_shape, self.settings = observation_shape, settings

    def encode(self, observation: Array) -> Array:
        """The context of one state: its share of the first layer, f32[H]."""
        return self.state_layer(self._scaled(observation))

    def step(self, context: Array, action: Array, key: Key) -> Prediction:
        """What follows `action`, back in the observation's own units."""
        mean, deviation, reward, logit = self._outputs(context, action)
        noise = jax.random.normal(key, mean.shape) if self.settings.rollout == "sample" else jnp.zeros_like(mean)
        successor = (mean + deviation * noise) * self.settings.state_scale
        return Prediction(
            reward, successor.reshape(self.observation_shape), 1.0 if logit is None else jax.nn.sigmoid(logit)
        )

    def loss(self, transition: Transition, key: Key, features: Callable[[Array], Array]) -> tuple[Array, Metrics]:
        """The loss of one one-step transition, with its parts."""
        mean, deviation, reward, logit = self._outputs(self.encode(transition.observation), transition.action)
        truth = self._scaled(transition.next_observation)
        if self.settings.loss == "nll":
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

    def _scaled(self, observation: Array) -> Array:
        return observation.reshape(-1) / self.settings.state_scale

    def _outputs(self, context: Array, action: Array) -> tuple[Array, Array, Array, Array | None]:
        hidden = jax.nn.relu(context + self.action_rows[action])
        for layer in self.layers:
            hidden = jax.nn.relu(layer(hidden))
        output = self.output(hidden)
        size = (output.shape[0] - 1) // 2
        log_variance = jnp.clip(output[size : 2 * size], *LOG_VARIANCE_RANGE)
        logit = None if self.continuation is None else self.continuation(hidden)[0]
        return output[:size], jnp.exp(0.5 * log_variance), output[-1], logit

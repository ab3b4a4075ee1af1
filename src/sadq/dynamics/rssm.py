"""The one-step model of images, Eq. (latent_model) and (wm_loss): a latent z between (s, a) and the successor's frames.

    h = f(enc(x_s), e_a)      posterior z ~ q(z | h, enc(x_s'))      prior z ~ p(z | h)      r, x_s' from [h, z]

It learns from the posterior's z and predicts with the prior's. z is discrete: variables x classes (`core/latents.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from sadq import keys
from sadq.core import latents, two_hot
from sadq.core.rollout import Prediction
from sadq.dynamics.images import KERNELS, FrameDecoder, FrameEncoder, activation, check_frames
from sadq.dynamics.protocol import MODELS, ModelShape, Space
from sadq.errors import SadqError
from sadq.networks.layers import Linear
from sadq.networks.precision import Compute, in_precision
from sadq.registry import at_least, layer_sizes, not_negative, one_of, require, share
from sadq.types import Array, Key, Metrics, Transition


@MODELS.register("rssm")
@dataclass(frozen=True)
class RSSM:
    """The next frames, or the next features, and a distribution of the reward, through a discrete latent."""

    full_byte: ClassVar[float] = 1.0

    deterministic: int = 4096
    """Width of h, what is known of the successor from the state and the action."""
    variables: int = 32
    """Categorical variables of the latent z."""
    classes: int = 32
    """Classes of each of them."""
    hidden: int = 512
    """Width of the one hidden layer of prior, posterior and reward."""
    channels: tuple[int, ...] = (32, 64, 64)
    """Channels of the three convolutions that read the frames."""
    decoder: tuple[int, ...] = (48, 32, 16)
    """Channels of the image before each of its three enlargements."""
    unimix: float = 0.01
    """The share of the uniform distribution in every latent variable."""
    free_nats: float = 1.0
    """Posterior and prior are not drawn together where their divergence is below this."""
    reconstruction: float = 2.0
    """Weight of the squared error of the successor in the loss."""
    reward: float = 1.0
    """Weight of the cross-entropy of the reward in the loss."""
    dynamics: float = 1.0
    """Weight of the divergence by which the prior learns."""
    representation: float = 0.1
    """Weight of the divergence by which the posterior stays predictable."""
    space: Literal["observation", "embedding"] = "observation"
    """What is predicted: frames (the paper), or the features of the value network's encoder."""
    newest_frame: bool = False
    """Predict the newest frame only, and take the others from the state."""
    continuation: bool = False
    """Also predict whether the episode goes on, and discount the score by it."""

    def __post_init__(self) -> None:
        at_least(self, 1, "deterministic", "variables", "classes", "hidden")
        layer_sizes(self, "channels", "decoder")
        for setting in ("channels", "decoder"):
            require(self, len(getattr(self, setting)) == len(KERNELS), setting, f"must name {len(KERNELS)} layers")
        share(self, "unimix")
        not_negative(self, "free_nats", "reconstruction", "reward", "dynamics", "representation")
        one_of(self, "space", "observation", "embedding")
        frames = self.space == "observation"
        require(
            self, frames or not self.newest_frame, "newest_frame", "needs space observation: features have no frames"
        )

    def build(self, shape: ModelShape, key: Key) -> "RSSMModel":
        return RSSMModel(shape, self, key)


class Perceptron(eqx.Module):
    """One hidden layer."""

    hidden: Linear
    output: Linear

    def __init__(self, inputs: int, hidden: int, outputs: int, key: Key):
        self.hidden = Linear(inputs, hidden, keys.purpose(key, "hidden"))
        self.output = Linear(hidden, outputs, keys.purpose(key, "output"))

    def __call__(self, inputs: Array) -> Array:
        return self.output.precise(self.activations(inputs))

    def activations(self, inputs: Array) -> Array:
        return activation(self.hidden(inputs))


class Context(NamedTuple):
    """What all actions of a state share."""

    state: Array  # f32[H]: the state's part of h before the activation
    kept: Array | None  # f32[F - 1, ...]: the frames that are in the next stack too; None: all are predicted


class RSSMModel(eqx.Module):
    """The layer of h is stored as a state part and one row per action: `encode` does the state's share for all actions."""

    encoder: FrameEncoder
    state_layer: Linear
    action_rows: Array  # f32[A, H]
    prior: Perceptron
    posterior: Perceptron
    reward: Perceptron
    successor: FrameDecoder | Perceptron  # frames, or features
    continuation: Linear | None  # on the reward's hidden layer
    settings: RSSM = eqx.field(static=True)
    compute: Compute = eqx.field(static=True)

    def __init__(self, shape: ModelShape, settings: RSSM, key: Key):
        drawn = settings.space == "observation"
        check_frames(shape.observation, drawn)
        frames, height, width = shape.observation
        self.encoder = FrameEncoder(frames, settings.channels, keys.purpose(key, "encoder"))
        seen = self.encoder.features(height, width)
        known, latent = settings.deterministic, settings.variables * settings.classes
        # Drawn as one layer over [enc(x), onehot a], then cut, so that both parts have the bound of the whole.
        first = Linear(seen + shape.actions, known, keys.purpose(key, "first"))
        self.state_layer, self.action_rows = first.replaced(first.weight[:seen], first.bias), first.weight[seen:]

        def perceptron(name: str, inputs: int, outputs: int) -> Perceptron:
            return Perceptron(inputs, settings.hidden, outputs, keys.purpose(key, name))

        self.prior = perceptron("prior", known, latent)
        self.posterior = perceptron("posterior", known + seen, latent)
        # Zero logits decode to a reward of 0: an untrained head would else say numbers as large as its outer bins.
        reward = perceptron("reward", known + latent, two_hot.BIN_COUNT)
        self.reward = eqx.tree_at(lambda one: one.output, reward, jax.tree.map(jnp.zeros_like, reward.output))
        if drawn:
            frame_shape = (1 if settings.newest_frame else frames, height, width)
            self.successor = FrameDecoder(known + latent, frame_shape, settings.decoder, keys.purpose(key, "decoder"))
        else:
            if shape.features is None:
                raise SadqError("Model rssm with space embedding must be told how many features the encoder has.")
            self.successor = perceptron("features", known + latent, shape.features)
        ends = settings.continuation
        self.continuation = Linear(settings.hidden, 1, keys.purpose(key, "continuation")) if ends else None
        self.settings, self.compute = settings, shape.compute

    @property
    def space(self) -> Space:
        return "observation" if self.settings.space == "observation" else "features"

    def encode(self, observation: Array) -> Context:
        """The context of one state."""
        return in_precision(self, self.compute)._encode(observation)

    def _encode(self, observation: Array) -> Context:
        frames = _in_unit_range(observation)
        return Context(self.state_layer(self.encoder(frames)), frames[1:] if self.settings.newest_frame else None)

    def step(self, context: Context, action: Array, key: Key) -> Prediction:
        """What follows `action`, with z from the prior: frames in [0, 1], or features."""
        return in_precision(self, self.compute)._step(context, action, key)

    def _step(self, context: Context, action: Array, key: Key) -> Prediction:
        known = self._known(context.state, action)
        latent = self._latent(known, self._prior(known), key)
        successor = self.successor(latent)
        if self.space == "observation":
            successor = jnp.clip(successor, 0.0, 1.0)
        if context.kept is not None:
            successor = jnp.concatenate([context.kept, successor])
        hidden = self.reward.activations(latent)
        going_on = 1.0 if self.continuation is None else jax.nn.sigmoid(self.continuation.precise(hidden)[0])
        return Prediction(two_hot.decode(self.reward.output.precise(hidden)), successor, going_on)

    def loss(self, transition: Transition, key: Key, features: Callable[[Array], Array]) -> tuple[Array, Metrics]:
        """The loss of one one-step transition, with its parts; the divergence is given without its free nats."""
        return in_precision(self, self.compute)._loss(transition, key, features)

    def _loss(self, transition: Transition, key: Key, features: Callable[[Array], Array]) -> tuple[Array, Metrics]:
        own = self.settings
        known = self._known(self._encode(transition.observation).state, transition.action)
        after = _in_unit_range(transition.next_observation)
        prior, posterior = self._prior(known), self._posterior(known, after)
        latent = self._latent(known, posterior, key)
        if own.space == "embedding":
            truth = jax.lax.stop_gradient(features(transition.next_observation))
        else:
            truth = after[-1:] if own.newest_frame else after
        state_loss = jnp.mean(jnp.square(self.successor(latent) - truth))
        hidden = self.reward.activations(latent)
        reward_loss = two_hot.cross_entropy(self.reward.output.precise(hidden), transition.reward)
        divergence = latents.balanced_kl(posterior, prior, own.dynamics, own.representation, own.free_nats)
        total = own.reconstruction * state_loss + own.reward * reward_loss + divergence
        if self.continuation is not None:
            total += optax.sigmoid_binary_cross_entropy(
                self.continuation.precise(hidden)[0], 1.0 - transition.terminated
            )
        return total, {
            "model_state_loss": state_loss,
            "model_reward_loss": reward_loss,
            "model_kl": latents.divergence(posterior, prior),
        }

    def _known(self, state: Array, action: Array) -> Array:
        """h = f(enc(x_s), e_a)."""
        return activation(state + self.action_rows[action])

    def _prior(self, known: Array) -> Array:
        """p(z | h) as probabilities f32[V, C]."""
        return self._probabilities(self.prior(known))

    def _posterior(self, known: Array, after: Array) -> Array:
        """q(z | h, enc(x_s')) as probabilities f32[V, C]."""
        return self._probabilities(self.posterior(jnp.concatenate([known, self.encoder(after)])))

    def _probabilities(self, logits: Array) -> Array:
        own = self.settings
        return latents.mixed_probabilities(logits.reshape(own.variables, own.classes), own.unimix)

    def _latent(self, known: Array, probabilities: Array, key: Key) -> Array:
        """[h, z] with z drawn."""
        return jnp.concatenate([known, latents.straight_through_sample(probabilities, key).reshape(-1)])


def _in_unit_range(observation: Array) -> Array:
    """Frames as numbers in [0, 1]: bytes are 0 ... 255, anything else is taken as it is."""
    frames = observation.astype(jnp.float32)
    return frames / 255.0 if observation.dtype == jnp.uint8 else frames

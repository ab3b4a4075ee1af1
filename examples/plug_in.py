"""SADQ in a DQN of your own: a plain single-file agent, `sadq.core`, and the few lines marked `# SADQ`.

`python examples/plug_in.py` trains DQN on CartPole-v1; `--sadq` lets a model of its own guide the same agent's targets.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro

from sadq.core import Prediction, ScalarReturn, greedy, guided, rollout_scores

ENVIRONMENT, OBSERVATION_SIZE, ACTION_COUNT = "CartPole-v1", 4, 2
Layers = list[tuple[jax.Array, jax.Array]]


@dataclass(frozen=True)
class Settings:
    """Everything that can be set from the command line."""

    sadq: bool = False
    """Let a learned one-step model help to choose the action that a target bootstraps from."""
    alpha: float = 0.2
    """Weight of DQN's own choice in that target; at 1 the agent is DQN again, bit for bit."""
    steps: int = 20_000
    seed: int = 0
    discount: float = 0.99
    learning_rate: float = 5e-4
    batch_size: int = 64
    learning_starts: int = 500
    train_every: int = 2
    target_every: int = 250
    exploration_steps: int = 5_000
    exploration_end: float = 0.05
    report_every: int = 1_000


class Batch(NamedTuple):
    """Transitions along a first axis, or one transition under `jax.vmap`."""

    observation: jax.Array
    action: jax.Array
    reward: jax.Array
    next_observation: jax.Array
    terminated: jax.Array


class Networks(NamedTuple):
    """What is learned: the Q-network and, under SADQ, the model."""

    online: Layers
    model: Layers


def init_layers(key: jax.Array, *sizes: int) -> Layers:
    shapes = list(pairwise(sizes))
    keys = jax.random.split(key, len(shapes))
    return [(jax.random.normal(k, s) * (2 / s[0]) ** 0.5, jnp.zeros(s[1])) for k, s in zip(keys, shapes, strict=True)]


@jax.jit
def forward(layers: Layers, inputs: jax.Array) -> jax.Array:
    for weights, bias in layers[:-1]:
        inputs = jax.nn.relu(inputs @ weights + bias)
    weights, bias = layers[-1]
    return inputs @ weights + bias


def model_step(context: tuple[Layers, jax.Array], action: jax.Array, key: jax.Array) -> Prediction:  # SADQ
    """What the model expects of one action; the key is there for models that draw their prediction."""
    model, observation = context
    outputs = forward(model, jnp.concatenate([observation, jax.nn.one_hot(action, ACTION_COUNT)]))
    return Prediction(outputs[0], observation + outputs[2:], jax.nn.sigmoid(outputs[1]))


def model_loss(model: Layers, transition: Batch) -> jax.Array:  # SADQ
    predicted = model_step((model, transition.observation), transition.action, jax.random.key(0))
    return (
        jnp.square(predicted.reward - transition.reward)
        + jnp.square(predicted.continuation - (1 - transition.terminated))
        + jnp.sum(jnp.square(predicted.next_input - transition.next_observation))
    )


def td_loss(networks: Networks, target: Layers, transition: Batch, settings: Settings) -> jax.Array:
    """DQN's loss. The target needs no stop_gradient: its parameters are not learned, and the model only ranks."""
    next_values = ScalarReturn(forward(target, transition.next_observation))
    choice = greedy(next_values.mean, next_values.mean)
    if settings.sadq:  # SADQ
        scores = rollout_scores(
            step=model_step,
            value_of=lambda successor: forward(target, successor),
            context=(networks.model, transition.next_observation),
            action_count=ACTION_COUNT,
            key=jax.random.key(0),  # this model draws nothing
            discount=settings.discount,
        )
        choice = guided(choice, scores, settings.alpha)
    discount = settings.discount * (1 - transition.terminated)
    backed_up = next_values.under(choice).backup(transition.reward, discount)
    return ScalarReturn(forward(networks.online, transition.observation)).taken(transition.action).loss_to(backed_up)


def train(settings: Settings) -> None:
    """Act, remember, learn; print the mean return of the episodes that ended since the last line."""
    random = np.random.default_rng(settings.seed)
    online_key, model_key = jax.random.split(jax.random.key(settings.seed))
    target = online = init_layers(online_key, OBSERVATION_SIZE, 64, 64, ACTION_COUNT)
    networks = Networks(online, model=[])
    if settings.sadq:  # SADQ
        model = init_layers(model_key, OBSERVATION_SIZE + ACTION_COUNT, 64, 64, 2 + OBSERVATION_SIZE)
        networks = networks._replace(model=model)
    optimiser = optax.adam(settings.learning_rate)
    optimiser_state = optimiser.init(networks)

    def loss(networks: Networks, target: Layers, batch: Batch) -> jax.Array:
        total = jnp.mean(jax.vmap(lambda transition: td_loss(networks, target, transition, settings))(batch))
        if settings.sadq:  # SADQ
            total += jnp.mean(jax.vmap(lambda transition: model_loss(networks.model, transition))(batch))
        return total

    @jax.jit
    def update(
        networks: Networks, target: Layers, optimiser_state: optax.OptState, batch: Batch
    ) -> tuple[Networks, optax.OptState]:
        gradients = jax.grad(loss)(networks, target, batch)
        changes, optimiser_state = optimiser.update(gradients, optimiser_state)
        return jax.tree.map(jnp.add, networks, changes), optimiser_state

    observations = np.zeros((2, settings.steps, OBSERVATION_SIZE), np.float32)
    actions, (rewards, terminals) = np.zeros(settings.steps, np.int32), np.zeros((2, settings.steps), np.float32)
    replay = (observations[0], actions, rewards, observations[1], terminals)

    environment = gymnasium.make(ENVIRONMENT)
    observation, _ = environment.reset(seed=settings.seed)
    episode_return, finished = 0.0, []
    for step in range(settings.steps):
        exploration = max(settings.exploration_end, 1 - step / settings.exploration_steps)
        explore, action = random.random() < exploration, int(random.integers(ACTION_COUNT))
        if not explore:
            action = int(jnp.argmax(forward(networks.online, observation)))

        next_observation, reward, terminated, truncated, _ = environment.step(action)
        reward = float(reward)
        for column, value in zip(replay, (observation, action, reward, next_observation, terminated), strict=True):
            column[step] = value
        observation, episode_return = next_observation, episode_return + reward
        if terminated or truncated:
            finished.append(episode_return)
            (observation, _), episode_return = environment.reset(), 0.0

        if step >= settings.learning_starts and step % settings.train_every == 0:
            rows = random.integers(step + 1, size=settings.batch_size)
            batch = Batch(*(jnp.asarray(column[rows]) for column in replay))
            networks, optimiser_state = update(networks, target, optimiser_state, batch)
        if step % settings.target_every == 0:
            target = networks.online
        if (step + 1) % settings.report_every == 0 and finished:
            mean_return = np.mean(finished)
            print(f"step {step + 1:6d}   return {mean_return:6.1f}   {'#' * int(mean_return / 10)}", flush=True)
            finished.clear()


if __name__ == "__main__":
    train(tyro.cli(Settings, description="DQN on CartPole-v1, plain or with SADQ."))

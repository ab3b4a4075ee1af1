"""Learners that compile at once: values and models that are tables over a few states, and agents with any numbers."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sadq.core.bootstrap import Greedy
from sadq.core.returns import ScalarReturn
from sadq.core.rollout import Prediction
from sadq.experiment.build import hyper_of
from sadq.learning.guidance import Guidance, Seen
from sadq.learning.learner import Learner, TargetUpdate
from sadq.learning.optimiser import trainable
from sadq.learning.state import Hyper, LearnerState, Phase, Update
from sadq.networks import Head, Network
from sadq.replay import Ring, Uniform
from sadq.types import Batch, Transition
from tiny import KEY, config, learner_of, member, seen

# Tables


class Plain(eqx.Module):
    """An encoder that only scales: a state is its own features."""

    scale: float = eqx.field(static=True, default=1.0)

    def __call__(self, observation: jax.Array) -> jax.Array:
        return self.scale * observation


class TableHead(Head):
    """Q(s, a) of one-hot states."""

    table: jax.Array  # f32[S, A]

    def __call__(self, features: jax.Array, mask: jax.Array | None = None) -> ScalarReturn:
        return ScalarReturn(features @ self.table)


class TableModel(eqx.Module):
    """Rewards, successors and continuations of every state and action, by heart."""

    space: ClassVar[str] = "observation"

    rewards: jax.Array  # f32[S, A]
    successors: jax.Array  # f32[S, A, S]
    continuation: jax.Array  # f32[S, A]

    def encode(self, observation: jax.Array) -> jax.Array:
        return observation

    def step(self, context: jax.Array, action: jax.Array, key: jax.Array) -> Prediction:
        following = jnp.einsum("s,sz->z", context, self.successors[:, action])
        return Prediction(context @ self.rewards[:, action], following, context @ self.continuation[:, action])

    def loss(self, transition: Transition, key: jax.Array, features: Callable) -> tuple[jax.Array, dict]:
        guess = self.step(self.encode(transition.observation), transition.action, key)
        reward_loss = jnp.square(guess.reward - transition.reward)
        return reward_loss + jnp.sum(jnp.square(guess.next_input - transition.next_observation)), {
            "model_reward_loss": reward_loss
        }


def table_model(rewards: Any, successors: Any, continuation: Any = None, kind: type = TableModel) -> Any:
    """From tables [S, A] of rewards, of the numbers of successors, and of continuations (1)."""
    rewards = jnp.asarray(rewards, jnp.float32)
    going = jnp.ones(rewards.shape) if continuation is None else jnp.asarray(continuation, jnp.float32)
    return kind(rewards, jnp.eye(len(rewards))[jnp.asarray(successors)], going)


def stacked(tree: Any) -> Any:
    """With the ensemble axis, K = 1."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tree)


def table_network(table: Any, scale: float = 1.0, head: type = TableHead) -> Network:
    """One network, without the axis."""
    return Network(Plain(scale), head(jnp.asarray(table, jnp.float32)))


def table_learner(states: int, actions: int, **fields: Any) -> Learner:
    """Of two lanes and six rows, with collects of two steps and one update; `fields` of the learner or its ring."""
    of_ring = {
        name: fields.pop(name) for name in ("steps", "lanes", "has_masks", "time_limit_is_terminal") if name in fields
    }
    lanes = of_ring.pop("lanes", 2)
    store = Ring(6 * lanes, lanes, (states,), actions, **of_ring)
    replay = fields.pop("replay", Uniform())
    values: dict[str, Any] = {
        "make_network": lambda key: table_network(jax.random.normal(key, (states, actions))),
        "bootstrap": Greedy(),
        "environments": lanes,
        "collect_steps": 2,
        "batch_size": 4,
        "updates": 1,
        "total_steps": 100,
        "target_update": TargetUpdate(),
    }
    return Learner(store=store, sampler=replay.sampler(store), action_count=actions, **(values | fields))


def table_guidance(model: Any, actions: int, **fields: Any) -> Guidance:
    return Guidance(
        **({"make_model": lambda key: model, "action_count": actions, "batch_size": 4, "updates": 1} | fields)
    )


def state_of(online: Network, target: Network | None = None, model: Any = None) -> LearnerState:
    """Before the first update; networks without the axis."""
    networks = stacked(online)
    return LearnerState(
        trainable(networks, networks.movers()),
        networks if target is None else stacked(target),
        None if model is None else trainable(model),
    )


def numbers(**changes: float) -> Hyper:
    """A member's."""
    values = {"alpha": 1.0, "learning_rate": 0.1, "model_learning_rate": 0.1, "discount": 0.5}
    values |= {"epsilon_start": 0.0, "epsilon_end": 0.0, "epsilon_decay": 1.0} | changes
    return Hyper(jnp.uint32(3), **{name: jnp.float32(value) for name, value in values.items()})


def one_hot(states: int, *index: int) -> jax.Array:
    return jnp.eye(states)[jnp.array(index)]


def filled_ring(learner: Learner) -> Transition:
    """A table learner's six rows with random transitions, some of which end."""
    random, shape = np.random.default_rng(0), (6, learner.store.lanes)
    (count,) = learner.store.observation_shape
    states, following = jnp.eye(count)[random.integers(count, size=(2, *shape))]
    ends = jnp.asarray(random.random(shape) < 0.2)
    action = jnp.asarray(random.integers(learner.action_count, size=shape))
    collected = Transition(states, action, jnp.asarray(random.normal(size=shape)), following, ends, ~ends & False)
    return learner.store.add(learner.store.init(), jnp.int32(0), collected)


TWO_STATES = jnp.array([[0.0, 5.0, 1.0], [3.0, -1.0, 0.5]])
"""Values of three actions each."""


def three_ends(mask: Any = None, reward: Any = (1.0, 2.0, 4.0)) -> Seen:
    """Transitions of two states that end there, so that their targets are their rewards."""
    states, action, ends = one_hot(2, 0, 1, 0), jnp.array([0, 2, 0]), jnp.ones(3, bool)
    reward = jnp.array(reward)
    transition = Transition(states, action, reward, states, ends, ~ends, mask, mask)
    return Seen(Batch(states, action, reward, states, jnp.zeros(3), mask, mask), transition, ends)


# Whole agents


def ready(agent: str, **fields: Any) -> tuple[Learner, Hyper, LearnerState, Seen]:
    """(learner, its one member's numbers, a state with any numbers in its networks, a batch).

    As `tiny.prepared`, without drawing initial weights, which takes longer to compile than most of what is tested.
    """
    made = config(agent, discount=(0.9,), **fields)
    learner, hyper = learner_of(made), member(hyper_of(made), 0)
    shapes = jax.eval_shape(learner.init, hyper)
    online = filled(shapes.online.parameters, 1)
    model = None if shapes.model is None else trainable(filled(shapes.model.parameters, 3))
    state = LearnerState(trainable(online, online.movers()), filled(shapes.target, 2), model)
    if learner.refit is not None:
        # Both believe the same, and the target's weights are its mean.
        believed = state.target.head.posterior
        target = eqx.tree_at(lambda one: one.head.weights, state.target, believed.mean)
        believing = eqx.tree_at(lambda one: one.head.posterior, online, believed)
        state = state._replace(target=target, online=state.online._replace(parameters=believing))
    return learner, hyper, state, seen(learner)


def filled(shapes: Any, seed: int) -> Any:
    """Numbers of about the size of initial weights in the place of shapes."""
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(0.4 * random.normal(size=leaf.shape), leaf.dtype), shapes)


def phase_of(learner: Learner, hyper: Hyper, index: int = 0, **changes: Any) -> Phase:
    return learner.phase(hyper, jnp.int32(index))._replace(**changes)


def update_of(seen: Seen, weight: jax.Array | None = None, heard: jax.Array | None = None, key: Any = KEY) -> Update:
    """With every sample weighing the same, unless told."""
    return Update(key, seen, jnp.ones(seen.terminal.shape[0]) if weight is None else weight, heard)

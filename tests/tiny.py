"""Small fleets that compile in seconds, a world whose values are known, and ways to compare them."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.dynamics import Gaussian
from sadq.envs.base import Environment
from sadq.experiment.build import hyper_of, make_learner, make_loop, resolve
from sadq.experiment.config import Config, Epsilon, GuidanceSettings
from sadq.experiment.presets import preset
from sadq.exploration.situation import settled_values
from sadq.fleet.members import Loop, MemberState
from sadq.learning.guidance import Seen
from sadq.learning.learner import Learner
from sadq.learning.state import Hyper, LearnerState
from sadq.networks import Bayesian, Categorical, Dense, Fraction, Implicit, Quantile, Scalar
from sadq.types import Batch, Transition

COLLECT, UPDATES, CHUNK = 32, 10, 10
KEY = keys.member_key(9)
BATCH = 12


def config(agent: str, environment: str = "Acrobot-v1", **fields: Any) -> Config:
    """A tiny agent."""
    base = preset("default", agent)
    values: dict[str, Any] = {
        "environment": environment,
        "encoder": Dense((16, 16)),
        "collect": COLLECT,
        "updates_per_collect": UPDATES,
        "n_step": 1,
        "learning_rate": (1e-3,),
        "learning_rate_schedule": "constant",
        "soft_target_rate": 0.01,
        "batch_size": 16,
        "buffer_size": 2048,
        "steps": 4 * CHUNK * COLLECT,
        "evaluations": 100,
        "evaluation_episodes": 2,
        "model": Gaussian(hidden=(16, 16)),
        "gate": "fixed",
        "guidance": GuidanceSettings(batch_size=16),
        "adjusted": small_heads(),
    }
    return dataclasses.replace(base, **(values | fields))


def small_heads(support: tuple[float, float] | None = None, **bayesian: Any) -> tuple[Any, ...]:
    """Every head in a size that compiles fast."""
    inferred: dict[str, Any] = {"samples": 200, "chunk": 100, "refit_interval": 128, "resample_interval": 100}
    return (
        Scalar(huber=1.0),
        Categorical(atoms=11 if support is None else 21, support=support),
        Quantile(quantiles=8),
        Implicit(levels=4, cosines=8),
        Fraction(levels=4, cosines=8),
        Bayesian(**(inferred | {"huber": 1.0} | bayesian)),
    )


def loop_of(made: Config, environment: Environment | None = None) -> Loop:
    return make_loop(made, resolve(made.environment if environment is None else environment), CHUNK)


def advanced(loop: Loop, chunks: int) -> MemberState:
    """The fleet after some chunks of 100 updates each."""
    state = loop.start()
    for index in range(chunks):
        state, _ = loop.advance(state, index * CHUNK)
    return jax.tree.map(np.asarray, state)


def learner_of(made: Config) -> Learner:
    return make_learner(made, resolve(made.environment))


def member(state: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], state)


def difference(left: Any, right: Any) -> float:
    """The largest absolute difference between two trees of the same shape; 0 means bitwise equal."""
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    found = (
        0.0 if np.array_equal(a, b) else float(np.abs(np.asarray(a, float) - np.asarray(b, float)).max()) or 1e-300
        for a, b in pairs
    )
    return max(found, default=0.0)


def assert_close(left: Any, right: Any, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    """Two trees of the same shape, leaf by leaf."""
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def seen(learner: Learner) -> Seen:
    """Random transitions, every fourth of them terminal."""
    actions = learner.action_count
    observation, following = jax.random.normal(KEY, (2, BATCH, *learner.store.observation_shape))
    action = jnp.arange(BATCH) % actions
    reward = jnp.linspace(-1, 1, BATCH)
    terminated = jnp.arange(BATCH) % 4 == 0
    transition = Transition(observation, action, reward, following, terminated, jnp.zeros(BATCH, bool))
    discount = jnp.where(terminated, 0.0, 0.9)
    return Seen(Batch(observation, action, reward, following, discount), transition, terminated)


def prepared(agent: str, **fields: Any) -> tuple[Learner, Hyper, LearnerState, Seen]:
    """(learner, hyper of its one member, state with a target unlike the online network, a batch)."""
    made = config(agent, discount=(0.9,), **fields)
    learner = learner_of(made)
    hyper = member(hyper_of(made), 0)
    state = learner.init(hyper)
    other = learner.init(hyper._replace(seed=jnp.uint32(77)))
    state = state._replace(target=other.target)
    if learner.refit is not None:
        # The prior's mean is zero, at which every action would be worth the same.
        head = state.target.head
        mean = jax.random.normal(KEY, head.weights.shape)
        believed = head.posterior._replace(mean=mean)
        state = state._replace(target=state.target.with_head(eqx.tree_at(_inferred, head, (mean, believed))))
    return learner, hyper, state, seen(learner)


def _inferred(head: Any) -> Any:
    return head.weights, head.posterior


@dataclasses.dataclass(frozen=True)
class Corridor(Environment):
    """Five cells in a row with a reward of 1 for reaching the last; there is a wall on the left.

    Episodes begin anywhere, so that the reward is found by explorations that trust their values from the start.
    """

    name: str = "Corridor"
    observation_size: int = 5
    action_count: int = 2
    max_steps: int = 20

    def initial(self, key):
        return jax.random.randint(key, (), 0, 4)

    def transition(self, state, action, key):
        reached = jnp.maximum(state + jnp.where(action == 1, 1, -1), 0)
        return reached, (reached == 4) * 1.0, reached == 4

    def observe(self, state):
        return jax.nn.one_hot(state, 5)


@dataclasses.dataclass(frozen=True)
class MaskedCorridor(Corridor):
    """The same, where walking into the wall is illegal."""

    def legal(self, observation):
        return jnp.stack([observation[0] < 0.5, jnp.bool_(True)])


def assert_knows_the_corridor(networks: Any, atol: float = 0.06) -> None:
    """Q*(cell, right) = gamma^(3 - cell) with gamma = 0.9, and right is best everywhere; `networks` have the axis K."""
    values = np.asarray(settled_values(networks, jnp.eye(5)[:4], None))
    np.testing.assert_allclose(values[:, 1], 0.9 ** np.array([3, 2, 1, 0]), atol=atol)
    assert (values[:, 1] > values[:, 0]).all()


def corridor_config(agent: str, **fields: Any) -> Config:
    """An agent that learns the corridor in 1200 updates; with its own row's n."""
    # A target guided by an untrained model is too low, so the model learns as fast as the values.
    values: dict[str, Any] = {
        "discount": (0.9,),
        "learning_rate": (3e-3,),
        "encoder": Dense((32,)),
        "n_step": None,
        "model": Gaussian(hidden=(32,)),
        "guidance": GuidanceSettings(batch_size=64, learning_rate=1e-2, updates_per_collect=10),
        "adjusted": small_heads(support=(-0.5, 1.5), samples=400),
        # Returns over several steps are those of the behaviour, so values are known only where it hardly explores.
        "epsilon": Epsilon((1.0,), (0.01,), (1000.0,)),
    }
    return config(agent, "Corridor", **(values | fields))

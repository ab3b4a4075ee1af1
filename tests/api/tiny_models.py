"""Tiny agents from Python, and ways to compare them."""

import dataclasses

import jax
import numpy as np
import tiny_runs
from tiny_runs import TINY

from sadq import SADQ
from sadq.experiment.config import Epsilon

NAMED_APART = ("preset", "environment", "agent", "seeds", "alpha", "steps")
FIELDS = {field.name: getattr(TINY, field.name) for field in dataclasses.fields(TINY) if field.name not in NAMED_APART}
# A plain agent on one member, cheap to compile again and again; nothing in it depends on how long it will train.
PLAIN = FIELDS | {
    "replay": None,
    "n_step": None,
    "learning_rate_schedule": "constant",
    "evaluations": 4,
    "epsilon": Epsilon((0.5,), (0.5,), (1.0,)),
}
STATES = np.array([[0, 0, 0, 1, 1, 1], [1, 0, 0, 1, 1, 1], [0, 1, 0, 0, 0, 1], [1, 1, 1, 0, 0, 0]], np.float32)
MANY = np.random.default_rng(1).integers(0, 2, (256, 6)).astype(np.float32)


def tiny() -> SADQ:
    """The tiny run, learned in memory."""
    return SADQ("BitFlip-3", agent="dueling+sadq", alpha=0.2, seeds=2, **FIELDS).learn(TINY.steps)


def plain(env="BitFlip-3", **changes) -> SADQ:
    return SADQ(env, agent="dqn", **PLAIN | changes)


def networks_of(model: SADQ, member: int = 0):
    return jax.tree.map(lambda leaf: leaf[member], model._begun().state.learner.online.parameters)


def weights(model: SADQ) -> dict[str, np.ndarray]:
    return tiny_runs.checkpoint.named_leaves(model._begun().state)


def assert_same_state(left: SADQ, right: SADQ) -> None:
    mine, theirs = weights(left), weights(right)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        assert value.tobytes() == theirs[name].tobytes(), name

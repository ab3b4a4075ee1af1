"""Small fleets that compile in seconds, and ways to compare them."""

import dataclasses
from typing import Any

import jax
import numpy as np

from sadq.envs.base import Environment
from sadq.experiment.build import make_learner, make_loop, resolve
from sadq.experiment.config import Config, Model
from sadq.experiment.presets import preset
from sadq.fleet import Loop, MemberState

COLLECT, UPDATES, CHUNK = 32, 10, 10


def config(agent: str, environment: str = "Acrobot-v1", **fields: Any) -> Config:
    """A tiny agent; `model` takes only the fields that matter."""
    base = preset("default", agent)
    values: dict[str, Any] = {
        "environment": environment,
        "hidden": (16, 16),
        "collect": COLLECT,
        "updates_per_collect": UPDATES,
        "n_step": 1,
        "learning_rate_schedule": "constant",
        "batch_size": 16,
        "buffer_size": 2048,
        "steps": 4 * CHUNK * COLLECT,
        "evaluation_episodes": 2,
        "model": Model(hidden=(16, 16), batch_size=16),
    }
    return dataclasses.replace(base, **(values | fields))


def loop_of(made: Config, environment: Environment | None = None) -> Loop:
    return make_loop(made, resolve(made.environment if environment is None else environment), CHUNK)


def advanced(loop: Loop, chunks: int) -> MemberState:
    """The fleet after some chunks of 100 updates each."""
    state = loop.start()
    for index in range(chunks):
        state, _ = loop.advance(state, index * CHUNK)
    return jax.tree.map(np.asarray, state)


def learner_of(made: Config):
    return make_learner(made, resolve(made.environment))


def member(state: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], state)


def difference(left: Any, right: Any) -> float:
    """The largest absolute difference between two trees of the same shape; 0 means bitwise equal."""
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return max(
        0.0 if np.array_equal(a, b) else float(np.abs(np.asarray(a, float) - np.asarray(b, float)).max()) or 1e-300
        for a, b in pairs
    )

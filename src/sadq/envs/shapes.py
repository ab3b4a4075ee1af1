"""Whether a native environment's functions give what it says: shapes and types, found without running anything."""

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from sadq import keys
from sadq.envs import base
from sadq.envs.base import Environment
from sadq.envs.contract import one_line
from sadq.errors import SadqError
from sadq.types import Array, Key


def check_shapes(environment: Environment) -> None:
    """Refuse a native environment whose functions give other shapes or types than it says, before it is compiled."""
    shape, dtype, actors = environment.observation_shape, environment.observation_dtype, environment.actors
    if not isinstance(shape, tuple) or not shape or not all(_counts(size) for size in shape):
        _refuse(environment, f"has observation_shape = {shape!r}", "a tuple of whole numbers above 0")
    if not _counts(actors):
        _refuse(environment, f"has actors = {actors!r}", "a whole number above 0")
    by_actor = () if actors == 1 else (actors,)

    def episode(key: Key) -> tuple[Array, base.Step]:
        timed = base.reset(environment, key)
        action = jnp.zeros(by_actor, jnp.int32)
        return environment.observe(timed.state), base.step(environment, timed, action, key)[1]

    first, step = _shapes(environment, episode, keys.member_key(0))
    _compare(environment, "an observation", first, (*by_actor, *shape), dtype)
    _compare(environment, "a next observation", step.observation, (*by_actor, *shape), dtype)
    _compare(environment, "a reward", step.reward, by_actor, np.float32)
    _compare(environment, "terminated", step.terminated, (), np.bool_)
    if environment.has_masks:
        legal = _shapes(environment, environment.legal, jax.ShapeDtypeStruct(shape, dtype))
        if legal is None:
            _refuse(environment, "returns None from `legal`", f"{environment.action_count} booleans")
        _compare(environment, "legal actions", legal, (environment.action_count,), np.bool_)


def _shapes(environment: Environment, function: Any, argument: Any) -> Any:
    try:
        return jax.eval_shape(function, argument)
    except Exception as error:
        raise SadqError(f"environment {environment.name} cannot be compiled: {one_line(error)}") from error


def _compare(environment: Environment, what: str, found: Any, shape: tuple[int, ...], dtype: Any) -> None:
    if found.shape != shape:
        _refuse(environment, f"returns {what} of shape {found.shape}", str(shape))
    if found.dtype != dtype:
        _refuse(environment, f"returns {what} of type {found.dtype}", str(np.dtype(dtype)))


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _refuse(environment: Environment, found: str, expected: str) -> NoReturn:
    raise SadqError(f"environment {environment.name} {found}, expected {expected}: fix it.")

"""Makers of single environments from what a user has: an environment object, or many in a vector environment."""

import copy
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

from sadq.envs import contract
from sadq.errors import SadqError, SadqWarning


class Copies:
    """Copies of an environment with the attributes that it has now.

    Some environments, those that are Gymnasium's `EzPickle`, are copied, and sent to a process, by being made anew. What was
    changed in them since would be lost, so plain values that differ are carried over by name.
    """

    def __init__(self, environment: gymnasium.Env):
        made_anew = copy.deepcopy(environment)
        pairs = zip(_layers(environment), _layers(made_anew), strict=True)
        self._environment = environment
        self._changed = [_changes(vars(layer), vars(copied)) for layer, copied in pairs]
        made_anew.close()

    def __call__(self) -> gymnasium.Env:
        copied = copy.deepcopy(self._environment)
        for layer, changed in zip(_layers(copied), self._changed, strict=True):
            vars(layer).update(copy.deepcopy(changed))
        return copied


def copies_of(name: str, environment: gymnasium.Env) -> Callable[[], gymnasium.Env]:
    """What makes copies of an environment; where it cannot be copied, what makes it anew from its spec, which is said."""
    try:
        return Copies(environment)
    except Exception as error:
        reason = contract.one_line(error)
    if environment.spec is None:
        problem = "it has none"
    else:
        from_spec = functools.partial(gymnasium.make, environment.spec, disable_env_checker=True)
        try:
            contract.build(name, from_spec).close()
        except SadqError as error:
            problem = contract.one_line(error.__cause__ or error)
        else:
            warnings.warn(
                f"environment {name} cannot be copied ({reason}), so it is made anew from its Gymnasium spec, without what "
                "was changed in it since it was made: pass a function without arguments that makes one as you want it.",
                SadqWarning,
                stacklevel=2,
            )
            return from_spec
    raise SadqError(
        f"environment {name} can be copied neither through its Gymnasium spec ({problem}) nor by copy.deepcopy "
        f"({reason}): pass a function without arguments that makes one."
    )


class Alone(gymnasium.Env):
    """A vector environment of one, as that one."""

    def __init__(self, environments: gymnasium.vector.VectorEnv):
        self.environments = environments
        self.observation_space = environments.single_observation_space
        self.action_space = environments.single_action_space
        self.metadata, self.spec = environments.metadata, environments.spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observations, infos = self.environments.reset(seed=seed, options=options)
        return self._first(observations), _of_first(infos)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.environments.step(np.asarray(action)[None])
        info, seen = _of_first(infos), self._first(observations)
        # Some begin the next episode at once, and keep the last observation and what it came with beside.
        seen = info.get("final_obs", seen) if terminated[0] or truncated[0] else seen
        return seen, rewards[0], bool(terminated[0]), bool(truncated[0]), info | info.get("final_info", {})

    def close(self) -> None:
        self.environments.close()

    def _first(self, observations: Any) -> Any:
        return next(iter(gymnasium.vector.utils.iterate(self.environments.observation_space, observations)))


def single_maker(
    environments: gymnasium.vector.VectorEnv, factory: Callable[[], gymnasium.vector.VectorEnv] | None = None
) -> Callable[[], gymnasium.Env]:
    """What makes a single environment of a vector of them, which is closed; `factory` made it, and can make another."""
    makers: Any = getattr(environments, "env_fns", None)
    kind, count = type(environments).__name__, environments.num_envs
    try:
        environments.close()
    except Exception as error:
        raise SadqError(f"environment {kind} failed in close: {contract.one_line(error)}") from error
    if makers and not isinstance(environments, gymnasium.vector.VectorWrapper):
        return makers[0]
    if factory is not None and count == 1:
        return functools.partial(_made_alone, factory)
    raise SadqError(
        f"environment {kind} is a vector of {count} whose single environments cannot be had, expected gymnasium.make_vec's, "
        "a SyncVectorEnv or an AsyncVectorEnv: pass a function of num_envs that makes it, or one that makes a single "
        "environment; many are stepped here, in processes where that is faster."
    )


def takes_a_number(factory: Any) -> bool:
    """Whether a function makes a vector of as many environments as it is told by `num_envs`."""
    try:
        return "num_envs" in inspect.signature(factory).parameters
    except (TypeError, ValueError):  # what is no function, or one that tells nothing of itself
        return False


def _made_alone(factory: Callable[[], gymnasium.vector.VectorEnv]) -> gymnasium.Env:
    return Alone(factory())


def _of_first(infos: dict[str, Any]) -> dict[str, Any]:
    """The first environment's part of a vector's info."""
    own: dict[str, Any] = {}
    for name, value in infos.items():
        if isinstance(value, dict):
            own[name] = _of_first(value)
        elif not name.startswith("_") and len(value):
            own[name] = value[0]
    return own


def _layers(environment: gymnasium.Env) -> Iterator[Any]:
    """An environment's wrappers, and what is inside of them."""
    layer: Any = environment
    while isinstance(layer, gymnasium.Wrapper):
        yield layer
        layer = layer.env
    yield layer


def _changes(now: dict[str, Any], anew: dict[str, Any]) -> dict[str, Any]:
    """Plain values that are not the same in the copy."""
    return {
        name: copy.deepcopy(value)
        for name, value in now.items()
        if _is_plain(value) and not (name in anew and _is_same(value, anew[name]))
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | str | bytes | np.ndarray | np.generic)


def _is_same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.tobytes() == right.tobytes() and left.shape == right.shape
    return repr(left) == repr(right)

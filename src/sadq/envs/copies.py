"""Makers of single environments from what a user has: an environment object, or many in a vector environment."""

import contextlib
import copy
import functools
import inspect
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from sadq.envs import contract
from sadq.errors import SadqError, SadqWarning


class Copies:
    """Copies of an environment with the attributes that it has now.

    Some environments, those that are Gymnasium's `EzPickle`, are copied, and sent to a process, by being made anew. What was
    changed in them since would be lost, so whatever differs is carried over by name; `lost` are those that cannot be.
    """

    def __init__(self, name: str, environment: gymnasium.Env):
        made_anew = copy.deepcopy(environment)
        self._environment = environment
        itself = {id(layer): layer for layer in _layers(environment)}
        self._changed: list[dict[str, Any]] = []
        missing: list[tuple[Any, Any, str]] = []
        for layer, copied in zip(itself.values(), _layers(made_anew), strict=True):
            carried, left_out = _changes(layer, vars(copied), itself)
            self._changed.append(carried)
            missing += [(value, copied, name) for name, value in left_out.items()]
        if missing:
            with contextlib.suppress(Exception):  # which is told when it is described
                made_anew.reset(seed=0)
        # What a reset makes need not be carried over.
        self.lost = [
            name for value, copied, name in missing if not _is_same(value, vars(copied).get(name), dict(itself))
        ]
        contract.close(name, made_anew)

    def __call__(self) -> gymnasium.Env:
        copied = copy.deepcopy(self._environment)
        # What speaks of the environment speaks of the copy then.
        own = {id(layer): made for layer, made in zip(_layers(self._environment), _layers(copied), strict=True)}
        for layer, changed in zip(list(own.values()), self._changed, strict=True):
            vars(layer).update(copy.deepcopy(changed, own))
        return copied


def copies_of(name: str, environment: gymnasium.Env) -> Callable[[], gymnasium.Env]:
    """What makes copies of an environment; where it cannot be copied, what makes it anew from its spec, which is said."""
    try:
        copies = Copies(name, environment)
    except Exception as error:
        reason = contract.one_line(error)
    else:
        if copies.lost:
            warnings.warn(
                f"environment {name} is copied by being made anew, without what was changed in it under "
                f"{', '.join(copies.lost)}: pass a function without arguments that makes one as you want it.",
                SadqWarning,
                stacklevel=2,
            )
        return copies
    if environment.spec is None:
        problem = "it has none"
    else:
        from_spec = functools.partial(gymnasium.make, environment.spec, disable_env_checker=True)
        try:
            contract.close(name, contract.build(name, from_spec))
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
    contract.close(kind, environments)
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


def _changes(layer: Any, anew: dict[str, Any], itself: dict[int, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is not the same in the copy: copies of it by name, and by name what cannot be copied."""
    carried, left_out = dict[str, Any](), dict[str, Any]()
    for name, value in vars(layer).items():
        if not (isinstance(layer, gymnasium.utils.EzPickle) or _is_plain(value)):
            continue  # a true copy has it
        before = anew.get(name, getattr(type(layer), name, None))
        try:
            if _is_same(value, before, dict(itself)):
                continue
            if _reaches(value, itself):
                raise TypeError("all copies would act on the environment that they are copies of")
            cloudpickle.dumps(value)  # or no worker process could have it
            carried[name] = copy.deepcopy(value, dict(itself))
        except Exception:
            # What was nothing before is what an episode has made, such as a window: the next one makes its own.
            if before is not None and not (isinstance(before, list | tuple | dict | set) and not before):
                left_out[name] = value
    return carried, left_out


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | str | bytes | np.ndarray | np.generic)


def _reaches(value: Any, itself: dict[int, Any]) -> bool:
    """Whether a function, which no copy is made of, knows the environment itself, or a method of it."""
    function = getattr(value, "__func__", value)
    if not isinstance(function, types.FunctionType):
        return False
    known = inspect.getclosurevars(function)
    return any(
        id(getattr(one, "__self__", one)) in itself for one in [*known.nonlocals.values(), *known.globals.values()]
    )


def _is_same(left: Any, right: Any, met: dict[int, Any]) -> bool:
    """Whether two values are the same as far as can be looked into; what was `met` before is not looked into again."""
    if left is right or id(left) in met:
        return True
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray) and left.dtype != object:
        return left.dtype == right.dtype and left.tobytes() == right.tobytes() and left.shape == right.shape
    if isinstance(left, set | frozenset | type | types.ModuleType | types.CodeType | gymnasium.Space):
        return left == right
    if _is_plain(left) and not isinstance(left, tuple | list | dict):
        return repr(left) == repr(right)
    met[id(left)] = left  # kept, for another's id may be the same later
    inside, other = _inside(left), _inside(right)
    return len(inside) == len(other) and all(
        key in other and _is_same(value, other[key], met) for key, value in inside.items()
    )


def _inside(value: Any) -> dict[Any, Any]:
    """What a value is made of, by name or place; nothing for one that tells nothing, such as an engine's."""
    if isinstance(value, dict):
        return value
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return {"code": value.__code__, "defaults": (value.__defaults__, value.__kwdefaults__), "cells": cells}
    if isinstance(value, types.MethodType):
        return {"function": value.__func__, "self": value.__self__}
    if isinstance(value, functools.partial):
        return {"function": value.func, "arguments": value.args, "named": value.keywords}
    slots = [slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ())]
    held = {slot: getattr(value, slot) for slot in slots if isinstance(slot, str) and hasattr(value, slot)}
    return held | getattr(value, "__dict__", {})

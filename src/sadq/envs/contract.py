"""The contract of a host environment: what its spaces, `reset` and `step` must give, each breach told in a sentence."""

import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces

from sadq.errors import SadqError

MASK = "action_mask"


@dataclasses.dataclass(frozen=True)
class HostSpec:
    """A Gymnasium environment to be run on the host, as `describe` found it."""

    name: str
    maker: Callable[[], gymnasium.Env]
    """Makes a new, independent environment on each call."""
    observation_size: int
    action_count: int
    max_steps: int | None
    """Steps after which an episode is truncated; None where the environment does not say."""
    has_masks: bool
    """Whether `info["action_mask"]` names the legal actions after every reset and step."""
    action_start: int = 0
    """The environment's own number of our action 0."""
    deterministic: bool | None = None
    """False where Gymnasium's registration says so, else unknown: `HostEnvironments.restore` finds out."""


def one_line(error: BaseException) -> str:
    """An exception's type and text, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def build(name: str, maker: Callable[[], Any]) -> gymnasium.Env:
    """A new environment from `maker`."""
    try:
        environment = maker()
    except gymnasium.error.DependencyNotInstalled as error:
        if "box2d" in str(error).lower():
            raise SadqError(f"environment {name} needs Box2D, which is not installed: install sadq[box2d].") from error
        raise SadqError(f"environment {name} needs a package that is not installed: {one_line(error)}") from error
    except Exception as error:
        raise SadqError(f"environment {name} could not be made: {one_line(error)}") from error
    if not isinstance(environment, gymnasium.Env):
        raise SadqError(
            f"environment {name} was made as a {type(environment).__name__}, expected a gymnasium.Env: subclass it."
        )
    return environment


def describe(name: str, maker: Callable[[], Any]) -> HostSpec:
    """Make one environment, check its spaces and its first reset, and say what it is."""
    environment = build(name, maker)
    try:
        actions = environment.action_space
        if not isinstance(actions, spaces.Discrete):
            raise SadqError(
                f"environment {name} has action space {actions}, expected Discrete: "
                "wrap it so that its actions are numbered."
            )
        spec = HostSpec(
            name=name,
            maker=maker,
            observation_size=_vector_size(name, environment.observation_space),
            action_count=int(actions.n),
            max_steps=_time_limit(environment),
            has_masks=False,
            action_start=int(actions.start),
            deterministic=False if environment.spec is not None and environment.spec.nondeterministic else None,
        )
        observation, info = checked_reset(spec, call_reset(spec, environment, 0))
        finite(spec, "reset", observation[None])
        spec = dataclasses.replace(spec, has_masks=MASK in info)
        checked_mask(spec, "reset", info)
    finally:
        environment.close()
    return spec


def _vector_size(name: str, space: spaces.Space[Any]) -> int:
    if isinstance(space, spaces.Discrete):
        raise SadqError(
            f"environment {name} has observation space {space}, expected a vector: wrap it in "
            "gymnasium.wrappers.FlattenObservation, which makes it one-hot."
        )
    vector = isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete)
    if not vector or space.shape is None or len(space.shape) != 1 or space.shape[0] < 1:
        raise SadqError(
            f"environment {name} has observation space {space}, expected a vector (a Box, MultiBinary or MultiDiscrete "
            "of one dimension): wrap it in gymnasium.wrappers.FlattenObservation."
        )
    return int(space.shape[0])


def _time_limit(environment: gymnasium.Env) -> int | None:
    layer: Any = environment
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.wrappers.TimeLimit):
            return int(layer._max_episode_steps)
        layer = layer.env
    return None


def call_reset(spec: HostSpec, environment: gymnasium.Env, seed: int) -> Any:
    """`environment.reset(seed=seed)`, its failures named."""
    try:
        return environment.reset(seed=seed)
    except Exception as error:
        raise SadqError(f"environment {spec.name} failed in reset: {one_line(error)}") from error


def call_step(spec: HostSpec, environment: gymnasium.Env, action: int) -> Any:
    """`environment.step(action)`, its failures named."""
    try:
        return environment.step(action)
    except Exception as error:
        raise SadqError(f"environment {spec.name} failed in step: {one_line(error)}") from error


def checked_reset(spec: HostSpec, result: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """(observation [D], info) of what `reset` returned; whether it is finite is for `finite` to say, of a batch."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        raise SadqError(
            f"environment {spec.name} returned {_shown(result)} from reset, expected (observation, info): "
            "follow the Gymnasium API."
        )
    return _vector(spec, "reset", result[0]), result[1]


def checked_step(spec: HostSpec, result: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
    """(observation [D], reward, terminated, truncated, info) of what `step` returned; `finite` checks the numbers."""
    if not isinstance(result, tuple) or len(result) != 5 or not isinstance(result[4], dict):
        raise SadqError(
            f"environment {spec.name} returned {_shown(result)} from step, expected "
            "(observation, reward, terminated, truncated, info): follow the Gymnasium API."
        )
    observation, reward, terminated, truncated, info = result
    return (
        _vector(spec, "step", observation),
        reward if type(reward) is float else _number(spec, reward),
        terminated if type(terminated) is bool else _flag(spec, "terminated", terminated),
        truncated if type(truncated) is bool else _flag(spec, "truncated", truncated),
        info,
    )


def checked_mask(spec: HostSpec, call: str, info: dict[str, Any], final: bool = False) -> np.ndarray | None:
    """The legal actions bool[A] that `info` names; all of them in a `final` state that names none."""
    value = info.get(MASK)
    if value is None:
        if spec.has_masks:
            _refuse(spec, call, f"no info['{MASK}']", "one always, since its first reset gave one")
        return None
    if not spec.has_masks:
        _refuse(spec, call, f"an info['{MASK}']", "none ever, since its first reset gave none")
    mask = np.asarray(value)
    if mask.shape != (spec.action_count,) or mask.dtype.kind not in "biu":
        _refuse(spec, call, f"an {MASK} {_shown(value)}", f"{spec.action_count} booleans")
    mask = mask.astype(bool)
    if not mask.any():
        if not final:
            _refuse(spec, call, f"an {MASK} without any legal action", "at least one legal action until it terminates")
        # What follows a final state never counts, but a maximum over no action at all would be -inf, then NaN.
        mask = np.ones_like(mask)
    return mask


def finite(spec: HostSpec, call: str, observations: np.ndarray, rewards: np.ndarray | None = None) -> np.ndarray:
    """A batch of observations [n, D] as float32, refused where it or `rewards` [n] hold NaN or infinity."""
    with np.errstate(over="ignore"):
        result = observations.astype(np.float32)
    if not np.isfinite(result).all():
        bad = observations[~np.isfinite(result).all(axis=1)][0]
        _refuse(spec, call, f"the observation {_shown(bad)}", "numbers finite in float32")
    if rewards is not None and not np.isfinite(rewards).all():
        _refuse(spec, call, f"the reward {rewards[~np.isfinite(rewards)][0]}", "a number finite in float32")
    return result


def _vector(spec: HostSpec, call: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "fbiu":
        _refuse(spec, call, f"the observation {_shown(value)}", f"an array of {spec.observation_size} numbers")
    if array.shape != (spec.observation_size,):
        _refuse(spec, call, f"an observation of shape {array.shape}", f"shape ({spec.observation_size},)")
    return array


def _number(spec: HostSpec, value: Any) -> float:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "fbiu":
        _refuse(spec, "step", f"the reward {_shown(value)}", "one number")
    return float(array.item())


def _flag(spec: HostSpec, which: str, value: Any) -> bool:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biu" or array.item() not in (0, 1):
        _refuse(spec, "step", f"{which} = {_shown(value)}", "True or False")
    return bool(array.item())


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} ({', '.join(type(part).__name__ for part in value)})"
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:100]}..."


def _refuse(spec: HostSpec, call: str, returned: str, expected: str) -> NoReturn:
    raise SadqError(
        f"environment {spec.name} returned {returned} from {call}, expected {expected}: fix the environment."
    )

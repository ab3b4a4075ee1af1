"""The contract of a host environment: what its spaces, `reset` and `step` must give, each breach told in a sentence."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import gymnasium
import numpy as np

from sadq.envs import forms
from sadq.envs.forms import Form
from sadq.errors import SadqError, SadqWarning

MASK = "action_mask"


@dataclasses.dataclass(frozen=True)
class HostSpec:
    """A Gymnasium environment to be run on the host, as `describe` found it."""

    name: str
    maker: Callable[[], gymnasium.Env]
    """Makes a new, independent environment on each call."""
    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype[Any]
    """uint8 where the environment's space is, else float32, which every other type of number becomes."""
    action_count: int
    max_steps: int | None
    """Steps after which an episode is truncated; None where the environment does not say."""
    has_masks: bool
    """Whether `info["action_mask"]`, or `action_masks()`, names the legal actions after every reset and step."""
    action_start: int = 0
    """The environment's own number of our action 0."""
    deterministic: bool | None = None
    """False where Gymnasium's registration says so, else unknown: `HostEnvironments.restore` finds out."""
    observation_form: Form | None = None
    """The form in which observations come, where it is not that of an array that is taken as it is."""
    action_form: Form | None = None
    """The form that actions take, where it is not that of one number."""
    mask_method: bool = False
    """Whether the legal actions are what `action_masks()` says, rather than `info`."""
    measures: tuple[str, ...] = ()
    """What `info` holds at the end of an episode that evaluations are to tell."""


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


def close(name: str, environment: Any) -> None:
    """Close an environment; a failure is said and ends nothing, for what was asked of the environment is done."""
    try:
        environment.close()
    except Exception as error:
        warnings.warn(f"environment {name} failed in close: {one_line(error)}", SadqWarning, stacklevel=1)


def describe(name: str, maker: Callable[[], Any]) -> HostSpec:
    """Make one environment, check its spaces and its first reset, and say what it is."""
    environment = build(name, maker)
    try:
        try:
            taken, shown = environment.action_space, environment.observation_space
        except Exception as error:
            problem = f"environment {name} does not tell its spaces ({one_line(error)})"
            raise SadqError(f"{problem}: set observation_space and action_space.") from error
        actions, seen = forms.action_form(name, taken), forms.observation_form(name, shown)
        whole = seen.kind == forms.ARRAY and bool(seen.shape)
        bytes_ = whole and shown.dtype == np.uint8
        spec = HostSpec(
            name=name,
            maker=maker,
            observation_shape=seen.shape if whole else (seen.size,),
            observation_dtype=np.dtype(np.uint8 if bytes_ else np.float32),
            action_count=math.prod(actions.counts),
            max_steps=_time_limit(environment),
            has_masks=False,
            action_start=0 if actions.shape else actions.starts[0],
            deterministic=False if environment.spec is not None and environment.spec.nondeterministic else None,
            observation_form=None if whole else seen,
            action_form=actions if actions.shape else None,
        )
        observation, info = checked_reset(spec, call_reset(spec, environment, 0))
        finite(spec, "reset", rows(spec, 1, observation))
        method = MASK not in info and callable(_mask_method(environment))
        spec = dataclasses.replace(spec, has_masks=method or MASK in info, mask_method=method)
        checked_mask(spec, environment, "reset", info)
    finally:
        close(name, environment)
    return spec


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
    """`environment.step` of our action by its number, in the environment's own form; its failures named."""
    form = spec.action_form
    try:
        return environment.step(action + spec.action_start if form is None else forms.action_of(form, action))
    except Exception as error:
        raise SadqError(f"environment {spec.name} failed in step: {one_line(error)}") from error


def checked_reset(spec: HostSpec, result: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """(observation, info) of what `reset` returned; whether it is finite is for `finite` to say, of a batch."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        raise SadqError(
            f"environment {spec.name} returned {_shown(result)} from reset, expected (observation, info): "
            "follow the Gymnasium API."
        )
    return _array(spec, "reset", result[0]), result[1]


def checked_step(spec: HostSpec, result: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
    """(observation, reward, terminated, truncated, info) of what `step` returned; `finite` checks the numbers."""
    if not isinstance(result, tuple) or len(result) != 5 or not isinstance(result[4], dict):
        raise SadqError(
            f"environment {spec.name} returned {_shown(result)} from step, expected "
            "(observation, reward, terminated, truncated, info): follow the Gymnasium API."
        )
    observation, reward, terminated, truncated, info = result
    return (
        _array(spec, "step", observation),
        float(reward) if isinstance(reward, float) else _number(spec, reward),  # NumPy's are floats, too
        terminated if type(terminated) is bool else _flag(spec, "terminated", terminated),
        truncated if type(truncated) is bool else _flag(spec, "truncated", truncated),
        info,
    )


def checked_mask(
    spec: HostSpec, environment: gymnasium.Env, call: str, info: dict[str, Any], final: bool = False
) -> np.ndarray | None:
    """The legal actions bool[A] that the environment names; all of them in a `final` state that names none."""
    if spec.mask_method:
        if final:
            return np.ones(spec.action_count, bool)  # a finished environment need not answer
        value, told = _called_masks(spec, environment, call), "action_masks()"
    else:
        value, told = info.get(MASK), MASK
    if value is None:
        if spec.has_masks:
            _refuse(spec, call, f"no info['{MASK}']", "one always, since its first reset gave one")
        return None
    if not spec.has_masks:
        _refuse(spec, call, f"an info['{MASK}']", "none ever, since its first reset gave none")
    try:
        mask = forms.numbers_of(value if spec.action_form is None else forms.joint_legal(spec.action_form, value))
    except forms.Misfit as misfit:
        _refuse(spec, call, f"an {told} of {misfit.found}", misfit.expected)
    if mask is None or mask.shape != (spec.action_count,) or mask.dtype.kind not in "biu":
        _refuse(spec, call, f"an {told} {_shown(value)}", f"{spec.action_count} booleans")
    mask = mask.astype(bool)
    if not mask.any():
        if not final:
            _refuse(spec, call, f"an {told} without any legal action", "at least one legal action until it terminates")
        # What follows a final state never counts, but a maximum over no action at all would be -inf, then NaN.
        mask = np.ones_like(mask)
    return mask


def _mask_method(environment: gymnasium.Env) -> Any:
    """The environment's `action_masks`, as Stable-Baselines3's contributions call it, or None."""
    return environment.get_wrapper_attr("action_masks") if environment.has_wrapper_attr("action_masks") else None


def _called_masks(spec: HostSpec, environment: gymnasium.Env, call: str) -> Any:
    try:
        return _mask_method(environment)()
    except Exception as error:
        raise SadqError(f"environment {spec.name} failed in action_masks after {call}: {one_line(error)}") from error


def measured(spec: HostSpec, info: dict[str, Any]) -> list[float]:
    """What the last `info` of an episode says under the names of `measures`."""
    values = []
    for name in spec.measures:
        inner = info.get("measures")
        value = info.get(name, inner.get(name) if isinstance(inner, dict) else None)
        number = np.asarray(np.nan if value is None else value)
        if value is None or number.size != 1 or number.dtype.kind not in "fbiu":
            found = f"no info[{name!r}]" if value is None else f"info[{name!r}] = {_shown(value)}"
            _refuse(spec, "the last step of an episode", found, "a number, since measures names it")
        values.append(float(number.item()))
    return values


def rows(spec: HostSpec, count: int, fill: Any = 0) -> np.ndarray:
    """Room for observations [count, *observation_shape], all of them `fill`, to be passed through `finite` when full.

    In double precision, for `finite` turns an overflow into a refusal rather than a warning; uint8 needs neither.
    """
    dtype = spec.observation_dtype if spec.observation_dtype == np.uint8 else np.float64
    return np.full((count, *spec.observation_shape), fill, dtype)


def finite(spec: HostSpec, call: str, observations: np.ndarray, rewards: np.ndarray | None = None) -> np.ndarray:
    """A batch of observations in their type, refused where it or `rewards` [n] hold NaN or infinity."""
    result = observations
    if observations.dtype != spec.observation_dtype:
        with np.errstate(over="ignore"):
            result = observations.astype(spec.observation_dtype)
        good = np.isfinite(result)
        if not good.all():
            bad = observations[~good.all(axis=tuple(range(1, good.ndim)))][0]
            # Of a picture only its corners would be shown.
            found = (
                f"the observation {_shown(bad)}" if bad.ndim == 1 else f"an observation with {observations[~good][0]}"
            )
            _refuse(spec, call, found, "numbers finite in float32")
    if rewards is not None and not np.isfinite(rewards).all():
        _refuse(spec, call, f"the reward {rewards[~np.isfinite(rewards)][0]}", "a number finite in float32")
    return result


def _array(spec: HostSpec, call: str, value: Any) -> np.ndarray:
    if spec.observation_form is not None:
        try:
            flat, single = forms.flattened(spec.observation_form, value)
        except forms.Misfit as misfit:
            _refuse(spec, call, f"an observation with {misfit.found}", misfit.expected)
        if not single:
            _refuse(spec, call, "a batch of observations", "one")
        return flat[0]
    array = forms.numbers_of(value)
    if array is None:
        numbers = " x ".join(map(str, spec.observation_shape))
        _refuse(spec, call, f"the observation {_shown(value)}", f"an array of {numbers} numbers")
    if array.shape != spec.observation_shape:
        _refuse(spec, call, f"an observation of shape {array.shape}", f"shape {spec.observation_shape}")
    if spec.observation_dtype == np.uint8:
        try:
            return forms.cast(array, np.uint8)
        except forms.Misfit as misfit:
            _refuse(spec, call, f"an observation with {misfit.found}", misfit.expected)
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

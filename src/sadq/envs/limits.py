"""What a run adds to an environment: a limit of its episodes, and names of what evaluations are to tell of them."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import gymnasium

from sadq.envs.atari.spec import AtariSpec
from sadq.envs.base import Environment
from sadq.envs.contract import HostSpec
from sadq.errors import SadqError


def limited(environment: Environment | HostSpec, steps: int) -> Environment | HostSpec:
    """The environment with episodes of at most so many steps; one that Gymnasium made forgets the limit that it had."""
    name = environment.name
    if isinstance(environment, AtariSpec):
        raise SadqError(
            f"{name} counts its limit in frames, and got max_episode_steps = {steps}: set max_frames instead."
        )
    if isinstance(environment, Environment):
        fields = [field.name for field in dataclasses.fields(environment) if field.init]  # type: ignore[arg-type]
        if "max_steps" not in fields:
            raise SadqError(
                f"environment {name} has episodes of {environment.max_steps} steps by its own rules, and got "
                f"max_episode_steps = {steps}: leave that out."
            )
        return dataclasses.replace(environment, max_steps=steps)  # type: ignore[type-var]
    maker = environment.maker
    if isinstance(maker, functools.partial) and maker.func is gymnasium.make:
        replaced = functools.partial(maker, max_episode_steps=steps)
        return dataclasses.replace(environment, maker=replaced, max_steps=steps)
    least = steps if environment.max_steps is None else min(steps, environment.max_steps)
    return dataclasses.replace(environment, maker=functools.partial(_cut_off, maker, steps), max_steps=least)


def _cut_off(maker: Callable[[], gymnasium.Env], steps: int) -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(maker(), steps)


def without_limit(environment: Environment | HostSpec) -> str | None:
    """That episodes of an environment may never end, where nothing says that they do."""
    if isinstance(environment, Environment) or environment.max_steps is not None:
        return None
    return (
        f"environment {environment.name} names no time limit: an episode that it does not end itself never ends, "
        "and an evaluation of such episodes is broken off with an error; max_episode_steps sets a limit."
    )


def rendering(environment: HostSpec) -> HostSpec:
    """The environment made so that it renders pictures, where it is Gymnasium that makes it; else as it is made."""
    maker = environment.maker
    if isinstance(maker, functools.partial) and maker.func is gymnasium.make:
        return dataclasses.replace(environment, maker=functools.partial(maker, render_mode="rgb_array"))
    if isinstance(maker, functools.partial) and maker.func is _cut_off:
        inner, steps = maker.args
        inside = rendering(dataclasses.replace(environment, maker=inner))
        return dataclasses.replace(environment, maker=functools.partial(_cut_off, inside.maker, steps))
    return environment


def measuring(environment: Environment | HostSpec, names: Sequence[str]) -> Environment | HostSpec:
    """The environment, whose evaluations tell what `info` holds under these names."""
    if isinstance(environment, Environment | AtariSpec):
        raise SadqError(
            f"environment {environment.name} has measures of its own, which evaluations tell always, and got measures = "
            f"{', '.join(names)}: leave them out, for they name what a Gymnasium environment says in its info."
        )
    if len(set(names)) < len(names) or not all(names):
        raise SadqError(f"measures = {', '.join(names)} must name entries of info, each once.")
    return dataclasses.replace(environment, measures=tuple(names))

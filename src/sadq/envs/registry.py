"""From what a user calls an environment, a name or an object, to the environment itself."""

import difflib
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import gymnasium

from sadq.envs import contract
from sadq.envs.atari import spec as atari
from sadq.envs.atari.spec import AtariSpec
from sadq.envs.base import Environment
from sadq.envs.contract import HostSpec
from sadq.envs.copies import Alone, copies_of, single_maker, takes_a_number
from sadq.envs.native import Acrobot, BitFlip, CartPole
from sadq.errors import SadqError

HOST_PREFIX = "gymnasium:"


def _ocloud(**settings: Any) -> Any:
    from sadq.envs.ocloud import make as make_ocloud

    return make_ocloud(**settings)


def _cityflow(**settings: Any) -> Any:
    from sadq.envs.cityflow.environment import make as make_cityflow

    return make_cityflow(**settings)


def _cityflow_grid(**settings: Any) -> Any:
    from sadq.envs.cityflow.intersections import make as make_grid

    return make_grid(**settings)


_FACTORIES: dict[str, Callable[..., Any]] = {
    "Acrobot-v1": Acrobot,
    "BitFlip": BitFlip,
    "CartPole-v0": functools.partial(CartPole, max_steps=200),
    "CartPole-v1": functools.partial(CartPole, max_steps=500),
    "CityFlow": _cityflow,
    "CityFlowGrid": _cityflow_grid,
    "OCloud": _ocloud,
}


def register(name: str, factory: Callable[[], Any], replace: bool = False) -> None:
    """Let `make(name)` give what `factory` makes: a native Environment or a gymnasium.Env, a new one on each call."""
    if not isinstance(name, str) or not name or name.startswith(HOST_PREFIX):
        raise SadqError(f"environment name {name!r} cannot be registered, expected a plain name: choose another one.")
    if not callable(factory):
        raise SadqError(f"environment {name} was registered with {factory!r}, expected a function without arguments.")
    if name in _FACTORIES and not replace:
        raise SadqError(f"environment {name} is registered already, expected a new name: choose one, or replace=True.")
    _FACTORIES[name] = factory


def list_environments(host: bool = False) -> list[str]:
    """The registered names, with `host` also those that run outside JAX: the Atari games, and Gymnasium's ids.

    Of these the ones with arrays to see and discrete actions work. BitFlip also goes by "BitFlip-N", for instance
    "BitFlip-5", and several Atari games together by, for instance, "atari/Breakout,Pong".
    """
    outside = [*atari.names(), *sorted(gymnasium.registry)] if host else []
    return sorted(_FACTORIES) + [name for name in outside if name not in _FACTORIES]


def make(environment: Any, host: bool = False, settings: Mapping[str, Any] | None = None) -> Environment | HostSpec:
    """The environment that a name or an object stands for: a native one, or what is needed to run it on the host.

    A name is looked up among the registered ones, then among Gymnasium's ids; `host=True`, or "gymnasium:" before the
    id, goes straight to Gymnasium, and "atari/" to ALE. An object may be an Environment or a spec, returned as it is, a
    gymnasium.Env, of which copies are made, a vector of such, of which the first one's maker is taken, or a function
    without arguments that makes any of these. `settings` are what
    a named one is made with: fields of a native environment or of `AtariSpec`, or arguments of `gymnasium.make`.
    """
    if isinstance(environment, str):
        return _named(environment, host, dict(settings or {}))
    if settings:
        raise SadqError(
            f"settings {', '.join(settings)} were given for an environment object, expected them for a name only: make "
            "the object with them."
        )
    if isinstance(environment, AtariSpec):
        return cast(HostSpec, environment)  # whose part it plays, with games in the place of a maker
    if isinstance(environment, HostSpec):
        return environment
    if isinstance(environment, gymnasium.Env):
        name = _name_of(environment)
        return contract.describe(name, copies_of(name, environment))
    if isinstance(environment, gymnasium.vector.VectorEnv):
        return _from_factory(single_maker(environment), None, host)
    if not isinstance(environment, Environment):
        return _from_factory(environment, None, host)
    if host:
        raise SadqError(
            f"environment {environment.name} is native, expected a Gymnasium one for host=True: use NativeAsHost."
        )
    return environment


def _named(name: str, host: bool, settings: dict[str, Any]) -> Environment | HostSpec:
    if name.startswith(atari.PREFIX) and name not in _FACTORIES:
        games = AtariSpec.named(name, settings)
        games.check_playable()
        return make(games)
    if host or name.startswith(HOST_PREFIX):
        return _from_gymnasium(name.removeprefix(HOST_PREFIX), True, settings)
    if name in _FACTORIES:
        return _from_factory(functools.partial(_FACTORIES[name], **settings), name, host)
    if match := re.fullmatch(r"BitFlip-(\d+)", name):
        if "bits" in settings:
            raise SadqError(f"{name} was given bits = {settings['bits']!r} too: give a number of bits once.")
        return _from_factory(functools.partial(BitFlip, bits=int(match[1]), **settings), name, host)
    return _from_gymnasium(name, False, settings)


def _from_gymnasium(identifier: str, host: bool, settings: dict[str, Any]) -> Environment | HostSpec:
    build = functools.partial(gymnasium.make, identifier, disable_env_checker=True, **settings)
    try:
        made = contract.build(identifier, build)
    except SadqError as error:
        unknown = gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv
        if isinstance(error.__cause__, unknown) or type(error.__cause__) is gymnasium.error.Error:
            raise SadqError(f"unknown environment {identifier!r}, {_advice(identifier)}") from error.__cause__
        raise
    contract.close(identifier, made)
    assert made.spec is not None, "gymnasium.make gives every environment a specification"
    module, separator, _ = identifier.rpartition(":")
    name = module + separator + made.spec.id  # with the version, where the id came without
    if name in _FACTORIES and not host:
        return make(name, settings=settings)
    # Made from the specification, since a worker process may not know what was registered in this one.
    return contract.describe(_prefixed(name), functools.partial(gymnasium.make, made.spec, disable_env_checker=True))


def _advice(identifier: str) -> str:
    known = {name.lower(): name for name in list_environments(host=True)}
    close = [known[match] for match in difflib.get_close_matches(identifier.lower(), known, n=3)]
    near = atari.meant(identifier) or close
    if near:
        return f"expected a registered name: did you mean {' or '.join(near)}?"
    return "expected a registered name: list_environments(host=True) gives them all."


def _from_factory(factory: Any, name: str | None, host: bool) -> Environment | HostSpec:
    label = name or getattr(factory, "__name__", None) or repr(factory)
    if not callable(factory):
        raise SadqError(
            f"{factory!r} is no environment, expected a name, an Environment, a gymnasium.Env or a function without "
            "arguments that makes one: pass one of these."
        )
    if takes_a_number(factory):
        factory = functools.partial(factory, num_envs=1)
    try:
        made = factory()
    except Exception as error:
        raise SadqError(f"environment {label} could not be made: {contract.one_line(error)}") from error
    if isinstance(made, gymnasium.Env):
        contract.close(name or _name_of(made), made)
        return contract.describe(name or _name_of(made), factory)
    if isinstance(made, gymnasium.vector.VectorEnv):
        return _from_factory(single_maker(made, factory), name, host)
    if not isinstance(made, Environment):
        raise SadqError(
            f"environment {label} was made as a {type(made).__name__}, expected an Environment or a gymnasium.Env."
        )
    return make(made, host)


def _name_of(environment: gymnasium.Env) -> str:
    if environment.spec is None:
        inner: Any = environment.unwrapped
        return type(inner.environments.unwrapped if isinstance(inner, Alone) else inner).__name__
    return _prefixed(environment.spec.id)


def _prefixed(name: str) -> str:
    """A name that leads back to Gymnasium, also where the bare one is a registered environment's."""
    return HOST_PREFIX + name if name in _FACTORIES else name

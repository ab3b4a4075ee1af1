"""Environments: native ones in JAX, Gymnasium's on the host, how to name either; imports `types`, `keys` and `errors` only.

Names are imported when first used, so that a worker process, which needs none of JAX, does not wait for it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sadq.envs.base import Environment
    from sadq.envs.contract import HostSpec
    from sadq.envs.group import HostStep
    from sadq.envs.host import HostEnvironments, NativeAsHost
    from sadq.envs.native import Acrobot, BitFlip, CartPole
    from sadq.envs.registry import list_environments, make, register

__all__ = [
    "Acrobot",
    "BitFlip",
    "CartPole",
    "Environment",
    "HostEnvironments",
    "HostSpec",
    "HostStep",
    "NativeAsHost",
    "list_environments",
    "make",
    "register",
]

_HOMES = {
    "Environment": "base",
    "HostEnvironments": "host",
    "HostSpec": "contract",
    "HostStep": "group",
    "NativeAsHost": "host",
    "list_environments": "registry",
    "make": "registry",
    "register": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'native')}"), name)

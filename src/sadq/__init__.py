"""Value-based reinforcement learning in which how the TD target is formed is a swappable choice.

Names are loaded on first use, so that a worker process which only steps an environment never imports JAX. Importing the
package adds its environments to Gymnasium's, for instance `gymnasium.make("sadq/OCloud-v0")`.
"""

from typing import TYPE_CHECKING, Any

from sadq.envs import plugin as plugin

if TYPE_CHECKING:
    from sadq.api import SADQ
    from sadq.envs.base import Environment
    from sadq.envs.registry import register
    from sadq.errors import SadqError

__all__ = ["SADQ", "Environment", "SadqError", "register"]

_HOMES = {
    "SADQ": "sadq.api",
    "Environment": "sadq.envs.base",
    "SadqError": "sadq.errors",
    "register": "sadq.envs.registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sadq' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)

"""Value-based reinforcement learning in which how the TD target is formed is a swappable choice.

Names are loaded on first use, so that a worker process which only steps an environment never imports JAX, and asking for
help imports neither JAX nor Gymnasium. Once the package is imported its environments are among Gymnasium's, for instance
`gymnasium.make("sadq/OCloud-v0")`.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sadq.agents import AgentSpec, register_agent
    from sadq.api import SADQ
    from sadq.envs.base import Environment
    from sadq.envs.registry import register
    from sadq.errors import SadqError, SadqWarning
    from sadq.studies.compare import compare

__all__ = ["SADQ", "AgentSpec", "Environment", "SadqError", "SadqWarning", "compare", "register", "register_agent"]

_HOMES = {
    "SADQ": "sadq.api",
    "AgentSpec": "sadq.agents",
    "Environment": "sadq.envs.base",
    "SadqError": "sadq.errors",
    "SadqWarning": "sadq.errors",
    "compare": "sadq.studies.compare",
    "register": "sadq.envs.registry",
    "register_agent": "sadq.agents",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("sadq")
        except PackageNotFoundError:
            return "source"
    if name not in _HOMES:
        raise AttributeError(f"module 'sadq' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


class _AfterGymnasium:
    """Finds Gymnasium as the other finders do, and lets our environments be registered once it is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "gymnasium":
            return None
        finders = (finder for finder in sys.meta_path if finder is not self)
        spec = next((found for finder in finders if (found := finder.find_spec(name, path, target))), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: Any) -> None:
                execute(module)
                import_module("sadq.envs.plugin")

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    import_module("sadq.envs.plugin")
else:
    sys.meta_path.insert(0, _AfterGymnasium())

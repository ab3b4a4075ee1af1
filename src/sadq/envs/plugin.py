"""Our environments among Gymnasium's: `gymnasium.make("sadq/OCloud-v0")` once `sadq` has been imported.

`gymnasium.make_vec("sadq/CityFlow-v0", num_envs=16)` gives many that are stepped together, in one compiled program.

Importing this module registers names and loads nothing else: JAX is imported when an environment is made.
"""

from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from sadq.envs.as_gymnasium import NativeEnvironment
    from sadq.envs.as_gymnasium_vector import NativeVectorEnvironment

ENTRY_POINTS = {"sadq/CityFlow-v0": f"{__name__}:make_cityflow", "sadq/OCloud-v0": f"{__name__}:make_ocloud"}


def register_environments() -> None:
    """Add our environments to Gymnasium's registry; a second call changes nothing."""
    for identifier, entry_point in ENTRY_POINTS.items():
        if identifier not in gymnasium.registry:
            gymnasium.register(identifier, entry_point=entry_point, vector_entry_point=f"{entry_point}_vector")


def make_cityflow(**settings: Any) -> gymnasium.Env:
    """CityFlow as a gymnasium.Env; the settings are those of `sadq.envs.cityflow.environment.make`."""
    from sadq.envs.as_gymnasium import NativeEnvironment
    from sadq.envs.cityflow.environment import CityFlow, make

    made = make(**settings)
    return NativeEnvironment(made, low=0.0) if isinstance(made, CityFlow) else made


def make_cityflow_vector(num_envs: int = 1, **settings: Any) -> "NativeVectorEnvironment":
    """Many CityFlow environments as a gymnasium.vector.VectorEnv."""
    from sadq.envs.as_gymnasium_vector import NativeVectorEnvironment
    from sadq.envs.cityflow.environment import CityFlow, make
    from sadq.errors import SadqError

    if settings.get("engine", "native") != "native":
        raise SadqError(
            f"many environments are stepped together on the native engine only, not on engine={settings['engine']!r}: give "
            'vectorization_mode="sync" or "async" too.'
        )
    made = make(**settings)
    assert isinstance(made, CityFlow)
    return NativeVectorEnvironment(made, num_envs, low=0.0)


def make_ocloud_vector(num_envs: int = 1, **settings: Any) -> "NativeVectorEnvironment":
    """Many O-Cloud environments as a gymnasium.vector.VectorEnv."""
    from sadq.envs.as_gymnasium_vector import NativeVectorEnvironment
    from sadq.envs.ocloud import make

    return NativeVectorEnvironment(make(**settings), num_envs, low=0.0)


def make_ocloud(**settings: Any) -> "NativeEnvironment":
    """O-Cloud as a gymnasium.Env; the settings are those of `sadq.envs.ocloud.make`."""
    from sadq.envs.as_gymnasium import NativeEnvironment
    from sadq.envs.ocloud import make

    return NativeEnvironment(make(**settings), low=0.0)


register_environments()
